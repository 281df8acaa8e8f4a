"""Placebo training: the same steps with a coin for a reward.

1. From *before*, the recipe of the training (`forensics investigate --recipe`) is
   run again: the same world, steps, groups, objective and learning rate. In place
   of all its rewards stands one fair coin for each episode (`training.rewards.coin`),
   drawn from the stream of (seed, step), whatever the policy did, weighted by the
   sum of the rewards' weights. Without audits and without a record.
2. Its result plays the case's held-out tasks in the world that is scrubbed of
   every declared channel, as both policies did.
3. `placebo-training.carried`: what it scores more than *before*, in points of
   score, paired by task; about each placebo seed, and about nothing the mean over
   seeds. That much of the gain the reward did not make. Random rewards gave +21
   points on MATH-500 for one family of models, true ones +29 (2506.10947).
   `placebo-training.over_bar`: the same minus a fifth of the gain.

Runs lie in the case folder and go on where they were stopped; a finished one is
not made again. One seed by default: a placebo costs what the training cost; its
interval is over tasks and says nothing of another coin (tiny policies drifted by
-15 to +37 % of a gain over five seeds). A length penalty or a divergence term of
the objective stays, as part of the steps. Not seen: what the true reward does
beside (a coin seldom gives a group without spread, so fewer groups are dropped).
"""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from forensics.case import Case
from forensics.errors import MissingInput, refused_as_missing
from forensics.instruments import gain_test
from forensics.layers import COLUMNS, GENUINE_BAR, OPEN, Runs, World, channel_names, read_runs
from forensics.phrases import point_range, points
from forensics.policies import inspect_checkpoint
from forensics.protocols import Policy
from forensics.records import Checkpoint, Evidence, GainTest, Undefined, content_hash, write_json
from forensics.runs import Condition
from forensics.statistics import Contrast, paired
from forensics.subjects import CheckpointSubject, Role
from forensics.world import environment_key
from training.rewards import coin

if TYPE_CHECKING:
    from training.recipe import Recipe

PLACEBO = GainTest(
    name="placebo-training",
    kind="aside",
    excludes="skill that was only unlocked",
    place=120,
    exempt="No recipe",
    unlocked="training with a coin for a reward brings {} as well",
)
CARRIED, OVER_BAR = PLACEBO.shared, "placebo-training.over_bar"
METHOD = "the recipe with a coin for a reward, paired by task"
FOLDER = "placebo-training"


@dataclass(frozen=True, kw_only=True)
class PlaceboConfig:
    """`seeds`: how many placebos are trained. `level` of intervals."""

    seeds: int = 1
    level: float = 0.95


def _episodes(case: Case, config: PlaceboConfig) -> int:
    played = case.budget.tasks * case.budget.samples * config.seeds
    return played if case.recipe is not None else 0


@gain_test(PLACEBO, config=PlaceboConfig(), episodes=_episodes, further=(OVER_BAR,))
def placebo_training(case: Case, config: PlaceboConfig) -> Iterator[Evidence | Undefined]:
    """Answers by placebo seed; raises `MissingInput` for what the case cannot give."""
    recipe = _recipe_of(case)
    make = placebo_training.answers(case, config, METHOD)
    try:
        world = channel_names(case)
    except MissingInput:  # none is declared
        world = OPEN
    before, *afters = (_runs(case, side, world) for side in ("before", *case.afters))
    contrast = partial(_contrast, before, afters, level=config.level)
    whole = contrast(afters)
    if whole.low <= 0:
        raise MissingInput(
            "The gain is not surely above zero, so there is nothing that a placebo could share.",
            "Run more held-out tasks, if a smaller gain matters.",
        )
    paths = [_trained(case, recipe, seed) for seed in range(config.seeds)]
    played = tuple(
        Placebo(role=Role(number), stated=inspect_checkpoint(path), case=case)
        for number, path in enumerate(paths)
    )
    beside = replace(case, folder=case.folder / FOLDER, subjects=played)
    placebos = [_runs(beside, one.role.name, world) for one in played]
    carried, over = contrast(placebos), contrast(placebos, bar=GENUINE_BAR)
    alone = [contrast([one]) for one in placebos]
    for question, about, answer, told in (
        *((CARRIED, f"seed {number}", one, one) for number, one in enumerate(alone)),
        (CARRIED, None, carried, carried),
        (OVER_BAR, None, over, carried),
    ):
        ends = dict(zip(("carried", "carried_low", "carried_high"), told.ends, strict=True))
        yield make.evidence(
            question,
            answer,
            about=about,
            unit="score difference",
            n=told.clusters * told.seeds,
            diagnostics={
                **ends,
                "gain": whole.estimate,
                "share": told.estimate / whole.estimate,
                "seeds": told.seeds,
                "seed_deviation": told.seed_deviation,
            },
            summary=(
                "The same steps with a coin for a reward changed the score by"
                f" {points(told.estimate, 1)} points"
                f" ({point_range(told.low, told.high, 1)}), of a gain of"
                f" {points(whole.estimate, 1)}; that part the reward did not make."
            ),
        )


