"""Lowest-group confidence (DeepConf, 2508.15260): how sure the policy was in its least sure stretch.

1. Confidence of a token: minus the mean log-probability of the `TOP` likeliest tokens at its place. High where one
   token has nearly all the probability, for then the others are very unlikely.
2. Confidence of a group: the mean over a window of `GROUP` tokens that slides over all sampled tokens.
3. The lowest group's mean is the score of the trajectory.

Departure: the paper's windows of 1024 and 2048 tokens suit chains of thought of tens of thousands; runs of agents in
small steps would have one window, so ours is shorter. A run shorter than a window is one group, as in the paper.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

CONFIDENCE: Final = "top_confidence"
TOP: Final = 20
GROUP: Final = 32


@dataclass(frozen=True)
class TopConfidence:
    """A readout: minus the mean log-probability of the `top` likeliest tokens, nats.

    Tokens without any chance (shut out by the settings) are left out of the mean.
    """

    top: int = TOP

    @property
    def identity(self) -> str:
        """What its numbers depend on."""
        return f"top confidence of {self.top}"

    @property
    def names(self) -> Sequence[str]:
        return (CONFIDENCE,)

    def __call__(self, policy: Any, reference: Any, at: Any) -> Any:
        likeliest = policy.topk(min(self.top, policy.shape[-1]), dim=-1).values
        some = likeliest.isfinite()
        return -(likeliest.where(some, 0.0).sum(-1) / some.sum(-1).clamp(min=1))


def lowest_group(confidence: np.ndarray | None, group: int = GROUP) -> float | None:
    """The least mean over `group` tokens in a row of `confidence [tokens]`; `None` where one was not read."""
    if confidence is None or not len(confidence) or np.isnan(confidence).any():
        return None
    window = min(group, len(confidence))
    sums = np.cumsum(np.concatenate([[0.0], confidence]))
    return float((sums[window:] - sums[:-window]).min() / window)
