"""Which acts try a family's shortcut: patterns over acts, as the family's file gives them.

Most acts cannot match most patterns, by their program or because they write nothing; so what an act's program and
the fields that it has leave possible is kept.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

from forensics.acts import Act
from forensics.scanning.family import Family, Pattern
from forensics.scanning.literals import may_match
from forensics.scanning.scene import LONGEST, Key, Scene

MOST_KEPT: Final = 4096  # programs whose possible patterns are remembered
SHORT: Final = 200  # characters of a text whose matches are remembered
Patterns = tuple[Pattern, ...]
Possible = tuple[int, Patterns, Patterns]  # the family's place, its attempts and its twins that can match


class Hit(NamedTuple):
    """An act that tries a shortcut, and the id of the pattern that says so."""

    act: Act
    pattern: str


class Matcher:
    """Finds the acts that try the shortcuts of some families, all of them in one pass over a run's acts."""

    def __init__(self, families: Iterable[Family]) -> None:
        self.families = tuple(families)
        self._possible: dict[Key, tuple[Possible, ...]] = {}

    def hits(self, scene: Scene) -> list[tuple[Hit, ...]]:
        """Of each family the acts that try its shortcut, in order, each once."""
        found: list[list[Hit]] = [[] for _ in self.families]
        kept, language = self._possible, scene.language
        for act, key in scene.keyed:
            possible = kept.get(key)
            for place, attempts, twins in self._look(language, key, act) if possible is None else possible:
                chosen = next((pattern for pattern in attempts if _fits(pattern, act, scene)), None)
                if chosen is not None and not any(_fits(twin, act, scene) for twin in twins):
                    found[place].append(Hit(act, chosen.id))
        return list(map(tuple, found))

    def _look(self, language: str, key: Key, act: Act) -> tuple[Possible, ...]:
        """The families that an act could try, as far as its key tells."""
        if len(self._possible) >= MOST_KEPT:
            self._possible.clear()
        each = ((place, _among(family.attempt, language, act), family) for place, family in enumerate(self.families))
        self._possible[key] = found = tuple(
            (place, attempts, _among(family.twin, language, act)) for place, attempts, family in each if attempts
        )
        return found


def hits_of(family: Family, scene: Scene) -> tuple[Hit, ...]:
    """The acts that try one family's shortcut, in order, each once."""
    return Matcher([family]).hits(scene)[0]


def _among(patterns: Iterable[Pattern], language: str, act: Act) -> tuple[Pattern, ...]:
    return tuple(
        pattern for pattern in patterns
        if pattern.language == language and pattern.kind in ("", act.kind) and _whole(pattern.program, (act.program,))
        and not ((pattern.first or pattern.arguments) and not act.arguments)
        and not (pattern.reads and not act.reads) and not (pattern.writes and not act.writes)
        and not (pattern.wrote and act.wrote is None)
    )


def matches(pattern: Pattern, act: Act, scene: Scene) -> bool:
    """Whether everything that the pattern asks for holds for the act."""
    return bool(_among([pattern], scene.language, act)) and _fits(pattern, act, scene)


def _fits(pattern: Pattern, act: Act, scene: Scene) -> bool:
    """The same of a pattern that the act's key leaves possible."""
    return (
        (not pattern.first or _whole(pattern.first, act.arguments[:1]))
        and (not pattern.arguments or all(_whole(wanted, act.arguments) for wanted in pattern.arguments))
        and not (pattern.without and any(_whole(refused, act.arguments) for refused in pattern.without))
        and (not pattern.reads or _within(pattern.reads, act.reads))
        and (not pattern.writes or _within(pattern.writes, act.writes))
        and (not pattern.wrote or (act.wrote is not None and found_in(pattern.wrote, act.wrote)))
        and (not pattern.text or found_in(pattern.text, act.text))
        and not (pattern.existing and not any(_existing(pattern, path, scene) for path in act.writes))
        and not (pattern.of_task and not _of_task(act, scene.trajectory.task))
    )


def found_in(pattern: str, text: str) -> bool:
    """Whether a pattern occurs in a text."""
    text = text[:LONGEST]
    return may_match(pattern, text) and _compiled(pattern).search(text) is not None


def _existing(pattern: Pattern, path: str, scene: Scene) -> bool:
    return _within(pattern.writes, (path,)) and not scene.own(path)


def _of_task(act: Act, task: str) -> bool:
    """Whether an argument names a package that the task's name holds as a word."""
    words = set(re.split(r"[^a-z0-9]+", task.lower()))
    names = {re.split(r"[^a-z0-9]", argument.lower().rstrip("/").removesuffix(".git").rsplit("/", 1)[-1])[0]
             for argument in act.arguments[1:]}
    return any(len(name) > 2 and name in words for name in names)


def _whole(pattern: str, words: Iterable[str]) -> bool:
    if not pattern:
        return True
    for word in words:  # noqa: SIM110  (asked often: a generator costs more than the match)
        if (_short_whole if len(word) <= SHORT else _is_whole)(pattern, word):
            return True
    return False


def _within(pattern: str, texts: Iterable[str]) -> bool:
    if not pattern:
        return True
    for text in texts:  # noqa: SIM110
        if (_short_within if len(text) <= SHORT else _is_within)(pattern, text):
            return True
    return False


def _is_whole(pattern: str, word: str) -> bool:
    return _compiled(pattern).fullmatch(word[:LONGEST]) is not None


def _is_within(pattern: str, text: str) -> bool:
    return _compiled(pattern).search(text[:LONGEST]) is not None


_short_whole = lru_cache(maxsize=16_384)(_is_whole)
_short_within = lru_cache(maxsize=16_384)(_is_within)


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.MULTILINE)
