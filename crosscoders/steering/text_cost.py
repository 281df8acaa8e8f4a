"""What a change costs on texts that have nothing to do with it.

The policy reads each text twice at once, as it is and with the change at *every* token
(no action is decided in a text, so no position is chosen; a change that acts at decisions
alone costs less). Told is the KL divergence of what comes next, unchanged against changed,
nats a token, with an interval over texts.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from crosscoders.activations.outlier_positions import norms_of
from crosscoders.activations.streams import TokenizedText
from crosscoders.steering.activation_edits import Change
from crosscoders.steering.interventions import changed
from forensics.policies import attach, kl_divergence
from forensics.progress import Progress, counted, silent
from forensics.protocols import Policy, SamplingSettings
from forensics.statistics import ratio

SHORTEST = 2  # tokens of a text that predicts something


def first_tokens(texts: Sequence[TokenizedText], most: int) -> list[TokenizedText]:
    """The first texts with no more than `most` tokens, at least one."""
    kept: list[TokenizedText] = []
    for text in texts:
        if len(text) < SHORTEST:
            continue
        if kept and sum(map(len, kept)) + len(text) > most:
            break
        kept.append(text)
    return kept


def text_cost(
    policy: Policy,
    companion: Policy,
    texts: Sequence[TokenizedText],
    change: Change,
    *,
    site: str,
    limit: float | None = None,
    progress: Progress = silent,
) -> dict[str, Any]:
    """`estimate`, `low`, `high` (`None` with one text alone), `tokens`, `texts`.
    `companion`: the other policy, read where the change needs it. `limit`: of the norm;
    what is beyond it stays.
    """
    change = change.to(policy.model.device)
    sums: dict[str, tuple[float, int]] = {}
    for text in counted(texts, progress, "reading harmless texts", len(texts)):
        divergence, tokens = _of_text(policy, companion, text, change, site, limit)
        had = sums.get(text.note.task, (0.0, 0))
        sums[text.note.task] = (had[0] + divergence, had[1] + tokens)
    parts, wholes = np.array(list(sums.values()), dtype=np.float64).T
    told: dict[str, Any] = {"tokens": int(wholes.sum()), "texts": len(sums)}
    if len(parts) < 2:
        return told | {"estimate": float(parts.sum() / wholes.sum()), "low": None, "high": None}
    found = ratio(parts, wholes, reach=0.0)
    return told | {"estimate": found.estimate, "low": max(found.low, 0.0), "high": found.high}


@torch.inference_mode()
def _of_text(
    policy: Policy,
    companion: Policy,
    text: TokenizedText,
    change: Change,
    site: str,
    limit: float | None,
) -> tuple[float, int]:
    """The sum of the divergences in one text, and of how many tokens."""
    ids, theirs = text.token_ids.tolist(), None
    if change.needs_other:
        theirs = torch.from_numpy(companion.activations([ids], [site])[0][site])
    read = 0  # positions come in order, a window at a time

    def edit(activation: Tensor) -> Tensor:
        nonlocal read
        here = slice(read, read + activation.shape[1])
        read = here.stop
        mask = torch.zeros(activation.shape[:2], dtype=torch.bool, device=activation.device)
        mask[1] = True if limit is None else norms_of(activation[1]) <= limit
        other = None if theirs is None else theirs[here].to(activation.device).expand(2, -1, -1)
        return changed(change, activation, other, mask)

    total, number = 0.0, 0
    windows = policy.distributions([ids] * 2, SamplingSettings())
    handle = attach(policy.model, site, edit)
    try:
        for _, _, logs in windows:
            total += float(kl_divergence(logs[0], logs[1]).sum())
            number += logs.shape[1]
    finally:
        handle.remove()
    return total, number
