"""Degeneracy of one run, as seven numbers. Each is undefined (`None`) where the
run is too short to say.

On what the policy wrote: repeated n-grams, compression ratio, longest repeated
suffix (a loop at the end), and the share of its longer texts that echoes the
observation before. On what it did: action repetition, alternation and
monologue. All but the compression ratio are shares from 0 (healthy) to 1.
Longer healthy runs repeat more words and compress better, so the measures of
writing alone never decide anything: the echo trap looks at action repetition,
which polling and honest test-edit-test loops do not raise.

An echo is a habit: it counts where at least `ECHOING` turns of `LONG_TURN` words or more
answer something that came back. A choice, a move or a number says little however it was
put, and the prompt is no observation: answers quote it, mend it, or choose from it.

Words are compared by numbers for them, and stretches of words by numbers for pairs of halves
(prefix doubling: Karp, Miller and Rosenberg 1972).
"""

import re
import zlib
from collections.abc import Hashable, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from forensics.layers.actions import Acted, acted_in, alternating
from forensics.layers.text_words import words
from forensics.records import Trajectory

Numbers = NDArray[np.int64]

NGRAM = 4  # words
ECHO_GRAM = 2 * NGRAM  # words; shorter copies are ordinary quoting
LONG_TURN = 32  # words of a turn that is long enough to echo something
ECHOING = 2  # turns that long
FEWEST_GRAMS = 4
FEWEST_BYTES = 32
TAIL = 512  # words of the end that are searched for a loop
MEASURES = (
    "repeated n-grams",
    "compression ratio",
    "longest repeated suffix",
    "action repetition",
    "alternation",
    "monologue",
    "echoed observation",
)
# parts of messages that no reader knows stand as their kind in brackets: nobody wrote that
_PLACEHOLDERS = re.compile(r"(?:\s*\[[\w .:-]{1,60}\])+\s*")
Writing = tuple[float | None, float | None, float | None]


def degeneracy(trajectory: Trajectory, acted: Acted | None = None) -> dict[str, float | None]:
    """Every measure of `MEASURES` for one run; what was done in it may be given
    where known.
    """
    turns, exchanges, idle = acted or acted_in(trajectory)
    written = ["" if _PLACEHOLDERS.fullmatch(turn.written) else turn.written for turn in turns]
    before = [trajectory.steps[turn.step - 1] for turn in turns[1:]]
    shown = [step.text if step.role != "assistant" else None for step in before]
    repeated, suffix, echo = measures_of_writing(written, [*[None for _ in turns[:1]], *shown])
    values = (
        repeated,
        compression_ratio("\n".join(written)),
        suffix,
        _share(idle),
        _share(alternating(exchanges)),
        _share([turn.talks for turn in turns]),
        echo,
    )
    return dict(zip(MEASURES, values, strict=True))


def compression_ratio(text: str) -> float | None:
    """Bytes before compression over bytes after (raw deflate): about 1 for
    noise, large for repetition.
    """
    data = text.encode()
    if len(data) < FEWEST_BYTES:
        return None
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return len(data) / len(packer.compress(data) + packer.flush())


