"""The tokens that activate each latent most, in context: a bounded list a
latent, filled in one pass.

1. Of each block only values that would enter a latent's list are looked at, and
   merged with what the list holds.
2. Of each block, and of the last rows before it, the tokens around the listed
   ones are noted, whichever block brought these. Context never crosses into
   another text, and stops where a position is missing.
3. Equal values are ordered by text and position, so the order and the size of
   blocks do not matter.

Memory: `latents x number x (2 window + 1)` token ids.
"""

from dataclasses import dataclass
from itertools import takewhile

import numpy as np

from crosscoders.activations.streams import Rows, Stream
from crosscoders.dictionaries.dictionary import Dictionary
from crosscoders.latents.encoded_blocks import EncodedBlock, accumulate
from forensics.errors import UserError

NO_TOKEN = -1


@dataclass(frozen=True, kw_only=True)
class TopToken:
    """A token on which a latent is active, with the token ids around it."""

    text: str
    position: int
    value: float
    token: int
    before: tuple[int, ...]
    after: tuple[int, ...]


class TopTokens:
    """Accumulator of each latent's list.

    `values`, `text` (index), `position` `[latents, number]`, largest first;
    minus infinity and -1 where a list is not full. `windows [latents, number, 2
    window + 1]`: token ids, the token itself in the middle, -1 where none is known.
    """

    def __init__(self, dictionary: Dictionary, *, number: int = 10, window: int = 10) -> None:
        if number < 1 or window < 0:
            raise UserError(
                f"the number of top tokens is {number} and their window {window}; give at least 1"
                " and 0"
            )
        latents = dictionary.config.partition.latents
        self.number, self.window = number, window
        self.values = np.full((latents, number), -np.inf, np.float32)
        self.text = np.full((latents, number), -1, np.int32)
        self.position = np.full((latents, number), -1, np.int32)
        self.windows = np.full((latents, number, 2 * window + 1), NO_TOKEN, np.int32)
        self.names: tuple[str, ...] = ()
        self.recent = np.zeros((2, 0), np.int64)  # place and token of rows that came last

    def add(self, encoded: EncodedBlock) -> None:
        if not self.names:
            self.names = tuple(text.id for text in encoded.texts)
        row, latent = encoded.codes.row.cpu().numpy(), encoded.codes.latent.cpu().numpy()
        value = encoded.codes.value.float().cpu().numpy()
        some = value >= self.values[latent, -1]
        row, latent, value = row[some], latent[some], value[some]
        self._merge(latent, value, encoded.rows.text[row], encoded.rows.position[row])
        self._note_context(encoded.rows)

    def _merge(
        self, latent: np.ndarray, value: np.ndarray, text: np.ndarray, position: np.ndarray
    ) -> None:
        """New entries beside the old ones of the same latents; the best of both stay."""
        touched = np.unique(latent)
        old = np.isfinite(self.values[touched])
        unknown = np.full((len(latent), self.windows.shape[-1]), NO_TOKEN, np.int32)
        latent = np.concatenate([touched.repeat(old.sum(1)), latent])
        value = np.concatenate([self.values[touched][old], value])
        text = np.concatenate([self.text[touched][old], text])
        position = np.concatenate([self.position[touched][old], position])
        windows = np.concatenate([self.windows[touched][old], unknown])
        order = np.lexsort((position, text, -value, latent))
        rank = np.arange(len(order)) - np.searchsorted(latent[order], latent[order])
        best, rank = order[rank < self.number], rank[rank < self.number]
        place = latent[best], rank
        self.values[place], self.text[place] = value[best], text[best]
        self.position[place], self.windows[place] = position[best], windows[best]

    def _note_context(self, rows: Rows) -> None:
        """Tokens of a block that stand around listed ones."""
        offsets = np.arange(-self.window, self.window + 1)
        new = np.stack([_places(rows.text, rows.position), rows.token])
        known = np.concatenate([self.recent, new], axis=1)
        self.recent = known[:, max(0, known.shape[1] - self.window) :]
        places, tokens = known[:, known[0].argsort()]
        listed = np.isin(self.text, np.unique(rows.text))
        wanted = _places(self.text[listed], self.position[listed])[:, None] + offsets
        at = np.searchsorted(places, wanted).clip(max=len(places) - 1)
        self.windows[listed] = np.where(places[at] == wanted, tokens[at], self.windows[listed])

    def of(self, latent: int) -> tuple[TopToken, ...]:
        """The list of one latent."""
        middle = self.window
        return tuple(
            TopToken(
                text=self.names[self.text[latent, i]],
                position=int(self.position[latent, i]),
                value=float(self.values[latent, i]),
                token=window[middle],
                before=tuple(takewhile(_is_known, window[:middle][::-1]))[::-1],
                after=tuple(takewhile(_is_known, window[middle + 1 :])),
            )
            for i, window in enumerate(self.windows[latent].tolist())
            if np.isfinite(self.values[latent, i])
        )


def top_tokens(
    dictionary: Dictionary, stream: Stream, *, number: int = 10, window: int = 10, reads: int = -1
) -> TopTokens:
    """The `number` most activating tokens of every latent with `window` tokens
    on each side, in one pass.
    """
    tokens = TopTokens(dictionary, number=number, window=window)
    accumulate(dictionary, stream, [tokens], reads=reads)
    return tokens


def _places(text: np.ndarray, position: np.ndarray) -> np.ndarray:
    """One number a place; a position outside its text is nobody's."""
    places: np.ndarray = (text.astype(np.int64) << 32) + position
    return places


def _is_known(token: int) -> bool:
    return token != NO_TOKEN
