"""The old and the new text of each file of a patch, as far as the log tells them.

1. Each hunk gives its own old and new lines, with the context around them.
2. Where something shown holds the old lines of every hunk of a file, that text is the
   old one, and the new one is the same with the hunks put in.
3. Else each hunk stands for itself.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

MOST_HUNKS = 400
LONGEST = 200_000
_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@ ?(.*)")
_NUMBERED = re.compile(r"^ {0,6}\d{1,6}[\t:] ?", re.M)
_TAG = re.compile(r"^</?[a-z_]+>(?:\d+</[a-z_]+>)?$|^\((?:Open file|\d+ more lines)[^\n]*$", re.M)


class Part(NamedTuple):
    """A stretch of a file before and after. `heading`: what stands above it. `lead`
    and `trail`: lines at its ends that are the same in both.
    """

    heading: str
    old: str
    new: str
    lead: int = 0
    trail: int = 0


@dataclass
class FileChange:
    """One file of a patch."""

    old_path: str
    path: str
    parts: list[Part] = field(default_factory=list)

    @property
    def new(self) -> bool:
        """Whether the file was not there before."""
        return self.old_path == "/dev/null"

    @property
    def deleted(self) -> bool:
        """Whether the file is gone."""
        return self.path == "/dev/null"

    @property
    def name(self) -> str:
        """The path that a reader knows it by."""
        return self.old_path if self.deleted else self.path


def files_of(patch: str) -> list[FileChange]:
    """The files of a unified diff; renames without a hunk too. Never raises."""
    found: list[FileChange] = []
    lines = patch.split("\n")
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.startswith("rename from ") and at + 1 < len(lines):
            found.append(FileChange(line[12:].strip(), lines[at + 1][10:].strip()))
        elif line.startswith("--- ") and at + 1 < len(lines) and lines[at + 1].startswith("+++ "):
            old, new = _path(line[4:]), _path(lines[at + 1][4:])
            if not (found and not found[-1].parts and found[-1].path == new):
                found.append(FileChange(old, new))
            at += 1
        elif found and len(found[-1].parts) < MOST_HUNKS and (head := _HUNK.match(line)):
            at, part = _part(lines, at + 1, head)
            found[-1].parts.append(part)
            continue
        at += 1
    return found


def _path(text: str) -> str:
    text = text.split("\t")[0].strip().strip('"')
    return text[2:] if text[:2] in ("a/", "b/") else text


def _part(lines: Sequence[str], at: int, head: re.Match[str]) -> tuple[int, Part]:
    left_old, left_new = int(head[1] or 1), int(head[2] or 1)
    marks: list[str] = []
    old: list[str] = []
    new: list[str] = []
    while at < len(lines) and (left_old > 0 or left_new > 0):
        mark, text = (lines[at] or " ")[0], lines[at][1:]
        if mark not in " +-\\":
            break
        if mark in " -":
            old.append(text)
            left_old -= 1
        if mark in " +":
            new.append(text)
            left_new -= 1
        marks += [mark] if mark != "\\" else []
        at += 1
    lead = next((i for i, mark in enumerate(marks) if mark != " "), len(marks))
    trail = next((i for i, mark in enumerate(reversed(marks)) if mark != " "), len(marks))
    return at, Part(head[3], "\n".join(old) + "\n", "\n".join(new) + "\n", lead, trail)


def whole_of(change: FileChange, shown: Sequence[str]) -> Part | None:
    """The whole file as something shown holds it, before and after."""
    return next(_whole(change, shown), None) if not change.new and not change.deleted else None


def _whole(change: FileChange, shown: Sequence[str]) -> Iterator[Part]:
    if not change.parts:
        return
    first = max(change.parts[0].old.split("\n"), key=len).strip()
    for seen in shown:
        if len(first) < 4 or first not in seen:
            continue
        for text in (seen, _NUMBERED.sub("", seen)):
            text = _TAG.sub("", text).strip("\n") + "\n"
            if all(text.count(part.old) == 1 for part in change.parts):
                new = text
                for part in change.parts:
                    new = new.replace(part.old, part.new, 1)
                yield Part("", text, new)
