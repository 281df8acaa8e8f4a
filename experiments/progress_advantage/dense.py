"""Step rewards combined with the outcome in the GRPO core: a demonstration, in
two ways.

1. Through the trainer's reward entry point: a run's reward is its outcome plus
   a weight times the mean of its step rewards (`GradedSteps`). Every record is
   written, and read back from the file.
2. Dense: on the rows of one step each token's advantage is the run's group
   advantage plus a weight times the reward of its own step, less the mean over
   the group's steps (`dense_advantages`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from forensics import load_policy
from forensics.protocols import SamplingSettings
from forensics.records import Trajectory
from forensics.records.tables import read_rows
from forensics.records.train_rows import StepRewards, read_step_rewards, write_step_rewards
from probes import grade, score_log, step_rewards
from training import MiniRepo, Recipe, StepReport, checkpoint_path, grpo, parse_recipe
from training.advantages import step_advantages
from training.batch import Batch, batch_of
from training.distributed import join, leave
from training.recipe import mark_changed
from training.rewards import outcome
from training.trained_model import Machine
from training.update import UpdateReport, update

WEIGHT: Final = 0.1
STEPS, GROUPS, SAMPLES, SEED = 4, 8, 4, 0


@dataclass(frozen=True, kw_only=True)
class GradedSteps:
    """A reward: the mean step reward of a run, in nats; `None` where no step
    has one. Keeps its `records`.
    """

    policy: Any
    reference: Any
    records: dict[str, StepRewards] = field(default_factory=dict)

    def __call__(self, trajectory: Trajectory, generator: np.random.Generator) -> float | None:
        return self.record(trajectory).mean

    def record(self, trajectory: Trajectory) -> StepRewards:
        """Graded when it is first asked for."""
        if trajectory.id not in self.records:
            (scored,) = score_log(self.policy, self.reference, [trajectory])
            self.records[trajectory.id] = step_rewards(
                grade(scored),
                trajectory,
                policy=self.policy.identity,
                reference=self.reference.identity,
            )
        return self.records[trajectory.id]


def recipe() -> Recipe:
    return parse_recipe(
        {
            "policy": {"checkpoint": "bundled:open-base"},
            "environment": {
                "name": "mini-repo",
                "options": {"world": "open"},
                "without": ["git-history"],
            },
            "grpo": {"steps": STEPS, "groups": GROUPS, "samples": SAMPLES},
        },
        "of the demonstration",
    )


def grader() -> GradedSteps:
    """The bundled honest policy against the base that it was trained from."""
    return GradedSteps(policy=_load("honest"), reference=_load("open-base"))


def demonstrate(folder: Path) -> dict[str, Any]:
    """Both ways. `folder` must not hold a run already."""
    graded = grader()
    reports: list[StepReport] = []
    grpo(
        _load("open-base"),
        MiniRepo(world="open"),
        recipe(),
        SEED,
        folder,
        reports.append,
        rewards={"outcome": (outcome, 1.0), "graded steps": (graded, WEIGHT)},
    )
    path = folder / "step_rewards.jsonl"
    write_step_rewards(path, graded.records.values())
    return {
        "steps": [{"reward": one.reward, **one.components, "loss": one.loss} for one in reports],
        "records": len(graded.records),
        "recorded_alike": recorded_alike(folder, read_step_rewards(path)),
        "dense": dense_run(graded),
    }


def recorded_alike(folder: Path, records: dict[str, StepRewards]) -> int:
    """Rows of the training record whose reward is what the record of their own run says."""
    rows = [
        row
        for path in sorted((folder / "record").glob("step-*.parquet"))
        for row in read_rows(path, ["trajectory", "rewards"])
    ]
    return sum(
        dict(row["rewards"])["graded steps"] == records[row["trajectory"]].mean for row in rows
    )


def dense_advantages(
    groups: Sequence[Sequence[Trajectory]], records: dict[str, StepRewards], weight: float
) -> Batch:
    """Rows of all groups; `advantages [rows, length - 1]` of each drawn token.
    A step without a reward adds nothing.
    """
    runs = [run for group in groups for run in group]
    scaled = [
        value
        for group in step_advantages([[run.outcome for run in group] for group in groups])
        for value in group.values
    ]
    kept = [(run, value) for run, value in zip(runs, scaled, strict=True) if value is not None]
    batch = batch_of([run for run, _ in kept], [value for _, value in kept])
    centres = {
        run.id: _mean([records[one.id] for one in group]) for group in groups for run in group
    }
    gains = batch.advantages.clone()
    for row, (run, _) in enumerate(kept):
        told = records[run.id].of_tokens(run)
        extra = [0.0 if value is None else weight * (value - centres[run.id]) for value in told]
        gains[row, batch.weights[row] != 0] += torch.tensor(extra)
    return replace(batch, advantages=gains)


def dense_run(graded: GradedSteps, updates: int = 2) -> list[dict[str, float | None]]:
    """A few optimizer steps on dense advantages, each on fresh runs."""
    policy, world, settings, plan = (
        _load("open-base"),
        MiniRepo(world="open").without("git-history"),
        SamplingSettings(),
        recipe(),
    )
    mark_changed(policy)
    process = join(1, "ddp", str(policy.model.device))
    machine = Machine(policy, plan, settings, process, SEED)
    optimizer = torch.optim.AdamW(
        machine.model.parameters(), lr=plan.grpo.learning_rate, weight_decay=0.0
    )
    found = []
    try:
        for number in range(updates):
            runs = list(
                policy.play(world, world.tasks("train", GROUPS, number), SAMPLES, settings, number)
            )
            groups = [runs[i : i + SAMPLES] for i in range(0, len(runs), SAMPLES)]
            batch = dense_advantages(groups, {run.id: graded.record(run) for run in runs}, WEIGHT)
            done: UpdateReport = update(
                machine,
                batch,
                optimizer,
                plan,
                (SEED, number),
            )
            found.append({"loss": done.loss, "gradient_norm": done.gradient_norm})
    finally:
        machine.close()
        leave(process)
    return found


def _mean(records: Sequence[StepRewards]) -> float:
    known = [value for one in records for value in one.rewards if value is not None]
    return sum(known) / len(known) if known else 0.0


def _load(name: str) -> Any:
    return load_policy(checkpoint_path(f"bundled:{name}"), device="cpu", dtype="float32")
