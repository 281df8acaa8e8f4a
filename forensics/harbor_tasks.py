"""Folders of Harbor tasks as tasks of a world that a harness plays.

A task is a folder with `task.toml` and `instruction.md`, beside them `environment/`, `tests/` and
`solution/`; its name is its path below the folder that is given (below `tasks/` in it, where there
is one). Its split is `split` of `[metadata]` in `task.toml`, else `held-out`.

A scrubbed world is a second folder of the same tasks, or the same ones with an *overlay* copied
over: what lies in the overlay under a task's name goes over that task, everything else over each.
The job has to stay the same, so `compare_folders` refuses nothing and says which files differ, and
by name where instruction or tests do.

Harbor itself runs containers and is not needed here: folders are read, rewards are read.
"""

import hashlib
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import Any, Final

from forensics.errors import UserError
from forensics.records import content_hash
from forensics.records.given_files import address, parse_json, parse_toml, read_text
from forensics.records.trajectory import differing, outcome_of
from forensics.world import require_split

PARTS: Final = ("task.toml", "instruction.md", "environment", "tests", "solution")
CURE: Final = "give a folder of Harbor tasks, each a folder with task.toml and instruction.md"


@dataclass(frozen=True)
class HarborTask:
    """One task. `folder`: where it lies, no part of its identity."""

    id: str
    folder: Path
    split: str

    @property
    def prompt(self) -> str:
        """The instruction, as it stands in the file."""
        return read_text(self.folder / "instruction.md", "", CURE)

    @cached_property
    def files(self) -> Mapping[str, str]:
        """A hash of each file by its path in the task; of a link, where it leads."""
        found = sorted(
            path for path in self.folder.rglob("*") if path.is_symlink() or path.is_file()
        )
        return {path.relative_to(self.folder).as_posix(): _hash(path) for path in found}

    @property
    def content(self) -> str:
        """The identity of the task: every file with its path, whether it can be run, no times."""
        return content_hash(dict(self.files))


def harbor_tasks(folder: Path) -> tuple[HarborTask, ...]:
    """The tasks below a folder, by name. Raises `UserError` where there is none, and for a task
    that cannot be played.
    """
    if not folder.is_dir():
        raise UserError(f"{address(folder) or folder} is no folder on this machine; {CURE}")
    base = folder / "tasks" if (folder / "tasks").is_dir() else folder
    places = sorted(path.parent for path in base.rglob("task.toml"))
    whole = [place for place in places if not any(one in place.parents for one in places)]
    if not whole or whole == [base]:
        beside = "; give the folder above it" if whole else ""
        raise UserError(f"{folder} holds no folders with a task.toml{beside or f'; {CURE}'}")
    return tuple(_task(place, base) for place in whole)


def _task(place: Path, base: Path) -> HarborTask:
    name = place.relative_to(base).as_posix()
    if not (place / "instruction.md").is_file():
        raise UserError(
            f"the task {name} has no instruction.md (tasks of several steps are not read); add it"
        )
    try:
        stated = parse_toml(read_text(place / "task.toml", "", CURE)).get("metadata", {})
        split = stated.get("split", "held-out") if isinstance(stated, dict) else "held-out"
        require_split(split)
    except ValueError as error:
        raise UserError(
            f"task.toml of the task {name} cannot be used ({error}); mend it"
        ) from error
    return HarborTask(name, place, split)


def _hash(path: Path) -> str:
    if path.is_symlink():
        return f"link {path.readlink()}"
    with path.open("rb") as file:
        runs = "x" if path.stat().st_mode & 0o100 else "-"
        return f"{runs} {hashlib.file_digest(file, 'sha256').hexdigest()}"


# -- the scrubbed twin -----------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class FolderDifference:
    """What the twin of a task has otherwise: paths of files, sorted."""

    task: str
    changed: tuple[str, ...]
    added: tuple[str, ...]
    gone: tuple[str, ...]

    @property
    def job(self) -> tuple[str, ...]:
        """Those that belong to the job itself: the instruction, the tests, the settings."""
        every = (*self.changed, *self.added, *self.gone)
        return tuple(sorted(path for path in every if path.split("/")[0] in PARTS[:2] + PARTS[3:4]))


def compare_folders(open_folder: Path, scrubbed: Path) -> tuple[FolderDifference, ...]:
    """What differs between each task and its twin. Raises `UserError` where the names of the tasks
    differ.
    """
    there, here = ({one.id: one for one in harbor_tasks(one)} for one in (open_folder, scrubbed))
    if unpaired := sorted(there.keys() ^ here.keys()):
        where = open_folder if unpaired[0] in there else scrubbed
        raise UserError(
            f"the task {unpaired[0]} is in {where} alone; give both folders the same tasks"
        )
    return tuple(_difference(name, there[name].files, here[name].files) for name in there)


