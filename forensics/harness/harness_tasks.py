"""The tasks of a harness: lines of JSON, or a folder of task folders as Harbor has them."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from forensics.errors import UserError
from forensics.harbor_tasks import harbor_tasks
from forensics.records.given_files import parse_json, read_text
from forensics.world import SPLITS

CURE: Final = "give a file with one JSON object a line (id, split, prompt), or a folder of tasks"


@dataclass(frozen=True, kw_only=True)
class HarnessTask:
    """One task. `folder`: where it lies, for tasks that are folders. `fields`: whatever else its
    line says, for placeholders of the command.
    """

    name: str
    split: str = "held-out"
    prompt: str | None = None
    folder: Path | None = None
    fields: Mapping[str, str] = field(default_factory=dict)

    @property
    def content(self) -> list[Any]:
        """What can change an episode of it; no path."""
        tree = tree_hash(self.folder) if self.folder else None
        return [self.name, self.split, self.prompt, dict(self.fields), tree]


def tasks_of(path: Path) -> dict[str, HarnessTask]:
    """The tasks that a path names, by name, in order. Raises `UserError` where there is none."""
    found = _folders(path) if path.is_dir() else _lines(path)
    if not found:
        raise UserError(f"{path} holds no task; {CURE}")
    tasks = {task.name: task for task in found}
    if len(tasks) < len(found):
        names = [task.name for task in found]
        twice = next(name for name in names if names.count(name) > 1)
        raise UserError(f"{path} names the task {twice} twice; give each an id of its own")
    return tasks


def _folders(path: Path) -> list[HarnessTask]:
    return [
        HarnessTask(name=one.id, split=one.split, prompt=one.prompt, folder=one.folder)
        for one in harbor_tasks(path)
    ]


def _lines(path: Path) -> list[HarnessTask]:
    lines = read_text(path, "the tasks ", CURE).splitlines()
    return [
        _task(f"line {number} of {path}", line)
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]


def _task(where: str, line: str) -> HarnessTask:
    try:
        row = parse_json(line)
    except ValueError as error:
        raise UserError(f"{where} is no JSON ({error}); {CURE}") from None
    name = row.get("id") if isinstance(row, dict) else None
    if not isinstance(name, str | int) or isinstance(name, bool) or name == "":
        raise UserError(f"{where} is no object with an `id`; {CURE}")
    prompt, split = row.get("prompt"), row.get("split", "held-out")
    if not isinstance(prompt, str | None) or split not in SPLITS:
        raise UserError(
            f"{where} needs a text as `prompt`, if any, and one of {', '.join(SPLITS)} as `split`"
        )
    others = {key: value for key, value in row.items() if key not in ("id", "split", "prompt")}
    fields = {key: str(one) for key, one in others.items() if isinstance(one, str | int | float)}
    return HarnessTask(name=str(row["id"]), split=split, prompt=prompt, fields=fields)


def tree_hash(place: Path) -> str:
    """A hash of the files below a folder (or of one file): names below it and bytes."""
    digest = hashlib.blake2b(digest_size=16)
    for file in sorted(place.rglob("*")) if place.is_dir() else [place]:
        if file.is_symlink() or not file.is_file():
            continue
        content = hashlib.blake2b(file.read_bytes(), digest_size=16).hexdigest()
        name = str(file.relative_to(place)) if file != place else ""
        digest.update(f"{name}\0{content}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()
