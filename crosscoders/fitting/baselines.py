"""What a crosscoder must beat, on the same stream and in one pass each: no dictionary is needed to say any of it.

1. `difference(stream)`: after minus before, as a stream of one model; a dictionary of one model on it is the
   difference-SAE. `difference_view` does the same to a batch, so that it can be trained beside others (`fit_many`).
2. `principal_parts(stream)`: PCA of the difference from a streaming covariance, and the rank whose error equals that
   of a dictionary.
3. `mean_difference(stream, of, against)`: between two masks of rows.

Sums are in double precision about the first block's mean, so that a large common part does not eat the digits.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from crosscoders.activations import Block, Rows, Stream, TextNote
from forensics.errors import UserError

Mask = Callable[[Rows], np.ndarray]


def difference_view(activations: torch.Tensor) -> torch.Tensor:
    """Last model minus first: `[rows, 1, width]` of `[rows, models, width]`."""
    return activations[:, -1:] - activations[:, :1]


@dataclass(frozen=True)
class _Difference:
    stream: Stream

    @property
    def models(self) -> int:
        return 1

    @property
    def width(self) -> int:
        return self.stream.width

    @property
    def site(self) -> str:
        return self.stream.site

    @property
    def texts(self) -> Sequence[TextNote]:
        return self.stream.texts

    @property
    def identity(self) -> str:
        return f"{self.stream.identity}:difference"

    def blocks(self, seed: int | None = None) -> Iterator[Block]:
        for block in self.stream.blocks(seed):
            yield Block(activations=difference_view(block.activations), rows=block.rows)


def difference(stream: Stream) -> Stream:
    """After minus before, as a stream of one model. Raises UserError for a stream of one model."""
    if stream.models < 2:
        raise UserError(f"a difference needs two models, and the stream at {stream.site} has {stream.models}")
    return _Difference(stream)


@dataclass(frozen=True)
class PrincipalParts:
    """PCA: `mean [width]`, `directions [width, width]` as rows by falling `variances [width]`, in raw units squared."""

    mean: torch.Tensor
    directions: torch.Tensor
    variances: torch.Tensor

    def explained(self, rank: int) -> float | None:
        """Share of the variance in the first `rank` directions; None where nothing varies."""
        total = self.variances.sum().item()
        return self.variances[:rank].sum().item() / total if total > 0 else None

    def rank_of(self, explained: float) -> int:
        """The least rank that explains this share of the variance: "equal error" to a dictionary that does."""
        if not 0 <= explained <= 1:
            raise UserError(f"{explained} is no share of a variance; give one from 0 to 1")
        shares = self.variances.cumsum(0) / self.variances.sum().clamp(min=1e-300)
        short = int((shares < explained - 1e-12).sum())
        return 0 if explained == 0 else min(short + 1, len(self.variances))


def principal_parts(stream: Stream, device: str | torch.device = "cpu") -> PrincipalParts:
    """PCA of the difference (or of the stream itself, if it has one model); one pass, `width^2` memory."""
    source = difference(stream) if stream.models > 1 else stream
    shift: torch.Tensor | None = None
    rows, first = 0, torch.zeros(stream.width, dtype=torch.float64, device=device)
    second = torch.zeros((stream.width, stream.width), dtype=torch.float64, device=device)
    for block in source.blocks():
        values = block.activations[:, 0].to(device, torch.float64)
        shift = values.mean(0) if shift is None else shift
        values = values - shift
        rows, first, second = rows + len(values), first + values.sum(0), second + values.T @ values
    if shift is None or rows < 2:
        raise UserError(f"the stream at {stream.site} gave {rows} rows; principal parts need at least 2")
    mean = first / rows
    found = torch.linalg.eigh(second / rows - torch.outer(mean, mean))
    return PrincipalParts(mean + shift, found.eigenvectors.T.flip(0), found.eigenvalues.flip(0).clamp(min=0))


def mean_difference(stream: Stream, of: Mask, against: Mask) -> torch.Tensor:
    """Mean over the rows of one mask minus mean over those of another, `[models, width]`, raw units, double."""
    sums = torch.zeros((2, stream.models, stream.width), dtype=torch.float64)
    numbers = [0, 0]
    for block in stream.blocks():
        for side, mask in enumerate((of, against)):
            chosen = torch.from_numpy(np.flatnonzero(mask(block.rows)))
            sums[side] += block.activations[chosen.to(block.activations.device)].double().sum(0).cpu()
            numbers[side] += len(chosen)
    if not all(numbers):
        raise UserError(f"the masks keep {numbers[0]} and {numbers[1]} rows; a mean difference needs both")
    return sums[0] / numbers[0] - sums[1] / numbers[1]
