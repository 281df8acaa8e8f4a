"""Mean, covariance and principal components of rows that come in blocks: what a
crosscoder must beat, in one pass and without a dictionary.

`principal_components(stream)`: PCA of the models' difference from a streaming
covariance, and the rank whose error equals that of a dictionary.

Sums are in double precision about the first block's mean, so that a large
common part does not eat the digits.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from crosscoders.activations.streams import Stream, difference
from forensics.errors import UserError


@dataclass(frozen=True)
class PrincipalComponents:
    """PCA: `directions` as rows by falling `variances`, in raw units squared."""

    mean: Float[Tensor, " width"]
    directions: Float[Tensor, "width width"]
    variances: Float[Tensor, " width"]

    def explained(self, rank: int) -> float | None:
        """Share of the variance in the first `rank` directions; None where nothing varies."""
        total = self.variances.sum().item()
        return self.variances[:rank].sum().item() / total if total > 0 else None

    def rank_of(self, explained: float) -> int:
        """The least rank that explains this share of the variance: "equal
        error" to a dictionary that does.
        """
        if not 0 <= explained <= 1:
            raise UserError(f"{explained} is no share of a variance; give one from 0 to 1")
        shares = self.variances.cumsum(0) / self.variances.sum().clamp(min=1e-300)
        short = int((shares < explained - 1e-12).sum())
        return 0 if explained == 0 else min(short + 1, len(self.variances))


class Moments:
    """Mean and covariance of rows `[rows, width]` that come in parts; `width^2`
    memory, double precision.
    """

    def __init__(self, width: int, device: str | torch.device = "cpu") -> None:
        self.rows, self.device = 0, device
        self.shift: Tensor | None = None
        self.first = torch.zeros(width, dtype=torch.float64, device=device)
        self.second = torch.zeros((width, width), dtype=torch.float64, device=device)

    def add(self, values: Float[Tensor, "rows width"]) -> None:
        values = values.to(self.device, torch.float64)
        self.shift = values.mean(0) if self.shift is None else self.shift
        values = values - self.shift
        self.rows += len(values)
        self.first += values.sum(0)
        self.second += values.T @ values

    def mean(self) -> Float[Tensor, " width"]:
        """Of no rows, zero."""
        mean = self.first / max(self.rows, 1)
        return mean if self.shift is None else mean + self.shift

    def covariance(self) -> Float[Tensor, "width width"]:
        """Of the rows as they are (divided by their number)."""
        mean = self.first / max(self.rows, 1)
        return self.second / max(self.rows, 1) - torch.outer(mean, mean)

    def components(self) -> PrincipalComponents:
        """PCA of the rows."""
        eigen = torch.linalg.eigh(self.covariance())
        return PrincipalComponents(
            self.mean(), eigen.eigenvectors.T.flip(0), eigen.eigenvalues.flip(0).clamp(min=0)
        )


def principal_components(stream: Stream, device: str | torch.device = "cpu") -> PrincipalComponents:
    """PCA of the difference (or of the stream itself, if it has one model); one
    pass, `width^2` memory.
    """
    moments = Moments(stream.width, device)
    for block in (difference(stream) if stream.models > 1 else stream).blocks():
        moments.add(block.activations[:, 0])
    if moments.rows < 2:
        raise UserError(
            f"the stream at {stream.site} gave {moments.rows} rows; principal parts need at least 2"
        )
    return moments.components()
