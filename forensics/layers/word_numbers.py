"""The words of texts as numbers, for whole runs at once: equal numbers where
the words are equal, and only there.

1. Each byte of the texts (UTF-8) is white space, part of a word, or a mark that
   is a word by itself. So one pass over the bytes tells where words start and
   end.
2. A word of up to 8 bytes is its own key, read as one integer; a longer one is
   keyed by its pieces.
3. Each key is written into a slot of a table that its hash names, and compared
   with the key that was left there. Those that differ from it go on to a table
   with another hash, so a number is never taken for another.
4. Runs of words are numbered the same way, two halves at a time (prefix
   doubling: Karp, Miller and Rosenberg 1972).
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
Keys = NDArray[np.uint64]
_SPACE, _LETTER, _MARK = 0, 1, 2
_PIECE: Final = 8  # bytes of a key
_PIECES: Final = 2  # more of a word is looked up as it stands
_MASKS: Final = np.array([(1 << 8 * length) - 1 for length in range(_PIECE + 1)], np.uint64)
_LONG: Final = np.uint64(0xFF << 56)  # no byte of UTF-8: no key of a short word
_FACTORS: Final = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0xD6E8FEB86659FD93)  # of hashes, odd
_SMALLEST, _LARGEST = 6, 22  # bits of a table


def word_numbers(texts: Sequence[str]) -> tuple[Numbers, Numbers]:
    """Of each word of the texts (`text_words.words`), in order: its number,
    below the count of words, and the place of its text.
    """
    pieces = [text.encode("utf-8", "surrogatepass") for text in texts]
    data = b"\n".join(pieces)
    starts, lengths = word_bounds(data)
    edges = np.cumsum([0, *(len(piece) + 1 for piece in pieces)])
    counts = np.diff(np.searchsorted(starts, edges))
    return numbered(_keys(data, starts, lengths)), np.repeat(np.arange(len(texts)), counts)


def gram_numbers(numbers: Numbers, size: int) -> Numbers:
    """Of each stretch of `size` words, a power of two, its number, below the count of words."""
    keys, width, below = numbers.view(np.uint64), 1, len(numbers)
    while width < size:
        if below**2 > 1 << 64:
            keys, below = numbered(keys).view(np.uint64), len(numbers)
        keys, below = pairs(keys[:-width], keys[width:], below), below**2
        width *= 2
    return numbered(keys)


def pairs(left: Numbers | Keys, right: Numbers | Keys, below: int) -> Keys:
    """One key for two numbers `below` one whose square fits into 64 bits."""
    return left.view(np.uint64) * np.uint64(below) + right.view(np.uint64)


def numbered(keys: Keys, attempt: int = 0) -> Numbers:
    """Of each key the place of one that equals it, the same for all that do."""
    if attempt == len(_FACTORS):
        _, first, number = np.unique(keys, return_index=True, return_inverse=True)
        return first.take(number)
    bits = min(max(len(keys).bit_length() + 1, _SMALLEST), _LARGEST)
    slots = ((keys * np.uint64(_FACTORS[attempt])) >> np.uint64(64 - bits)).view(np.int64)
    table = np.empty(1 << bits, np.int64)
    table[slots] = np.arange(len(keys))
    place = table.take(slots)
    others = np.flatnonzero(keys.take(place) != keys)
    if len(others):
        place[others] = others.take(numbered(keys.take(others), attempt + 1))
    return place


def word_bounds(data: bytes) -> tuple[Numbers, Numbers]:
    """Where each word starts, and how long it is, in bytes."""
    raw = np.frombuffer(data, np.uint8)
    kinds = np.zeros(len(data) + 2, np.uint8)  # with a space at both ends
    kinds[1:-1] = np.frombuffer(data.translate(_ASCII_KINDS), np.uint8)
    if not data.isascii():
        _mark_beyond_ascii(raw, kinds[1:-1])
    # a mark starts and ends by itself, a letter where there is none beside it
    starts = kinds[1:-1] > (kinds[:-2] & _LETTER)
    ends = kinds[1:-1] > (kinds[2:] & _LETTER)
    if not data.isascii():
        inside = (raw & 0xC0) == 0x80  # a character's second byte, third or fourth
        starts &= ~inside
        ends[:-1] &= ~inside[1:]
    first = np.flatnonzero(starts)
    return first, np.flatnonzero(ends) - first + 1


def _keys(data: bytes, starts: Numbers, lengths: Numbers, pieces: int = _PIECES) -> Keys:
    """One key for each word."""
    at_each_byte = np.ndarray(len(data), "<u8", data + bytes(_PIECE), strides=(1,))
    keys = at_each_byte.take(starts).astype(np.uint64, copy=False)
    keys &= _MASKS.take(lengths, mode="clip")
    longer = np.flatnonzero(lengths > _PIECE)
    if len(longer):
        starts, lengths = starts[longer], lengths[longer]
        if pieces > 1:
            rest = _keys(data, starts + _PIECE, lengths - _PIECE, pieces - 1)
            named = pairs(numbered(keys[longer]), numbered(rest), len(longer))
        else:
            names: dict[bytes, int] = {}
            ends = (starts + lengths).tolist()
            words = [data[start:end] for start, end in zip(starts.tolist(), ends, strict=True)]
            named = np.array([names.setdefault(word, len(names)) for word in words], np.uint64)
        keys[longer] = named | _LONG
    return keys


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
