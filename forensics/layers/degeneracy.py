"""Degeneracy of one run, as seven numbers. Each is undefined (`None`) where the run is too short to say.

On what the policy wrote: repeated n-grams, compression ratio, longest repeated suffix (a loop at the end), and
the share of its longer texts that echoes the observation before. On what it did: action repetition, alternation
and monologue. All but the compression ratio are shares from 0 (healthy) to 1. Longer healthy runs repeat more
words and compress better, so the measures of writing alone never decide anything: the echo trap looks at
action repetition, which polling and honest test-edit-test loops do not raise.
"""

import zlib
from collections.abc import Sequence
from itertools import chain

import numpy as np

from forensics.layers.actions import Exchange, Turn, alternating, exchanges_of, idle_repeats, turns_of
from forensics.layers.words import Gram, grams, words
from forensics.records import Trajectory

NGRAM = 4  # words
ECHO_GRAM = 8  # words; shorter copies are ordinary quoting
FEWEST_GRAMS = 4
FEWEST_BYTES = 32
TAIL = 512  # words of the end that are searched for a loop
MOST_SEARCHED = 20_000_000  # characters, over all searches in one observation; beyond, its grams are listed
SHORT = 3  # characters of an observation for each word written: below, it has hardly more words than were written
MEASURES = (
    "repeated n-grams", "compression ratio", "longest repeated suffix", "action repetition", "alternation",
    "monologue", "echoed observation",
)


def degeneracy(
    trajectory: Trajectory, turns: Sequence[Turn] | None = None, exchanges: Sequence[Exchange] | None = None,
    idle: Sequence[bool] | None = None,
) -> dict[str, float | None]:
    """Every measure of `MEASURES` for one run; its turns and what follows from them may be given where known."""
    turns = turns_of(trajectory) if turns is None else turns
    exchanges = exchanges_of(turns) if exchanges is None else exchanges
    idle = idle_repeats(turns, exchanges) if idle is None else idle
    text = "\n".join(turn.written for turn in turns)
    said = [words(turn.written) for turn in turns]
    sequence = tuple(chain.from_iterable(said))
    values = (
        repeated_ngrams(sequence), compression_ratio(text), repeated_suffix(sequence), _share(idle),
        _share(alternating(turns, exchanges)), _share([turn.talks for turn in turns]),
        _echoed(trajectory, turns, said, ECHO_GRAM),
    )
    return dict(zip(MEASURES, values, strict=True))


def repeated_ngrams(sequence: Sequence[str], size: int = NGRAM) -> float | None:
    """Share of the runs of `size` words that occurred before in the same text."""
    count = len(sequence) - size + 1
    return None if count < FEWEST_GRAMS else 1 - _distinct(sequence, size) / count


def _distinct(sequence: Sequence[str], size: int) -> int:
    """How many different runs of `size` words there are."""
    numbers = {word: number for number, word in enumerate(dict.fromkeys(sequence))}
    if len(numbers) ** size >= 1 << 63:
        return len(set(grams(sequence, size)))
    coded = np.fromiter(map(numbers.__getitem__, sequence), np.int64, len(sequence))
    whole = np.zeros(len(sequence) - size + 1, np.int64)
    for start in range(size):
        whole = whole * len(numbers) + coded[start : start + len(whole)]
    whole.sort()
    return 1 + int(np.count_nonzero(whole[1:] != whole[:-1]))


def compression_ratio(text: str) -> float | None:
    """Bytes before compression over bytes after (raw deflate): about 1 for noise, large for repetition."""
    data = text.encode()
    if len(data) < FEWEST_BYTES:
        return None
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return len(data) / len(packer.compress(data) + packer.flush())


def repeated_suffix(sequence: Sequence[str], tail: int = TAIL) -> float | None:
    """Share of the last `tail` words covered by a loop at the very end (a stretch said at least twice in a row)."""
    end = sequence[-tail:]
    if len(end) < FEWEST_GRAMS:
        return None
    longest = 0
    for period in range(1, len(end) // 2 + 1):
        longest = max(longest, _looped(end, period))
        if longest == len(end):
            break
    return longest / len(end)


def _looped(end: Sequence[str], period: int) -> int:
    """How many words at the end repeat with this period, 0 where not twice in full or hardly more than a fence."""
    matched = 0
    for i in range(len(end) - 1, period - 1, -1):
        if end[i] != end[i - period]:
            break
        matched += 1
    covered = matched + period
    return covered if matched >= period and covered >= FEWEST_GRAMS else 0


def echoed_share(trajectory: Trajectory, turns: Sequence[Turn], size: int = ECHO_GRAM) -> float | None:
    """Share of what was written, in runs of `size` words, that stood in the message just before."""
    return _echoed(trajectory, turns, [words(turn.written) for turn in turns], size)


def _echoed(
    trajectory: Trajectory, turns: Sequence[Turn], said: Sequence[Sequence[str]], size: int
) -> float | None:
    """The same, where the words of each turn are known."""
    written = copied = 0
    for turn, own in zip(turns, said, strict=True):
        before = trajectory.steps[turn.step - 1] if turn.step else None
        if len(own) >= size and before is not None and before.role != "assistant":
            written += len(own) - size + 1
            copied += _copied(own, before.text, size)
    return copied / written if written else None


def _copied(own: Sequence[str], shown: str, size: int) -> int:
    """How many of the runs of `size` words stand in a text.

    A run stands there only if its words without the space between them do. So a few of them tell which runs are worth
    a closer look, mostly none: every run holds one of the blocks that start at the multiples of `stride`.
    """
    dense = "".join(shown.split())
    if len(dense) < size:
        return 0
    if len(dense) < len(own) * SHORT:
        return _copied_from_short(own, words(shown), size)
    half = (size + 1) // 2
    stride = size - half + 1
    if len(own) // stride * len(dense) > MOST_SEARCHED:
        there: set[Gram] = set(grams(words(shown), size))
        return sum(map(there.__contains__, grams(own, size)))
    blocks = (at for at in range(0, len(own) - half + 1, stride) if "".join(own[at : at + half]) in dense)
    near = (start for at in blocks for start in range(max(0, at - stride + 1), min(at, len(own) - size) + 1))
    starts = [start for start in near if "".join(own[start : start + size]) in dense]
    if not starts:
        return 0
    spaced = f" {' '.join(words(shown))} "  # no word holds a space
    return sum(f" {' '.join(own[start : start + size])} " in spaced for start in starts)


def _copied_from_short(own: Sequence[str], shown: Sequence[str], size: int) -> int:
    """The same the other way round, for a text with fewer words: blocks of it are looked for in what was written."""
    whole, half = "".join(own), (size + 1) // 2
    blocks = ("".join(shown[at : at + half]) for at in range(0, len(shown) - half + 1, size - half + 1))
    if len(shown) < size or not any(block in whole for block in blocks):
        return 0
    there: set[Gram] = set(grams(shown, size))
    return sum(map(there.__contains__, grams(own, size)))


def _share(flags: Sequence[bool]) -> float | None:
    return sum(flags) / len(flags) if flags else None
