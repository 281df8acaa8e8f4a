"""`harness.toml`: how somebody else's agent is run, on which tasks, and what scrubs its shortcuts.

Every path in it is below the file's own folder, or absolute; the command runs in that folder.
"""

import string
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from forensics.errors import UserError
from forensics.harness.harness_tasks import HarnessTask, tasks_of, tree_hash
from forensics.protocols import Channel
from forensics.records import content_hash
from forensics.records.given_files import address, parse_toml, read_text
from forensics.records.record import Record, Texts, first_error

CURE: Final = "give a harness.toml (docs/your-own-agent.md)"
NO_IDENTITY: Final[Any] = {
    **dict.fromkeys(("at_once", "tasks", "honest", "bystander"), True),
    "channels": {"__all__": {"cheat"}},
}
PLACEHOLDERS: Final = ("task", "seed", "without", "out", "prompt", "task_dir", "python")


def _listed(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


def _below_out(value: str) -> str:
    if not value or Path(value).is_absolute() or ".." in Path(value).parts:
        raise ValueError("it is a file below {out}, such as result.json")
    return value


Words = Annotated[Texts, BeforeValidator(_listed)]
Name = Annotated[str, Field(pattern=r"^[\w-][\w.-]{0,59}$")]  # of files, too


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


class HarnessTable(Record):
    """The file. `result`: the JSON that the command leaves below `{out}`. `seconds`: the time-out
    of an episode. `passes`: names of our environment variables that the command may see.
    `needed`: kinds of action that an honest solver needs. `honest`, `bystander`: commands in the
    agent's place that check the scrubbed twins (`forensics.twin_harness`).
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
