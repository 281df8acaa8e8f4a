"""Trials of Terminal-Bench 1, by what the agent's terminal showed.

Formats: Terminal-Bench 0.1 to 0.2 (`terminal_bench/harness/models.py`); the recording of its
session in asciicast 2 or 3 (docs.asciinema.org/manual/asciicast), or the text of it.

1. A trial is its folder: `results.json` says the task and the verdict, a recording of the
   agent's session what was done. Each command is a call of a shell that keeps its directory,
   and what the terminal showed behind it is what came back (`terminal_commands`).
2. What the harness typed (the recorder, the installation, the end of a wait, the tests) is no
   action. The other files of the folder and the tables of the whole run go along.
3. An agent that was started with the task's text acts in a console of its own
   (`terminal_consoles`); what it did there is told as unread where its form is not known.

Any other recording or text of a terminal is named as unread (`unknown_files`).
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from forensics.readers.content import (
    JsonObject,
    Unreadable,
    UnreadableContent,
    read_head,
    read_text,
)
from forensics.readers.json_rows import (
    MALFORMED,
    Runs,
    first_row,
    in_words,
    read_document,
    read_json_lines,
)
from forensics.readers.log_reader import Reader
from forensics.readers.messages import shell_call, tool_step
from forensics.readers.submission import content_beside, exit_ending
from forensics.readers.terminal_commands import Command, commands_in
from forensics.readers.terminal_consoles import console_steps
from forensics.readers.terminal_screen import Screen
from forensics.readers.values import as_mapping, dig, field_names, run_of
from forensics.records import Step

NAME = "terminal-bench"
SHOWN = 64 << 20  # bytes, of what one terminal shows
TOOL = "terminal"  # a shell that stays in its directory
_NAMES = field_names("terminal")
HARNESS = re.compile(
    r"asciinema rec\b.*|clear|exit|tmux wait\b.*|source /installed-agent/.*"
    r"|bash +/tests/run-tests\.sh\s*;\s*tmux wait\b.*"  # without the wait the agent ran them
)
_WAITS = re.compile(r"\s*(?:;|&&)\s*tmux wait(?:-for)? -S \S+\s*\Z")
_ATTEMPT = re.compile(r"\.(\d{1,4})-of-\d{1,4}")
_PLAIN_TASK = re.compile(r"[\w ,.-]{24,}")
NOT_THERE = re.compile(r"\s*\S*sh: [^\n]*(?:not found|No such file or directory)\s*")
CONSOLE = "[the console of an agent]"


def recognises(path: Path, head: bytes) -> bool:
    """Whether a file is the result of a trial."""
    return _is_trial(first_row(head))


def _is_trial(first: JsonObject) -> bool:
    return "is_resolved" in first and "task_id" in first and "results" not in first


def accompanies(path: Path) -> bool:
    """Whether a file belongs to a trial of Terminal-Bench, or to a whole run of trials."""
    if path.name.endswith(".traj.json"):
        return False  # a log of its own, which the verdict goes along with
    folders = path.parents
    for depth, folder in enumerate(folders[:-1]):
        if folder.name in _NAMES.parts and _holds_trial(folders[depth + 1]):
            return True
    if path.name in _NAMES.along and _holds_trial(path.parent):
        return True
    is_table = path.name in _NAMES.tables or path.name.endswith("results.json")
    return is_table and not _holds_trial(path.parent) and _holds_trials(path.parent)


def _holds_trial(folder: Path) -> bool:
    try:
        return _trial_at(folder / "results.json", (folder / "results.json").stat().st_mtime_ns)
    except OSError:
        return False


@lru_cache(maxsize=256)
def _trial_at(path: Path, _: int) -> bool:
    try:
        return _is_trial(first_row(read_head(path)))
    except UnreadableContent:
        return False


def _holds_trials(folder: Path) -> bool:
    found = (one for pattern in ("*/*", "*") for one in folder.glob(f"{pattern}/results.json"))
    return any(_holds_trial(one.parent) for one, _ in zip(found, range(20), strict=False))


def _commands(path: Path, first: JsonObject) -> tuple[list[Command], list[Unreadable]]:
    """The commands of a recording or of a text."""
    if not first:
        screen = Screen()
        text, lost = read_text(path, SHOWN)
        screen.show(text)
        return commands_in(screen.rows()), list(lost)
    screen = Screen(first.get("width") or dig(first, "term", "cols"))
    broken: list[Unreadable] = []
    held: list[str] = []
    total = 0
    for kind, data in _events(path, broken):
        total += len(data)
        if total > SHOWN:
            raise UnreadableContent(f"it shows more than {SHOWN >> 20} MB")
        if kind == "o":
            held.append(data)
            continue
        screen.show("".join(held))
        held = []
        if kind == "i":
            screen.type(data)
        elif kind == "r" and (columns := data.split("x")[0]).isdecimal():
            screen.width = int(columns[:4])
    screen.show("".join(held))
    return commands_in(screen.rows()), broken


def _events(path: Path, broken: list[Unreadable]) -> Iterator[tuple[str, str]]:
    """The events of a recording: what kind each is of, and its text."""
    for row in read_json_lines(path):
        if isinstance(row, Unreadable):
            broken.append(row)
            continue
        event = row.value
        if isinstance(event, list) and len(event) == 3 and isinstance(event[2], str):
            yield str(event[1]), event[2]


def _steps(commands: Iterable[Command]) -> Iterator[Step]:
    for command in commands:
        call = shell_call(command.text, TOOL)
        yield Step(role="assistant", text="", tool_calls=(call,))
        yield tool_step(command.output)


def read(path: Path) -> Runs:
    """The run of a trial's folder, and what of it could not be read."""
    try:
        yield from _trial(path)
    except (*MALFORMED, UnreadableContent) as error:
        yield Unreadable(path, in_words(error))


