"""A readable GRPO core (2402.03300), exact and resumable.

1. Each step draws fresh training tasks and plays `samples` episodes of each with the current policy.
2. Rewards become group advantages; dead groups are counted and recorded with their reason.
3. The clipped surrogate is averaged over all sampled tokens of the step (token-mean, 2503.14476); tokens of
   the environment have weight 0. Gradients add up over blocks of rows, so the split does not matter.
4. Randomness of a step is a function of (seed, step), so a run that was killed goes on bit for bit.

Departure: the reference policy and its KL term are absent here; the start is the reference for forensics.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from forensics.errors import UserError
from forensics.policies.huggingface import HuggingFacePolicy
from forensics.protocols import Environment, SamplingSettings
from forensics.records import Trajectory
from training.advantages import GroupAdvantages, group_advantages
from training.losses import clipped_surrogate, token_logprobs
from training.recipe import GrpoSection, Recipe
from training.rewards import Reward, load_rewards, total_reward
from training.saving import load_state, save_state
from training.supervised import padded


@dataclass(frozen=True, kw_only=True)
class StepReport:
    """What one step did. Shares are of groups; `dead` maps each reason to its number of groups."""

    step: int
    reward: float | None
    success: float | None
    turns: float
    tokens: int
    loss: float
    gradient_norm: float
    dead: dict[str, int]
    errored: int
    truncated: int


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Rows of a step: tokens, weights of tokens 1.. (0: not sampled), sampler log-probabilities, advantages."""

    token_ids: torch.Tensor
    weights: torch.Tensor
    old_logprobs: torch.Tensor
    advantages: torch.Tensor


def grpo(
    policy: HuggingFacePolicy, environment: Environment, recipe: Recipe, seed: int, folder: Path | None = None,
    report: Callable[[StepReport], None] = lambda step: None,
) -> None:
    """Train `policy` in place. With a `folder`, state is saved every `save_every` steps and picked up again."""
    config = recipe.grpo
    world = environment.without(*recipe.environment.without) if recipe.environment.without else environment
    settings = SamplingSettings(**recipe.sampling.model_dump())
    rewards = load_rewards(recipe.rewards)
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay)
    start = load_state(folder, policy.model, optimizer) if folder else 0
    for step in range(start, config.steps):
        report(one_step(policy, world, settings, rewards, optimizer, config, seed, step))
        if folder and ((step + 1) % config.save_every == 0 or step + 1 == config.steps):
            save_state(folder, policy.model, optimizer, step + 1)


def one_step(
    policy: HuggingFacePolicy, world: Environment, settings: SamplingSettings,
    rewards: dict[str, tuple[Reward, float]], optimizer: torch.optim.Optimizer, config: GrpoSection, seed: int,
    step: int,
) -> StepReport:
    """Play, reward, update."""
    root = int(np.random.SeedSequence([seed, step]).generate_state(1, np.uint64)[0] >> 1)
    tasks = world.tasks("train", config.groups, root % 10**9)
    trajectories = list(policy.play(world, tasks, config.samples, settings, root))
    generator = np.random.default_rng([seed, step, 1])
    totals = [total_reward(trajectory, rewards, generator)[0] for trajectory in trajectories]
    groups = [
        group_advantages(totals[i : i + config.samples], config.scaling, config.dead_tolerance)
        for i in range(0, len(totals), config.samples)
    ]
    batch = make_batch(trajectories, groups, policy.model.device)
    losses = [update(policy.model, batch, settings, optimizer, config) for _ in range(config.epochs)]
    return _report(step, trajectories, totals, groups, losses)


def make_batch(trajectories: Sequence[Trajectory], groups: Sequence[GroupAdvantages], device: Any) -> Batch | None:
    """Rows with a gradient; `None` where there is none (all groups dead)."""
    advantages = [value for group in groups for value in group.values]
    rows = [(t, a) for t, a in zip(trajectories, advantages, strict=True) if a]
    if not rows:
        return None
    tokens = [[i for step in t.steps for i in step.token_ids or ()] for t, _ in rows]
    weights = [[float(s) for step in t.steps for s in step.sampled or ()] for t, _ in rows]
    old = [_spread(t) for t, _ in rows]
    return Batch(
        token_ids=padded(tokens, 0, torch.long).to(device),
        weights=padded(weights, 0.0, torch.float32)[:, 1:].to(device),
        old_logprobs=padded(old, 0.0, torch.float32)[:, 1:].to(device),
        advantages=torch.tensor([a for _, a in rows], dtype=torch.float32, device=device),
    )


def _spread(trajectory: Trajectory) -> list[float]:
    """Sampler log-probabilities at the positions of their tokens, 0 elsewhere."""
    spread: list[float] = []
    for step in trajectory.steps:
        drawn = iter(step.logprobs or ())
        spread += [next(drawn) if sampled else 0.0 for sampled in step.sampled or ()]
    return spread


def update(
    model: Any, batch: Batch | None, settings: SamplingSettings, optimizer: torch.optim.Optimizer, config: GrpoSection
) -> tuple[float, float]:
    """One optimizer step over the batch, in blocks of rows; (loss, gradient norm). No batch: no step."""
    if batch is None:
        return 0.0, 0.0
    optimizer.zero_grad()
    total = batch.weights.sum()
    loss = 0.0
    for rows in torch.arange(len(batch.advantages)).split(config.rows):
        logprobs = token_logprobs(model, batch.token_ids[rows], settings)
        part, _ = clipped_surrogate(
            logprobs, batch.old_logprobs[rows], batch.advantages[rows], batch.weights[rows],
            config.clip_low, config.clip_high,
        )
        (part / total).backward()
        loss += part.item() / total.item()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), config.gradient_norm)
    if not torch.isfinite(norm):
        raise UserError("the gradient is not finite; lower the learning rate or check the rewards")
    optimizer.step()
    return loss, float(norm)


def _report(
    step: int, trajectories: Sequence[Trajectory], totals: Sequence[float | None],
    groups: Sequence[GroupAdvantages], losses: Sequence[tuple[float, float]],
) -> StepReport:
    reasons = [group.dead for group in groups if group.dead is not None]
    return StepReport(
        step=step, reward=_mean(totals), success=_mean([t.outcome for t in trajectories]),
        turns=float(np.mean([t.turns for t in trajectories])),
        tokens=sum(t.sampled_tokens or 0 for t in trajectories), loss=losses[-1][0], gradient_norm=losses[-1][1],
        dead={reason: reasons.count(reason) for reason in sorted(set(reasons))},
        errored=sum(t.end == "errored" for t in trajectories),
        truncated=sum(t.end == "truncated" for t in trajectories),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def report_row(report: StepReport) -> dict[str, Any]:
    """A step report as a plain row for `metrics.jsonl`."""
    return asdict(report)
