"""DPO on recorded preference pairs: the training loop (2305.18290; with one weighted token, Cliff-DPO, 2606.25524).

1. *Reference*: the log-probabilities of the pairs' weighted tokens under the start, computed once, before the first
   step, and kept. No second model is held; a new adapter changes nothing, so with `[lora]` it is the same pass.
2. *Step*: `minibatch` pairs in an order that is a function of (seed, epoch); the loss of `training.preference`,
   divided by the number of pairs of the step, so the micro-batch size changes nothing. Both sides of a pair go
   through the model together, and through their common prefix once.
3. A run that was killed at any moment goes on bit for bit: weights and moments are restored, the reference is scored
   again from the start that the run's folder names.

Departures: AdamW with a constant rate, no warm-up; dropout off. One process; for more there is TRL
(`training.trl_preference`).
"""

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from forensics.errors import UserError
from forensics.policies.huggingface import HuggingFacePolicy
from forensics.protocols import SamplingSettings
from forensics.records import PreferencePair, content_hash
from training.accepting import check_pairs, check_policy, mark_changed
from training.batch import padded
from training.compute import Machine
from training.parallel import Process
from training.preference import PreferenceLoss, both_sides, dpo_loss
from training.preference_recipe import PreferenceRecipe, PreferenceSection
from training.resuming import check, claim
from training.saving import load_state, save_checkpoint, save_state

Reference = tuple[list[float], list[float]]  # of the chosen and of the rejected tokens of a pair; 0 where the weight is


@dataclass(frozen=True, kw_only=True)
class PreferenceStep:
    """What one optimizer step did, plain data, under the weights before it.

    `losses`: means over the step's pairs: `chosen_gain`, `rejected_gain` (beta times the weighted log-ratio to the
    start, nats), `margin` (their difference) and `accuracy` (the share of pairs whose margin is above 0). `tokens`:
    those with weight. `gradient_norm`: before any clipping.
    """

    step: int
    epoch: int
    pairs: int
    tokens: int
    loss: float
    gradient_norm: float
    losses: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """A pair with the start's log-probabilities of its tokens."""

    pair: PreferencePair
    reference: Reference


def dpo(
    policy: HuggingFacePolicy, pairs: Sequence[PreferencePair], recipe: PreferenceRecipe, seed: int,
    folder: Path | None = None, report: Callable[[PreferenceStep], None] = lambda step: None,
    progress: Callable[[str, int, int], None] = lambda what, done, of: None,
    environment: Mapping[str, Any] | None = None,
) -> None:
    """Train `policy` in place on the pairs (the recipe's `pairs` and `checkpoint` only name where they came from).

    `policy` holds its weights in float32 (with `[lora]` in any precision) and is used once. With a `folder`, state is
    saved every `save_every` steps and picked up again, and the policy ends up in `folder/checkpoint`, with
    `environment` as its `environment.json`. `progress` hears of the pass over the reference. Raises `UserError` for
    pairs of another policy, tokens that the policy does not know, and a gradient that is not finite.
    """
    config = recipe.preference
    check_alone()
    check_policy(policy, recipe)
    check_pairs(pairs, policy.identity, policy.model.config.to_dict(), config.any_policy)
    mine = _description(recipe, pairs, seed, policy.identity)
    if folder:
        check(folder, mine)
    settings = SamplingSettings(temperature=config.temperature)
    with closing(Machine(policy, recipe, settings, Process(), seed)) as machine:
        mark_changed(policy)
        lessons = lessons_of(machine, pairs, config.rows, progress)
        if folder:
            claim(folder, mine)
        _steps(machine, lessons, config, seed, folder, report)
        if folder:
            save_checkpoint(folder / "checkpoint", machine.model, policy.tokenizer,
                            dict(environment) if environment else None)


def check_alone() -> None:
    """Refuse to be one of several processes, each of which would train a policy of its own."""
    if (size := int(os.environ.get("WORLD_SIZE", "1"))) != 1:
        raise UserError(f"preference training runs in one process and {size} were started; start it without torchrun, "
                        "or give the pairs to TRL (training.trl_preference)")


def _description(recipe: PreferenceRecipe, pairs: Sequence[PreferencePair], seed: int, start: str) -> dict[str, Any]:
    """What makes a run this one: for the pairs that is what they say, not the file they are in."""
    told = recipe.model_dump(mode="json")
    told["preference"]["pairs"] = content_hash([
        [pair.prefix, pair.chosen, pair.rejected, pair.chosen_weights, pair.rejected_weights] for pair in pairs
    ])
    return {"recipe": told, "seed": seed, "start": start, "rewards": {}}


