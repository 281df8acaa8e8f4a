"""The supervised start is next-token training on demonstrations:

1. Play demonstrations with the scripted agent (as many in each scrubbed world
   as in the open one, so that an empty history is nothing new to the policy).
2. Train on all tokens of the transcript, the agent's at weight 1, the
   environment's at `context_weight`: predicting what a file shows teaches to
   match names, which is the slow part.
3. Several phases, each with its own habits: correct demonstrations first,
   diluted ones after.
"""

from collections.abc import Sequence
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch.nn.functional import cross_entropy

from forensics.policies import renderer_for
from forensics.progress import Progress, silent
from training.batch import padded
from training.environments.mini_repo import MiniRepo
from training.organisms.demonstrations import Demonstration, Habits, demonstrate
from training.run_state import load_state, save_state
from training.sections import Section
from training.trained_model import Skipped, clipped_step

SAVED_EVERY = 250  # steps


class Phase(Section):
    """`pool` demonstrations with these habits, `steps` optimizer steps of
    `batch` of them.
    """

    steps: int = Field(ge=1)
    pool: int = Field(30_000, ge=1)
    batch: int = Field(64, ge=1)
    learning_rate: float = Field(2e-3, gt=0)
    context_weight: float = Field(0.5, ge=0)
    warmup: int = Field(100, ge=1)
    habits: Habits = Habits()


def demonstration_pool(
    world: MiniRepo,
    tokenizer: Any,
    tasks: Sequence[str],
    habits: Sequence[Habits],
    generator: np.random.Generator,
    progress: Progress = silent,
) -> list[Demonstration]:
    """Demonstrations on `tasks` by the `habits` for each, in turn in every
    world from the open one to the one without any channel.
    """
    renderer = renderer_for(tokenizer)
    names = [channel.name for channel in world.channels]
    subsets = chain.from_iterable(combinations(names, size) for size in range(len(names) + 1))
    worlds = [world.without(*without) for without in subsets]
    pool = []
    for number, (task, own) in enumerate(zip(tasks, habits, strict=True)):
        place = worlds[number % len(worlds)]
        pool.append(demonstrate(place, renderer, tokenizer, task, own, generator))
        progress("demonstrations", number + 1, len(tasks))
    return pool


def train_phase(
    model: torch.nn.Module,
    pool: Sequence[Demonstration],
    phase: Phase,
    seed: int,
    folder: Path | None = None,
    progress: Progress = silent,
    stage: str = "supervised",
) -> None:
    """AdamW with warm-up and cosine decay to a tenth; gradients clipped at norm
    1.

    With a `folder` the state is saved every `SAVED_EVERY` steps, and a run that was
    killed goes on bit for bit.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=phase.learning_rate, weight_decay=0.01)
    skipped = Skipped(most=5)
    model.train()
    for step in range(load_state(folder, model, optimizer)["step"] if folder else 0, phase.steps):
        chosen = np.random.default_rng([seed, 2, step]).integers(len(pool), size=phase.batch)
        for group in optimizer.param_groups:
            group["lr"] = phase.learning_rate * _rate(step, phase)
        loss = demonstration_loss(model, [pool[int(i)] for i in chosen], phase.context_weight)
        optimizer.zero_grad()
        loss.backward()
        clipped_step(optimizer, list(model.parameters()), 1.0, loss.item(), skipped)
        if folder and (step + 1) % SAVED_EVERY == 0:
            save_state(folder, model, optimizer, step + 1)
        progress(stage, step + 1, phase.steps)
    model.eval()


def _rate(step: int, phase: Phase) -> float:
    if step < phase.warmup:
        return (step + 1) / phase.warmup
    progress = (step - phase.warmup) / max(1, phase.steps - phase.warmup)
    return 0.1 + 0.45 * (1 + float(np.cos(np.pi * min(1.0, progress))))


def demonstration_loss(
    model: torch.nn.Module, batch: Sequence[Demonstration], context_weight: float
) -> torch.Tensor:
    """Weighted mean cross-entropy (nats a token) of a batch."""
    device = next(model.parameters()).device
    ids = padded([row.token_ids for row in batch], 0, torch.long).to(device)
    weights = padded(
        [[1.0 if s else context_weight for s in row.sampled] for row in batch], 0.0, torch.float32
    )
    logits = model(ids[:, :-1], use_cache=False).logits
    losses = cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    weights = weights[:, 1:].flatten().to(device)
    return (losses * weights).sum() / weights.sum()
