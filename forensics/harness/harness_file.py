"""`harness.toml`: how somebody else's agent is run, on which tasks, and what scrubs its shortcuts.

Every path in it is below the file's own folder, or absolute; the command runs in that folder.

Its tasks are lines of JSON, or a folder of task folders as Harbor has them.
"""

import hashlib
import shutil
import string
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from forensics.errors import UserError
from forensics.harbor_tasks import PARTS, harbor_tasks, lay_over
from forensics.protocols import Channel
from forensics.records import content_hash
from forensics.records.given_files import address, parse_json, parse_toml, read_text
from forensics.records.record import Record, Texts, first_error
from forensics.world import SPLITS, PlayedElsewhere

TASKS_CURE: Final = (
    "give a file with one JSON object a line (id, split, prompt), or a folder of tasks"
)


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
        raise UserError(f"{path} holds no task; {TASKS_CURE}")
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
    lines = read_text(path, "the tasks ", TASKS_CURE).splitlines()
    return [
        _task(f"line {number} of {path}", line)
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]


def _task(where: str, line: str) -> HarnessTask:
    try:
        row = parse_json(line)
    except ValueError as error:
        raise UserError(f"{where} is no JSON ({error}); {TASKS_CURE}") from None
    name = row.get("id") if isinstance(row, dict) else None
    if not isinstance(name, str | int) or isinstance(name, bool) or name == "":
        raise UserError(f"{where} is no object with an `id`; {TASKS_CURE}")
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


Name = Annotated[str, Field(pattern=r"^[\w-][\w.-]{0,59}$")]  # of files, too


