"""What a watch is started with, checked, and the folder that it writes.

The folder states what identifies the watch (hashes and settings, no paths) in
`watch-inputs.json`; one that holds a watch is gone on with, by the same inputs alone.
What is not given is taken from the run, where our trainer says it (`training.json`), or
from the base's `environment.json`.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from forensics.errors import UserError
from forensics.investigation import choose_environment, read_task_list, stated_run
from forensics.policies import (
    inspect_checkpoint,
    require_loadable,
    resolve_device,
)
from forensics.progress import Progress, silent
from forensics.protocols import Environment, SamplingSettings
from forensics.readers import open_record
from forensics.study import Folder, hold
from forensics.world import environment_key
from training.live.audit_report import LINES, AuditSettings
from training.live.auditor import Auditor
from training.live.marks import MARKS
from training.live.trained_questions import UNKNOWN, TrainedOn
from training.live.watcher import Until, WatchedRun, Watcher

NAME: Final = "watch"
FILES: Final = ("audits", LINES, MARKS)
TYPES: Final = ("float32", "bfloat16", "float16", "float64")


@contextmanager
def watch_of(
    out: Path,
    before: Path,
    environment: str | None = None,
    options: Mapping[str, str] | None = None,
    *,
    folder: Path | None = None,
    settings: AuditSettings | None = None,
    sampling: SamplingSettings | None = None,
    seed: int | None = None,
    until: Until | None = None,
    device: str = "auto",
    dtype: str | None = None,
    training: Path | None = None,
    trained_tasks: Path | None = None,
    force: bool = False,
    progress: Progress = silent,
) -> Iterator[Watcher]:
    """A watch of the checkpoints that a trainer leaves below `out`, begun with `before`,
    in the world `environment`; it writes `folder` (default: `out/watch`), which is held as
    long as the block runs. `training`, `trained_tasks`: the folder of the training's record,
    and a file of its tasks, to tell whether audits ask questions of that kind. Raises
    `UserError` for bad input, or a folder of another watch.
    """
    if not out.is_dir():
        raise UserError(
            f"{out} is no folder; give the one that the trainer writes checkpoints to, or make it"
            " if the trainer has not"
        )
    if dtype is not None and dtype not in TYPES:
        raise UserError(f"--dtype is '{dtype}' and must be one of {', '.join(TYPES)}")
    said = stated_run(out) or {}
    world = _world(before, environment, options or {}, said)
    own, settings = folder or out / NAME, settings or AuditSettings(every=1)
    seed = int(said.get("seed", 0)) if seed is None else seed
    listed = () if trained_tasks is None else read_task_list(trained_tasks)
    known = TrainedOn(
        listed=tuple(line for line in listed if len(line.split()) > 1),  # a name tells nothing
        record=out if training is None else open_record(training).folder,
        world=_trained_world(before, said),
    )
    place = resolve_device(device)
    run = WatchedRun(out=out, base=before, device=place, dtype=dtype, trained_on=known)
    base = inspect_checkpoint(before, progress=progress)
    require_loadable(before)
    auditor = Auditor(
        folder=own,
        environment=world,
        sampling=sampling or SamplingSettings(),
        settings=settings,
        seed=seed,
        doubt=UNKNOWN,
        progress=progress,
    )
    inputs = {
        "the base": base.identity,
        "the environment": {"name": world.name, "key": environment_key(world)},
        "the budget": auditor.budget.content(),
        "the instruments": list(settings.instruments),
        "margin and ceiling": [settings.margin, settings.ceiling],
        "the seed": seed,
        "the dtype": dtype,
    }
    begun = own.is_dir() and any(own.iterdir())
    with hold(Folder(own, NAME, FILES, resume=begun and not force, force=force)) as held:
        held.state(inputs)
        yield Watcher(run=run, auditor=auditor, until=until or Until(), progress=progress)


def _world(
    before: Path, environment: str | None, options: Mapping[str, str], said: Mapping[str, Any]
) -> Environment:
    """The world by name, or that of the run, or that of the base."""
    told = said.get("recipe", {}).get("environment", {})
    if told and environment in (None, told["name"]):
        environment, options = told["name"], {**told["options"], **options}
    return choose_environment(before, environment, options)[0]


def _trained_world(before: Path, said: Mapping[str, Any]) -> Environment | None:
    """The world that the run trains in, else that of the base; `None` where none is named."""
    with suppress(UserError):
        return _world(before, None, {}, said)
    return None
