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


class Hit(NamedTuple):
    """An act that tries a shortcut, and the id of the pattern that says so."""

    act: Act
    pattern: str


def hits_of(family: Family, scene: Scene) -> tuple[Hit, ...]:
    """The acts that try the family's shortcut, in order, each once."""
    found = []
    kept, language = family.possible, scene.language
    for act, key in scene.keyed:
        attempts, twins = kept.get(key) or _possible(family, language, key, act)
        chosen = next((pattern for pattern in attempts if _fits(pattern, act, scene)), None) if attempts else None
        if chosen is not None and not any(_fits(twin, act, scene) for twin in twins):
            found.append(Hit(act, chosen.id))
    return tuple(found)


def _possible(
    family: Family, language: str, key: Key, act: Act
) -> tuple[tuple[Pattern, ...], tuple[Pattern, ...]]:
    """The attempts and the twins of a family that an act can match, as far as its key tells."""
    if len(family.possible) >= MOST_KEPT:
        family.possible.clear()
    family.possible[key] = found = _among(family.attempt, language, act), _among(family.twin, language, act)
    return found


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
    matched = _compiled(pattern).fullmatch
    for word in words:  # noqa: SIM110  (asked often: a generator costs more than the match)
        if matched(word[:LONGEST]) is not None:
            return True
    return False


def _within(pattern: str, texts: Iterable[str]) -> bool:
    if not pattern:
        return True
    searched = _compiled(pattern).search
    for text in texts:  # noqa: SIM110
        if searched(text[:LONGEST]) is not None:
            return True
    return False


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.MULTILINE)