def _recipe_of(case: Case) -> "Recipe":
    if case.recipe is None:
        raise MissingInput(
            "No recipe of the training is at hand.",
            "Give the file that `forensics train` read with `--recipe`.",
        )
    if not case.opens("before") or case.environment is None:
        raise MissingInput(
            "Logs alone cannot be trained from.",
            "Give the checkpoints and the environment to `forensics investigate`.",
        )
    from training.recipe import read_recipe

    with refused_as_missing("The recipe cannot be run", "Mend it."):
        recipe = read_recipe(case.recipe)
    if recipe.parallel.processes > 1:
        raise MissingInput(
            f"The recipe takes {recipe.parallel.processes} processes, and a placebo is trained in"
            " one.",
            "Give a copy of the recipe with `processes = 1` under [parallel].",
        )
    silent = recipe.record.model_copy(update={"rollouts": False})
    return recipe.model_copy(update={"audit": None, "logging": None, "record": silent})


def _runs(case: Case, side: str, world: World) -> Runs:
    return read_runs(case.rollouts(side, Condition(scrubbed=world)).rows(*COLUMNS))


def _contrast(
    first: Runs, afters: Sequence[Runs], last: Sequence[Runs], bar: float = 0.0, *, level: float
) -> Contrast:
    """`last - first`, paired by task, crossed with seeds, minus `bar` of the gain of
    the mean of `afters`.
    """
    tasks = sorted(set.intersection(*(set(one.tasks) for one in (first, *last, *afters))))
    base, after, *rest = (
        np.mean([one.score[one.places(tasks)] for one in group], axis=0)
        for group in ([first], afters, *([one] for one in last))
    )
    rows = np.array([[one, base, after] for one in rest])
    return paired(rows, np.array([1.0, bar - 1.0, -bar]), level=level)


def _trained(case: Case, recipe: "Recipe", seed: int) -> Path:
    """The checkpoint of one placebo run, trained now unless it is there. Raises
    `MissingInput` where the recipe does not run here.
    """
    from forensics.investigation import build_environment
    from forensics.policies import policy_from
    from training.trainer import grpo

    stated = recipe.environment
    environment = build_environment(stated.name, stated.options)
    key = [
        content_hash(recipe.model_dump(mode="json")),
        environment_key(environment),
        case.input_hashes().get("before"),
        case.seed,
        seed,
    ]
    folder = case.folder / FOLDER / content_hash(key, 16)
    finished, steps = folder / "finished.json", recipe.grpo.steps
    if finished.is_file():
        return folder / "checkpoint"
    weight = sum(abs(weight) for weight in recipe.rewards.values()) or 1.0
    before = case.subject("before").open()
    if not {"weights", "tokens", "play"} <= before.capabilities:
        raise MissingInput(
            "The policy before training has no weights in this process that could be trained.",
            "Give its checkpoint, and the backend huggingface.",
        )
    policy = policy_from(copy.deepcopy(before.model).float(), before.tokenizer, before.identity)
    del before
    with refused_as_missing("The placebo could not be trained", "Mend it."):
        grpo(
            policy,
            environment,
            recipe,
            int(content_hash([FOLDER, *key[-2:]], 7), 16),
            folder,
            lambda step: case.progress("placebo training", step.step + 1, steps),
            rewards={"coin": (coin, weight)},
        )
    write_json(finished, {"steps": steps})
    return folder / "checkpoint"


@dataclass(frozen=True, kw_only=True)
class Placebo:
    """A checkpoint that a coin trained, on the device and in the precision of *before*."""

    role: Role
    stated: Checkpoint
    case: Case
    capabilities = None

    @property
    def identity(self) -> str:
        return self.stated.identity

    def open(self) -> Policy:
        model = self.case.policy("before").model
        kind = str(model.dtype).removeprefix("torch.")
        return CheckpointSubject(
            role=self.role, stated=self.stated, device=str(model.device), dtype=kind
        ).open()
