"""The tokens that activate each latent most: a bounded list a latent, filled in
one pass.

Of each block only values that would enter a latent's list are looked at, and
merged with what the list holds. Equal values are ordered by text and position,
so the order and the size of blocks do not matter.
"""

from typing import NamedTuple

import numpy as np

from crosscoders.dictionaries.dictionary import Dictionary
from crosscoders.latents.encoded_blocks import EncodedBlock

NUMBER = 10  # of tokens a latent


class TopToken(NamedTuple):
    """A token on which a latent is active; `text`: its index in the stream's."""

    text: int
    position: int
    value: float


class TopTokens:
    """Accumulator of each latent's list.

    `values`, `text` (index), `position` `[latents, number]`, largest first;
    minus infinity and -1 where a list is not full.
    """

    def __init__(self, dictionary: Dictionary, number: int = NUMBER) -> None:
        shape = dictionary.config.partition.latents, number
        self.values = np.full(shape, -np.inf, np.float32)
        self.text, self.position = np.full((2, *shape), -1, np.int32)

    def add(self, encoded: EncodedBlock) -> None:
        codes, rows = encoded.codes, encoded.rows
        row, latent = codes.row.cpu().numpy(), codes.latent.cpu().numpy()
        value = codes.value.float().cpu().numpy()
        some = value >= self.values[latent, -1]
        row, latent, value = row[some], latent[some], value[some]
        touched = np.unique(latent)
        old = np.isfinite(self.values[touched])
        latent = np.concatenate([touched.repeat(old.sum(1)), latent])
        value = np.concatenate([self.values[touched][old], value])
        text = np.concatenate([self.text[touched][old], rows.text[row]])
        position = np.concatenate([self.position[touched][old], rows.position[row]])
        order = np.lexsort((position, text, -value, latent))
        rank = np.arange(len(order)) - np.searchsorted(latent[order], latent[order])
        kept = rank < self.values.shape[1]
        best, place = order[kept], (latent[order[kept]], rank[kept])
        self.values[place], self.text[place] = value[best], text[best]
        self.position[place] = position[best]

    def of(self, latent: int) -> list[TopToken]:
        """The list of one latent."""
        lists = (self.text[latent], self.position[latent], self.values[latent])
        entries = map(TopToken, *(one.tolist() for one in lists))
        return [entry for entry in entries if entry.value > -np.inf]
