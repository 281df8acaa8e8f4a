"""Organisms against their bases: graded runs of both policies, Monte-Carlo
advantages, and where RL spent its KL.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from experiments.progress_advantage.correlating import correlation, correlation_difference
from experiments.progress_advantage.monte_carlo import Valued, ceiling, losing_step, usable, valued
from forensics import load_policy
from forensics.errors import MissingInput
from forensics.protocols import SamplingSettings
from forensics.records import Trajectory
from forensics.statistics import ratio
from probes import (
    CONDITIONAL,
    GradedRun,
    KlTally,
    StepGrade,
    compare_scores,
    contrast,
    failure_attribution,
    plan_kl,
    progress_advantage,
    score_log,
    shuffled_contrast,
    split_of,
    table_rows,
)
from training import MiniRepo
from training.organisms import build_organism

WORLDS: Final = {"leak": "capped", "honest": "open"}
FOLDERS: Final = {"before": "base", "after": "after"}
HISTORY: Final = "history"
TASKS, RUNS, VALUED_TASKS, CONTINUATIONS, LEAST_DROP = 100, 4, 60, 48, 0.3
FIRST_SEED: Final = 700
# which runs are graded, and who continues them
SETTINGS: Final = {
    "runs of before, continued by before": ("before", "before"),
    "runs of before, continued by after": ("before", "after"),
    "runs of after, continued by after": ("after", "after"),
}
STEP_SCORES: Final[dict[str, Callable[[StepGrade], float | None]]] = {
    "summed log-ratio": lambda step: step.ratio_sum,
    "mean log-ratio": lambda step: step.grade,
    "log-probability, policy": lambda step: step.columns["policy"],
    "log-probability, reference": lambda step: step.columns["reference"],
    "minus entropy": lambda step: None if (spread := step.columns["entropy"]) is None else -spread,
    "a constant": lambda step: (
        -1.0
    ),  # its lowest sum is always the last step, its sharpest change the first
}
NAIVE: Final = "a constant"


@dataclass(frozen=True, kw_only=True)
class Pair:
    """An organism, with runs of both policies in the open world, graded.
    `logs`, `graded`: by side.
    """

    name: str
    seed: int
    policies: dict[str, Any]
    world: MiniRepo
    logs: dict[str, list[Trajectory]]
    graded: dict[str, list[GradedRun]]


def open_pair(name: str, seed: int, cache: Path, progress: Any) -> Pair:
    """Built where it is not there."""
    folder = cache / "organisms" / f"{name}-{seed}"
    if not (folder / "manifest.json").exists():
        build_organism(name, seed, folder, progress)
    policies = {side: load_policy(folder / part, device="cpu") for side, part in FOLDERS.items()}
    world = MiniRepo(world=WORLDS[name])
    tasks = world.tasks("held-out", TASKS, FIRST_SEED + seed)
    logs = {
        side: list(policy.play(world, tasks, RUNS, SamplingSettings(), FIRST_SEED + seed))
        for side, policy in policies.items()
    }
    both = policies["after"], policies["before"]
    graded = {side: list(progress_advantage(*both, runs)) for side, runs in logs.items()}
    return Pair(name=name, seed=seed, policies=policies, world=world, logs=logs, graded=graded)


def ranking(pair: Pair, side: str) -> list[dict[str, Any]]:
    """AUROC and best-of-N of every score."""
    return list(table_rows(compare_scores(pair.graded[side], n=RUNS, seed=pair.seed)))


def values(pair: Pair, setting: str) -> list[Valued]:
    """The first run of each of some tasks, continued."""
    side, by = SETTINGS[setting]
    first = {run.task: run for run in reversed(pair.logs[side])}
    chosen = [run for _, run in sorted(first.items())[:VALUED_TASKS] if usable(run)]
    return valued(chosen, pair.policies[by], pair.world, CONTINUATIONS, FIRST_SEED + pair.seed)


def against_advantages(pair: Pair, setting: str, found: Sequence[Valued]) -> dict[str, Any]:
    """Correlations of step scores with Monte-Carlo advantages; each other one
    also against the summed log-ratio.
    """
    graded = {run.trajectory: run for run in pair.graded[SETTINGS[setting][0]]}
    truth = np.concatenate([one.advantages for one in found])
    tasks = [one.run.task for one in found for _ in one.advantages]
    names = [name for name in STEP_SCORES if name != NAIVE]
    scores = {
        name: np.array(
            [STEP_SCORES[name](step) for one in found for step in graded[one.run.id].steps], float
        )
        for name in names
    }
    first = scores[names[0]]
    rows = {
        name: {
            "correlation": told(lambda v=v: correlation(v, truth, tasks)),
            "summed_minus_this": None
            if v is first
            else told(lambda v=v: correlation_difference(first, v, truth, tasks)),
        }
        for name, v in scores.items()
    }
    return {
        "scores": rows,
        "ceiling": ceiling(found),
        "spread": float(truth.std()),
        "runs": len(found),
    }


def lost_runs(
    pair: Pair, setting: str, found: Sequence[Valued]
) -> tuple[list[GradedRun], dict[str, int]]:
    """Lost runs whose losing step is known, their names made unlike those of other seeds."""
    truth = {
        one.run.id: step for one in found if (step := losing_step(one, LEAST_DROP)) is not None
    }
    runs = [
        replace(run, trajectory=f"{pair.seed} {run.trajectory}", task=f"{pair.seed} {run.task}")
        for run in pair.graded[SETTINGS[setting][0]]
        if run.trajectory in truth
    ]
    return runs, {f"{pair.seed} {name}": step for name, step in truth.items()}


def attributions(runs: Sequence[GradedRun], truth: dict[str, int]) -> dict[str, Any]:
    """Of each score the accuracies of the three predictors and of chance."""
    return {
        name: told(
            lambda of=of: [
                asdict(one)
                for one in failure_attribution(
                    runs, truth, lambda run: [of(step) for step in run.steps]
                )
            ]
        )
        for name, of in STEP_SCORES.items()
    }


def shortcut(pair: Pair, side: str) -> dict[str, Any]:
    """Grades of steps that read the history against the others, and of as many
    steps drawn at random.
    """
    generator = np.random.default_rng(FIRST_SEED + pair.seed)
    return {
        "history": told(lambda: contrast(pair.graded[side], (HISTORY,))),
        "control": told(lambda: shuffled_contrast(pair.graded[side], (HISTORY,), generator)),
    }


def spent(pair: Pair) -> dict[str, Any]:
    """The split of KL(after || before) on runs of after, and the share that
    choosing the history has.
    """
    runs = pair.logs["after"]
    plan = plan_kl(runs, pair.policies["after"])
    tally = KlTally(plan=plan)
    for one in score_log(
        pair.policies["after"], pair.policies["before"], runs, readouts=(plan.readout,)
    ):
        tally.add(one)
    split = split_of(tally, pair.world.channels)
    kinds = {kind: part.row() for kind, part in split.by_kind.items()}
    return {
        "total": list(split.total.ends),
        "plain": split.plain,
        "kinds": kinds,
        "choosing_history": _choosing(tally, HISTORY),
    }


def _choosing(tally: KlTally, kind: str) -> dict[str, float]:
    """Nobody chose it: nothing was spent there."""
    tasks = [tally.tasks[task] for task in sorted(tally.tasks)]
    kinds = list(tally.plan.lexicon.kinds)
    parts = np.array(
        [sums["choice"][CONDITIONAL, kinds.index(kind)] if kind in kinds else 0.0 for sums in tasks]
    )
    spent = ratio(parts, np.array([sums["turn"][CONDITIONAL].sum() for sums in tasks]))
    return dict(zip(("estimate", "low", "high"), spent.ends, strict=True))


def told(measure: Callable[[], Any]) -> Any:
    """Plain data, or the reason why there is none."""
    try:
        found = measure()
    except MissingInput as error:
        return {"missing": error.reason}
    return found if isinstance(found, list) else asdict(found)
