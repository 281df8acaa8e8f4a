"""Actions that were refused at one place: none of them is drawn there twice.

A refused action is a sequence of tokens whose probability is known, because it
was drawn. Its mass is taken off the distribution of each of its tokens, so that
the next draw has exactly the distribution of the policy given that it is none
of those refused so far. This is what drawing again until something else turns
up gives as well, but a policy that is 99.99 % sure of a refused action needs
one more draw instead of ten thousand.

1. At a prefix `s` of the action, a token `v` that goes on towards refused
   actions keeps `p(v|s) - sum_r p(r|s)` over the refused actions `r` that start
   with `s v`.
2. What is left of `v` is taken for nothing where float32 could not tell it from
   nothing.
"""

from collections.abc import Mapping, Sequence
from math import exp

import torch

NOTHING = 1e-5  # of a token's probability: the error of its refused mass in float32


class Refusals:
    """The refused actions of one place, each with its tokens' log-probabilities (nats)."""

    def __init__(self, actions: Mapping[tuple[int, ...], tuple[float, ...]] = {}) -> None:
        self._actions = dict(actions)

    def also(self, token_ids: Sequence[int], logprobs: Sequence[float]) -> "Refusals":
        """These and one more."""
        return Refusals({**self._actions, tuple(token_ids): tuple(logprobs)})

    def masses(self, prefix: Sequence[int]) -> dict[int, float]:
        """Probability, given `prefix`, of the refused actions that go on with each token."""
        start = tuple(prefix)
        found: dict[int, float] = {}
        for action, logprobs in self._actions.items():
            if len(action) > len(start) and action[: len(start)] == start:
                token = action[len(start)]
                found[token] = found.get(token, 0.0) + exp(sum(logprobs[len(start) :]))
        return found


def without(log_probabilities: torch.Tensor, masses: Sequence[Mapping[int, float]]) -> torch.Tensor:
    """Log-probabilities `[rows, vocabulary]` with each row's refused masses
    taken off and normalised, float64.

    A row of which nothing is left stays as it was. Float64, so that what is
    left beside a nearly certain token keeps its proportions.
    """
    probabilities = log_probabilities.double().exp()
    row = torch.tensor(
        [i for i, refused in enumerate(masses) for _ in refused], device=probabilities.device
    )
    token = torch.tensor(
        [token for refused in masses for token in refused], device=probabilities.device
    )
    taken = torch.tensor(
        [mass for refused in masses for mass in refused.values()], dtype=torch.float64
    )
    whole = probabilities[row, token]
    left = whole - taken.to(probabilities.device)
    spared = probabilities.index_put((row, token), torch.where(left > NOTHING * whole, left, 0.0))
    kept = torch.where(spared.sum(-1, keepdim=True) > 0, spared, probabilities)
    return (kept / kept.sum(-1, keepdim=True)).log()
