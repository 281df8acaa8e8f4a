"""By how much a server that samples and the trainer differ about the tokens that were
drawn, by depth of context, and when that is a fault.

1. The gap of a token is the difference of its two log-probabilities in nats, both of the
   policy before the update. Depth is how many tokens stand before it. A step's numbers
   are among its diagnostics: `sampler_gap` (mean of absolute gaps), `sampler_ratio` (mean
   of trainer / sampler probability), and both by depth, `sampler_gap_from_64` being that of
   64 tokens up to the next edge.
2. *The rule.* A step's sampler is at fault where its mean absolute gap is above
   `largest` (0.02 nats; healthy engines show some .0002, faults some .09), or above ten
   times that of the run's first step, a ten-thousandth of a nat at least: weights that stay
   behind are those of the start at first, and drift away. docs/training.md says how often
   it finds planted faults, and how often it is wrong.

What it cannot see: a server that draws from another distribution than the one whose
log-probabilities it tells. That is for `forensics check-server`
(`forensics.investigation.served_draws`) to ask.
"""

from dataclasses import dataclass
from math import isfinite
from typing import Final

import torch

from forensics.policies import LEAST, gap_by_depth
from training.batch import Batch

DRIFT: Final = 10.0


def sampler_gap(batch: Batch) -> dict[str, float]:
    """Of a step's rows; a depth at which nothing was drawn has no numbers."""
    drawn = batch.weights != 0
    gap = (batch.old_logprobs - batch.sampler_logprobs)[drawn].double()
    depth = torch.arange(1, drawn.shape[1] + 1, device=drawn.device).expand_as(drawn)[drawn]
    return gap_by_depth(gap, depth)


@dataclass(kw_only=True)
class GapWatch:
    """The rule, from step to step. `first`: the mean absolute gap of the run's first step."""

    largest: float
    first: float | None = None

    def fault(self, gap: float) -> str | None:
        """What is wrong with a step of this mean absolute gap, in one sentence."""
        if (said := self.excess(gap)) is None:
            return None
        return (
            f"{said}: it draws with other weights, another temperature or other positions than the"
            " trainer's; see sampler_gap by depth in metrics.jsonl, and whether the server takes"
            " new weights"
        )

    def excess(self, gap: float) -> str | None:
        """By how much a mean absolute gap is above what the rule allows, if it is."""
        if self.first is None and isfinite(gap):
            self.first = gap
        if self.first is None or not isfinite(gap):
            said = "which is no finite number"
        elif gap > self.largest:
            said = f"more than largest_gap = {self.largest:g}"
        elif gap > max(DRIFT * self.first, LEAST):
            said = f"more than {DRIFT:g} times the {self.first:.2g} of the first step"
        else:
            return None
        return f"the server and the trainer differ by {gap:.2g} nats a token, {said}"
