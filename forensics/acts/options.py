"""Reading the arguments of programs: which are options, which options take a value, what is left."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple


class Read(NamedTuple):
    """Arguments, read: `options` with their values (`None`: no value), and the operands."""

    options: tuple[tuple[str, str | None], ...]
    operands: tuple[str, ...]

    def value(self, *names: str) -> str | None:
        """The last value that one of these options has."""
        return next((value for name, value in reversed(self.options) if name in names and value is not None), None)

    def values(self, *names: str) -> tuple[str, ...]:
        """Every value that one of these options has."""
        return tuple(value for name, value in self.options if name in names and value is not None)

    def has(self, *names: str) -> bool:
        """Whether one of these options is there."""
        return any(name in names for name, _ in self.options)


def read_options(arguments: Sequence[str], valued: tuple[str, ...] = (), *, stop: bool = False) -> Read:
    """Tell options from operands. `valued`: options that take a value. `stop`: the first operand ends the options.

    Short options may be joined (`-la`), and a value may stick to its option (`-n5`, `--lines=5`).
    """
    options: list[tuple[str, str | None]] = []
    at = 0
    operands: list[str] = []
    while at < len(arguments):
        word = arguments[at]
        at += 1
        if word == "--":
            operands += arguments[at:]
            break
        if not word.startswith("-") or word == "-":
            operands.append(word)
            if stop:
                operands += arguments[at:]
                break
            continue
        found, takes = _option(word, valued)
        options += found
        if takes and at < len(arguments):
            options[-1] = (options[-1][0], arguments[at])
            at += 1
    return Read(tuple(options), tuple(operands))


@lru_cache(maxsize=4096)
def _option(word: str, valued: tuple[str, ...]) -> tuple[tuple[tuple[str, str | None], ...], bool]:
    """The options in one word, and whether the next word is the value of the last."""
    if word.startswith("--") or word in valued:
        name, equals, value = word.partition("=")
        return ((name, value if equals else None),), name in valued and not equals
    found: list[tuple[str, str | None]] = []
    for at, letter in enumerate(word[1:], 1):
        if f"-{letter}" in valued:
            rest = word[at + 1 :]
            return (*found, (f"-{letter}", rest or None)), not rest
        found.append((f"-{letter}", None))
    return tuple(found), False
