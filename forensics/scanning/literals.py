"""Which literal texts a regular expression needs: a look for them spares most texts the expression itself."""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

FEWEST: Final = 3  # characters of a literal that is worth a look
MOST: Final = 12  # literals of one expression


class Literals(NamedTuple):
    """Texts of which every match holds at least one (`()`: it tells none); lower case where case does not count."""

    texts: tuple[str, ...] = ()
    any_case: bool = False


@lru_cache(maxsize=512)
def literals_of(pattern: str) -> Literals:
    """What a regular expression needs to match."""
    tree = re._parser.parse(pattern)  # type: ignore[attr-defined]
    any_case = bool(tree.state.flags & re.IGNORECASE)
    found = _needed(tree)
    if found is None or len(found) > MOST:
        return Literals()
    return Literals(tuple(sorted(text.lower() if any_case else text for text in found)), any_case)


def may_match(pattern: str, text: str) -> bool:
    """Whether the expression could match somewhere in the text, as far as its literals tell."""
    literals = literals_of(pattern)
    if not literals.texts or (literals.any_case and not text.isascii()):  # letters beyond ASCII may stand for others
        return True
    text = text.lower() if literals.any_case else text
    for literal in literals.texts:  # noqa: SIM110  (asked often: a generator costs more than the look)
        if literal in text:
            return True
    return False


def _needed(tree: Iterable[Any]) -> frozenset[str] | None:
    """The best of what the parts of a sequence need: the set whose shortest text is longest."""
    found: list[frozenset[str]] = []
    run = ""
    for name, value in tree:
        if str(name) == "LITERAL":
            run += chr(value)
            continue
        found += [frozenset([run])] if len(run) >= FEWEST else []
        run = ""
        inner = _of_part(str(name), value)
        found += [] if inner is None else [inner]
    found += [frozenset([run])] if len(run) >= FEWEST else []
    return max(found, key=lambda texts: min(map(len, texts)), default=None)


def _of_part(name: str, value: Any) -> frozenset[str] | None:
    if name == "SUBPATTERN":
        return None if value[1] & re.IGNORECASE else _needed(value[-1])
    if name in ("MAX_REPEAT", "MIN_REPEAT"):
        return _needed(value[2]) if value[0] else None
    if name == "BRANCH":
        return _of_branches(value[1])
    return None


def _of_branches(branches: Sequence[Any]) -> frozenset[str] | None:
    needed = [_needed(branch) for branch in branches]
    return None if None in needed else frozenset(text for texts in needed if texts for text in texts)