def repeated_suffix(
    sequence: Sequence[Hashable], turns: Sequence[int] | None = None
) -> float | None:
    """Share of the last `TAIL` words covered by a loop at the very end (a
    stretch said at least twice in a row). `turns`: of each word the turn that said it; turns
    that were said twice in full are an action tried again, and no loop yet.
    """
    end = sequence[-TAIL:]
    said = None if turns is None else turns[-TAIL:]
    if len(end) < FEWEST_GRAMS:
        return None
    longest = 0
    for period in range(1, len(end) // 2 + 1):
        if end[-1 - period] == end[-1]:
            covered = looped_words(end, period)
            again = said is not None and said[-period] != said[-period - 1]
            longest = max(longest, 0 if again and covered < 3 * period else covered)
        if longest == len(end):
            break
    return longest / len(end)


def looped_words(end: Sequence[Hashable], period: int) -> int:
    """How many words at the end repeat with this period, 0 where not twice in
    full or hardly more than a fence.
    """
    if end[-period:] != end[-2 * period : -period]:
        return 0
    covered = 2 * period
    while covered < len(end) and end[-covered - 1] == end[period - covered - 1]:
        covered += 1
    return covered if covered >= FEWEST_GRAMS else 0


def measures_of_writing(written: Sequence[str], heard: Sequence[str | None]) -> Writing:
    """Repeated n-grams, longest repeated suffix and echo of what was written in
    each turn, and heard just before it (`None`: nothing).
    """
    numbers, text = word_numbers([*(shown or "" for shown in heard), *written])
    own = int(np.searchsorted(text, len(heard)))  # the first word written; those heard come before
    runs = gram_numbers(numbers, NGRAM)
    count = len(numbers) - own - NGRAM + 1
    heard_runs, own_runs = (_among(part, len(numbers)) for part in (runs[:own], runs[own:]))
    repeated = None if count < FEWEST_GRAMS else 1 - int(np.count_nonzero(own_runs)) / count
    suffix = repeated_suffix(numbers[own:][-TAIL:].tolist(), text[own:][-TAIL:].tolist())
    last = len(numbers) - ECHO_GRAM + 1
    if last <= own:
        return repeated, suffix, None
    # stretches of ECHO_GRAM words within one text, with the turn that they belong to
    turn = np.where(np.arange(last) < own, text[:last], text[:last] - len(heard))
    whole = text[:last] == text[ECHO_GRAM - 1 :]
    long = np.bincount(text[own:] - len(heard), minlength=len(heard)) >= LONG_TURN
    whole[own:] &= (long & [shown is not None for shown in heard])[turn[own:]]
    count = int(np.count_nonzero(whole[own:]))
    if len(np.unique(turn[own:][whole[own:]])) < ECHOING:
        return repeated, suffix, None
    # mostly nothing is a copy: only stretches whose halves stand on both sides are compared
    shared = (heard_runs & own_runs).take(runs)
    at = np.flatnonzero(whole & shared[:last] & shared[NGRAM : NGRAM + last])
    stretches = pair_numbers(runs[at], runs[at + NGRAM])
    keys, first = stretches * len(heard) + turn[at], int(np.searchsorted(at, own))
    return repeated, suffix, int(np.isin(keys[first:], keys[:first]).sum()) / count


def word_numbers(texts: Sequence[str]) -> tuple[Numbers, Numbers]:
    """Of each word of the texts, in order: its number, the same for equal words, and the place
    of its text.
    """
    said = [words(text) for text in texts]
    number = {word: i for i, word in enumerate(dict.fromkeys(chain.from_iterable(said)))}
    found = [number[word] for one in said for word in one]
    return np.array(found, np.int64), np.repeat(
        np.arange(len(texts)), np.array([*map(len, said)], np.int64)
    )


def gram_numbers(numbers: Numbers, size: int) -> Numbers:
    """Of each stretch of `size` words, a power of two, its number."""
    width = 1
    while width < size:
        numbers, width = pair_numbers(numbers[:-width], numbers[width:]), 2 * width
    return numbers


def pair_numbers(left: Numbers, right: Numbers) -> Numbers:
    """Of each pair of numbers a number below the count of pairs, the same for equal pairs."""
    pairs = left * (int(right.max(initial=0)) + 1) + right
    _, number = np.unique(pairs, return_inverse=True)
    return np.asarray(number, np.int64)


def _among(numbers: Numbers, count: int) -> NDArray[np.bool_]:
    """Whether each number below `count` is among some."""
    found = np.zeros(count, bool)
    found[numbers] = True
    return found


def _share(flags: Sequence[bool]) -> float | None:
    return sum(flags) / len(flags) if flags else None
