"""One shown test, and rows of tokens as text in which others can be sought."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from .literals import Tokens, flat, tokens

SEPARATOR = "\x1f"

Lines = tuple[Tokens, ...]


def joined(row: Iterable[str]) -> str:
    """A row of tokens as text in which another row can be sought."""
    return SEPARATOR + SEPARATOR.join(row) + SEPARATOR


@dataclass(frozen=True)
class ShownTest:
    """One test: the rows of its input (arguments or lines) and of its output."""

    inputs: Lines
    outputs: Lines
    called: str = ""

    @property
    def given(self) -> Tokens:
        """The whole input as one row."""
        return flat(self.inputs)

    @property
    def wanted(self) -> Tokens:
        """The whole output as one row."""
        return flat(self.outputs)


Found = Iterator[tuple[list[ShownTest], tuple[int, int]]]


def rows(value: Any) -> list[Tokens]:
    """A value as rows: the lines of a text, or all of it."""
    if isinstance(value, str):
        return [row for line in value.split("\n") if (row := tokens(line))]
    return [tokens(value)]