def _trial(path: Path) -> Runs:
    result: JsonObject = {}
    for row in read_document(path):
        if isinstance(row, Unreadable):
            yield row
            return
        result = as_mapping(row.value)
    task, told = str(result.get("task_id")), str(result.get("instruction") or "")
    attempt = _ATTEMPT.search(str(result.get("trial_name", "")))
    commands, broken = _session(path.parent)
    yield from broken
    meta = as_mapping(content_beside(path.parent.parent.parent / "run_metadata.json"))
    steps = [Step(role="user", text=told)] if told else []
    resolved = result.get("is_resolved")
    yield run_of(
        (*steps, *_acted(commands, told)),
        exit_ending(
            result.get("failure_mode") or "unset", _NAMES.ended, field_names("cut_off").terminal
        ),
        id=result.get("trial_name") or task,
        task=task,
        policy=meta.get("model_name") or meta.get("agent_name"),
        environment=NAME,
        sample=int(attempt[1]) - 1 if attempt else None,
        rewards={} if resolved is None else {"resolved": resolved},
        outcome=resolved,
    )


def _session(folder: Path) -> tuple[list[Command], list[Unreadable]]:
    """The commands of the first recording of a trial that shows any."""
    broken: list[Unreadable] = []
    for name in _NAMES.sessions:
        path = folder / name
        if not path.is_file():
            continue
        try:
            commands, told = _commands(path, first_row(read_head(path)))
        except (*MALFORMED, UnreadableContent) as error:
            broken.append(Unreadable(path, in_words(error)))
            continue
        broken += told
        if typed := [one for one in commands if not HARNESS.fullmatch(one.text)]:
            return [one._replace(text=_WAITS.sub("", one.text)) for one in typed], broken
    return [], broken


def _acted(commands: Sequence[Command], told: str) -> Iterator[Step]:
    """The steps of a trial. A command that holds the task's own words starts an agent."""
    words = max(_PLAIN_TASK.findall(told), key=len, default="")[:60]
    for command in commands:
        if words and words in command.text:
            if not NOT_THERE.fullmatch(command.output):
                back = tool_step(command.output)
                unknown = [Step(role="assistant", text=CONSOLE), back]
                yield from console_steps(command.output) or unknown
        else:
            yield from _steps((command,))


reader = Reader(
    name=NAME,
    version="1 (Terminal-Bench 0.2)",
    rank=-15,  # behind the others: their rows may say the verdict under the same names
    recognises=recognises,
    accompanies=accompanies,
    reads=read,
)
