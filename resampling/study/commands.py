"""The commands `cliffs` and `resample`. Light at import."""

from pathlib import Path
from typing import Annotated, Any

import typer

from forensics.cli import Backend, Device, Json, Run, Seed, say, say_json, study_command
from resampling.study.cliff_settings import Choice, Sought, Source

Logs = Annotated[
    Path, typer.Argument(metavar="LOGS", help="A case folder, a Parquet file, or a folder of them.")
]


@study_command
def cliffs(
    logs: Logs,
    source: Source,
    choice: Choice,
    sought: Sought,
    settings: Any = None,
    *,
    run: Run,
) -> None:
    """At which tokens were these runs lost? Confirmed by sampling again, with
    an error guarantee.

    Writes cliffs.jsonl, cliffs.html, potentials.parquet, delete_keep.jsonl and
    pairs.jsonl.
    """
    from resampling.study.cliff_run import CliffRun, RunsRequest

    how: dict[str, Any] = {"seed": run.seed, "device": run.device, "backend": run.backend}
    request = RunsRequest(logs=logs, source=source, settings=settings, **how)
    run.carry_out(CliffRun(request=request, choice=choice, sought=sought))


@study_command
def resample(
    logs: Logs,
    at: Annotated[
        list[str],
        typer.Option(
            "--at",
            metavar="TRAJECTORY:TOKEN",
            help=(
                "A sampled token of a run, counted from 0; the first letters of its id do. May be"
                " repeated."
            ),
        ),
    ],
    source: Source,
    rollouts: Annotated[
        int, typer.Option("--rollouts", "-n", min=1, help="Continuations of each arm.")
    ] = 64,
    seed: Seed = 0,
    settings: Any = None,
    device: Device = "auto",
    backend: Backend = "huggingface",
    as_json: Json = False,
) -> None:
    """Does this token decide? Cut a run before it, after it, or put others
    there, and sample afresh.

    The replay of what `forensics cliffs` reports, by anyone, with other random
    numbers.
    """
    from resampling.study.cliff_run import RunsRequest, parse_places
    from resampling.study.delete_keep import replay_tokens

    places = parse_places(at)
    how: dict[str, Any] = {"seed": seed, "device": device, "backend": backend}
    request = RunsRequest(logs=logs, source=source, settings=settings, **how)
    opened = request.open(Choice(only=[name for name, _ in places]))
    wanted = [
        (next(t for t in opened.traces if t.id.startswith(name)), token) for name, token in places
    ]
    found = replay_tokens(wanted, opened.sampler, rollouts)
    if as_json:
        say_json({"tokens": [one.row() for one in found]})
        return
    for (trace, token), one in zip(wanted, found, strict=True):
        _say_replayed(opened.token_text(trace.tokens[token]), one)


def _say_replayed(text: str, one: Any) -> None:
    from forensics.report import percent, plain

    def told(arm: Any) -> str:
        if arm is None:
            return "no other token can be drawn"
        if arm.share is None:
            return f"none of {arm.missing} came back"
        lost = f", {arm.missing} missing" if arm.missing else ""
        ends = f"{percent(arm.share.low)} to {percent(arm.share.high)}"
        return f"{arm.successes} of {arm.share.n:g} succeed ({ends}){lost}"

    say(
        f"{one.trace} token {one.token} {text!r}, drawn with probability {percent(one.probability)}"
    )
    say(f"  cut before it:   {told(one.deleted)}")
    say(f"  kept:            {told(one.kept)}")
    say(f"  another instead: {told(one.others)}")
    if one.restored is not None:
        restored, low, high = (plain(100 * end, 1, plus=True) for end in one.restored.ends)
        say(f"  deleting it restores {restored} points ({low} to {high})")
