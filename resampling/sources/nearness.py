"""Which texts of one list repeat, or nearly repeat, texts of another.

1. A text is read as words, in lower case; letters that look alike count as one
   (NFKC), punctuation and blanks count nothing. Words with a digit in them, and
   signs of arithmetic between numbers, are *figures*.
2. A word that stands in at least `template` of one of the two lists belongs to
   their wording and weighs nothing (figures stay: any of them may be the task).
   Any other weighs log(texts / texts with it).
3. Two texts are near where their figures are the same, in the same order (a task
   with another number is another task), and the words that they share make up
   at least `nearness` of the weight of each.
4. A text that is near more than `most_share` of the other list, and more than
   `most` of its texts, is near to none: who reads it cannot tell which of them
   it stands for.

Contamination checks count shared n-grams of 8 to 13 words (2005.14165,
2204.02311). Prompts of tasks are often shorter than that, and what tells two of
them apart is one word or one number: so here single words are weighed.

Not seen: the same task in entirely other words, numbers spelt out, figures that
mean nothing and were drawn anew.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log
from typing import Final

WORD: Final = re.compile(r"\w+|(?<=[\d\s)])[-+*/=^%<>](?=\s*[\d(])")
FEWEST: Final = 10  # texts of a list, below which nothing is known of its wording
SLACK: Final = 1e-9


@dataclass(frozen=True, kw_only=True)
class Nearness:
    """See the steps of this file."""

    nearness: float = 0.6
    template: float = 0.8
    most: int = 3
    most_share: float = 0.05


@dataclass(frozen=True)
class Read:
    """What counts of a text: its figures in order, and all its words."""

    figures: tuple[str, ...]
    words: frozenset[str]


def read(text: str) -> tuple[str, ...]:
    """The words and signs of a text, in order."""
    return tuple(WORD.findall(unicodedata.normalize("NFKC", text).lower()))


def is_figure(word: str) -> bool:
    """Whether another one would make another task."""
    return not word.isalpha() and (len(word) == 1 or any(sign.isdigit() for sign in word))


@dataclass(frozen=True, kw_only=True)
class Twins:
    """For each text of `held_out` the texts of `trained` that are near it."""

    held_out: Sequence[str]
    trained: Sequence[str]
    bars: Nearness

    def found(self) -> list[tuple[int, ...]]:
        """Places in `trained`, for each text of `held_out`."""
        bars = self.bars
        most = max(bars.most, bars.most_share * len(self.trained))
        near = [self._near(text) for text in self._held_out]
        return [places if len(places) <= most else () for places in near]

    @cached_property
    def _lists(self) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
        return [read(text) for text in self.held_out], [read(text) for text in self.trained]

    @cached_property
    def _wording(self) -> frozenset[str]:
        """Words of the template."""
        return frozenset(
            word
            for texts in self._lists
            if len(texts) >= FEWEST
            for word, number in _texts_with(texts).items()
            if number >= self.bars.template * len(texts)
        )

    @cached_property
    def _weights(self) -> Mapping[str, float]:
        texts = [*self._lists[0], *self._lists[1]]
        return {
            word: 0.0 if word in self._wording else log((1 + len(texts)) / number)
            for word, number in _texts_with(texts).items()
        }

    def _reduced(self, words: Sequence[str]) -> Read:
        figures = tuple(word for word in words if is_figure(word))
        return Read(figures, frozenset(words) - self._wording)

    @cached_property
    def _held_out(self) -> list[Read]:
        return [self._reduced(words) for words in self._lists[0]]

    @cached_property
    def _trained(self) -> list[Read]:
        return [self._reduced(words) for words in self._lists[1]]

    @cached_property
    def _index(self) -> Mapping[tuple[tuple[str, ...], str], list[int]]:
        """Places by the figures and each word, `""` for a text without any."""
        index: dict[tuple[tuple[str, ...], str], list[int]] = defaultdict(list)
        for place, text in enumerate(self._trained):
            for word in text.words or ("",):
                index[text.figures, word].append(place)
        return index

    def _weight(self, words: Iterable[str]) -> float:
        return sum(self._weights[word] for word in words)

    def _near(self, text: Read) -> tuple[int, ...]:
        candidates = {
            place
            for word in self._rarest(text)
            for place in self._index.get((text.figures, word), ())
        }
        return tuple(sorted(place for place in candidates if self._share(text, place)))

    def _rarest(self, text: Read) -> Iterable[str]:
        """Words of which a near text must have at least one."""
        if not text.words:
            return ("",)
        left = (1 - self.bars.nearness) * self._weight(text.words) + SLACK
        chosen = []
        for word in sorted(text.words, key=lambda word: (-self._weights[word], word)):
            chosen.append(word)
            left -= self._weights[word]
            if left < 0:
                break
        return chosen

    def _share(self, text: Read, place: int) -> bool:
        other = self._trained[place]
        shared = self._weight(sorted(text.words & other.words))
        bar = self.bars.nearness - SLACK
        return all(shared >= bar * self._weight(sorted(one.words)) for one in (text, other))


def _texts_with(texts: Sequence[Sequence[str]]) -> Counter[str]:
    return Counter(word for words in texts for word in set(words))
