"""What came back for an action: which step holds it, its exit code, and where the shell stands, as harnesses show it.

Only the harness's own frame is read, at the very start or end of an observation: what a program printed may hold the
same words.
"""

import re
from typing import Final

from forensics.records import Step

_FRAME: Final = 400  # characters at either end
_HEAD = re.compile(
    r"\s*(?:<returncode>(?P<a>-?\d{1,9})</returncode>|\{\s*\"(?:returncode|exit_code)\"\s*:\s*(?P<b>-?\d{1,9})"
    r"|(?:Exit code|Error: Exit code)[: ]+(?P<c>-?\d{1,9})\b)"
)
_TAIL = re.compile(
    r"(?:\[(?:The command completed|Command finished) with exit code (?P<a>-?\d{1,9})\b[^\n]*\]"
    r"|\"(?:returncode|exit_code)\"\s*:\s*(?P<b>-?\d{1,9})[^{}]{0,80}\}{1,2}"
    r"|<returncode>(?P<c>-?\d{1,9})</returncode>)\s*\Z"
)
_DIRECTORY = re.compile(r"(?:\(Current directory: |\[Current working directory: )([^\n)\]]+)[)\]]")
_OPEN_FILE = re.compile(r"\(Open file: ([^\n)]+)\)")
_VIEWED = re.compile(r"^\[File: ([^\n]+?) \(\d+ lines total\)\]", re.M)


def answers_of(steps: tuple[Step, ...], step: int) -> tuple[int, ...]:
    """What came back before the next action, in order: the tools' steps where there are any, else what was said."""
    found = []
    for at in range(step + 1, len(steps)):
        if steps[at].role == "assistant":
            break
        found.append(at)
    return tuple(at for at in found if steps[at].role == "tool") or tuple(found)


def exit_code(text: str) -> int | None:
    """The exit code in an observation's frame, `None` where it shows none."""
    end = text[-_FRAME:]
    found = _HEAD.match(text[:_FRAME]) or (_TAIL.search(end) if "code" in end else None)
    return next((int(group) for group in found.groups() if group), None) if found else None


def directory_shown(text: str) -> str | None:
    """The working directory that the frame names at its end."""
    end = text[-_FRAME:]
    found = _DIRECTORY.findall(end) if "directory: " in end else ()
    return found[-1] if found else None


def open_file_shown(text: str) -> str | None:
    """The file that the harness's editor holds, as the frame names it."""
    found = _OPEN_FILE.findall(text[-_FRAME:]) or _VIEWED.findall(text[:_FRAME])
    return found[-1] if found and found[-1] != "n/a" else None
