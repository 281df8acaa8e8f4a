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
from training.batch import padded
from training.distributed import Process
from training.losses import LossParts
from training.recipe import PreferenceRecipe, PreferenceSection
from training.run_inputs import check_pairs, check_policy, mark_changed
from training.run_state import (
    check,
    check_steps,
    claim,
    description,
    load_state,
    options_from,
    save_checkpoint,
    save_state,
)
from training.trained_model import Machine


def pair_rows(
    pairs: Sequence[PreferencePair], device: Any = "cpu"
) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens `[2 pairs, length]` and their weights `[2 pairs, length - 1]` (0
    on the prefix): all chosen rows, then all rejected ones, so that one pass
    scores both sides. Rows are filled up on the right.
    """
    tokens, weights = [], []
    for side in ("chosen", "rejected"):
        for pair in pairs:
            answer = getattr(pair, side)
            given = getattr(pair, f"{side}_weights")
            tokens.append([*pair.prefix, *answer])
            weights.append(
                [*[0.0] * len(pair.prefix), *([1.0] * len(answer) if given is None else given)]
            )
    ids, kept = padded(tokens, 0, torch.long), padded(weights, 0.0, torch.float32)[:, 1:]
    return ids.to(device), kept.to(device)


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
) -> LossParts:
    """The share of some pairs in the mean over `pairs` pairs (default: as many
    as are given).

    `chosen`, `rejected`: log-probabilities under the policy, `[pairs, tokens]`
    each, of widths of their own; `reference_*`: the same under the reference,
    both or neither. Tokens of weight 0 have gradient exactly 0 whatever they
    hold. Diagnostics are sums over pairs. Raises `ValueError` for one reference
    without the other and a `beta` that is not above 0.
    """
    if (reference_chosen is None) != (reference_rejected is None):
        raise ValueError("give the reference's log-probabilities of both sides or of neither")
    if not beta > 0:
        raise ValueError(f"beta {beta:g} prefers nothing; it must be above 0")
    wanted = beta * _gain(chosen, reference_chosen, chosen_weights)
    unwanted = beta * _gain(rejected, reference_rejected, rejected_weights)
    margin = wanted - unwanted
    loss = -logsigmoid(margin).sum() / (len(margin) if pairs is None else pairs)
    values = {
        "chosen_gain": wanted,
        "rejected_gain": unwanted,
        "margin": margin,
        "accuracy": margin > 0,
    }
    number = torch.tensor(float(len(margin)), device=margin.device)
    sums = {name: (value.detach().float().sum(), number) for name, value in values.items()}
    return LossParts(loss=loss, diagnostics=sums)


def _gain(
    logprobs: torch.Tensor, reference: torch.Tensor | None, weights: torch.Tensor
) -> torch.Tensor:
    """Weighted sum of log-ratios `[pairs]`."""
    ratios = logprobs if reference is None else logprobs - reference
    return (torch.where(weights != 0, ratios, 0.0) * weights).sum(-1)


@dataclass(frozen=True, kw_only=True)
class PreferenceStep:
    """What one optimizer step did, plain data, under the weights before it.

    `losses`: means over the step's pairs: `chosen_gain`, `rejected_gain` (beta
    times the weighted log-ratio to the start, nats), `margin` (their
    difference) and `accuracy` (the share of pairs whose margin is above 0).
    `tokens`: those with weight. `gradient_norm`: before any clipping. `skipped`: 1
    where loss or gradient was not finite and the step was left out, which nothing
    else here tells of. `learning_rate`: of this step; a resumed run may have
    changed it.
    """

    step: int
    epoch: int
    pairs: int
    tokens: int
    loss: float | None
    gradient_norm: float | None
    skipped: int = 0
    learning_rate: float | None = None
    losses: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


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
    the policy does not know, and a gradient that stays not finite.
    """
    config = recipe.preference
    check_alone()
    check_policy(policy, recipe)
    check_pairs(pairs, policy.identity, policy.model.config.to_dict(), config.any_policy)
    mine = description(recipe, seed, policy.identity, {})
    mine["recipe"]["preference"]["pairs"] = content_hash(  # what they say, not where they lie
        [
            [pair.prefix, pair.chosen, pair.rejected, pair.chosen_weights, pair.rejected_weights]
            for pair in pairs
        ]
    )
    if folder:
        check(folder, mine)
        steps = math.ceil(len(pairs) / config.minibatch) * config.epochs
        check_steps(folder, steps, "preference.epochs in steps")
    settings = SamplingSettings(temperature=config.temperature)
    with closing(Machine(policy, recipe, settings, Process(), seed)) as machine:
        mark_changed(policy)
        reference = reference_logprobs(machine, pairs, config.rows, progress)
        if folder:
            claim(folder, mine)
        _steps(machine, pairs, reference, config, seed, folder, report)
        if folder:
            save_checkpoint(
                checkpoint := folder / "checkpoint",
                machine.model,
                policy.tokenizer,
                {**environment, "options": options_from(checkpoint, environment["options"])}
                if environment
                else None,
                dtype=recipe.compute.save_dtype,
            )


def check_alone() -> None:
    """Refuse to be one of several processes, each of which would train a policy of its own."""
    if (size := int(os.environ.get("WORLD_SIZE", "1"))) != 1:
        raise UserError(
            f"preference training runs in one process and {size} were started; start it without"
            " torchrun, or give the pairs to TRL (training.trl_dpo)"
        )


