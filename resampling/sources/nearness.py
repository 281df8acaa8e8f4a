"""Which texts of one list repeat, or nearly repeat, texts of another.

1. A text is read as words, in lower case; letters that look alike count as one
   (NFKC), punctuation and blanks count nothing. Words with a digit in them, and
   signs of arithmetic between numbers, are *figures*.
2. A word that stands in at least `TEMPLATE` of one of the two lists belongs to
   their wording and weighs nothing (figures stay: any of them may be the task).
   Any other weighs log(texts / texts with it).
3. Two texts are near where their figures are the same, in the same order (a task
   with another number is another task), and the words that they share make up
   at least `NEAR` of the weight of each.
4. A text that is near more than `MOST_SHARE` of the other list, and more than
   `MOST` of its texts, is near to none: who reads it cannot tell which of them
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
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
from scipy.sparse import csr_array

NEAR: Final = 0.6
TEMPLATE: Final = 0.8
MOST: Final = 3
MOST_SHARE: Final = 0.05
FEWEST: Final = 10  # texts of a list, below which nothing is known of its wording
SLACK: Final = 1e-9
WORD: Final = re.compile(r"\w+|(?<=[\d\s)])[-+*/=^%<>](?=\s*[\d(])")
Words = tuple[str, ...]


def read(text: str) -> Words:
    """The words and signs of a text, in order."""
    return tuple(WORD.findall(unicodedata.normalize("NFKC", text).lower()))


def figures(words: Words) -> Words:
    """Those of which another one would make another task."""
    return tuple(w for w in words if not w.isalpha() and (len(w) == 1 or any(map(str.isdigit, w))))


def near(texts: Sequence[str], others: Sequence[str]) -> list[tuple[int, ...]]:
    """For each of `texts` the places of the `others` that are near it."""
    lists = [read(text) for text in texts], [read(text) for text in others]
    wording = {
        word
        for part in lists
        if len(part) >= FEWEST
        for word, count in _texts_with(part).items()
        if count >= TEMPLATE * len(part)
    }
    known = _texts_with((*lists[0], *lists[1]))
    places = {word: place for place, word in enumerate(w for w in known if w not in wording)}
    weights = np.log((1 + sum(map(len, lists))) / np.array([known[word] for word in places]))
    own, other = (_table(part, places) for part in lists)
    bars = NEAR * (other @ weights) - SLACK
    same: dict[Words, list[int]] = defaultdict(list)
    for place, words in enumerate(lists[1]):
        same[figures(words)].append(place)
    found = []
    for number, words in enumerate(lists[0]):
        weighed = own[[number]].toarray()[0] * weights
        at = np.array(same.get(figures(words), ()), dtype=int)
        close = at[other[at] @ weighed >= np.maximum(bars[at], NEAR * weighed.sum() - SLACK)]
        found.append(tuple(close.tolist()))
    most = max(MOST, MOST_SHARE * len(others))
    return [close if len(close) <= most else () for close in found]


def _texts_with(texts: Sequence[Words]) -> Counter[str]:
    return Counter(word for words in texts for word in set(words))


def _table(texts: Sequence[Words], places: Mapping[str, int]) -> Any:
    """`[texts, words]`, one where a text has a word."""
    rows = [sorted({places[word] for word in words if word in places}) for words in texts]
    ends = np.cumsum([0, *map(len, rows)])
    columns = np.array([*chain(*rows)], dtype=int)
    return csr_array((np.ones(len(columns)), columns, ends), shape=(len(rows), len(places)))
