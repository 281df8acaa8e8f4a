"""The same world under other names: what a policy reads is renamed, what it
does is renamed back, and the inner world grades.

1. Names: for each episode a permutation of every role's words, drawn from the
   task and the seed, that leaves none in its place. Every word of the role is
   renamed wherever it stands, alone or as a part (`test_kiwi`), in small
   letters, Capitalised or in CAPITALS; so two names never become one, and a
   policy reads names of the population that it knows.
2. Ids: letter by letter, digits for digits and letters for letters, moved on by
   a number drawn from what stands before: ids that begin alike still do, and
   what a policy makes up is renamed back alike.
3. Dates: all moved by the same number of weeks, up to five years either way:
   order, distances and days of the week stay.
4. Order: lists in the prompt of three or more names of a role, between commas or
   under bullets, are shuffled.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache

import numpy as np

from forensics.protocols import Alteration, Environment
from forensics.records import content_hash
from resampling.gain_tests.altered_worlds import AlteredWorld, alteration
from resampling.gain_tests.identifiers import DATE, ID, LISTED, WORD, stem_of

WEEKS = range(8, 261)
DIGITS, LETTERS = "0123456789", "abcdef"
_PART = re.compile(r"[^\W_]+")
Names = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Renaming:
    """What is renamed: words of each role, ids and dates but the `fixed` ones.
    `lists`: words whose lists are shuffled.
    """

    roles: tuple[tuple[str, ...], ...] = ()
    lists: tuple[tuple[str, ...], ...] = ()
    ids: bool = False
    dates: bool = False
    fixed: frozenset[str] = frozenset()

    @property
    def alteration(self) -> Alteration:
        content = [self.roles, self.lists, self.ids, self.dates, sorted(self.fixed)]
        return alteration(
            f"renamed:{content_hash(content)}",
            lambda inner, name: RenamedWorld(inner, name, self),
            "names, ids or dates renamed",
        )


class RenamedWorld(AlteredWorld):
    """The inner world by other names."""

    def __init__(self, inner: Environment, alteration: str, renaming: Renaming) -> None:
        super().__init__(inner, alteration)
        self._renaming = renaming
        self._episode = Episode(renaming, "")
        self._prompts = False

    def begin(self, task: str, seed: int) -> None:
        self._episode = Episode(self._renaming, f"{task}/{seed}")
        self._prompts = True

    def shown(self, text: str) -> str:
        there = self._episode
        return there.shuffled(there.renamed(text)) if self._prompts else there.renamed(text)

    def taken(self, action: str) -> str:
        self._prompts = False
        return self._episode.renamed_back(action)


class Episode:
    """The names of one episode, drawn from its key."""

    def __init__(self, renaming: Renaming, key: str) -> None:
        self._renaming, self._key = renaming, key
        self._names, self._back = drawn_names(renaming.roles, key)
        weeks = WEEKS[_number(key, "weeks") % len(WEEKS)]
        self._shift = timedelta(weeks=weeks if _number(key, "way") % 2 else -weeks)

    def renamed(self, text: str) -> str:
        """A text of the inner world as the policy reads it."""
        text = self._values(text, 1)
        return WORD.sub(lambda found: _renamed(found[0], self._names), text)

    def renamed_back(self, text: str) -> str:
        """A text of the policy as the inner world reads it."""
        text = WORD.sub(lambda found: _renamed(found[0], self._back), text)
        return self._values(text, -1)

    def shuffled(self, text: str) -> str:
        """A text of the policy's with its lists of names in another order."""
        return LISTED.sub(self._reordered, text) if self._renaming.lists else text

    def _values(self, text: str, way: int) -> str:
        if self._renaming.dates:
            text = DATE.sub(lambda found: self._moved(found[0], way), text)
        if self._renaming.ids:
            text = ID.sub(lambda found: self._other_id(found[0], way), text)
        return text

    def _moved(self, text: str, way: int) -> str:
        if text in self._renaming.fixed:
            return text
        try:
            return (date.fromisoformat(text) + way * self._shift).isoformat()
        except (ValueError, OverflowError):
            return text

    def _other_id(self, text: str, way: int) -> str:
        stem = stem_of(text)
        if text in self._renaming.fixed:
            return text
        other = ""
        for place, letter in enumerate(text[len(stem) :]):
            before = (text if way > 0 else stem + other)[: len(stem) + place]
            other += other_letter(letter, f"{self._key}/{before}", bool(stem) and not place, way)
        return stem + other

    def _reordered(self, found: re.Match[str]) -> str:
        names = [match.span() for match in WORD.finditer(found[0])]
        words = [found[0][start:end] for start, end in names]
        if not any(set(words) <= set(role) for role in self._renaming.lists):
            return found[0]
        order = _stream(self._key, "order").permutation(len(words))
        text, at = "", 0
        for (start, end), place in zip(names, order, strict=True):
            text += found[0][at:start] + words[place]
            at = end
        return text + found[0][at:]


def _renamed(word: str, names: Names) -> str:
    if word in names:
        return names[word]
    return _PART.sub(lambda part: names.get(part[0], part[0]), word)


@lru_cache(maxsize=64)
def drawn_names(roles: tuple[tuple[str, ...], ...], key: str) -> tuple[Names, Names]:
    """Another word for each, and the way back."""
    names: dict[str, str] = {}
    for number, role in enumerate(roles):
        for words in _spellings(role):
            circle = [words[i] for i in _stream(key, f"role {number}").permutation(len(words))]
            for word, other in zip(circle, [*circle[1:], circle[0]], strict=True):
                names.update(zip(word, other, strict=True))
    return names, {other: word for word, other in names.items()}


@lru_cache(maxsize=64)
def _spellings(role: tuple[str, ...]) -> tuple[tuple[tuple[str, ...], ...], ...]:
    """The words of a role that change places with each other, each in all its
    spellings: those in small letters, and the others.
    """
    small = tuple((w, w.upper(), w.capitalize()) for w in role if w == w.lower())
    other = tuple((w,) for w in role if w != w.lower())
    return tuple(words for words in (small, other) if len(words) > 1)


@lru_cache(maxsize=65_536)
def other_letter(letter: str, key: str, first: bool, way: int) -> str:
    """Another one of its kind; the `first` digit of a number stays none or not."""
    kind = DIGITS if letter.isdigit() else LETTERS if letter in LETTERS else letter
    if first and kind == DIGITS:
        if letter == "0":
            return letter
        kind = DIGITS[1:]
    if len(kind) == 1:
        return letter
    step = 1 + _number(key, "letter") % (len(kind) - 1)
    return kind[(kind.index(letter) + way * step) % len(kind)]


def _stream(key: str, what: str) -> np.random.Generator:
    return np.random.default_rng(_number(key, what))


def _number(key: str, what: str) -> int:
    digest = hashlib.sha256(f"renaming/{what}/{key}".encode()).digest()
    return int.from_bytes(digest[:8], "little")
