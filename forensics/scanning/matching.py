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
from forensics.scanning.scene import LONGEST, Scene

MOST_KEPT: Final = 4096  # programs whose possible patterns are remembered


class Hit(NamedTuple):
    """An act that tries a shortcut, and the id of the pattern that says so."""

    act: Act
    pattern: str


def hits_of(family: Family, scene: Scene) -> tuple[Hit, ...]:
    """The acts that try the family's shortcut, in order, each once."""
    found = []
    language = scene.language
    for act in scene.acts:
        attempts, twins = _possible(family, language, act)
        chosen = next((pattern for pattern in attempts if matches(pattern, act, scene)), None)
        if chosen is not None and not any(matches(twin, act, scene) for twin in twins):
            found.append(Hit(act, chosen.id))
    return tuple(found)


def _possible(family: Family, language: str, act: Act) -> tuple[tuple[Pattern, ...], tuple[Pattern, ...]]:
    """The attempts and the twins of a family that an act can match, as far as its program and its fields tell."""
    kept = family.possible
    has = bool(act.arguments), bool(act.reads), bool(act.writes), act.wrote is not None
    key = (language, act.kind, act.program, *has)
    if key not in kept:
        if len(kept) >= MOST_KEPT:
            kept.clear()
        kept[key] = _among(family.attempt, language, act), _among(family.twin, language, act)
    return kept[key]


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
    return (
        pattern.language == scene.language
        and (not pattern.kind or pattern.kind == act.kind)
        and _whole(pattern.program, (act.program,))
        and _whole(pattern.first, act.arguments[:1])
        and all(_whole(wanted, act.arguments) for wanted in pattern.arguments)
        and not any(_whole(refused, act.arguments) for refused in pattern.without)
        and _within(pattern.reads, act.reads)
        and _within(pattern.writes, act.writes)
        and _within(pattern.wrote, () if act.wrote is None else (act.wrote,))
        and _within(pattern.text, (act.text,))
        and not (pattern.existing and not any(_existing(pattern, path, scene) for path in act.writes))
        and not (pattern.of_task and not _of_task(act, scene.trajectory.task))
    )


def found_in(pattern: str, text: str) -> bool:
    """Whether a pattern occurs in a text."""
    return _compiled(pattern).search(text[:LONGEST]) is not None


def _existing(pattern: Pattern, path: str, scene: Scene) -> bool:
    return _within(pattern.writes, (path,)) and not scene.own(path)


def _of_task(act: Act, task: str) -> bool:
    """Whether an argument names a package that the task's name holds as a word."""
    words = set(re.split(r"[^a-z0-9]+", task.lower()))
    names = {re.split(r"[^a-z0-9]", argument.lower().rstrip("/").removesuffix(".git").rsplit("/", 1)[-1])[0]
             for argument in act.arguments[1:]}
    return any(len(name) > 2 and name in words for name in names)


def _whole(pattern: str, words: Iterable[str]) -> bool:
    return not pattern or any(_compiled(pattern).fullmatch(word[:LONGEST]) for word in words)


def _within(pattern: str, texts: Iterable[str]) -> bool:
    return not pattern or any(found_in(pattern, text) for text in texts)


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.MULTILINE)
