"""The sampler's distribution, and draws from it.

Log-probabilities are always those of the distribution that was sampled: temperature, then top-k, then
top-p (the order of the common engines), renormalised. Draws invert the cumulative distribution at a given
uniform number, so that a row's draws depend on its own random stream only.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from forensics.protocols import SamplingSettings

DRAWS_AT_ONCE = 256  # cumulative distributions held at once, float64 over the vocabulary


def log_distribution(logits: torch.Tensor, settings: SamplingSettings) -> torch.Tensor:
    """Log-probabilities `[rows, vocabulary]` (nats, float32) of logits under the settings.

    Temperature 0 is greedy: the first largest token has log-probability 0, all others -inf.
    """
    logits = logits.float()
    if settings.temperature == 0:
        best = logits.argmax(-1, keepdim=True)
        return torch.full_like(logits, -torch.inf).scatter(-1, best, 0.0)
    scaled = logits / settings.temperature
    if 0 < settings.top_k < scaled.shape[-1]:
        smallest = scaled.topk(settings.top_k, dim=-1).values[..., -1:]
        scaled = scaled.masked_fill(scaled < smallest, -torch.inf)
    if settings.top_p < 1:
        scaled = _nucleus(scaled, settings.top_p)
    return scaled.log_softmax(-1)


def _nucleus(scaled: torch.Tensor, top_p: float) -> torch.Tensor:
    """Keep the smallest set of most probable tokens whose probability reaches `top_p`."""
    ordered, order = scaled.sort(dim=-1, descending=True)
    before = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1)
    dropped = torch.zeros_like(scaled, dtype=torch.bool).scatter(-1, order, before >= top_p)
    return scaled.masked_fill(dropped, -torch.inf)


def draw(log_probabilities: torch.Tensor, owners: Sequence[int], uniforms: Sequence[float]) -> torch.Tensor:
    """One token a draw `[draws]`: from row `owners[i]` of `[rows, vocabulary]` at `uniforms[i]` in [0, 1)."""
    device = log_probabilities.device
    u = torch.tensor(uniforms, dtype=torch.float64, device=device)
    row = torch.tensor(owners, device=device)
    parts = [slice(first, first + DRAWS_AT_ONCE) for first in range(0, len(owners), DRAWS_AT_ONCE)]
    return torch.cat([_invert(log_probabilities[row[part]], u[part]) for part in parts])


def _invert(log_probabilities: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    cumulative = log_probabilities.double().exp().cumsum(-1)
    target = uniforms[:, None] * cumulative[:, -1:]
    token = torch.searchsorted(cumulative, target, right=True).squeeze(-1)
    last = cumulative.shape[-1] - 1 - (log_probabilities.flip(-1) > -torch.inf).int().argmax(-1)
    return torch.minimum(token, last)


def row_stream(*key: int) -> np.random.Generator:
    """The random stream of one row, a function of its key alone."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([part % 2**63 for part in key])))


def uniforms(stream: np.random.Generator) -> Iterator[float]:
    """The stream's uniform numbers one by one (drawn in blocks, which gives the same numbers)."""
    while True:
        yield from stream.random(64).tolist()
