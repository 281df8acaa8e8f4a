"""Reading texts that are known, without ever holding all logits: log-probabilities
of their tokens, the most probable next ones, and prefix caches that runs branch
off.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from forensics.policies.distribution import Text, log_distribution
from forensics.policies.kv_cache import CacheKind, PrefixCache, copy_prefix, new_cache
from forensics.protocols import Policy, SamplingSettings

SCORED_POSITIONS = 512  # positions whose logits are held at once
READ_AT_ONCE = 16384  # tokens of prefix caches


def score(
    policy: Policy,
    batch: Sequence[Sequence[int]],
    settings: SamplingSettings,
    starts: Sequence[Sequence[int]],
) -> np.ndarray:
    """Log-probabilities `[rows, length - 1]` (float32 nats) of sequences of
    equal length, whose actions start so, under a local policy.
    """
    if len(batch[0]) < 2:
        return np.zeros((len(batch), 0), np.float32)
    ids = torch.tensor([list(row) for row in batch], device=policy.model.device)
    parts = [
        window.gather(-1, ids[:, start + 1 : end + 1, None]).squeeze(-1)
        for start, end, window in policy.distributions(batch, settings, starts)
    ]
    return torch.cat(parts, 1).cpu().numpy()


def distributions(
    model: Any,
    cache_kind: CacheKind,
    batch: Sequence[Sequence[int]],
    settings: SamplingSettings,
    starts: Sequence[Sequence[int]],
) -> Iterator[tuple[int, int, torch.Tensor]]:
    """What can follow the positions `start` to `end - 1`: log-probabilities
    `[rows, end - start, vocabulary]`.

    Sequences of equal length, a window of positions at a time, so that full
    logits are never held for a long input.
    """
    ids = torch.tensor([list(row) for row in batch], device=model.device)
    cache = None if cache_kind == "none" else new_cache(model.config)
    last = ids.shape[1] - 1
    # a model with a state reads a text in one go (see `kv_cache`)
    chunk = max(1, SCORED_POSITIONS // len(ids)) if cache_kind in ("own", "library") else last + 1
    for start in range(0, last, chunk):
        end = min(start + chunk, last)
        known: dict[str, Any] = (
            {"use_cache": False} if cache is None else {"past_key_values": cache, "use_cache": True}
        )
        logits = model(ids[:, start:end], **known).logits
        texts = _texts(batch, starts, start, end) if settings.penalises else None
        yield start, end, log_distribution(logits.flatten(0, 1), settings, texts).view(logits.shape)


def _texts(
    batch: Sequence[Sequence[int]], starts: Sequence[Sequence[int]], first: int, last: int
) -> list[Text]:
    """What stands before each scored token, and where its action starts (0
    where that does not matter).
    """
    return [
        Text(ids=ids[:end], start=max((place for place in places if place <= end), default=0))
        for ids, places in zip(batch, starts, strict=True)
        for end in range(first + 1, last + 1)
    ]


def read_prefix_caches(model: Any, texts: Sequence[Sequence[int]]) -> list[PrefixCache]:
    """Keys and values of each text, read once, some texts at a time; for models
    whose cache is ours.
    """
    found: list[PrefixCache] = []
    rows = max(1, READ_AT_ONCE // max(map(len, texts), default=1))
    for first in range(0, len(texts), rows):
        found += _read(model, [list(text) for text in texts[first : first + rows]])
    return found


def _read(model: Any, batch: list[list[int]]) -> list[PrefixCache]:
    """Texts filled up on the right, where no position before looks."""
    length = max(map(len, batch))
    ids = torch.tensor([text + [0] * (length - len(text)) for text in batch], device=model.device)
    cache = new_cache(model.config, len(batch))
    for start in range(0, length, SCORED_POSITIONS):
        model(
            ids[:, start : start + SCORED_POSITIONS],
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
    return [copy_prefix(cache, row, len(text)) for row, text in enumerate(batch)]


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
    policy: Policy,
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
        window[0].topk(min(k, window.shape[-1]), dim=-1)
        for _, _, window in policy.distributions([token_ids], settings, [starts])
    ]
    return TopTokens(
        ids=torch.cat([part.indices for part in parts]).cpu().numpy(),
        logprobs=torch.cat([part.values for part in parts]).cpu().numpy(),
    )
