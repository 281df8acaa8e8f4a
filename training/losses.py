"""The policy loss, in one place.

Token-mean clipped surrogate (PPO, 1707.06347; token-mean and separate clip ends as in DAPO, 2503.14476):
`-sum_t w_t min(r_t A, clip(r_t, 1 - low, 1 + high) A) / sum_t w_t`, where `r_t` is the ratio of the token's
probability under the policy to that under the sampler, and `w_t` is 0 for tokens of the environment.
"""

from typing import Any

import torch

from forensics.policies.sampling import log_distribution
from forensics.protocols import SamplingSettings


def token_logprobs(model: Any, token_ids: torch.Tensor, settings: SamplingSettings) -> torch.Tensor:
    """Log-probabilities `[rows, length - 1]` of tokens 1.. under the sampler's settings, with gradient.

    Rows are filled up on the right, which causal attention never sees from the left.
    """
    logits = model(token_ids[:, :-1], use_cache=False).logits
    return log_distribution(logits, settings).gather(-1, token_ids[:, 1:, None]).squeeze(-1)


def clipped_surrogate(
    logprobs: torch.Tensor, old_logprobs: torch.Tensor, advantages: torch.Tensor, weights: torch.Tensor,
    clip_low: float, clip_high: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sum of weighted token losses and sum of weights, so that any split of a batch adds up to the same.

    `logprobs`, `old_logprobs`, `weights`: `[rows, tokens]`; `advantages`: `[rows]`.
    """
    ratio = (logprobs - old_logprobs).exp()
    gain = advantages[:, None]
    surrogate = torch.minimum(ratio * gain, ratio.clamp(1 - clip_low, 1 + clip_high) * gain)
    return -(surrogate * weights).sum(), weights.sum()
