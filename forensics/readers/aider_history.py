"""Histories of aider, as steps: `sessions_of`.

Format: aider 0.20 to 0.86, `.aider.chat.history.md` (`aider/io.py`, `aider/coders/base_coder.py`).

1. A session begins with `# aider chat started at`. Lines with `#### ` are the user's, those
   with `> ` aider's own, the rest is the model's answer. An entry of several lines has its
   mark on the first, or on all, and two spaces at its end.
2. A block in an answer was run where aider says `Running ...`; what it printed is known where
   it was put into the chat (`I ran this command`).
3. SEARCH/REPLACE blocks, whole files and diffs are edits where aider says `Applied edit to`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from forensics.actions.apply_patch import searched_texts
from forensics.readers.messages import shell_call, tool_call, tool_step
from forensics.readers.terminal_commands import heredoc_word
from forensics.readers.values import field_names
from forensics.records import Step, ToolCall

STARTED = re.compile(r"^# aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)[ \t]*$", re.M)
MARKS: dict[str, "Who"] = {"####": "user", ">": "aider"}
MOST_RUN = 100  # commands of one answer, as they are looked up
_NAMES = field_names("aider")
_MODEL = re.compile(r"(?:Main m|M)odels?: (\S+)")
_RAN, _GOT = "I ran this command:", "And got this output:"
_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})")
_FILE = re.compile(r"^([^\n]+)\n```[\w+-]*\n((?:(?!```)[^\n]*\n)*+)```", re.M)
_DIFF = re.compile(r"^```diff\n((?:(?!```)[^\n]*\n)*+)```", re.M)
Who = Literal["user", "aider", "model"]


class Session(NamedTuple):
    """`started`: when, as it stands there. `model`: `None` where it is not said."""

    started: str
    model: str | None
    steps: tuple[Step, ...]


@dataclass
class _Turn:
    """One answer, and what aider did with it."""

    text: str = ""
    applied: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    ran: list[tuple[str, str | None]] = field(default_factory=list)


def sessions_of(text: str) -> Iterator[Session]:
    """The sessions of a history in which a model answered."""
    starts = list(STARTED.finditer(text))
    ends = [*(start.start() for start in starts[1:]), len(text)]
    for start, end in zip(starts, ends, strict=True):
        entries = list(_entries(text[start.end() : end]))
        steps = tuple(_steps(entries))
        if any(step.role == "assistant" for step in steps):
            models = (_MODEL.match(told) for who, told in entries if who == "aider")
            yield Session(start[1], next((found[1] for found in models if found), None), steps)


def _entries(text: str) -> Iterator[tuple[Who, str]]:
    """Who says what, in order; lines of one entry together."""
    who: Who = "model"
    held: list[str] = []
    fence = ""  # that is open in the model's answer
    word = None  # that ends a here document
    broken = False  # whether an entry ends within a line of it
    ends = re.search(r"^#### .*  $", text, re.M) is not None  # in two spaces, as in most versions
    for line in text.split("\n"):
        mark, _, rest = line.partition(" ")
        marked = MARKS.get(mark) if line[len(mark) : len(mark) + 1] == " " or mark == line else None
        within = fence or (ends and who == "model" and any(map(str.strip, held)))
        if within and not line.endswith("  "):
            marked = None  # a heading or a quotation of the model's
        if marked is not None:
            if marked != who or marked == "aider":
                yield who, "\n".join(held).strip()
                who, held, fence = marked, [], ""
            held.append(rest.rstrip() if rest.endswith("  ") else rest)
            broken, word = not line.endswith("  "), heredoc_word(rest)
            continue
        if who != "model" and broken and (line.strip() or word):
            held.append(line.rstrip() if line.endswith("  ") else line)
            word = None if line.strip() == word else word
            broken = not line.endswith("  ")
            continue
        if who != "model":
            yield who, "\n".join(held).strip()
            who, held = "model", []
        if found := _FENCE.match(line):
            fence = "" if fence and found[1].startswith(fence) else fence or found[1]
        held.append(line)
    yield who, "\n".join(held).strip()


def _steps(entries: list[tuple[Who, str]]) -> Iterator[Step]:
    turn: _Turn | None = None
    for who, text in entries:
        if who == "aider" and turn is not None:
            _note(turn, text)
        elif who == "user" and turn is not None and _answers(turn, text):
            continue
        elif text and who != "aider":
            yield from _told(turn)
            turn = _Turn(text) if who == "model" else None
            talks = not text.startswith("/") or text.startswith(_NAMES.talks)
            if who == "user" and talks:
                yield Step(role="user", text=text)
    yield from _told(turn)


def _note(turn: _Turn, text: str) -> None:
    """What aider says that it did."""
    if text.startswith("Running ") and (command := text.removeprefix("Running ").strip()):
        turn.ran.append((command, None))
    elif text.startswith(_NAMES.kept):
        turn.told.append(text)
        if text.startswith(_NAMES.kept[0]):
            turn.applied.append(text.removeprefix(_NAMES.kept[0]).strip())


def _answers(turn: _Turn, text: str) -> bool:
    """Whether a message holds what a command of this turn printed."""
    asked, got, output = text.partition(_GOT)
    if not got or not asked.startswith(_RAN):
        return False
    ran = asked.removeprefix(_RAN).split()
    for at, (command, known) in enumerate(turn.ran[:MOST_RUN]):
        if known is None and command.split() == ran:
            turn.ran[at] = (command, output.strip("\n"))
            return True
    return False


def _told(turn: _Turn | None) -> Iterator[Step]:
    if turn is None:
        return
    edits = tuple(_edits(turn))
    done: list[tuple[tuple[ToolCall, ...], str | None]] = []
    done += [(edits, "\n".join(turn.told))] if edits else []
    done += [((shell_call(line),), output) for line, output in turn.ran]
    for at, (calls, output) in enumerate(done or [((), None)]):
        yield Step(role="assistant", text="" if at else turn.text, tool_calls=calls)
        if output is not None:
            yield tool_step(output)


def _edits(turn: _Turn) -> Iterator[ToolCall]:
    """The edits of an answer that were applied."""
    text = f"{turn.text}\n"
    blocks = list(searched_texts(text))
    for above, old, new in blocks:
        if path := _named(above, turn.applied):
            yield tool_call("edit", {"path": path, "old_string": old, "new_string": new})
    if blocks or not turn.applied:
        return
    for diff in _DIFF.finditer(text):
        yield tool_call("apply_patch", {"patch": diff[1]})
    for found in _FILE.finditer(text):
        if path := _named(found[1], turn.applied):
            yield tool_call("write", {"path": path, "content": found[2]})


def _named(above: str, applied: list[str]) -> str | None:
    """The file that the lines above an edit name, where it was applied."""
    for line in reversed(above[-600:].rstrip().splitlines()[-4:]):
        name = line.strip().strip("`*#: ")
        if found := next((path for path in applied if name and path.endswith(name)), None):
            return found
    return applied[0] if len(set(applied)) == 1 else None
