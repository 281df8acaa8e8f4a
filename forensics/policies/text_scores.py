"""Reading texts that are known: log-probabilities of their tokens, and the
stems that runs fork off.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from forensics.policies.cache import Stem, new_cache, take_stem
from forensics.policies.distribution import Text, log_distribution
from forensics.policies.memory import Memory
from forensics.protocols import SamplingSettings

SCORED_POSITIONS = 512  # positions whose logits are held at once
READ_AT_ONCE = 16384  # tokens of stems


def score(
    model: Any,
    memory: Memory,
    batch: Sequence[Sequence[int]],
    settings: SamplingSettings,
    starts: Sequence[Sequence[int]],
) -> np.ndarray:
    """Log-probabilities `[rows, length - 1]` (float32 nats) of sequences of
    equal length, whose actions start so.
    """
    if len(batch[0]) < 2:
        return np.zeros((len(batch), 0), np.float32)
    ids = torch.tensor([list(row) for row in batch], device=model.device)
    parts = [
        spread.gather(-1, ids[:, start + 1 : end + 1, None]).squeeze(-1)
        for start, end, spread in spreads(model, memory, batch, settings, starts)
    ]
    return torch.cat(parts, 1).cpu().numpy()


def spreads(
    model: Any,
    memory: Memory,
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
    cache = None if memory == "none" else new_cache(model.config)
    for start, end in _windows(memory, *ids.shape):
        known: dict[str, Any] = (
            {"use_cache": False} if cache is None else {"past_key_values": cache, "use_cache": True}
        )
        logits = model(ids[:, start:end], **known).logits
        texts = _texts(batch, starts, start, end) if settings.penalises else None
        yield start, end, log_distribution(logits.flatten(0, 1), settings, texts).view(logits.shape)


def _windows(memory: Memory, rows: int, length: int) -> Iterator[tuple[int, int]]:
    """Positions to score at once; a model with a state reads a text in one go (see `memory`)."""
    chunk = max(1, SCORED_POSITIONS // rows) if memory in ("ours", "attention") else length
    for start in range(0, length - 1, chunk):
        yield start, min(start + chunk, length - 1)


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


def read_stems(model: Any, texts: Sequence[Sequence[int]]) -> list[Stem]:
    """Keys and values of each text, read once, some texts at a time; for models
    whose cache is ours.
    """
    found: list[Stem] = []
    rows = max(1, READ_AT_ONCE // max(map(len, texts), default=1))
    for first in range(0, len(texts), rows):
        found += _read(model, [list(text) for text in texts[first : first + rows]])
    return found


def _read(model: Any, batch: list[list[int]]) -> list[Stem]:
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
    return [take_stem(cache, row, len(text)) for row, text in enumerate(batch)]
