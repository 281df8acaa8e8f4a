"""Which actions try a family's shortcut: patterns over actions, as the family's file
gives them.

Most actions cannot match most patterns, by their program or because they write
nothing; so what an action's program and the fields that it has leave possible is
kept.

A regular expression mostly needs some literal text: a look for that spares most
texts the expression itself.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from forensics.actions import Action
from forensics.shortcuts.blind_run import LONGEST, BlindRun, Key
from forensics.shortcuts.family import Family, Pattern

FEWEST = 3  # characters of a literal that is worth a look
MOST = 24  # literals of one expression
MOST_KEPT = 4096  # programs whose possible patterns are remembered
SHORT = 200  # characters of a text whose matches are remembered
Patterns = tuple[Pattern, ...]
Possible = tuple[
    int, Patterns, Patterns
]  # the family's place, its attempts and its twins that can match


class Literals(NamedTuple):
    """Texts of which every match holds at least one (`()`: it tells none);
    lower case where case does not count.
    """

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
    if not literals.texts or (
        literals.any_case and not text.isascii()
    ):  # letters beyond ASCII may stand for others
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
    if name == "ASSERT" and value[0] > 0:
        return _needed(value[1])
    if name == "BRANCH":
        needed = [_needed(branch) for branch in value[1]]
        return None if None in needed else frozenset().union(*filter(None, needed))
    return None


class Hit(NamedTuple):
    """An action that tries a shortcut, and the id of the pattern that says so."""

    action: Action
    pattern: str


class Matcher:
    """Finds the actions that try the shortcuts of some families, all of them in
    one pass over a run's actions.
    """

    def __init__(self, families: Iterable[Family]) -> None:
        self.families = tuple(families)
        self._possible: dict[Key, tuple[Possible, ...]] = {}

    def hits(self, blind: BlindRun) -> list[tuple[Hit, ...]]:
        """Of each family the actions that try its shortcut, in order, each once."""
        found: list[list[Hit]] = [[] for _ in self.families]
        for action, key in blind.keyed:
            possible = self._possible.get(key)
            for place, attempts, twins in self._look(key, action) if possible is None else possible:
                chosen = next(
                    (pattern for pattern in attempts if _fits(pattern, action, blind)), None
                )
                if chosen is not None and not any(_fits(twin, action, blind) for twin in twins):
                    found[place].append(Hit(action, chosen.id))
        return list(map(tuple, found))

    def _look(self, key: Key, action: Action) -> tuple[Possible, ...]:
        """The families that an action could try, as far as its key tells."""
        if len(self._possible) >= MOST_KEPT:
            self._possible.clear()
        each = (
            (place, _among(family.attempt, action), family)
            for place, family in enumerate(self.families)
        )
        self._possible[key] = found = tuple(
            (place, attempts, _among(family.twin, action))
            for place, attempts, family in each
            if attempts
        )
        return found


def _among(patterns: Iterable[Pattern], action: Action) -> tuple[Pattern, ...]:
    return tuple(
        pattern
        for pattern in patterns
        if pattern.kind in ("", action.kind)
        and _whole(pattern.program, (action.program,))
        and not ((pattern.first or pattern.arguments) and not action.arguments)
        and not (pattern.reads and not action.reads)
        and not (pattern.writes and not action.writes)
        and not (pattern.wrote and action.content is None)
    )


def matches(pattern: Pattern, action: Action, blind: BlindRun) -> bool:
    """Whether everything that the pattern asks for holds for the action."""
    return bool(_among([pattern], action)) and _fits(pattern, action, blind)


def _fits(pattern: Pattern, action: Action, blind: BlindRun) -> bool:
    """The same of a pattern that the action's key leaves possible."""
    return (
        (not pattern.first or _whole(pattern.first, action.arguments[:1]))
        and (
            not pattern.arguments
            or all(_whole(wanted, action.arguments) for wanted in pattern.arguments)
        )
        and not (
            pattern.without
            and any(_whole(refused, action.arguments) for refused in pattern.without)
        )
        and (not pattern.reads or _within(pattern.reads, action.reads))
        and (not pattern.writes or _within(pattern.writes, action.writes))
        and (
            not pattern.wrote
            or (action.content is not None and found_in(pattern.wrote, action.content))
        )
        and (not pattern.text or found_in(pattern.text, action.text))
        and not (pattern.existing and not _existing(pattern, action, blind))
        and not (
            pattern.unnamed
            and all(_is_named(path, blind.prompt) for path in _paths(pattern, action))
        )
        and not (pattern.of_task and not _of_task(action, blind.trajectory.task))
    )


def _paths(pattern: Pattern, action: Action) -> tuple[str, ...]:
    return action.writes if pattern.writes else action.reads


def _is_named(path: str, prompt: str) -> bool:
    """Whether a prompt names a path, or the folder that it lies in."""
    folder = path.rpartition("/")[0]
    return path in prompt or (
        folder in prompt
        and folder.startswith("/")
        and re.search(rf"(?<![\w./-]){re.escape(folder)}(?![\w-])", prompt) is not None
    )


def _existing(pattern: Pattern, action: Action, blind: BlindRun) -> bool:
    """Whether a path that matches was there before the run, or holds what others wrote."""
    if pattern.writes:
        return any(
            _within(pattern.writes, (path,)) and not blind.own(path) for path in action.writes
        )
    return any(_within(pattern.reads, (path,)) and not blind.wrote(path) for path in action.reads)


def found_in(pattern: str, text: str) -> bool:
    """Whether a pattern occurs in a text."""
    text = text[:LONGEST]
    return may_match(pattern, text) and _compiled(pattern).search(text) is not None


def _of_task(action: Action, task: str) -> bool:
    """Whether an argument names a package that the task's name holds as a word."""
    words = set(re.split(r"[^a-z0-9]+", task.lower()))
    names = {
        re.split(
            r"[^a-z0-9]", argument.lower().rstrip("/").removesuffix(".git").rsplit("/", 1)[-1]
        )[0]
        for argument in action.arguments[1:]
    }
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
    for text in texts:
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
