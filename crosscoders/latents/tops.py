"""The tokens that activate each latent most, in context: a bounded list a
latent, filled in one pass.

1. Of each block only values that would enter a latent's list are looked at.
2. A candidate waits until `window` more rows have come (or the stream has
   ended), so that its right context is known; then it is merged. Context never
   crosses into another text, and stops where a position is missing.
3. Equal values are ordered by text and position, so the order and the size of
   blocks do not matter.

Memory: `latents x number x (2 window + 1)` token ids and a buffer of some rows.
"""

from dataclasses import dataclass, field

import numpy as np

from crosscoders.activations.streams import Stream
from crosscoders.dictionaries.dictionary import Dictionary
from crosscoders.latents.encoding import EncodedBlock, accumulate
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


@dataclass(frozen=True, kw_only=True)
class Tops:
    """`values`, `text` (index), `position` `[latents, number]`, largest first;
    NaN and -1 where a list is not full.
    `windows [latents, number, 2 window + 1]`: token ids, the token itself in
    the middle, -1 beyond the text.
    """

    values: np.ndarray
    text: np.ndarray
    position: np.ndarray
    windows: np.ndarray
    texts: tuple[str, ...]

    def of(self, latent: int) -> tuple[TopToken, ...]:
        """The list of one latent."""
        middle = self.windows.shape[-1] // 2
        return tuple(
            TopToken(
                text=self.texts[self.text[latent, i]],
                position=int(self.position[latent, i]),
                value=float(self.values[latent, i]),
                token=int(window[middle]),
                before=_known(window[:middle]),
                after=_known(window[middle + 1 :]),
            )
            for i, window in enumerate(self.windows[latent])
            if np.isfinite(self.values[latent, i])
        )


def _known(tokens: np.ndarray) -> tuple[int, ...]:
    return tuple(int(token) for token in tokens if token != NO_TOKEN)


def top_tokens(
    dictionary: Dictionary, stream: Stream, *, number: int = 10, window: int = 10, reads: int = -1
) -> Tops:
    """The `number` most activating tokens of every latent with `window` tokens
    on each side, in one pass.
    """
    tokens = TopTokens(dictionary, number=number, window=window)
    accumulate(dictionary, stream, [tokens], reads=reads)
    return tokens.result()


@dataclass
class _Candidates:
    """Active pairs: `row` counts from the start of the stream."""

    row: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    latent: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    value: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))

    def take(self, chosen: np.ndarray) -> "_Candidates":
        return _Candidates(self.row[chosen], self.latent[chosen], self.value[chosen])

    def and_also(self, other: "_Candidates") -> "_Candidates":
        return _Candidates(
            np.concatenate([self.row, other.row]),
            np.concatenate([self.latent, other.latent]),
            np.concatenate([self.value, other.value]),
        )


class TopTokens:
    """The accumulator behind `top_tokens`."""

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
        self.first = 0  # the buffer's first row, counted from the stream's start
        self.buffer = np.zeros((3, 0), np.int64)  # text, position, token
        self.waiting = _Candidates()

    def add(self, encoded: EncodedBlock) -> None:
        if not self.names:
            self.names = tuple(text.id for text in encoded.texts)
        rows = encoded.rows
        start = self.first + self.buffer.shape[1]
        self.buffer = np.concatenate(
            [self.buffer, np.stack([rows.text, rows.position, rows.token])], axis=1
        )
        codes = encoded.codes
        found = _Candidates(
            codes.row.cpu().numpy() + start,
            codes.latent.cpu().numpy(),
            codes.value.float().cpu().numpy(),
        )
        found = found.take(found.value >= self.values[found.latent, -1])
        self.waiting = self.waiting.and_also(found.take(self._best(found)))
        self._settle(self.first + self.buffer.shape[1] - self.window)

    def result(self) -> Tops:
        """The lists; call once the stream has ended."""
        self._settle(self.first + self.buffer.shape[1])
        return Tops(
            values=np.where(np.isfinite(self.values), self.values, np.nan),
            text=self.text,
            position=self.position,
            windows=self.windows,
            texts=self.names,
        )

    def _best(self, found: _Candidates) -> np.ndarray:
        text, position, _ = self.buffer[:, found.row - self.first]
        return _leaders(found.latent, found.value, text, position, self.number)[0]

    def _settle(self, end: int) -> None:
        """Merge the candidates before row `end`, and drop rows that nobody will ask for."""
        ready = self.waiting.row < end
        if ready.any():
            self._merge(self.waiting.take(ready))
            self.waiting = self.waiting.take(~ready)
        last = self.first + self.buffer.shape[1]
        needed = min(last, int(self.waiting.row.min(initial=last))) - self.window
        drop = max(0, needed - self.first)
        self.buffer, self.first = self.buffer[:, drop:], self.first + drop

    def _merge(self, new: _Candidates) -> None:
        """New entries beside the old ones of the same latents; the best of both stay."""
        latents = np.unique(new.latent)
        old_place = np.isfinite(self.values[latents])
        text, position, _ = self.buffer[:, new.row - self.first]
        latent = np.concatenate([latents.repeat(old_place.sum(1)), new.latent])
        value = np.concatenate([self.values[latents][old_place], new.value])
        text = np.concatenate([self.text[latents][old_place], text])
        position = np.concatenate([self.position[latents][old_place], position])
        windows = np.concatenate(
            [self.windows[latents][old_place], self._context(new.row - self.first)]
        )
        best, rank = _leaders(latent, value, text, position, self.number)
        place = latent[best], rank
        self.values[place], self.text[place], self.position[place] = (
            value[best],
            text[best],
            position[best],
        )
        self.windows[place] = windows[best]

    def _context(self, row: np.ndarray) -> np.ndarray:
        """Token ids `[candidates, 2 window + 1]` around rows of the buffer."""
        offsets = np.arange(-self.window, self.window + 1)
        around = row[:, None] + offsets
        inside = (around >= 0) & (around < self.buffer.shape[1])
        text, position, token = self.buffer[:, around.clip(0, max(0, self.buffer.shape[1] - 1))]
        same = (text == self.buffer[0, row][:, None]) & (
            position == self.buffer[1, row][:, None] + offsets
        )
        return np.where(inside & same, token, NO_TOKEN)


def _leaders(
    latent: np.ndarray, value: np.ndarray, text: np.ndarray, position: np.ndarray, number: int
) -> tuple[np.ndarray, np.ndarray]:
    """The `number` largest of each latent (indices), and each one's rank in its latent's list."""
    order = np.lexsort((position, text, -value, latent))
    ordered = latent[order]
    starts = np.searchsorted(ordered, ordered)
    rank = np.arange(len(order)) - starts
    kept = rank < number
    return order[kept], rank[kept]
