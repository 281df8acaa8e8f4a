"""The command `watch`. Light at import."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from forensics.cli import (
    Before,
    Device,
    EnvOptions,
    Force,
    Json,
    RecordedTraining,
    TrainedTasks,
    parse_options,
    say,
    say_json,
    study_command,
    tell,
)

LARGEST_SEED = 2**32 - 1
INTERRUPTED = 130
NONE = "None lies below the folder: config.json and model.safetensors, shards, or an adapter."


@dataclass(frozen=True, kw_only=True)
class Ends:
    """When a watch ends, and how often it looks."""

    once: Annotated[bool, typer.Option("--once", help="Audit what is there, and end.")] = False
    until_step: Annotated[
        int | None, typer.Option(min=0, help="End with the first checkpoint of this step or more.")
    ] = None
    idle_minutes: Annotated[
        float | None, typer.Option(min=0, help="End after so long without a new checkpoint.")
    ] = None
    poll: Annotated[float, typer.Option(min=0.01, help="Seconds between two looks.")] = 10.0

    def until(self) -> Any:
        from training.live.watcher import Until

        idle = None if self.idle_minutes is None else 60 * self.idle_minutes
        return Until(once=self.once, step=self.until_step, idle=idle, poll=self.poll)


@dataclass(frozen=True, kw_only=True)
class Audits:
    """The options of `AuditSettings`."""

    every: Annotated[
        int, typer.Option(help="Audit the steps that this divides, and the last one.")
    ] = 1
    tasks: Annotated[int, typer.Option(help="Held-out tasks of an audit.")] = 80
    samples: Annotated[int, typer.Option(help="Episodes of each, in each world.")] = 1
    instruments: Annotated[
        str, typer.Option(metavar="NAMES", help="What an audit measures with.")
    ] = "behaviour,score"
    margin: Annotated[
        float, typer.Option(help="Phantom part (score difference) that raises an alarm.")
    ] = 0.02
    ceiling: Annotated[
        float, typer.Option(help="Phantom part that a promotable checkpoint may have at most.")
    ] = 0.25

    def chosen(self) -> Any:
        from training.live import AuditSettings

        names = tuple(name.strip() for name in self.instruments.split(",") if name.strip())
        return AuditSettings(**vars(self) | {"instruments": names})


@study_command
def watch(
    runs: Annotated[
        Path, typer.Argument(metavar="OUT", help="The folder that the trainer writes.")
    ],
    before: Before,
    env: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The installed environment.  [default: that of the run, else of the base]",
        ),
    ] = None,
    env_option: EnvOptions = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The folder to write.  [default: OUT/watch]"),
    ] = None,
    *,
    ends: Ends,
    audits: Audits,
    settings: Any = None,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=LARGEST_SEED,
            help="Seed of every random stream.  [default: that of the run, else 0]",
        ),
    ] = None,
    device: Device = "auto",
    dtype: Annotated[
        str | None,
        typer.Option(help="Precision to play in.  [default: that of the saved weights]"),
    ] = None,
    training: RecordedTraining = None,
    trained_tasks: TrainedTasks = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Audit the checkpoints of any trainer as they appear, in a process of its own.

    Exits with 0 if the last checkpoint is promotable, with 1 if it is not, is broken or
    half written. The same command goes on where it was; Ctrl-C ends it at any time.
    """
    from forensics.cli import progress_bars
    from training.live import watch_of

    how: dict[str, Any] = {"folder": out, "seed": seed, "device": device, "dtype": dtype}
    how |= {"training": training, "trained_tasks": trained_tasks}
    how |= {"settings": audits.chosen(), "sampling": settings, "until": ends.until()}
    options = parse_options(env_option)
    with (
        progress_bars() as progress,
        watch_of(runs, before, env, options, force=force, progress=progress, **how) as watcher,
    ):
        watcher.say = tell if as_json else say
        raise typer.Exit(_watched(watcher, as_json))


def _watched(watcher: Any, as_json: bool) -> int:
    """Watch until the end, and say what became of the last one; the exit code."""
    from training.live.run_page import PAGE, title_of

    try:
        last = watcher.watch()
    except KeyboardInterrupt:
        tell("Interrupted; the same command goes on.")
        return INTERRUPTED
    passes = last is not None and last.promotable
    if as_json:
        told = last and last.model_dump(mode="json")
        say_json({"promotable": passes, "last": told, "watch": str(watcher.folder)})
    else:
        seen = " ".join(f"{one.checkpoint}: {one.reason}" for one in watcher.marks.values())
        say(f"{title_of(last)}. {last.reason if last else seen or NONE}")
        say(f"Page: {watcher.folder / PAGE}")
    return 0 if passes else 1
