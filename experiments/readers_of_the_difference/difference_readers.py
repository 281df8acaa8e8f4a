"""The readers with an account of the difference: each learns from rows of both models and gives
a `Reading`. See the table in `rule_2/rule.md`; the order here is from the simplest.

`before`, `after`: activations `[rows, width]`; `pairs [rows, models, width]` holds both.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.nn.functional import normalize

from crosscoders import Stream, difference_view, latent_table
from crosscoders.dictionaries import (
    Dictionary,
    DictionaryConfig,
    Partition,
    TrainerSettings,
    TrainingJob,
    train_crosscoders,
)

ACTIVE: Final = 2  # latents or components a row
RATE, STEPS, SMALLEST, LARGEST = 3e-3, 1600, 64, 2048  # as `forensics diff` trains
SAME: Final = 0.9  # cosine of directions that are one
RARE: Final = 1e-3  # share of the rows below which a latent is not reported
AT_ONCE: Final = 4096


@dataclass(frozen=True, kw_only=True)
class Learnt:
    """What a reader learns from. `rows [rows, models, width]`: of the stream. `steps`: pairs at
    steps with the behaviour and without it. `told`: a stream of other tasks. `before_only`:
    dedicated latents of the before model; `latents`, `after_only`, `tokens`: of the crosscoder's
    training.
    """

    stream: Stream
    rows: Tensor
    steps: Callable[[], tuple[Tensor, Tensor]]
    told: Stream
    seed: int
    latents: int
    after_only: int
    tokens: int
    before_only: int = 0

    @cached_property
    def difference(self) -> Tensor:
        return self.rows[:, 1] - self.rows[:, 0]


Account = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """`account(before, after)`: what ablation takes out of after `[rows, width]`. `reported`:
    unit directions `[reported, width]`, those that are called after-only in `called`.
    """

    account: Account
    reported: Tensor
    called: Tensor


def shift(learnt: Learnt) -> Reading:
    mean = learnt.difference.mean(0)
    unit = normalize(mean[None], dim=-1)
    return Reading(account=lambda b, a: mean.expand_as(a), reported=unit, called=unit)


def mean_after(learnt: Learnt) -> Reading:
    used, others = (pairs[:, 1] for pairs in learnt.steps())
    without = others.mean(0)
    unit = normalize((used.mean(0) - without)[None], dim=-1)
    return Reading(account=lambda b, a: (a - without) @ unit.T @ unit, reported=unit, called=unit)


def mean_difference(learnt: Learnt) -> Reading:
    used, others = (pairs[:, 1] - pairs[:, 0] for pairs in learnt.steps())
    unit = normalize((used.mean(0) - others.mean(0))[None], dim=-1)
    return Reading(account=lambda b, a: (a - b) @ unit.T @ unit, reported=unit, called=unit)


def components(learnt: Learnt) -> Reading:
    mean, few, many = _principal(learnt.difference)
    return Reading(
        account=lambda b, a: mean + (a - b - mean) @ few.T @ few, reported=few, called=many
    )


def projected(learnt: Learnt) -> Reading:
    _, few, many = _principal(learnt.difference)
    mean = learnt.rows[:, 1].mean(0)
    return Reading(account=lambda b, a: (a - mean) @ few.T @ few, reported=few, called=many)


def _principal(difference: Tensor, most: int = 16) -> tuple[Tensor, Tensor, Tensor]:
    """The mean, the first components that are `ACTIVE`, and as many as the planted world has
    features of the after model.
    """
    mean = difference.mean(0)
    centred = (difference - mean).double()
    found = torch.linalg.eigh(centred.T @ centred).eigenvectors.T.flip(0).float()
    return mean, found[:ACTIVE], found[:most]


def difference_sae(learnt: Learnt) -> Reading:
    width = learnt.stream.width
    config = DictionaryConfig(
        width=width, models=1, k=ACTIVE, partition=Partition(latents=max(width, ACTIVE))
    )
    (sae,) = _trained(
        learnt,
        TrainingJob(config=config, settings=_settings(learnt, 0.0, 0.0), view=difference_view),
    )

    def account(before: Tensor, after: Tensor) -> Tensor:
        codes = sae.encode(sae.scaled((after - before)[:, None]))
        return sae.decode(codes, 0) / sae.scale

    active, own = _uses(sae, learnt.told)
    unit = normalize(sae.directions()[:, 0], dim=-1)
    return Reading(account=account, reported=unit[active], called=unit[active & own])


def crosscoder(learnt: Learnt) -> Reading:
    (both,) = _crosscoders(learnt, 1)

    def account(before: Tensor, after: Tensor) -> Tensor:
        codes = both.encode(both.scaled(torch.stack([before, after], 1)))
        return (both.decode(codes, 1) - both.decode(codes, 0)) / both.scale

    unit = _after_directions(both)[_specific(both, learnt.told)]
    return Reading(account=account, reported=unit, called=unit)


def crosscoder_stable(learnt: Learnt) -> Reading:
    both, other = _crosscoders(learnt, 2)
    directions, chosen = _after_directions(both), _specific(both, learnt.told)
    others = _after_directions(other)[learnt.latents - learnt.after_only :]
    chosen = chosen[partners(directions[chosen], others)]
    wanted = torch.zeros(learnt.latents, dtype=torch.bool)
    wanted[chosen] = True
    written, centres = both.directions()[:, 1], both.centres[1] - both.centres[0]

    def account(before: Tensor, after: Tensor) -> Tensor:
        codes = both.encode(both.scaled(torch.stack([before, after], 1)))
        some, found = wanted[codes.latent], centres.expand_as(after).clone()
        parts = written[codes.latent[some]] * codes.value[some, None]
        return found.index_add_(0, codes.row[some], parts) / both.scale

    return Reading(account=account, reported=directions[chosen], called=directions[chosen])


def partners(first: Tensor, second: Tensor) -> Tensor:
    """Which of the first's unit directions `[directions, width]` the second has, one to one."""
    cosines = (first @ second.T).abs().numpy()
    row, column = linear_sum_assignment(-cosines)
    return torch.from_numpy(row[cosines[row, column] >= SAME])


