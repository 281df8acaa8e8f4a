"""Degeneracy of one run, as seven numbers. Each is undefined (`None`) where the
run is too short to say.

On what the policy wrote: repeated n-grams, compression ratio, longest repeated
suffix (a loop at the end), and the share of its longer texts that echoes the
observation before. On what it did: action repetition, alternation and
monologue. All but the compression ratio are shares from 0 (healthy) to 1.
Longer healthy runs repeat more words and compress better, so the measures of
writing alone never decide anything: the echo trap looks at action repetition,
which polling and honest test-edit-test loops do not raise.

Words are compared by numbers for them, equal numbers where the words are equal,
and only there:

1. Each byte of the texts (UTF-8) is white space, part of a word, or a mark that
   is a word by itself. So one pass over the bytes tells where words start and
   end.
2. Arrow's hash table numbers the words. They are compared as bytes, since Arrow
   refuses lone surrogates as text.
3. Runs of words are numbered the same way, two halves at a time (prefix
   doubling: Karp, Miller and Rosenberg 1972).
"""

import zlib
from collections.abc import Hashable, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from forensics.layers.actions import Acted, acted_in, alternating
from forensics.records import Trajectory

NGRAM = 4  # words
ECHO_GRAM = 2 * NGRAM  # words; shorter copies are ordinary quoting
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
Numbers = NDArray[np.int64]
_SPACE, _LETTER, _MARK = 0, 1, 2
Writing = tuple[float | None, float | None, float | None]


def degeneracy(trajectory: Trajectory, acted: Acted | None = None) -> dict[str, float | None]:
    """Every measure of `MEASURES` for one run; what was done in it may be given
    where known.
    """
    turns, exchanges, idle = acted or acted_in(trajectory)
    written = [turn.written for turn in turns]
    before = [trajectory.steps[turn.step - 1] if turn.step else None for turn in turns]
    repeated, suffix, echo = measures_of_writing(
        written, [step.text if step and step.role != "assistant" else None for step in before]
    )
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


def repeated_suffix(sequence: Sequence[Hashable]) -> float | None:
    """Share of the last `TAIL` words covered by a loop at the very end (a
    stretch said at least twice in a row).
    """
    end = sequence[-TAIL:]
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


def measures_of_writing(written: Sequence[str], heard: Sequence[str | None]) -> Writing:
    """Repeated n-grams, longest repeated suffix and echo of what was written in
    each turn, and heard just before it (`None`: nothing).
    """
    numbers, text = word_numbers([*(shown or "" for shown in heard), *written])
    own = int(np.searchsorted(text, len(heard)))  # the first word written; those heard come before
    runs = doubled(doubled(numbers, 1), 2)
    count = len(numbers) - own - NGRAM + 1
    repeated = (
        None if count < FEWEST_GRAMS else 1 - int(np.count_nonzero(np.bincount(runs[own:]))) / count
    )
    suffix = repeated_suffix(numbers[own:][-TAIL:].tolist())
    last = len(numbers) - ECHO_GRAM + 1
    if last <= own:
        return repeated, suffix, None
    # stretches of ECHO_GRAM words within one text, with the turn that they belong to
    turn = np.where(np.arange(last) < own, text[:last], text[:last] - len(heard))
    whole = text[:last] == text[ECHO_GRAM - 1 :]
    whole[own:] &= np.array([shown is not None for shown in heard])[turn[own:]]
    count = int(np.count_nonzero(whole[own:]))
    if not count:
        return repeated, suffix, None
    # mostly nothing is a copy: only stretches whose halves stand on both sides are compared
    shared = np.bincount(runs[:own], minlength=len(numbers)).astype(bool)
    shared &= np.bincount(runs[own:], minlength=len(numbers)).astype(bool)
    at = np.flatnonzero(whole & shared[runs[:last]] & shared[runs[NGRAM : NGRAM + last]])
    stretches = numbered(pa.array(runs[at] * len(numbers) + runs[at + NGRAM]))
    keys, first = stretches * len(heard) + turn[at], int(np.searchsorted(at, own))
    return repeated, suffix, int(np.isin(keys[first:], keys[:first]).sum()) / count


def _share(flags: Sequence[bool]) -> float | None:
    return sum(flags) / len(flags) if flags else None


def word_numbers(texts: Sequence[str]) -> tuple[Numbers, Numbers]:
    """Of each word of the texts (`text_words.words`), in order: its number,
    below the count of words, and the place of its text.
    """
    pieces = [text.encode("utf-8", "surrogatepass") for text in texts]
    data = b"\n".join(pieces)
    raw = np.frombuffer(data, np.uint8)
    kinds = np.zeros(len(data) + 2, np.uint8)  # with a space at both ends
    kinds[1:-1] = np.frombuffer(data.translate(_ASCII_KINDS), np.uint8)
    if not data.isascii():
        _mark_beyond_ascii(raw, kinds[1:-1])
    # a mark starts by itself, a letter where there is none before it
    starts = kinds[1:-1] > (kinds[:-2] & _LETTER)
    if not data.isascii():
        starts &= (raw & 0xC0) != 0x80  # a character's second byte, third or fourth
    visible = np.flatnonzero(kinds[1:-1])  # without the space between words
    offsets = np.append(np.flatnonzero(starts.take(visible)), len(visible))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(raw.take(visible))]
    words = pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)
    edges = np.cumsum([0, *(len(piece) + 1 for piece in pieces)])
    counts = np.diff(np.searchsorted(visible.take(offsets[:-1]), edges))
    return numbered(words), np.repeat(np.arange(len(texts)), counts)


def doubled(numbers: Numbers, size: int) -> Numbers:
    """Of each stretch of `2 size` words its number, from those of its halves,
    which lie below their count.
    """
    pairs = numbers[:-size] * (len(numbers) + size) + numbers[size:]
    return numbered(pa.array(pairs))


def numbered(values: pa.Array) -> Numbers:
    """Of each value a number below their count, the same for all that are equal."""
    return np.asarray(values.dictionary_encode().indices, np.int64)


def _mark_beyond_ascii(raw: NDArray[np.uint8], kinds: NDArray[np.uint8]) -> None:
    """Fill in the kinds of the bytes of all characters beyond ASCII."""
    characters = raw[raw >= 0x80].tobytes().decode("utf-8", "surrogatepass")
    kind = {character: _kind(character) for character in set(characters)}
    of_each = np.frombuffer(bytes(map(kind.__getitem__, characters)), np.uint8)
    at = np.flatnonzero(raw >= 0xC0)
    kinds[at] = kinds[at + 1] = of_each
    for place, lead in ((2, 0xE0), (3, 0xF0)):
        has = raw[at] >= lead
        kinds[at[has] + place] = of_each[has]


def _kind(character: str) -> int:
    if character.isspace():
        return _SPACE
    return _LETTER if character.isalnum() or character == "_" else _MARK


_ASCII_KINDS = bytes(_kind(chr(code)) if code < 0x80 else _SPACE for code in range(256))
