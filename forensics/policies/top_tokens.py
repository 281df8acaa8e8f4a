"""The most probable next tokens at every position of a text, without ever holding all logits."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from forensics.policies.text_scores import spreads
from forensics.protocols import SamplingSettings


@dataclass(frozen=True, kw_only=True)
class TopTokens:
    """`ids`, `logprobs` `[length - 1, k]`: row i is about the token that
    follows position i, most probable first.

    Log-probabilities are nats under the sampling settings; a token that cannot
    be drawn has -inf.
    """

    ids: np.ndarray
    logprobs: np.ndarray

    def at(self, position: int) -> tuple[np.ndarray, np.ndarray]:
        """The choices for the token that stands at `position` (from 1) of the text."""
        return self.ids[position - 1], self.logprobs[position - 1]

    def entropies(self) -> np.ndarray:
        """Entropy in nats `[length - 1]` over the k tokens, renormalised among them."""
        p = np.exp(self.logprobs)
        p = p / p.sum(-1, keepdims=True)
        return np.asarray(-(p * np.log(np.where(p > 0, p, 1))).sum(-1))


@torch.inference_mode()
def top_tokens(
    policy: Any,
    token_ids: Sequence[int],
    k: int,
    settings: SamplingSettings,
    starts: Sequence[int] = (),
) -> TopTokens:
    """The `k` most probable tokens (at most the vocabulary) after every token
    but the last, under a local policy.

    `starts`: where the actions start, for penalties on the output.
    """
    if len(token_ids) < 2:
        return TopTokens(ids=np.zeros((0, k), np.int64), logprobs=np.zeros((0, k), np.float32))
    parts = [
        spread[0].topk(min(k, spread.shape[-1]), dim=-1)
        for _, _, spread in spreads(policy.model, policy.memory, [token_ids], settings, [starts])
    ]
    return TopTokens(
        ids=torch.cat([part.indices for part in parts]).cpu().numpy(),
        logprobs=torch.cat([part.values for part in parts]).cpu().numpy(),
    )
