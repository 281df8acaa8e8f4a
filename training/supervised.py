"""The supervised start: next-token training on demonstrations.

1. Play demonstrations with the scripted agent (as many in each scrubbed world as in the open one, so that an empty
   history is nothing new to the policy).
2. Train on all tokens of the transcript, the agent's at weight 1, the environment's at `context_weight`:
   predicting what a file shows teaches to match names, which is the slow part.
3. Several phases, each with its own habits: correct demonstrations first, diluted ones after.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from forensics.policies.rendering import rendering_for
from training.environments.mini_repo import MiniRepo
from training.organisms.demonstrations import Demonstration, Habits, demonstrate
from training.saving import load_state, save_state


@dataclass(frozen=True, kw_only=True)
class Phase:
    """`pool` demonstrations with these habits, `steps` optimizer steps of `batch` of them."""

    steps: int
    habits: Habits
    pool: int = 40_000
    batch: int = 64
    learning_rate: float = 2e-3
    context_weight: float = 0.5
    warmup: int = 100


def demonstration_pool(
    options: Mapping[str, str], tokenizer: object, phase: Phase, seed: int,
    report: Callable[[int, int], None] = lambda done, of: None,
) -> list[Demonstration]:
    """Demonstrations on training tasks, in turn in every world from the open one to the one without any channel."""
    rendering = rendering_for(tokenizer)
    open_world = MiniRepo(**options)
    names = [channel.name for channel in open_world.channels]
    subsets = chain.from_iterable(combinations(names, size) for size in range(len(names) + 1))
    worlds = [open_world.without(*without) for without in subsets]
    generator = np.random.default_rng([seed, 1])
    pool = []
    for index, task in enumerate(open_world.tasks("train", phase.pool, seed)):
        pool.append(demonstrate(worlds[index % len(worlds)], rendering, tokenizer, task, phase.habits, generator))
        report(index + 1, phase.pool)
    return pool


def padded(rows: Sequence[Sequence[float]], fill: float, kind: torch.dtype) -> torch.Tensor:
    """Rows of different length as one tensor, filled up on the right."""
    width = max(len(row) for row in rows)
    return torch.tensor([[*row, *[fill] * (width - len(row))] for row in rows], dtype=kind)


def train_phase(
    model: torch.nn.Module, pool: Sequence[Demonstration], phase: Phase, seed: int, folder: Path | None = None,
    report: Callable[[int, float], None] = lambda step, loss: None,
) -> None:
    """AdamW with warm-up and cosine decay to a tenth; gradients clipped at norm 1.

    With a `folder` the state is saved every 250 steps, and a run that was killed goes on bit for bit.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=phase.learning_rate, weight_decay=0.01)
    model.train()
    for step in range(load_state(folder, model, optimizer)["step"] if folder else 0, phase.steps):
        chosen = np.random.default_rng([seed, 2, step]).integers(len(pool), size=phase.batch)
        for group in optimizer.param_groups:
            group["lr"] = phase.learning_rate * _rate(step, phase)
        loss = demonstration_loss(model, [pool[int(i)] for i in chosen], phase.context_weight)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if folder and (step + 1) % 250 == 0:
            save_state(folder, model, optimizer, step + 1)
        report(step + 1, loss.item())
    model.eval()


def _rate(step: int, phase: Phase) -> float:
    if step < phase.warmup:
        return (step + 1) / phase.warmup
    progress = (step - phase.warmup) / max(1, phase.steps - phase.warmup)
    return 0.1 + 0.45 * (1 + float(np.cos(np.pi * min(1.0, progress))))


def demonstration_loss(model: torch.nn.Module, batch: Sequence[Demonstration], context_weight: float) -> torch.Tensor:
    """Weighted mean cross-entropy (nats a token) of a batch."""
    device = next(model.parameters()).device
    ids = padded([row.token_ids for row in batch], 0, torch.long).to(device)
    weights = padded([[1.0 if s else context_weight for s in row.sampled] for row in batch], 0.0, torch.float32)
    logits = model(ids[:, :-1], use_cache=False).logits
    losses = cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    weights = weights[:, 1:].flatten().to(device)
    return (losses * weights).sum() / weights.sum()
