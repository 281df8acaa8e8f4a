"""Degeneracy of one run, as seven numbers. Each is undefined (`None`) where the
run is too short to say.

On what the policy wrote: repeated n-grams, compression ratio, longest repeated
suffix (a loop at the end), and the share of its longer texts that echoes the
observation before. On what it did: action repetition, alternation and
monologue. All but the compression ratio are shares from 0 (healthy) to 1.
Longer healthy runs repeat more words and compress better, so the measures of
writing alone never decide anything: the echo trap looks at action repetition,
which polling and honest test-edit-test loops do not raise.

Short runs are measured word by word; long ones by numbers for words
(`word_numbers`), with the same results.
"""

import zlib
from collections.abc import Hashable, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from forensics.layers.actions import (
    Exchange,
    Turn,
    alternating,
    exchanges_of,
    idle_repeats,
    turns_of,
)
from forensics.layers.text_words import Gram, grams, words
from forensics.layers.word_numbers import Numbers, both, gram_numbers, interned, word_numbers
from forensics.records import Trajectory

NGRAM = 4  # words
ECHO_GRAM = 8  # words, at most two n-grams; shorter copies are ordinary quoting
FEWEST_GRAMS = 4
FEWEST_BYTES = 32
TAIL = 512  # words of the end that are searched for a loop
LONG = (
    8_000  # characters written and answered; below, setting up tables takes longer than they save
)
MEASURES = (
    "repeated n-grams",
    "compression ratio",
    "longest repeated suffix",
    "action repetition",
    "alternation",
    "monologue",
    "echoed observation",
)
Writing = tuple[
    float | None, float | None, float | None
]  # repeated n-grams, longest repeated suffix, echo


def degeneracy(
    trajectory: Trajectory,
    turns: Sequence[Turn] | None = None,
    exchanges: Sequence[Exchange] | None = None,
    idle: Sequence[bool] | None = None,
) -> dict[str, float | None]:
    """Every measure of `MEASURES` for one run; its turns and what follows from
    them may be given where known.
    """
    turns = turns_of(trajectory) if turns is None else turns
    exchanges = exchanges_of(turns) if exchanges is None else exchanges
    idle = idle_repeats(turns, exchanges) if idle is None else idle
    written, heard = [turn.written for turn in turns], [_heard(trajectory, turn) for turn in turns]
    measured = (
        by_words
        if sum(map(len, written)) + sum(map(len, filter(None, heard))) < LONG
        else by_numbers
    )
    repeated, suffix, echo = measured(written, heard)
    values = (
        repeated,
        compression_ratio("\n".join(written)),
        suffix,
        _share(idle),
        _share(alternating(turns, exchanges)),
        _share([turn.talks for turn in turns]),
        echo,
    )
    return dict(zip(MEASURES, values, strict=True))


def _heard(trajectory: Trajectory, turn: Turn) -> str | None:
    """The message just before a turn, where the policy did not write it."""
    before = trajectory.steps[turn.step - 1] if turn.step else None
    return None if before is None or before.role == "assistant" else before.text


def repeated_ngrams(sequence: Sequence[str], size: int = NGRAM) -> float | None:
    """Share of the runs of `size` words that occurred before in the same text."""
    count = len(sequence) - size + 1
    return None if count < FEWEST_GRAMS else 1 - len(set(grams(sequence, size))) / count


def compression_ratio(text: str) -> float | None:
    """Bytes before compression over bytes after (raw deflate): about 1 for
    noise, large for repetition.
    """
    data = text.encode()
    if len(data) < FEWEST_BYTES:
        return None
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return len(data) / len(packer.compress(data) + packer.flush())


