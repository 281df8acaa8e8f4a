"""Broken or cut-off Python, read as far as it parses.

1. The whole text, without what no parser takes (null bytes, lone surrogates).
2. Where that fails, the statement at the left margin that holds the error is
   found; the longest beginning of it that parses is kept, and its other lines
   are blanked, so that line numbers stay.
3. Again, until all parses or the work is spent; then nothing below the last
   error is read.
"""

import ast
import re
import textwrap
import warnings
from dataclasses import dataclass
from functools import lru_cache

LONGEST_CODE = 200_000
LONGEST_LINE = 20_000
MOST_PARSED = 1_500_000  # characters given to the parser for one text, all attempts together
MOST_ERRORS = 40

_GOES_ON = re.compile(r"(?:else|elif|except|finally|case)\b|[)\]}]")
_DECORATOR = re.compile(r"@[\w.]")


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """A syntax tree, the lines it stands for, and whether nothing was left out.

    `lost`: the numbers of the lines that did not parse, from 1.
    """

    tree: ast.Module
    lines: tuple[str, ...]
    whole: bool
    lost: tuple[int, ...] = ()


class _Work:
    def __init__(self) -> None:
        self.left = MOST_PARSED

    def parse(self, text: str) -> ast.Module | SyntaxError | None:
        """The tree, the error, or `None` where the parser gives up or no work is left."""
        self.left -= len(text) + 50
        if self.left < 0:
            return None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return ast.parse(text)
        except SyntaxError as error:
            return error
        except (RecursionError, MemoryError, ValueError):
            return None


@lru_cache(maxsize=8)
def parsed_up_to(code: str) -> Parsed:
    """The tree of whatever parses, with the line numbers of `code`."""
    lines = _cleaned(code)
    work = _Work()
    whole = len(code) <= LONGEST_CODE
    for _ in range(MOST_ERRORS):
        tree = work.parse("\n".join(lines))
        if isinstance(tree, ast.Module):
            return _parsed(tree, code, lines, whole)
        whole = False
        if tree is None:
            break
        _mend(lines, min(max(tree.lineno or 1, 1), len(lines)), work)
    tree, upto = _beginning(lines)
    return _parsed(tree, code, lines[:upto], False)


def _parsed(tree: ast.Module, code: str, kept: list[str], whole: bool) -> Parsed:
    lines = _cleaned(code)
    lost = [
        at + 1
        for at, line in enumerate(lines)
        if line.strip() and (at >= len(kept) or not kept[at].strip())
    ]
    return Parsed(tree=tree, lines=tuple(lines), whole=whole, lost=tuple(lost))


def _cleaned(code: str) -> list[str]:
    text = code[:LONGEST_CODE].replace("\0", " ").encode("utf-8", "replace").decode()
    lines = text.replace("\r\n", "\n").replace("\r", "\n").replace("\f", " ").split("\n")
    lines = [line if len(line) <= LONGEST_LINE else "" for line in lines]
    first = next((line for line in lines if line.strip()), "")
    return textwrap.dedent("\n".join(lines)).split("\n") if first[:1].isspace() else lines


def _mend(lines: list[str], wrong: int, work: _Work) -> None:
    """Blank as little as possible of the statement around line `wrong` (from 1)."""
    start = wrong - 1
    while start > 0 and not _begins(lines[start]):
        start -= 1
    while start > 0 and _DECORATOR.match(lines[start - 1]):
        start -= 1
    end = max(start + 1, wrong)
    while end < len(lines) and not _begins(lines[end]):
        end += 1
    kept = _kept(lines, start, end, wrong, work)
    for at in range(kept, end):
        lines[at] = ""
    if kept >= end:  # the error is elsewhere than said: the line itself goes
        lines[wrong - 1] = ""


def _begins(line: str) -> bool:
    """Whether a line begins a statement at the left margin."""
    return bool(line.strip()) and not line[0].isspace() and not _GOES_ON.match(line)


def _kept(lines: list[str], start: int, end: int, wrong: int, work: _Work) -> int:
    """The end of the longest beginning of lines `start` to `end` that parses."""
    stop = min(end, wrong - 1) if wrong - 1 > start else end - 1
    for at in range(stop, max(start, stop - 60), -1):
        if lines[at - 1].strip() and isinstance(work.parse("\n".join(lines[start:at])), ast.Module):
            return at
    return start


def _beginning(lines: list[str]) -> tuple[ast.Module, int]:
    """What parses of a text whose parser gave up: its first half, or the half of that."""
    upto = len(lines)
    work = _Work()
    while upto > 1:
        upto //= 2
        while upto > 1 and not _begins(lines[upto]):
            upto -= 1
        tree = work.parse("\n".join(lines[:upto]))
        if isinstance(tree, ast.Module):
            return tree, upto
    return ast.Module(body=[], type_ignores=[]), 0