def lessons_of(
    machine: Machine, pairs: Sequence[PreferencePair], rows: int,
    progress: Callable[[str, int, int], None] = lambda what, done, of: None,
) -> list[Lesson]:
    """Every pair, with the log-probabilities that the machine's weights give it now: those of the start, if asked
    before any step."""
    found: dict[int, Reference] = {}
    for part in _micro_batches(pairs, rows):
        both = both_sides([pairs[i] for i in part], machine.model.device)
        scored = machine.old(both.token_ids, both.weights != 0)[0].float().cpu()
        for i, chosen, rejected in zip(part, *scored.split(len(part)), strict=True):
            found[i] = (_answer(chosen, pairs[i].prefix, pairs[i].chosen),
                        _answer(rejected, pairs[i].prefix, pairs[i].rejected))
            if not all(math.isfinite(value) for side in found[i] for value in side):
                raise UserError(f"the policy gives tokens of pair '{pairs[i].id}' no finite log-probability before "
                                "any training; check its weights, or choose dtype = \"float32\" under [compute]")
        progress("reference", len(found), len(pairs))
    return [Lesson(pair=pair, reference=found[i]) for i, pair in enumerate(pairs)]


def _answer(row: torch.Tensor, prefix: Sequence[int], answer: Sequence[int]) -> list[float]:
    """Of a row `[length - 1]`, the numbers of the tokens behind the prefix."""
    return row[len(prefix) - 1 : len(prefix) + len(answer) - 1].tolist()


def _micro_batches(pairs: Sequence[PreferencePair], rows: int) -> list[list[int]]:
    """Indices of at most `rows // 2` pairs each, similar lengths together, longest first."""
    lengths = [len(pair.prefix) + max(len(pair.chosen), len(pair.rejected)) for pair in pairs]
    order = sorted(range(len(pairs)), key=lambda i: -lengths[i])
    size = max(1, rows // 2)
    return [order[first : first + size] for first in range(0, len(order), size)]


def _steps(
    machine: Machine, lessons: Sequence[Lesson], config: PreferenceSection, seed: int, folder: Path | None,
    report: Callable[[PreferenceStep], None],
) -> None:
    """All steps that the folder does not hold yet."""
    optimizer = torch.optim.AdamW(
        [p for p in machine.model.parameters() if p.requires_grad], lr=config.learning_rate,
        weight_decay=config.weight_decay,
    )
    each = math.ceil(len(lessons) / config.minibatch)
    for step in range(load_state(folder, machine.model, optimizer)["step"] if folder else 0, each * config.epochs):
        epoch, part = divmod(step, each)
        order = np.random.default_rng([seed, epoch, 5]).permutation(len(lessons))
        chosen = [lessons[i] for i in order[part * config.minibatch : (part + 1) * config.minibatch]]
        with machine.training():
            done = _optimizer_step(machine, chosen, optimizer, config, (step, epoch))
        report(done)
        if folder and ((step + 1) % config.save_every == 0 or step + 1 == each * config.epochs):
            save_state(folder, machine.model, optimizer, step + 1)


def _optimizer_step(
    machine: Machine, lessons: Sequence[Lesson], optimizer: torch.optim.Optimizer, config: PreferenceSection,
    where: tuple[int, int],
) -> PreferenceStep:
    """One optimizer step over the lessons, in micro-batches; `where`: step and epoch."""
    clock, total, sums = time.perf_counter(), 0.0, dict[str, float]()
    optimizer.zero_grad()
    for part in _micro_batches([lesson.pair for lesson in lessons], config.rows):
        found = lesson_loss(machine, [lessons[i] for i in part], config.beta, len(lessons))
        found.loss.backward()
        total += found.loss.item()
        for name, (value, _) in found.diagnostics.items():
            sums[name] = sums.get(name, 0.0) + value.item()
    trained = [p for p in machine.model.parameters() if p.requires_grad]
    norm = float(torch.nn.utils.clip_grad_norm_(trained, config.gradient_norm))
    if not math.isfinite(norm):
        raise UserError(f"the gradient of step {where[0]} is not finite; lower learning_rate under [preference]")
    optimizer.step()
    return PreferenceStep(
        step=where[0], epoch=where[1], pairs=len(lessons), tokens=sum(_counted(lesson.pair) for lesson in lessons),
        loss=total, gradient_norm=norm, losses={name: value / len(lessons) for name, value in sums.items()},
        seconds={"update": time.perf_counter() - clock},
    )


def _counted(pair: PreferencePair) -> int:
    """How many tokens of both sides have weight."""
    sides = (pair.chosen, pair.chosen_weights), (pair.rejected, pair.rejected_weights)
    return sum(len(tokens) if weights is None else sum(map(bool, weights)) for tokens, weights in sides)


def lesson_loss(machine: Machine, lessons: Sequence[Lesson], beta: float, of: int) -> PreferenceLoss:
    """The share of some lessons in the mean loss over `of`, with gradient."""
    pairs = [lesson.pair for lesson in lessons]
    both = both_sides(pairs, machine.model.device)
    logprobs = machine.score(both.token_ids, both.weights != 0)[0]
    reference = padded([
        [*[0.0] * len(lesson.pair.prefix), *lesson.reference[side]] for side in (0, 1) for lesson in lessons
    ], 0.0, torch.float32)[:, 1:].to(logprobs.device)
    (chosen, rejected), (weights, others), (start, other) = (
        values.split(len(pairs)) for values in (logprobs, both.weights, reference)
    )
    return dpo_loss(
        chosen, rejected, chosen_weights=weights, rejected_weights=others, reference_chosen=start,
        reference_rejected=other, beta=beta, pairs=of,
    )
