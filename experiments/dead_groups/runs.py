"""The training runs of the study, and what their policies do on held-out tasks.
Each is cached in a folder.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from forensics.layers import cached_groups, deviation_within
from forensics.progress import Progress
from forensics.protocols import SamplingSettings
from forensics.records import TrainingRow, Trajectory
from forensics.records.files import write_json
from forensics.records.train_tables import TrainingRecord
from training import Recipe, checkpoint_path, parse_recipe, train_recipe

STEPS, GROUPS, SAMPLES = 30, 8, 8
DEVIATION = 0.05  # of each term within groups, in full rewards
TASKS, EPISODES, EVALUATION_SEED = 300, 2, 900
OUTCOME_ONLY = "outcome only"
TERMS = ("brevity", "tested", "tie-breaker")
SCALINGS = ("group", "none")


@dataclass(frozen=True, kw_only=True)
class Arm:
    """Outcome alone, or with a term; how advantages are scaled."""

    term: str
    scaling: str

    @property
    def name(self) -> str:
        return f"{self.term}-{self.scaling}".replace(" ", "-")


ARMS = tuple(
    Arm(term=term, scaling=scaling) for scaling in SCALINGS for term in (OUTCOME_ONLY, *TERMS)
)


def term_of(name: str, row: TrainingRow) -> float | None:
    """A term read off a recorded row (noise is not recorded; its deviation is 1)."""
    if name == "brevity":
        return -float(row.turns)
    return float(any("test" in kinds for kinds in row.step_kinds))


def recipe(arm: Arm, weight: float) -> Recipe:
    """The honest recipe with the arm's rewards, smaller."""
    rewards = {"outcome": 1.0} | ({} if arm.term == OUTCOME_ONLY else {arm.term: weight})
    return parse_recipe(
        {
            "policy": {"checkpoint": "bundled:open-base"},
            "environment": {
                "name": "mini-repo",
                "options": {"world": "open"},
                "without": ["git-history"],
            },
            "rewards": rewards,
            "grpo": {
                "steps": STEPS,
                "groups": GROUPS,
                "samples": SAMPLES,
                "scaling": arm.scaling,
                "save_every": STEPS,
            },
            "compute": {"save_dtype": "bfloat16"},  # as when the results were recorded
        },
        arm.name,
    )


def weights(cache: Path) -> dict[str, float]:
    """The weight that gives each term its deviation, from the outcome-only run
    of seed 0 (which must be there).
    """
    record = TrainingRecord(cache / f"{ARMS[0].name}-0")
    found = {"tie-breaker": DEVIATION}
    for name in ("brevity", "tested"):
        groups = cached_groups(record, lambda row, name=name: term_of(name, row))
        found[name] = DEVIATION / deviation_within(groups)
    return found


def run(arm: Arm, seed: int, weight: float, cache: Path, progress: Progress) -> dict[str, Any]:
    """Train, play held-out tasks, keep `result.json`; what is there already is read."""
    folder = cache / f"{arm.name}-{seed}"
    result = folder / "result.json"
    if not result.exists():
        start = checkpoint_path("bundled:open-base")
        checkpoint = train_recipe(recipe(arm, weight), seed, folder, start, progress, "cpu")
        write_json(
            result,
            {"arm": arm.name, "seed": seed, "weight": weight}
            | evaluate(checkpoint)
            | training(folder),
        )
    found: dict[str, Any] = json.loads(result.read_text())
    return found


def evaluate(checkpoint: Path) -> dict[str, Any]:
    """Held-out play in the training world: for each task the mean outcome,
    turns, and share of runs that tested.
    """
    from forensics import load_policy
    from training import MiniRepo

    world = MiniRepo(world="open").without("git-history")
    tasks = world.tasks("held-out", TASKS, EVALUATION_SEED)
    policy = load_policy(checkpoint, device="cpu", dtype="float32")
    settings = SamplingSettings(max_turn_tokens=16, max_tokens=256)
    seed = int(
        np.random.SeedSequence([EVALUATION_SEED, *checkpoint.parent.name.encode()]).generate_state(
            1
        )[0]
    )
    played: dict[str, list[Trajectory]] = {task: [] for task in tasks}
    for trajectory in policy.play(world, tasks, EPISODES, settings, seed):
        played[trajectory.task].append(trajectory)
    runs = list(played.values())
    return {
        "score": [float(np.mean([run.outcome or 0.0 for run in group])) for group in runs],
        "turns": [float(np.mean([run.turns for run in group])) for group in runs],
        "tested": [float(np.mean([_tested(run) for run in group])) for group in runs],
    }


def _tested(run: Trajectory) -> bool:
    return any("test" in step.kinds for _, step in run.actions)


def training(folder: Path) -> dict[str, float]:
    """Share of the run's groups that were dead under its reward, and under the outcome alone."""
    record = TrainingRecord(folder)
    groups: dict[str, list[tuple[float | None, float | None]]] = {}
    for step in record.steps():
        for row in record.values(step, "group", "reward", "outcome"):
            groups.setdefault(row["group"], []).append((row["reward"], row["outcome"]))
    return {
        "dead_share": _dead([[reward for reward, _ in rows] for rows in groups.values()]),
        "dead_by_outcome": _dead([[outcome for _, outcome in rows] for rows in groups.values()]),
    }


def _dead(groups: Sequence[Sequence[float | None]]) -> float:
    return float(
        np.mean([len({value for value in group if value is not None}) <= 1 for group in groups])
    )
