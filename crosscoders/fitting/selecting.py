"""Which pairs (row, latent) are active in a batch, from the pre-activations `[rows, latents]`.

BatchTopK keeps the `rows * k` largest of all (2412.06410). A partial sort of them all costs half as much as the
product that made them, so: a lower bound is guessed from a sample, what lies above it is gathered, and the choice among
these is exact. Where the guess was too high, everything positive is gathered instead: the result never depends on it.
"""

import numpy as np
import torch

SAMPLE = 2**16
MARGIN = 1.3


def above(values: torch.Tensor, bound: torch.Tensor | float) -> torch.Tensor:
    """Indices of a flat tensor's elements above a bound, rising."""
    mask = values > bound
    if mask.is_cuda:
        return mask.nonzero().squeeze(-1)
    return torch.from_numpy(np.flatnonzero(mask.numpy()))  # four times as fast as `nonzero` on a CPU


def batch_topk(pre: torch.Tensor, number: int) -> torch.Tensor:
    """Flat indices, rising, of the `number` largest positive elements (fewer where fewer are positive)."""
    flat = pre.reshape(-1)
    candidates = above(flat, _lower_bound(flat, number))
    if len(candidates) < number:
        candidates = above(flat, 0.0)
    if len(candidates) <= number:
        return candidates
    kept = torch.zeros(len(candidates), dtype=torch.bool, device=pre.device)
    kept[flat[candidates].topk(number, sorted=False).indices] = True
    return candidates[kept]


def batch_topk_apart(pre: torch.Tensor, shared: slice, number: int, own: int) -> torch.Tensor:
    """As `batch_topk`: the `number` largest of the shared latents, and the `own` largest of the others."""
    latents, found = pre.shape[1], []
    columns = torch.arange(latents, device=pre.device)
    for chosen, most in (
        (columns[shared], number), (torch.cat([columns[: shared.start], columns[shared.stop :]]), own),
    ):
        if len(chosen) and most:
            flat = batch_topk(pre[:, chosen], most)
            found.append(flat // len(chosen) * latents + chosen[flat % len(chosen)])
    return torch.cat(found).sort().values


def _lower_bound(flat: torch.Tensor, number: int) -> torch.Tensor:
    """What somewhat more than `number` elements exceed, to judge by a sample; never below 0."""
    stride = max(1, len(flat) // SAMPLE) | 1  # odd: no stride through one latent's column only
    sample = flat[::stride]
    wanted = min(len(sample), int(MARGIN * number * len(sample) / len(flat)) + 16)
    return sample.topk(wanted, sorted=False).values.min().clamp(min=0)


def topk(pre: torch.Tensor, k: int) -> torch.Tensor:
    """Flat indices of each row's `k` largest positive elements, row by row."""
    found = pre.topk(k, dim=-1, sorted=False)
    rows = torch.arange(len(pre), device=pre.device)[:, None] * pre.shape[1]
    return (found.indices + rows)[found.values > 0]