READERS: Final[dict[str, Callable[[Learnt], Reading]]] = {
    "shift": shift,
    "mean-after": mean_after,
    "mean-difference": mean_difference,
    "components": components,
    "projected": projected,
    "difference-SAE": difference_sae,
    "crosscoder": crosscoder,
    "crosscoder-stable": crosscoder_stable,
}


def _settings(learnt: Learnt, *difference_weight: float) -> TrainerSettings:
    first, last = difference_weight
    batch = min(max(learnt.tokens // STEPS, SMALLEST), LARGEST)
    return TrainerSettings(
        tokens=learnt.tokens,
        batch=batch,
        seed=learnt.seed,
        learning_rate=RATE,
        difference_weight=(first, last),
    )


def _crosscoders(learnt: Learnt, number: int) -> list[Dictionary]:
    """From so many first weights, side by side."""
    partition = Partition(
        latents=learnt.latents,
        before_only=learnt.before_only,
        after_only=learnt.after_only,
        tied=True,
        readers="all",
    )
    config = DictionaryConfig(
        width=learnt.stream.width, k=12, own_k=float(ACTIVE), partition=partition
    )
    settings = _settings(learnt, 1.0, 10.0)
    weights = (learnt.seed + 500 * one for one in range(number))
    return _trained(
        learnt,
        *(TrainingJob(config=config, settings=replace(settings, weights_seed=w)) for w in weights),
    )


def _specific(both: Dictionary, told: Stream) -> Tensor:
    """The latents that latent scaling finds missing in the before model."""
    return torch.from_numpy(latent_table(both, told).specific("after"))


def _after_directions(both: Dictionary) -> Tensor:
    return normalize(both.directions()[:, 1], dim=-1)


def _trained(learnt: Learnt, *jobs: TrainingJob) -> list[Dictionary]:
    named = {str(number): job for number, job in enumerate(jobs)}
    trained = train_crosscoders(learnt.stream, named, device="cpu")
    return [one.dictionary.requires_grad_(False) for one in trained.values()]


@torch.no_grad()
def _uses(sae: Dictionary, told: Stream) -> tuple[Tensor, Tensor]:
    """Which latents are active in at least `RARE` of the rows, and along which of them the after
    model moves more than twice as far as the other where they are active.
    """
    mean = torch.stack([block.activations.mean(0) for block in told.blocks()]).mean(0)
    moved = torch.zeros((2, len(sae.bias)), dtype=torch.float64)
    active, number = torch.zeros(len(sae.bias)), 0
    for block in told.blocks():
        rows = block.activations.float()
        codes = sae.encode(sae.scaled(difference_view(rows)))
        active += codes.latent.bincount(minlength=len(active))
        number += len(rows)
        along = sae.directions()[codes.latent, 0]
        for model in (0, 1):
            spoken = ((rows - mean)[codes.row, model] * along).sum(-1) * codes.value
            moved[model].index_add_(0, codes.latent, spoken.double())
    return active >= RARE * number, moved[1].abs() > 2 * moved[0].abs()


@torch.no_grad()
def told_by(reading: Reading, before: Tensor, after: Tensor) -> Tensor:
    """The account of many rows, some at a time."""
    return torch.cat(
        [
            reading.account(b, a)
            for b, a in zip(before.split(AT_ONCE), after.split(AT_ONCE), strict=True)
        ]
    )


def rotation(width: int, seed: int) -> Tensor:
    """A rotation `[width, width]` drawn uniformly (Haar)."""
    drawn = torch.randn((width, width), generator=torch.Generator().manual_seed(seed))
    frame, corner = torch.linalg.qr(drawn.double())
    return (frame * corner.diagonal().sign()).float()
