"""One reading of a patch: the files that it changes, from its own headers (unified
diffs, and the `*** Update File:` form), the lines that it adds, and what it
changes file by file.
"""

import re
from dataclasses import dataclass

from forensics.actions.untrusted import Words

_HEADER = re.compile(
    r"^(?:\+\+\+ |--- |\*\*\* (?:Update|Add|Delete) File: |\*\*\* Move to: )([^\t\r\n]+)", re.M
)
MOST_LINES = 200_000
TEST_PATH = re.compile(
    r"(?:^|/)(?:tests?|testing|__tests__|specs?)/|(?:^|/)(?:test_[^/]{0,200}|tests|conftest)\.py$"
    r"|(?:_test|\.test|\.spec|_spec|Tests?)\.\w{1,5}$"
)
_TEST_NAME = re.compile(
    r"(?:^|/)(?:test_[^/]{0,200}|tests?|conftest)\.py$|(?:_test|\.test|\.spec|_spec|Tests?)\.\w{1,5}$"
)
_EXPECTS = re.compile(
    r"\bassert|\b[aA]ssert[A-Z_]|\bexpect|\braises\b|\bshould\b|\bEXPECT_|\bREQUIRE"
    r"|\bt\.(?:Error|Fatal)|^\s*>>> "
)
_CODE = re.compile(
    r"\.(?:py|pyx|js|jsx|ts|tsx|c|cc|cpp|h|hpp|go|rs|java|kt|rb|php|swift|cs|scala|sh)$"
)
_HARMLESS = re.compile(
    r"(?:#|//|/\*|\*/|import\b|from\s+\S+\s+import\b|[\])}(\[{,;:]*$|\"\"\"|''')"
)
_SPACE = re.compile(r"\s+")


def patched_files(patch: str) -> Words:
    """Paths in the order in which the patch names them, each once, without git's `a/` and `b/`."""
    found = (_plain(name.strip()) for name in _HEADER.findall(patch))
    return tuple(dict.fromkeys(name for name in found if name not in ("/dev/null", "")))


def _plain(name: str) -> str:
    name = name.strip('"')
    return name[2:] if name[:2] in ("a/", "b/") else name


def added_lines(patch: str) -> str:
    """The lines that a unified diff adds, without their plus signs, as a
    submission's *changed* part.
    """
    lines = patch.split("\n")
    headers = {
        at + 1
        for at, line in enumerate(lines[:-1])
        if line.startswith("--- ") and lines[at + 1][:4] == "+++ "
    }
    return "\n".join(
        line[1:] for at, line in enumerate(lines) if line.startswith("+") and at not in headers
    )


@dataclass(frozen=True)
class Changed:
    """One file of a patch: its path, whether it was there before and after, and
    its added and removed lines.
    """

    path: str
    new: bool
    deleted: bool
    added: Words
    removed: Words

    @property
    def is_test(self) -> bool:
        """Whether the path is one of tests."""
        return TEST_PATH.search(self.path) is not None

    @property
    def rewritten(self) -> Words:
        """Removed lines that said something and do not come back elsewhere in
        the file.

        Code that lies among the tests without the name of a test (a helper, a
        program under test) counts only where one of the lines states an
        expectation.
        """
        added = {_squeezed(line) for line in self.added}
        lines = tuple(line for line in self.removed if _says(line) and _squeezed(line) not in added)
        helper = _TEST_NAME.search(self.path) is None and _CODE.search(self.path) is not None
        return () if helper and not any(_EXPECTS.search(line[:2000]) for line in lines) else lines


def changes_of(patch: str | None) -> tuple[Changed, ...]:
    """The files of a unified diff, in order; `()` where there is none. Never raises."""
    found: list[Changed] = []
    lines = (patch or "").split("\n", MOST_LINES)[:MOST_LINES]
    at = 0
    while at < len(lines):
        if (
            lines[at].startswith("--- ")
            and at + 1 < len(lines)
            and lines[at + 1].startswith("+++ ")
        ):
            at, changed = _file(lines, at)
            found.append(changed)
        else:
            at += 1
    return tuple(found)


def _file(lines: list[str], at: int) -> tuple[int, Changed]:
    before, after = (
        _plain(lines[at][4:].split("\t")[0].strip()),
        _plain(lines[at + 1][4:].split("\t")[0].strip()),
    )
    at += 2
    added: list[str] = []
    removed: list[str] = []
    left = [0, 0]
    while at < len(lines):
        line = lines[at]
        if left == [0, 0]:
            found = re.match(r"@@ -\d{1,9}(?:,(\d{1,9}))? \+\d{1,9}(?:,(\d{1,9}))? @@", line)
            if found is None and not line.startswith("\\"):
                break
            if found is not None:
                left = [int(found[1] or 1), int(found[2] or 1)]
        else:
            _count(line, left, added, removed)
        at += 1
    path = before if after == "/dev/null" else after
    return at, Changed(
        path, before == "/dev/null", after == "/dev/null", tuple(added), tuple(removed)
    )


def _count(line: str, left: list[int], added: list[str], removed: list[str]) -> None:
    sign = line[:1]
    if sign == "\\":
        return
    if sign in ("+", "-"):
        (added if sign == "+" else removed).append(line[1:])
    left[0] = max(0, left[0] - (sign != "+"))
    left[1] = max(0, left[1] - (sign != "-"))


def _squeezed(line: str) -> str:
    return _SPACE.sub("", line).rstrip(",;")


def _says(line: str) -> bool:
    text = line.strip()
    return bool(text) and _HARMLESS.match(text) is None