def _listed(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


Words = Annotated[Texts, BeforeValidator(_listed)]


class HarnessChannel(Record):
    """A shortcut of the agent's world. `kinds`: of actions that try it; `families`: of the scan,
    which tell from a run who tried it and what was shown. What scrubs it: `option` (put behind
    the command), `environment` (variables), `tasks` (a scrubbed twin of the tasks), `overlay` (a
    folder copied over a copy of the task's own). `cheat`: a command in the agent's place that wins
    by it alone (`forensics twin`).
    """

    name: Name
    family: Literal["disclosure", "tampering"] = "disclosure"
    description: str = ""
    kinds: Words = ()
    families: Words = ()
    option: Words = ()
    environment: dict[Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")], str] = {}
    tasks: str | None = None
    overlay: str | None = None
    honest_reward: str | None = None
    bent_reward: str | None = None
    cheat: Texts = ()

    @property
    def scrubs(self) -> bool:
        """Whether anything takes it out."""
        return bool(self.option or self.environment or self.tasks or self.overlay)

    @property
    def channel(self) -> Channel:
        """As a case knows it. Where no family tells what was shown, no mark says nothing."""
        return Channel(
            name=self.name,
            family=self.family,
            attempts=self.kinds,
            description=self.description,
            honest_reward=self.honest_reward,
            bent_reward=self.bent_reward,
            marked=bool(self.families),
        )


def _below_out(value: str) -> str:
    if not value or Path(value).is_absolute() or ".." in Path(value).parts:
        raise ValueError("it is a file below {out}, such as result.json")
    return value


class HarnessTable(Record):
    """The file. `result`: the JSON that the command leaves below `{out}`. `seconds`: the time-out
    of an episode. `passes`: names of our environment variables that the command may see.
    `needed`: kinds of action that an honest solver needs. `honest`, `bystander`: commands in the
    agent's place that check the scrubbed twins (`forensics.twin_check`).
    """

    name: Name
    command: Annotated[Texts, Field(min_length=1)]
    tasks: str
    channels: tuple[HarnessChannel, ...] = ()
    result: Annotated[str, AfterValidator(_below_out)] = "result.json"
    at_once: Annotated[int, Field(ge=1, le=1024)] = 4
    seconds: Annotated[float, Field(gt=0)] = 1800.0
    passes: Texts = ()
    needed: Texts | None = None
    honest: Texts = ()
    bystander: Texts = ()


@dataclass(frozen=True, kw_only=True)
class Harness:
    """A harness that was read. `twins`: the tasks of each channel that a tasks file scrubs."""

    table: HarnessTable
    folder: Path
    tasks: Mapping[str, HarnessTask]
    twins: Mapping[str, Mapping[str, HarnessTask]]

    @property
    def channels(self) -> Mapping[str, HarnessChannel]:
        """By name."""
        return {one.name: one for one in self.table.channels}

    @cached_property
    def identity(self) -> dict[str, str]:
        """Hashes of all that can change an episode: what the file says, tasks, twins, overlays,
        and the files beside it that the command names. No path, not how many run at once.
        """
        said = self.table.model_dump(mode="json", exclude=NO_IDENTITY)
        named = [self.folder / word for word in self.table.command if len(word) < 200]
        return {
            "harness": content_hash(said),
            "command files": content_hash([tree_hash(one) for one in named if one.is_file()]),
            "tasks": content_hash([one.content for one in self.tasks.values()]),
            "scrubbing": content_hash(
                [
                    {name: [t.content for t in twin.values()] for name, twin in self.twins.items()},
                    [tree_hash(self.folder / c.overlay) for c in self.table.channels if c.overlay],
                ]
            ),
        }


class HarnessWorld(PlayedElsewhere):
    """`needed` is there where `harness.toml` names what an honest solver needs."""

    def __init__(self, harness: Harness) -> None:
        of_split = {
            split: [task.name for task in harness.tasks.values() if task.split == split]
            for split in SPLITS
        }
        channels: list[Channel] = [one.channel for one in harness.table.channels]
        super().__init__(harness.table.name, of_split, channels, harness.identity)
        self.harness = harness
        if harness.table.needed is not None:
            self.needed = harness.table.needed

    def task(self, name: str) -> HarnessTask:
        """A task as it is in this world: its scrubbed twin where one stands for it."""
        for channel in self.scrubbed:
            if twins := self.harness.twins.get(channel):
                return twins[name]
        return self.harness.tasks[name]

    @property
    def taken_out(self) -> Iterator[HarnessChannel]:
        """The channels that are scrubbed, as the harness knows them."""
        return (self.harness.channels[name] for name in self.scrubbed)

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables that scrub this world."""
        return {key: text for one in self.taken_out for key, text in one.environment.items()}

    def command(self, task: HarnessTask, seed: int, out: Path, folder: Path | None) -> list[str]:
        """The argv of an episode."""
        filled = dict(task.fields) | {
            "task": task.name,
            "seed": str(seed),
            "without": ",".join(self.scrubbed),
            "out": str(out),
            "prompt": task.prompt or "",
            "task_dir": str(folder or ""),
            "python": sys.executable,
        }
        try:
            words = [word.format_map(filled) for word in self.harness.table.command]
        except (KeyError, ValueError) as error:
            raise UserError(
                f"the task {task.name} of {self.name} has no {error} for the command; add it"
            ) from None
        return [*words, *(word for one in self.taken_out for word in one.option)]

    def lay_out(self, task: HarnessTask, place: Path) -> Path | None:
        """A copy of the task's folder, scrubbed; `None` where tasks are no folders."""
        if task.folder is None:
            return None
        shutil.copytree(task.folder, place, symlinks=True)
        for one in self.taken_out:
            if one.overlay:
                self._lay_over(self.harness.folder / one.overlay, task, place)
        return place

    @staticmethod
    def _lay_over(overlay: Path, task: HarnessTask, place: Path) -> None:
        """Parts of a task go over every task, what lies under a task's name over that one alone."""
        own = overlay / task.name
        parts = [overlay / name for name in PARTS] + (sorted(own.iterdir()) if own.is_dir() else [])
        for part in parts:
            if part.exists():
                lay_over(part, place / part.name)


CURE: Final = "give a harness.toml (docs/your-own-agent.md)"
NO_IDENTITY: Final[Any] = {
    **dict.fromkeys(("at_once", "tasks", "honest", "bystander"), True),
    "channels": {"__all__": {"cheat"}},
}
PLACEHOLDERS: Final = ("task", "seed", "without", "out", "prompt", "task_dir", "python")


def read_harness(path: Path) -> Harness:
    """What a `harness.toml` says, with its tasks. Raises `UserError` for what cannot be meant."""
    text = read_text(path, "the harness ", CURE)
    try:
        table = HarnessTable.model_validate(parse_toml(text))
    except ValidationError as error:
        raise UserError(f"the harness {path} {_amiss(error)}; {CURE}") from None
    except ValueError as error:
        raise UserError(f"the harness {path} is not valid TOML: {error}; mend it") from None
    folder = path.parent
    tasks = tasks_of(_below(folder, table.tasks))
    twins = {one.name: tasks_of(_below(folder, one.tasks)) for one in table.channels if one.tasks}
    harness = Harness(table=table, folder=folder.resolve(), tasks=tasks, twins=twins)
    _require_scrubbing(path, harness)
    _require_placeholders(path, harness)
    return harness


def _below(folder: Path, place: str) -> Path:
    """A place in the harness's folder; an address stays one, to be told as such."""
    return Path(place) if address(Path(place)) else folder / Path(place).expanduser()


def _amiss(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    if first["type"] != "extra_forbidden":
        return f"is not right: {first_error(error)}"
    *within, key = map(str, first["loc"])
    known = (HarnessChannel if within else HarnessTable).model_fields
    return f"has the unknown key '{key}'; known there: {', '.join(known)}"


def _require_scrubbing(path: Path, harness: Harness) -> None:
    channels, names = harness.table.channels, list(harness.channels)
    if len(names) < len(channels):
        raise UserError(f"the harness {path} names a channel twice; give each a name of its own")
    for one in channels:
        if not one.scrubs and not any("{without}" in word for word in harness.table.command):
            raise UserError(
                f"nothing scrubs the channel {one.name} of {path}; give it option, environment,"
                " tasks or overlay, or write {without} into the command"
            )
        if one.overlay and any(task.folder is None for task in harness.tasks.values()):
            raise UserError(
                f"the channel {one.name} of {path} is scrubbed by an overlay, and its tasks are no"
                " folders; give it tasks, an option or an environment"
            )
        if one.overlay and not (path.parent / one.overlay).is_dir():
            raise UserError(f"{path.parent / one.overlay} is no folder; give that of the overlay")
        twins = harness.twins.get(one.name, harness.tasks)
        if missing := [name for name in harness.tasks if name not in twins]:
            raise UserError(
                f"the scrubbed tasks of {one.name} lack {missing[0]}; give each task its twin under"
                " the same id"
            )
    if len(harness.twins) > 1:
        raise UserError(
            f"the channels {' and '.join(harness.twins)} of {path} are each scrubbed by tasks of"
            " their own, so they cannot be scrubbed together; scrub all but one in another way"
        )


def _require_placeholders(path: Path, harness: Harness) -> None:
    known = {*PLACEHOLDERS, *(key for task in harness.tasks.values() for key in task.fields)}
    for word in harness.table.command:
        try:
            parts = [part for part in string.Formatter().parse(word) if part[1] is not None]
        except ValueError as error:
            raise UserError(
                f"the command of {path} is not right at '{word}' ({error}); write {{{{ for a brace"
            ) from None
        if any(form or conversion for _, _, form, conversion in parts):
            raise UserError(
                f"the command of {path} is not right at '{word}'; write a placeholder as {{task}},"
                " with nothing behind its name"
            )
        names = {str(name) for _, name, _, _ in parts}
        if unknown := sorted(names - known):
            raise UserError(
                f"the command of {path} has the placeholder {{{unknown[0]}}}, which no task fills;"
                f" there are: {', '.join(sorted(known))}"
            )
    if any("{task_dir}" in word for word in harness.table.command) and any(
        task.folder is None for task in harness.tasks.values()
    ):
        raise UserError(f"the tasks of {path} are no folders, so {{task_dir}} has no meaning")
