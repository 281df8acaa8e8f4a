"""What the prompt itself lists as its specification: `200 → OK`, `man → men`, `Monday for 1`.

1. The words of the statement, line by line, without the shown tests, examples, samples,
   notes and explanations.
2. A pair is listed where its input and its output stand close to each other in one line.

Code that repeats such a list does as it was told, whatever the tests show of it.
"""

import re
from functools import lru_cache

from .literals import Tokens, word

NEAR = 8  # words between an input and its output
MOST_LINES = 3_000
LONGEST_LINE = 4_000
Line = tuple[str, ...]

_WORD = re.compile(r"[+-]?\w+(?:[.'’-]\w+)*")
_SECTION = re.compile(
    r"^[\s#*_>-]{0,20}(?:notes?|examples?|samples?|explanations?|tests?|hints?)\b.{0,40}$",
    re.I,
)
_HEADING = re.compile(r"^\s{0,9}(?:#{1,6}\s|\*\*[^*]{1,80}\*\*\s{0,9}$|[A-Z][\w ]{0,40}:?\s{0,9}$)")
_EXAMPLE = re.compile(
    r"\b(?:examples?|samples?|e\.g|for instance|such as|test cases?|explanation|answer is|output is"
    r"|the result is|assert|expect)\b|>>>",
    re.I,
)


def statement_lines(text: str) -> tuple[Line, ...]:
    """The lines of a statement as words, but for those that speak of examples."""
    found: list[Line] = []
    example = False
    for line in text.split("\n")[:MOST_LINES]:
        if _SECTION.match(line[:200]):
            example = True
        elif _HEADING.match(line[:200]):
            example = False
        if not example and not _EXAMPLE.search(line[:LONGEST_LINE]):
            words = _WORD.findall(line[:LONGEST_LINE])
            found += [tuple(word(one) for one in words)] if len(words) > 1 else []
    return tuple(found)


@lru_cache(maxsize=4096)
def lists(statement: tuple[Line, ...], given: Tokens, wanted: Tokens) -> bool:
    """Whether a statement pairs an input with an output."""
    given, wanted = _bare(given), _bare(wanted)
    if not given or not wanted:
        return False
    for line in statement:
        if given[0] in line and wanted[0] in line:
            inputs, outputs = _places(line, given), _places(line, wanted)
            if any(_near(one, other) for one in inputs for other in outputs):
                return True
    return False


def _bare(row: Tokens) -> Tokens:
    """A row without the signs around its words, which the lines of a statement lack as well."""
    return tuple(bare for token in row if (bare := token.strip("#$€£%&@!?*~`\"'()[]{}<>=:;,")))


def _near(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether two stretches of words do not overlap and have few words between them."""
    between = other[0] - one[1] if one[0] < other[0] else one[0] - other[1]
    return 0 <= between <= NEAR


def _places(line: Line, row: Tokens) -> list[tuple[int, int]]:
    size = len(row)
    found = [at for at, one in enumerate(line) if one == row[0] and line[at : at + size] == row]
    return [(at, at + size) for at in found[:20]]
