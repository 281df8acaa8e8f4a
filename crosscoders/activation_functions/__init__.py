"""Activation functions of dictionaries, and the seam for one's own.

1. A function names the (row, latent) pairs of a batch that may be active
   (`candidates`), what they are worth and what they cost (`value`). Everything
   else in a training step is the same for all.
2. After each step it moves the dictionary's threshold (`threshold`), and at
   inference it gives the values from that (`infer`).
3. A function is found by its name in the entry point group
   `forensics.activations`. One's own is one class and one line in a
   `pyproject.toml`; it then trains, is saved, loaded, exported and steered with
   like any other.

Pre-activations `pre` are `[rows, latents]`, pairs are flat indices into them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from crosscoders.dictionaries.settings import Partition, TrainerSettings
from forensics.errors import UserError
from forensics.plugins import load_plugin

GROUP = "forensics.activations"


@dataclass(frozen=True, kw_only=True)
class TrainingStep:
    """What a function may know of one step.

    `k`: active latents a row. `own`: active one-model latents of the batch where
    these are chosen apart (`None`: all compete for `k`). `parameters`: what the
    function trains beside the weights. `bound [latents]`: a guess below which nothing is kept.
    """

    partition: Partition
    settings: TrainerSettings
    k: int
    own: int | None = None
    parameters: Mapping[str, Tensor]
    bound: Tensor | None = None


class ActivationFunction(Protocol):
    """What a dictionary asks of its activation function; it keeps no state.

    `saelens`: the architecture that `export_saelens` writes (`jumprelu`: with
    thresholds; `topk`: with k). `l1`: whether a value costs as much as its
    latent's decoders are long; without it decoders are kept at norm one.
    `by_rank`: whether a latent's value depends on how it compares
    with others: never, while it trains, or always. `one_model_budget`: whether
    it can choose one-model latents apart (`own_k`).

    A class that derives from this one has, where it says nothing else, no `k`, no
    parameters, no penalty and a threshold that stays.
    """

    saelens: str
    l1: bool = False
    by_rank: Literal["never", "training", "always"]
    one_model_budget: bool = False

    def check(self, k: int, latents: int) -> None:
        """Raise `UserError` where a dictionary of this `k` cannot be."""

    def parameters(self, latents: int, settings: TrainerSettings) -> dict[str, Tensor]:
        """First values of what is trained beside the weights, by name."""
        return {}

    def candidates(self, pre: Tensor, step: TrainingStep) -> Tensor:
        """The pairs that a step has to do with, rising. Where `by_rank` is not
        `never` these are the active ones.
        """
        ...

    def value(
        self, pre: Tensor, latent: Tensor, step: TrainingStep
    ) -> tuple[Tensor, Tensor | None]:
        """Values, and a penalty of its own of each pair (`None`: none), of pairs
        of any shape whose latents are `latent`; differentiable.
        """
        return pre.relu(), None

    def threshold(self, old: Tensor, value: Tensor, latent: Tensor, step: TrainingStep) -> Tensor:
        """The threshold `[latents]` after a step that had these values."""
        return old

    def infer(self, pre: Tensor, threshold: Tensor, k: int) -> Tensor:
        """Values at inference, of the shape of `pre [rows, latents]`: `pre` where it is
        positive and above its latent's threshold, else 0. Where `by_rank` is not
        `always`, `pre` may be that of some latents, with their thresholds. Raises
        `UserError` where a threshold is not known yet.
        """
        if bool(threshold.isnan().any()):
            raise UserError("this dictionary has no threshold yet; train it, or set `threshold`")
        return pre.relu() * (pre > threshold)


@cache
def activation_function(name: str) -> ActivationFunction:
    """The installed function of a name. Raises `UserError`, which names the
    installed ones, where there is none.
    """
    function: ActivationFunction = load_plugin(GROUP, name)()
    return function


def above(values: Tensor, bound: Tensor | float) -> Tensor:
    """Indices of a flat tensor's elements above a bound, rising."""
    mask = values > bound
    if mask.is_cuda:
        return mask.nonzero().squeeze(-1)
    return torch.from_numpy(np.flatnonzero(mask.numpy()))  # four times as fast on a CPU


def at_latents(known: Tensor, latent: Tensor) -> Tensor:
    """`known[latent]`, whose gradient is summed in one order whatever the number of threads."""
    return known.index_select(0, latent.flatten()).view(latent.shape)


def require_k(k: int, latents: int) -> None:
    """Raise `UserError` for a `k` that these latents cannot have."""
    if not 0 < k <= latents:
        raise UserError(f"k is {k}; it must be from 1 to the number of latents, {latents}")