def reference_logprobs(
    machine: Machine, pairs: Sequence[PreferencePair], rows: int, progress: Progress = silent
) -> torch.Tensor:
    """The log-probabilities that the machine's weights give all rows of
    `pair_rows` now: those of the start, if asked before any step. On the CPU.
    """
    found = torch.zeros(2 * len(pairs), _longest(pairs) - 1)
    done = 0
    for part in _micro_batches(pairs, rows):
        tokens, weights = pair_rows([pairs[i] for i in part], machine.model.device)
        scored = machine.old(tokens, weights != 0)[0].float().cpu()
        for i, finite in zip(part * 2, scored.isfinite().all(dim=1).tolist(), strict=True):
            if not finite:
                raise UserError(
                    f"the policy gives tokens of pair '{pairs[i].id}' no finite log-probability"
                    ' before any training; check its weights, or choose dtype = "float32" under'
                    " [compute]"
                )
        found[both_rows(part, len(pairs)), : scored.shape[1]] = scored
        done += len(part)
        progress("reference", done, len(pairs))
    return found


def both_rows(chosen: Sequence[int], of: int) -> list[int]:
    """Where both sides of the `chosen` pairs lie among the rows of all `of` pairs."""
    return [*chosen, *(i + of for i in chosen)]


def _longest(pairs: Sequence[PreferencePair]) -> int:
    return max(len(pair.prefix) + max(len(pair.chosen), len(pair.rejected)) for pair in pairs)


def _micro_batches(pairs: Sequence[PreferencePair], rows: int) -> list[list[int]]:
    """Indices of at most `rows // 2` pairs each, similar lengths together, longest first."""
    order = sorted(range(len(pairs)), key=lambda i: -_longest(pairs[i : i + 1]))
    size = max(1, rows // 2)
    return [order[first : first + size] for first in range(0, len(order), size)]


def _steps(
    machine: Machine,
    pairs: Sequence[PreferencePair],
    reference: torch.Tensor,
    config: PreferenceSection,
    seed: int,
    folder: Path | None,
    report: Callable[[PreferenceStep], None],
) -> None:
    """All steps that the folder does not hold yet."""
    optimizer = machine.optimizer(config)
    each = math.ceil(len(pairs) / config.minibatch)
    state = load_state(folder, machine.model, optimizer) if folder else {"step": 0}
    machine.skipped.in_a_row = state.get("skipped", 0)
    for step in range(state["step"], each * config.epochs):
        epoch, part = divmod(step, each)
        order = np.random.default_rng([seed, epoch, 5]).permutation(len(pairs)).tolist()
        chosen = order[part * config.minibatch : (part + 1) * config.minibatch]
        clock = time.perf_counter()
        some = [pairs[i] for i in chosen]
        start = reference[both_rows(chosen, len(pairs))]
        loss, norm, sums = optimizer_step(machine, some, start, optimizer, config)
        taken = norm is not None
        report(
            PreferenceStep(
                step=step,
                epoch=epoch,
                pairs=len(some),
                tokens=int(torch.count_nonzero(pair_rows(some)[1])),
                loss=loss if taken else None,
                gradient_norm=norm,
                skipped=int(not taken),
                learning_rate=config.learning_rate,
                losses={name: value / len(some) for name, value in sums.items() if taken},
                seconds={"update": time.perf_counter() - clock},
            )
        )
        if folder and ((step + 1) % config.save_every == 0 or step + 1 == each * config.epochs):
            save_state(folder, machine.model, optimizer, step + 1, machine.skipped.state())


def optimizer_step(
    machine: Machine,
    pairs: Sequence[PreferencePair],
    reference: torch.Tensor,
    optimizer: torch.optim.Optimizer,
    config: PreferenceSection,
) -> tuple[float, float | None, dict[str, float]]:
    """One optimizer step over the pairs, in micro-batches: loss, gradient norm
    (`None`: the step was left out), diagnostics.
    """
    total, sums = 0.0, dict[str, float]()
    optimizer.zero_grad()
    for part in _micro_batches(pairs, config.rows):
        start = reference[both_rows(part, len(pairs))]
        found = pairs_loss(machine, [pairs[i] for i in part], start, config.beta, len(pairs))
        found.loss.backward()
        total += found.loss.item()
        for name, (value, _) in found.diagnostics.items():
            sums[name] = sums.get(name, 0.0) + value.item()
    return total, machine.step(optimizer, config.gradient_norm, total), sums


def pairs_loss(
    machine: Machine,
    pairs: Sequence[PreferencePair],
    reference: torch.Tensor,
    beta: float,
    of: int,
) -> LossParts:
    """The share of some pairs in the mean loss over `of`, with gradient.
    `reference`: of their rows, as `reference_logprobs` gives it.
    """
    tokens, token_weights = pair_rows(pairs, machine.model.device)
    logprobs = machine.score(tokens, token_weights != 0)[0]
    start = reference[:, : logprobs.shape[1]].to(logprobs.device)
    (chosen, rejected), (weights, others), (before, other) = (
        values.split(len(pairs)) for values in (logprobs, token_weights, start)
    )
    return dpo_loss(
        chosen,
        rejected,
        chosen_weights=weights,
        rejected_weights=others,
        reference_chosen=before,
        reference_rejected=other,
        beta=beta,
        pairs=of,
    )
