"""Texts as words: what the behaviour layer compares, tolerant of whitespace.

A word is a run of letters, digits and underscores, or one other visible
character. A gram is a short run of words within one line.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

Gram = tuple[str, ...]
_WORD = re.compile(r"\w+|[^\w\s]")
_ASCII_WORD = re.compile(
    r"\w+|[^\w\s\x1c-\x1f]", re.ASCII
)  # the same for ASCII texts, in two thirds of the time
_DIFF_MARKS = ("@@ ", "diff --git ")
_LINE_NUMBER = re.compile(r"\b(line|lines|row|column|col)(\s+|:\s*)\d+", re.IGNORECASE)


def words(text: str) -> tuple[str, ...]:
    """The words of a text, in order."""
    return tuple((_ASCII_WORD if text.isascii() else _WORD).findall(text))


def placed_words(text: str) -> list[tuple[str, int, int]]:
    """The words of a text with their character offsets, `(word, start, end)`."""
    return [(match.group(), match.start(), match.end()) for match in _WORD.finditer(text)]


def grams(sequence: Sequence[str], size: int) -> Iterator[Gram]:
    """Every run of `size` neighbouring words, `size` at least 1."""
    return zip(*(sequence[i:] for i in range(size)), strict=False)


def changed_lines(submission: str) -> list[str]:
    """The lines that a submission adds: the added lines of a unified diff, else every line."""
    lines = [line for line in submission.splitlines() if line.strip()]
    if any(line.startswith(_DIFF_MARKS) for line in lines):
        return [line[1:] for line in lines if line.startswith("+") and not line.startswith("+++ ")]
    if lines and all(line.startswith("+") for line in lines):
        return [line[1:] for line in lines]
    return lines


def changed_grams(submission: str, size: int) -> frozenset[Gram]:
    """The grams of a submission's changed lines; a line shorter than `size`
    words is one gram by itself.
    """
    found: set[Gram] = set()
    for line in changed_lines(submission):
        sequence = words(line)
        if sequence:
            found.update(grams(sequence, min(size, len(sequence))))
    return frozenset(found)


def shown_grams(wanted: frozenset[Gram], texts: Iterable[str]) -> frozenset[Gram]:
    """Those of the `wanted` grams that occur in any of the texts."""
    found: set[Gram] = set()
    sizes = {len(gram) for gram in wanted}
    for text in texts:
        sequence = words(text)
        for size in sizes:
            found.update(wanted.intersection(grams(sequence, size)))
    return frozenset(found)


def normalised(text: str) -> str:
    """A text with runs of whitespace as one space and `line N` numbers masked.

    The error text of a shell carries a line number that changes from call to
    call, so that a loop would look like progress.
    """
    masked = _LINE_NUMBER.sub(r"\1 #", text) if may_count_lines(text) else text
    return " ".join(masked.split())


def may_count_lines(text: str) -> bool:
    """Whether a text could hold `line N` or `N lines`: a quick look that spares
    most texts the patterns.
    """
    lower = text.lower()
    if "line" in lower or "row" in lower or "col" in lower:
        return True
    return not text.isascii() and (
        "\u0130" in text or "\u0131" in text
    )  # letters that patterns take for an i
