"""DPO with token weights on recorded preference pairs (2305.18290).

1. Each side's gain is `sum_t w_t (log pi(t) - log pi_reference(t))` over its
   own tokens.
2. The loss of a pair is `-log sigmoid(beta (gain of chosen - gain of
   rejected))`; the mean is over pairs.

With all weights 1 it is DPO; with weight on one token only it is the loss of
Cliff-DPO (2606.25524, beta 0.05), whose pair differs in that token. Nothing is
appended to a continuation: an end of text that nobody drew would be learnt.
Departures: log-probabilities are those of the sampler's settings, as everywhere
here; without a reference its terms are 0, which regularises nothing.

`[pairs, tokens]` tensors; position `t` speaks of token `t + 1` of a row, as in
`training.update`.

The training loop:

1. *Reference*: the log-probabilities of the pairs' weighted tokens under the
   start, computed once, before the first step, and kept. No second model is
   held; a new adapter changes nothing, so with `[lora]` it is the same pass.
2. *Step*: `minibatch` pairs in an order that is a function of (seed, epoch);
   the loss, divided by the number of pairs of the step, so the micro-batch size
   changes nothing. Both sides of a pair go through the model together, and
   through their common prefix once.
3. A run that was killed at any moment goes on bit for bit: weights and moments
   are restored, the reference is scored again from the start that the run's
   folder names.

Departures: AdamW with a constant rate, no warm-up; dropout off. One process;
for more there is TRL (`training.trl_dpo`).
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
from torch.nn.functional import logsigmoid

from forensics.errors import UserError
from forensics.progress import Progress, silent
from forensics.protocols import Policy, SamplingSettings
from forensics.records import PreferencePair, content_hash
from training.distributed import Process
from training.losses import Diagnostics
from training.recipe import PreferenceRecipe, PreferenceSection
from training.recipe_checks import check_pairs, check_policy, mark_changed
from training.run_state import check, claim, load_state, save_checkpoint, save_state
from training.token_logprobs import CHUNK, token_logprobs_and_entropies
from training.trained_model import Machine
from training.update import padded

Row = tuple[
    tuple[int, ...], tuple[int, ...], tuple[float, ...] | None
]  # prefix, continuation, its weights


@dataclass(frozen=True, kw_only=True)
class PairSide:
    """One side of some pairs: `token_ids` `[pairs, length]`, `weights` `[pairs,
    length - 1]` (0 on the prefix).
    """

    token_ids: torch.Tensor
    weights: torch.Tensor

    def logprobs(self, model: Any, settings: SamplingSettings, chunk: int = CHUNK) -> torch.Tensor:
        """Log-probabilities `[pairs, length - 1]` under a model, with gradient;
        0 where the weight is.
        """
        wanted = self.weights != 0
        return token_logprobs_and_entropies(
            model, self.token_ids, settings, wanted, chunk, entropies=False
        )[0]


@dataclass(frozen=True, kw_only=True)
class PreferenceLoss:
    """`loss`: these pairs' share of the loss, with gradient. `diagnostics`:
    name to (sum, number of pairs).
    """

    loss: torch.Tensor
    diagnostics: Diagnostics


def sides(pairs: Sequence[PreferencePair], device: Any = "cpu") -> tuple[PairSide, PairSide]:
    """Chosen and rejected side of the pairs as tensors, rows filled up on the right."""
    return _side(_chosen(pairs), device), _side(_rejected(pairs), device)


def both_sides(pairs: Sequence[PreferencePair], device: Any = "cpu") -> PairSide:
    """`[2 pairs, length]`: all chosen rows, then all rejected ones, so that one
    pass scores both sides.
    """
    return _side([*_chosen(pairs), *_rejected(pairs)], device)


def _chosen(pairs: Sequence[PreferencePair]) -> list[Row]:
    return [(pair.prefix, pair.chosen, pair.chosen_weights) for pair in pairs]


def _rejected(pairs: Sequence[PreferencePair]) -> list[Row]:
    return [(pair.prefix, pair.rejected, pair.rejected_weights) for pair in pairs]


def _side(rows: Sequence[Row], device: Any) -> PairSide:
    tokens = [[*prefix, *answer] for prefix, answer, _ in rows]
    weights = [
        [*[0.0] * len(prefix), *(given if given is not None else [1.0] * len(answer))]
        for prefix, answer, given in rows
    ]
    return PairSide(
        token_ids=padded(tokens, 0, torch.long).to(device),
        weights=padded(weights, 0.0, torch.float32)[:, 1:].to(device),
    )


def dpo_loss(
    chosen: torch.Tensor,
    rejected: torch.Tensor,
    *,
    chosen_weights: torch.Tensor,
    rejected_weights: torch.Tensor,
    reference_chosen: torch.Tensor | None = None,
    reference_rejected: torch.Tensor | None = None,
    beta: float = 0.05,
    pairs: int | None = None,
) -> PreferenceLoss:
    """The share of some pairs in the mean over `pairs` pairs (default: as many
    as are given).

    `chosen`, `rejected`: log-probabilities under the policy, `[pairs, tokens]`
    each, of widths of their own; `reference_*`: the same under the reference,
    both or neither. Tokens of weight 0 have gradient exactly 0 whatever they
    hold. Raises `ValueError` for one reference without the other and a `beta`
    that is not above 0.
    """
    if (reference_chosen is None) != (reference_rejected is None):
        raise ValueError("give the reference's log-probabilities of both sides or of neither")
    if not beta > 0:
        raise ValueError(f"beta {beta:g} prefers nothing; it must be above 0")
    wanted = beta * _gain(chosen, reference_chosen, chosen_weights)
    unwanted = beta * _gain(rejected, reference_rejected, rejected_weights)
    margin = wanted - unwanted
    loss = -logsigmoid(margin).sum() / (len(margin) if pairs is None else pairs)
    return PreferenceLoss(
        loss=loss,
        diagnostics=_sums(
            {
                "chosen_gain": wanted,
                "rejected_gain": unwanted,
                "margin": margin,
                "accuracy": margin > 0,
            }
        ),
    )


def _gain(
    logprobs: torch.Tensor, reference: torch.Tensor | None, weights: torch.Tensor
) -> torch.Tensor:
    """Weighted sum of log-ratios `[pairs]`."""
    ratios = logprobs if reference is None else logprobs - reference
    return (torch.where(weights != 0, ratios, 0.0) * weights).sum(-1)


def _sums(values: dict[str, torch.Tensor]) -> Diagnostics:
    return {
        name: (value.detach().float().sum(), torch.tensor(float(len(value)), device=value.device))
        for name, value in values.items()
    }


Reference = tuple[
    list[float], list[float]
]  # of the chosen and of the rejected tokens of a pair; 0 where the weight is


@dataclass(frozen=True, kw_only=True)
class PreferenceStep:
    """What one optimizer step did, plain data, under the weights before it.

    `losses`: means over the step's pairs: `chosen_gain`, `rejected_gain` (beta
    times the weighted log-ratio to the start, nats), `margin` (their
    difference) and `accuracy` (the share of pairs whose margin is above 0).
    `tokens`: those with weight. `gradient_norm`: before any clipping.
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
    policy: Policy,
    pairs: Sequence[PreferencePair],
    recipe: PreferenceRecipe,
    seed: int,
    folder: Path | None = None,
    report: Callable[[PreferenceStep], None] = lambda step: None,
    progress: Progress = silent,
    environment: Mapping[str, Any] | None = None,
) -> None:
    """Train `policy` in place on the pairs (the recipe's `pairs` and
    `checkpoint` only name where they came from).

    `policy` holds its weights in float32 (with `[lora]` in any precision) and
    is used once. With a `folder`, state is saved every `save_every` steps and
    picked up again, and the policy ends up in `folder/checkpoint`, with
    `environment` as its `environment.json`. `progress` hears of the pass over
    the reference. Raises `UserError` for pairs of another policy, tokens that
    the policy does not know, and a gradient that is not finite.
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
            save_checkpoint(
                folder / "checkpoint",
                machine.model,
                policy.tokenizer,
                dict(environment) if environment else None,
            )


def check_alone() -> None:
    """Refuse to be one of several processes, each of which would train a policy of its own."""
    if (size := int(os.environ.get("WORLD_SIZE", "1"))) != 1:
        raise UserError(
            f"preference training runs in one process and {size} were started; start it without"
            " torchrun, or give the pairs to TRL (training.trl_dpo)"
        )


def _description(
    recipe: PreferenceRecipe, pairs: Sequence[PreferencePair], seed: int, start: str
) -> dict[str, Any]:
    """What makes a run this one: for the pairs that is what they say, not the file they are in."""
    told = recipe.model_dump(mode="json")
    told["preference"]["pairs"] = content_hash(
        [
            [pair.prefix, pair.chosen, pair.rejected, pair.chosen_weights, pair.rejected_weights]
            for pair in pairs
        ]
    )
    return {"recipe": told, "seed": seed, "start": start, "rewards": {}}


def lessons_of(
    machine: Machine,
    pairs: Sequence[PreferencePair],
    rows: int,
    progress: Progress = silent,
) -> list[Lesson]:
    """Every pair, with the log-probabilities that the machine's weights give it
    now: those of the start, if asked before any step.
    """
    found: dict[int, Reference] = {}
    for part in _micro_batches(pairs, rows):
        both = both_sides([pairs[i] for i in part], machine.model.device)
        scored = machine.old(both.token_ids, both.weights != 0)[0].float().cpu()
        for i, chosen, rejected in zip(part, *scored.split(len(part)), strict=True):
            found[i] = (
                _answer(chosen, pairs[i].prefix, pairs[i].chosen),
                _answer(rejected, pairs[i].prefix, pairs[i].rejected),
            )
            if not all(math.isfinite(value) for side in found[i] for value in side):
                raise UserError(
                    f"the policy gives tokens of pair '{pairs[i].id}' no finite log-probability"
                    ' before any training; check its weights, or choose dtype = "float32" under'
                    " [compute]"
                )
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
    machine: Machine,
    lessons: Sequence[Lesson],
    config: PreferenceSection,
    seed: int,
    folder: Path | None,
    report: Callable[[PreferenceStep], None],
) -> None:
    """All steps that the folder does not hold yet."""
    optimizer = torch.optim.AdamW(
        [p for p in machine.model.parameters() if p.requires_grad],
        lr=config.learning_rate,
        weight_decay=config.weight_decay,
    )
    each = math.ceil(len(lessons) / config.minibatch)
    for step in range(
        load_state(folder, machine.model, optimizer)["step"] if folder else 0, each * config.epochs
    ):
        epoch, part = divmod(step, each)
        order = np.random.default_rng([seed, epoch, 5]).permutation(len(lessons))
        chosen = [
            lessons[i] for i in order[part * config.minibatch : (part + 1) * config.minibatch]
        ]
        with machine.training():
            done = _optimizer_step(machine, chosen, optimizer, config, (step, epoch))
        report(done)
        if folder and ((step + 1) % config.save_every == 0 or step + 1 == each * config.epochs):
            save_state(folder, machine.model, optimizer, step + 1)


def _optimizer_step(
    machine: Machine,
    lessons: Sequence[Lesson],
    optimizer: torch.optim.Optimizer,
    config: PreferenceSection,
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
        raise UserError(
            f"the gradient of step {where[0]} is not finite; lower learning_rate under [preference]"
        )
    optimizer.step()
    return PreferenceStep(
        step=where[0],
        epoch=where[1],
        pairs=len(lessons),
        tokens=sum(_counted(lesson.pair) for lesson in lessons),
        loss=total,
        gradient_norm=norm,
        losses={name: value / len(lessons) for name, value in sums.items()},
        seconds={"update": time.perf_counter() - clock},
    )


def _counted(pair: PreferencePair) -> int:
    """How many tokens of both sides have weight."""
    sides = (pair.chosen, pair.chosen_weights), (pair.rejected, pair.rejected_weights)
    return sum(
        len(tokens) if weights is None else sum(map(bool, weights)) for tokens, weights in sides
    )


def lesson_loss(
    machine: Machine, lessons: Sequence[Lesson], beta: float, of: int
) -> PreferenceLoss:
    """The share of some lessons in the mean loss over `of`, with gradient."""
    pairs = [lesson.pair for lesson in lessons]
    both = both_sides(pairs, machine.model.device)
    logprobs = machine.score(both.token_ids, both.weights != 0)[0]
    reference = padded(
        [
            [*[0.0] * len(lesson.pair.prefix), *lesson.reference[side]]
            for side in (0, 1)
            for lesson in lessons
        ],
        0.0,
        torch.float32,
    )[:, 1:].to(logprobs.device)
    (chosen, rejected), (weights, others), (start, other) = (
        values.split(len(pairs)) for values in (logprobs, both.weights, reference)
    )
    return dpo_loss(
        chosen,
        rejected,
        chosen_weights=weights,
        rejected_weights=others,
        reference_chosen=start,
        reference_rejected=other,
        beta=beta,
        pairs=of,
    )
