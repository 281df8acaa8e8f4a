"""How good a dictionary is on a stream: variance explained, active latents,
silent latents, in one pass.

1. Fraction of variance explained per model: `1 - sum |h - h_hat|^2 / sum |h -
   mean h|^2`, against the mean over the stream, not against zero (a dictionary
   that always says the mean has 0, a perfect one 1).
2. L0: active latents a row. Dead share: latents that were silent in all rows of
   the stream; the window is stated, since a longer one finds fewer.

Sums are kept about the first rows' mean, so that a large mean does not eat the
variance's digits. Memory: a few vectors of the width.
"""

from dataclasses import dataclass

import torch

from crosscoders.activations.streams import Stream
from crosscoders.dictionaries.dictionary import Dictionary
from crosscoders.latents.encoding import EncodedBlock, accumulate


@dataclass(frozen=True, kw_only=True)
class Quality:
    """`variance_explained`: one a model, `None` where the activations do not
    vary. `l0`: a row, and by model the ones that it can see. `dead_share` over
    `rows` rows.
    """

    rows: int
    variance_explained: tuple[float | None, ...]
    l0: float
    l0_by_model: tuple[float, ...]
    dead_share: float


def quality(dictionary: Dictionary, stream: Stream, *, reads: int = -1) -> Quality:
    """See the module's text."""
    sums = QualityAccumulator(dictionary, stream)
    accumulate(dictionary, stream, [sums], reads=reads)
    return sums.result()


class QualityAccumulator:
    """The accumulator behind `quality`."""

    def __init__(self, dictionary: Dictionary, stream: Stream) -> None:
        device, models, width = dictionary.bias.device, stream.models, stream.width
        self.rows = 0
        self.ranges = (
            dictionary.ranges if len(dictionary.ranges) == models else dictionary.ranges * models
        )
        self.origin: torch.Tensor | None = None
        self.total = torch.zeros(models, width, dtype=torch.float64, device=device)
        self.squares = torch.zeros(models, dtype=torch.float64, device=device)
        self.errors = torch.zeros_like(self.squares)
        self.active = torch.zeros(models, dtype=torch.int64, device=device)
        self.pairs = 0
        self.alive = torch.zeros(
            dictionary.config.partition.latents, dtype=torch.bool, device=device
        )

    def add(self, encoded: EncodedBlock) -> None:
        if self.origin is None:
            self.origin = encoded.scaled.mean(0)
        centred = encoded.scaled - self.origin
        self.rows += len(encoded.rows)
        self.total += centred.sum(0, dtype=torch.float64)
        self.squares += centred.square().sum((0, 2), dtype=torch.float64)
        self.errors += (
            (encoded.scaled - encoded.reconstructions).square().sum((0, 2), dtype=torch.float64)
        )
        self.alive[encoded.codes.latent] = True
        self.pairs += len(encoded.codes.latent)
        for m, (seen, codes) in enumerate(zip(self.ranges, encoded.codes_by_model, strict=True)):
            self.active[m] += ((codes.latent >= seen.start) & (codes.latent < seen.stop)).sum()

    def result(self) -> Quality:
        """The figures over all rows so far."""
        spread = self.squares - self.total.square().sum(1) / self.rows
        explained = [
            1 - error / total if total > 0 else None
            for error, total in zip(self.errors.tolist(), spread.tolist(), strict=True)
        ]
        return Quality(
            rows=self.rows,
            variance_explained=tuple(explained),
            l0=self.pairs / self.rows,
            l0_by_model=tuple((self.active / self.rows).tolist()),
            dead_share=1 - float(self.alive.float().mean()),
        )