def repeated_suffix(sequence: Sequence[Hashable], tail: int = TAIL) -> float | None:
    """Share of the last `tail` words covered by a loop at the very end (a
    stretch said at least twice in a row).
    """
    end = sequence[-tail:]
    if len(end) < FEWEST_GRAMS:
        return None
    longest = 0
    for period in range(1, len(end) // 2 + 1):
        if end[-1 - period] == end[-1]:
            longest = max(longest, _looped(end, period))
        if longest == len(end):
            break
    return longest / len(end)


def _looped(end: Sequence[Hashable], period: int) -> int:
    """How many words at the end repeat with this period, 0 where not twice in
    full or hardly more than a fence.
    """
    if end[-period:] != end[-2 * period : -period]:
        return 0
    covered = 2 * period
    while covered < len(end) and end[-covered - 1] == end[period - covered - 1]:
        covered += 1
    return covered if covered >= FEWEST_GRAMS else 0


def by_words(written: Sequence[str], heard: Sequence[str | None]) -> Writing:
    """The measures of what was written in each turn, and heard just before it,
    in time for short texts only.
    """
    said = [words(text) for text in written]
    sequence = tuple(chain.from_iterable(said))
    runs = copied = 0
    for own, shown in zip(said, heard, strict=True):
        if shown is not None and len(own) >= ECHO_GRAM:
            runs += len(own) - ECHO_GRAM + 1
            copied += _copied(own, shown, ECHO_GRAM)
    return repeated_ngrams(sequence), repeated_suffix(sequence), copied / runs if runs else None


def _copied(own: Sequence[str], shown: str, size: int) -> int:
    """How many of the runs of `size` words stand in a text.

    A run stands there only if its words without the space between them do, and
    every run holds one of the blocks of half a run that start at the multiples
    of `stride`: mostly none is there, and nothing else is looked at.
    """
    dense, half = "".join(shown.split()), (size + 1) // 2
    stride = size - half + 1
    if not any(
        "".join(own[at : at + half]) in dense for at in range(0, len(own) - half + 1, stride)
    ):
        return 0
    there: set[Gram] = set(grams(words(shown), size))
    return sum(map(there.__contains__, grams(own, size)))


def by_numbers(written: Sequence[str], heard: Sequence[str | None]) -> Writing:
    """The same in fewer steps for long texts."""
    numbers, text = word_numbers([*(shown or "" for shown in heard), *written])
    own = int(
        np.searchsorted(text, len(heard))
    )  # the first word written; those heard come before it
    runs = gram_numbers(numbers, NGRAM)
    count = len(numbers) - own - NGRAM + 1
    repeated = (
        None
        if count < FEWEST_GRAMS
        else 1 - int(np.count_nonzero(_among(runs[own:], len(numbers)))) / count
    )
    told = np.array([shown is not None for shown in heard])
    return repeated, repeated_suffix(numbers[own:][-TAIL:].tolist()), _echoed(runs, text, own, told)


def _echoed(runs: Numbers, text: Numbers, own: int, told: NDArray[np.bool_]) -> float | None:
    """Share of the runs of `ECHO_GRAM` words written that stood in the text
    heard just before.

    `runs`: the number of the n-gram at each word; `text`: of each word, its
    text's; `own`: the first word written; `told [turns]`: whether anything was
    heard before.
    """
    step = ECHO_GRAM - NGRAM  # such a run is an n-gram, and one a step further on
    last = len(text) - ECHO_GRAM + 1
    if last <= own:
        return None
    turn = text.copy()
    turn[own:] -= len(told)
    whole = text[:last] == text[ECHO_GRAM - 1 :]
    whole[own:] &= told.take(turn[own:last])
    count = int(np.count_nonzero(whole[own:]))
    if not count:
        return None
    heard, said = (
        _among(runs[:own], len(text)).take(runs[own:]),
        _among(runs[own:], len(text)).take(runs[:own]),
    )
    whole[own:] &= heard[:-step] & heard[step:]
    whole[: max(own - step, 0)] &= said[:-step] & said[step:]
    at = np.flatnonzero(whole)  # the only ones that may have a copy on the other side
    keys = both(
        interned(both(runs.take(at), runs.take(at + step), len(text))),
        turn.take(at),
        len(text) + len(told),
    )
    numbers, first = interned(keys), int(np.searchsorted(at, own))
    return int(np.count_nonzero(_among(numbers[:first], len(at)).take(numbers[first:]))) / count


def _among(numbers: Numbers, count: int) -> NDArray[np.bool_]:
    """Whether each number below `count` is among some."""
    found = np.zeros(count, bool)
    found[numbers] = True
    return found


def _share(flags: Sequence[bool]) -> float | None:
    return sum(flags) / len(flags) if flags else None