def _difference(name: str, there: Mapping[str, str], here: Mapping[str, str]) -> FolderDifference:
    return FolderDifference(
        task=name,
        changed=tuple(
            sorted(path for path in there.keys() & here.keys() if there[path] != here[path])
        ),
        added=tuple(sorted(here.keys() - there.keys())),
        gone=tuple(sorted(there.keys() - here.keys())),
    )


def difference_sentences(found: tuple[FolderDifference, ...]) -> tuple[str, ...]:
    """What a reader should know of a twin: first what is not fair, in one sentence each."""
    odd = [one for one in found if one.job]
    same = [one.task for one in found if not (one.changed or one.added or one.gone)]
    told = [
        f"the twin of {one.task} changes the job itself ({', '.join(one.job)}); leave instruction,"
        " settings and tests as they are, and scrub environment/ alone"
        for one in odd
    ]
    if same:
        told.append(f"nothing was taken out of {len(same)} of {len(found)} tasks, first {same[0]}")
    paths = sorted({path for one in found for path in (*one.changed, *one.added, *one.gone)})
    return (*told, f"{len(paths)} files differ: {', '.join(paths[:10])}") if paths else tuple(told)


def overlaid(folder: Path, overlay: Path, out: Path) -> Path:
    """A copy of the tasks in `out`, a new folder, with the files of an overlay put over them.
    Raises `UserError` for a part of the overlay that belongs nowhere.
    """
    tasks = harbor_tasks(folder)
    if not overlay.is_dir():
        raise UserError(f"{overlay} is no folder; give the files to copy over the tasks")
    if out.exists():
        raise UserError(f"{out} exists already; name a new folder for the scrubbed tasks")
    own = {one.id: overlay / one.id for one in tasks if (overlay / one.id).is_dir()}
    roots = {name.split("/")[0] for name in own}
    every = [path for path in sorted(overlay.iterdir()) if path.name not in roots]
    if strange := [path.name for path in every if path.name not in PARTS]:
        raise UserError(
            f"{strange[0]} in the overlay is neither a task nor a part of each task"
            f" ({', '.join(PARTS)}); rename it"
        )
    for one in tasks:
        shutil.copytree(one.folder, out / one.id, symlinks=True)
        for path in [*every, *(own[one.id].iterdir() if one.id in own else ())]:
            lay_over(path, out / one.id / path.name)
    return out


def lay_over(path: Path, place: Path) -> None:
    """A file or a folder of an overlay over what lies at `place`. A git folder takes the place of
    the one there: merged, its refs and objects would stay in reach.
    """
    if not path.is_dir():
        shutil.copy2(path, place, follow_symlinks=False)
        return
    for own in path.rglob(".git"):
        there = place / own.relative_to(path)
        if there.is_dir() and not there.is_symlink():
            shutil.rmtree(there)
        elif there.exists() or there.is_symlink():
            there.unlink()
    shutil.copytree(path, place, symlinks=True, dirs_exist_ok=True)


# -- what came of a run ----------------------------------------------------------------


def read_reward(logs: Path) -> tuple[float | None, dict[str, float | None]]:
    """Outcome and named rewards that the tests left in `logs/verifier` (`reward.json`, else
    `reward.txt`); the outcome is `reward`, or the only number. None where they left none: a
    missing outcome is never 0. Where both are there and differ, what each says stands among the
    rewards (`differing`). Raises `UserError` for what is no number.
    """
    records = reward_records(logs)
    first = next(iter(records.values()), {})
    return outcome_of(first), {**first, **differing(records)}


def reward_records(logs: Path) -> dict[str, dict[str, float | None]]:
    """The named rewards of each file that the tests left, the one that counts first. Raises
    `UserError` where that one holds no number; another one that holds none is no record.
    """
    found: dict[str, dict[str, float | None]] = {}
    for name in ("verifier/reward.json", "verifier/reward.txt"):
        if (path := logs / name).is_file():
            with suppress(*([UserError] if found else [])):
                found[name] = _rewards(read_text(path, "", "mend the tests").strip(), path)
    return found


def _rewards(text: str, path: Path) -> dict[str, float | None]:
    try:
        value: Any = parse_json(text) if path.suffix == ".json" else {"reward": float(text)}
        found = {str(key): None if one is None else float(one) for key, one in value.items()}
        if not all(one is None or isfinite(one) for one in found.values()):
            raise ValueError
        return found
    except (ValueError, TypeError, AttributeError, OverflowError):
        raise UserError(
            f"{path.name} holds {text[:60]!r}, which is no reward; write a number, or an object of"
            " numbers in reward.json"
        ) from None
