"""The most probable next tokens at every position of a text, without ever holding all logits."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from forensics.policies.cache import new_cache
from forensics.policies.sampling import log_distribution
from forensics.protocols import SamplingSettings

POSITIONS_AT_ONCE = 256  # positions whose logits are held at once


@dataclass(frozen=True, kw_only=True)
class TopTokens:
    """`ids`, `logprobs` `[length - 1, k]`: row i is about the token that follows position i, most probable first.

    Log-probabilities are nats under the sampling settings; a token that cannot be drawn has -inf.
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
def top_tokens(model: Any, token_ids: Sequence[int], k: int, settings: SamplingSettings) -> TopTokens:
    """The `k` most probable tokens (at most the vocabulary) after every token but the last."""
    ids = torch.tensor([list(token_ids)], device=model.device)
    cache, parts = new_cache(model.config), []
    for start in range(0, ids.shape[1] - 1, POSITIONS_AT_ONCE):
        window = ids[:, start : min(start + POSITIONS_AT_ONCE, ids.shape[1] - 1)]
        logits = model(window, past_key_values=cache, use_cache=True).logits[0]
        parts.append(log_distribution(logits, settings).topk(min(k, logits.shape[-1]), dim=-1))
    if not parts:
        return TopTokens(ids=np.zeros((0, k), np.int64), logprobs=np.zeros((0, k), np.float32))
    return TopTokens(
        ids=torch.cat([part.indices for part in parts]).cpu().numpy(),
        logprobs=torch.cat([part.values for part in parts]).cpu().numpy(),
    )
