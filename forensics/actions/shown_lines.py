"""Which lines of a file an action shows: `shown_lines`.

1. Where they start is said by the command (`cat`, `head`, `sed -n 12,40p`, behind `nl` or `cat
   -n` too) or by the arguments of a tool (`view_range`, `offset`, `start_line`).
2. That counts only where what came back is that command's own and was not cut.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from forensics.actions.action import Action
from forensics.actions.programs import READERS, read_options
from forensics.actions.untrusted import TABLES

_NAMES = TABLES["shown"]
SILENT = frozenset(_NAMES["silent"])
_NUMBERED = re.compile(r" {0,8}\d{1,6}(?:\t|→|: ?|\| ?)")
_PRINTED = re.compile(r"(\d{1,6})(?:,(\d{1,6}|\$))?p;?")
_RANGE = re.compile(r"(?:view_range=\[|offset=|line_start=|start_line=|startLine=)\s*(\d{1,6})")
_PART = re.compile(r"offset=|limit=|view_range=|line_start|start_line|startLine|end_line")
_HEADER = re.compile(r"(?:Here's the result of running|\[File: |File: |Showing )[^\n]{0,400}\n")
_LINES = re.compile(r"\((\d{1,6}) lines total\)\]")
_ABOVE = re.compile(r"\((\d{1,6}) more lines above\)\n")
_CURSOR = re.compile(r"^<{5} (?:START|END) CURSOR >{5}\n?", re.M)
_BELOW = re.compile(r"^\((?:\d{1,6} more lines below\)|Open file: |Current directory: )", re.M)
_FRAME = re.compile(r"\s{0,9}<returncode>-?\d{1,9}</returncode>\s{0,9}<output>\n?")
_FRAME_ENDS = re.compile(r"\n?</output>\s*\Z")
_CUT = re.compile(
    r"(?i)<elided_chars>|<output_head>|characters elided|observation truncated|<response clipped>"
    r"|[\[(][^\])\n]{0,60}\btruncated\b|output too long"
    r"|\d (?:more )?(?:lines|characters) (?:truncated|omitted|elided)"
)
_CUT_MARKS = _NAMES["cut marks"]  # one is in each
_FAILED = re.compile(r"No such file or directory|Permission denied|Is a directory|(?i:^\s*error\b)")
SHORT = 300  # characters of an answer that may be a refusal


class Shown(NamedTuple):
    """`text`: what was shown, without numbers. `start`: its first line (0: not known). `whole`:
    it is all of the file.
    """

    text: str
    start: int
    whole: bool


def view_of(action: Action, printing: Sequence[Action]) -> Action | None:
    """The action whose output came back alone, `None` where several printed: `nl FILE | sed -n
    3,9p` prints lines of the file as `sed -n 3,9p FILE` does.
    """
    if len(printing) < 2:
        return action if printing else None
    first, last = printing[0], printing[-1]
    passes = first.program in ("nl", "cat") and last.program in ("sed", "head") and not last.reads
    if len(printing) == 2 and first is action and passes:
        return last._replace(reads=first.reads)
    return None


def shown_lines(action: Action, answer: str, alone: bool) -> Shown:
    """What an answer shows of the one file that an action reads."""
    frame = _FRAME.match(answer)
    if frame is not None:
        answer = _FRAME_ENDS.sub("", answer[frame.end() :])
    text = _unnumbered(answer)
    header = _HEADER.match(text)
    text = text[header.end() :] if header else text
    refused = action.exit_code not in (None, 0) or (
        len(text) < SHORT and _FAILED.search(text) is not None
    )
    if refused or not alone or _was_cut(answer):
        return Shown(text, 0, False)
    if action.kind == "tool":
        counted = _LINES.search(header[0]) if header else None
        return _of_tool(action, text, int(counted[1]) if counted else None)
    if action.program == "cat":
        plain = not any(re.fullmatch(r"-\w*[AvetET]\w*", word) for word in action.arguments)
        return Shown(text, int(plain), plain)
    if action.program.casefold() in ("get-content", "gc"):
        return Shown(text, 1, len(action.arguments) == 1)
    if action.program == "head":
        count = read_options(action.arguments, READERS["head"]).value("-n", "--lines") or "1"
        return Shown(text, 1 if count.isdigit() else 0, False)
    if action.program == "sed" and "-n" in action.arguments:
        printed = next(filter(None, map(_PRINTED.fullmatch, action.arguments)), None)
        return Shown(text, int(printed[1]) if printed else 0, False)
    return Shown(text, 0, False)


def _unnumbered(text: str) -> str:
    """A text without the numbers of its lines; line by line is faster than one expression."""
    lines = text.split("\n")
    for at, line in enumerate(lines):
        if line[:1] == " " or line[:1].isdigit():
            found = _NUMBERED.match(line)
            lines[at] = line[found.end() :] if found else line
    return "\n".join(lines)


def _was_cut(text: str) -> bool:
    small = text.lower()
    return any(mark in small for mark in _CUT_MARKS) and _CUT.search(text) is not None


def _of_window(text: str, lines: int | None) -> Shown:
    """A part of a file of so many lines as SWE-agent's viewer frames it."""
    above = _ABOVE.match(text)
    start = int(above[1]) + 1 if above else 1
    shown = text[above.end() if above else 0 :]
    below = _BELOW.search(shown)
    shown = _CURSOR.sub("", shown[: below.start()] if below else shown)
    if lines is None or shown.count("\n") > lines - start + 1:
        return Shown(shown, 0, False)
    return Shown(shown, start, False)


def _of_tool(action: Action, text: str, lines: int | None) -> Shown:
    given = " ".join(action.arguments)[:2000]
    if action.program in _NAMES["windows"]:
        return _of_window(text, lines)
    if _PART.search(given) is None:
        return Shown(text, 1, True)
    first = _RANGE.search(given)
    return Shown(text, int(first[1]) if first else 0, False)
