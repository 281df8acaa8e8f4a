"""The words of texts as numbers, for whole runs at once: equal numbers where
the words are equal, and only there.

1. Each byte of the texts (UTF-8) is white space, part of a word, or a mark that
   is a word by itself. So one pass over the bytes tells where words start and
   end.
2. Arrow's hash table numbers the words. They are compared as bytes, since Arrow
   refuses lone surrogates as text.
3. Runs of words are numbered the same way, two halves at a time (prefix
   doubling: Karp, Miller and Rosenberg 1972).
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
_SPACE, _LETTER, _MARK = 0, 1, 2


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
