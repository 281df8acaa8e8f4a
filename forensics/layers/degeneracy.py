"""Degeneracy of one run, as seven numbers. Each is undefined (`None`) where the run is too short to say.

On what the policy wrote: repeated n-grams, compression ratio, longest repeated suffix (a loop at the end), and
the share of its longer texts that echoes the observation before. On what it did: action repetition, alternation
and monologue. All but the compression ratio are shares from 0 (healthy) to 1. Longer healthy runs repeat more
words and compress better, so the measures of writing alone never decide anything: the echo trap looks at
action repetition, which polling and honest test-edit-test loops do not raise.
"""

import zlib
from collections.abc import Sequence

from forensics.layers.actions import Turn, alternating, idle_repeats, turns_of
from forensics.layers.words import grams, words
from forensics.records import Trajectory

NGRAM = 4  # words
ECHO_GRAM = 8  # words; shorter copies are ordinary quoting
FEWEST_GRAMS = 4
FEWEST_BYTES = 32
TAIL = 512  # words of the end that are searched for a loop
MEASURES = (
    "repeated n-grams", "compression ratio", "longest repeated suffix", "action repetition", "alternation",
    "monologue", "echoed observation",
)


def degeneracy(
    trajectory: Trajectory, turns: Sequence[Turn] | None = None, idle: Sequence[bool] | None = None
) -> dict[str, float | None]:
    """Every measure of `MEASURES` for one run; its turns and idle repeats may be given where they are known."""
    turns = turns_of(trajectory) if turns is None else turns
    idle = idle_repeats(turns) if idle is None else idle
    text = "\n".join(turn.written for turn in turns)
    sequence = words(text)
    values = (
        repeated_ngrams(sequence), compression_ratio(text), repeated_suffix(sequence), _share(idle),
        _share(alternating(turns)), _share([turn.talks for turn in turns]), echoed_share(trajectory, turns),
    )
    return dict(zip(MEASURES, values, strict=True))


def repeated_ngrams(sequence: Sequence[str], size: int = NGRAM) -> float | None:
    """Share of the runs of `size` words that occurred before in the same text."""
    found = list(grams(sequence, size))
    return None if len(found) < FEWEST_GRAMS else 1 - len(set(found)) / len(found)


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
    written = copied = 0
    for turn in turns:
        own = list(grams(words(turn.written), size))
        before = trajectory.steps[turn.step - 1] if turn.step else None
        if own and before is not None and before.role != "assistant":
            shown = set(grams(words(before.text), size))
            written += len(own)
            copied += sum(gram in shown for gram in own)
    return copied / written if written else None


def _share(flags: Sequence[bool]) -> float | None:
    return sum(flags) / len(flags) if flags else None
