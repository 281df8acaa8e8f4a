"""Replay: the loss of a recorded step comes back, and a changed objective gives
what the trainer would have had.
"""

from pathlib import Path

import pytest
import torch

from forensics import policy_from
from forensics.protocols import Policy
from forensics.records.train_tables import TrainingRecord
from tests.training.record_rows import RUN, row
from training.distributed import Process
from training.environments.mini_repo import MiniRepo
from training.losses import Objective, normaliser
from training.organisms.base_model import build_model, build_tokenizer
from training.recipe import Recipe, parse_recipe
from training.recorder import Recorder
from training.replayed_steps import replay, rows_to_batch
from training.trained_model import Machine
from training.trainer import grpo
from training.update import batch_loss

OBJECTIVES = [
    Objective(),
    Objective(aggregation="dr-grpo"),
    Objective(aggregation="sequence-mean", clip_low=0.01),
    Objective(kl="k3", kl_weight=0.1),
    Objective(entropy_weight=0.05),
    Objective(importance="truncate"),
    Objective(dual_clip=3.0, mask_truncated=True),
]


def fresh(seed: int = 0) -> Policy:
    tokenizer = build_tokenizer()
    return policy_from(build_model(len(tokenizer), seed), tokenizer, "start")


def recipe(**objective: object) -> Recipe:
    return parse_recipe(
        {
            "policy": {"checkpoint": "x"},
            "environment": {"name": "mini-repo", "options": {"turns": "3"}},
            "rewards": {"coin": 1.0},
            "sampling": {"max_turn_tokens": 6, "max_tokens": 60},
            "grpo": {
                "steps": 2,
                "groups": 3,
                "samples": 4,
                "recompute_old": True,
                "gradient_norm": 1e9,
            },
            "objective": {"kl": "k3"} | objective,
        },
        "test",
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    grpo(fresh(), MiniRepo(turns="3"), recipe(), 3, folder)
    return folder


def test_the_first_step_comes_back(run: Path) -> None:
    """Its weights are the start's, so loss, gradient norm and diagnostics are
    those the trainer reported.
    """
    (step,) = replay(run, [0], recipe().objective, fresh())
    told = TrainingRecord(run).report(0)
    assert (
        step.loss == pytest.approx(told["loss"], rel=1e-4, abs=1e-7)
        and step.recorded_loss == told["loss"]
    )
    assert step.gradient_norm == pytest.approx(told["gradient_norm"], rel=1e-4)
    for name, value in told["losses"].items():
        assert step.diagnostics[name] == pytest.approx(value, rel=1e-3, abs=1e-6)
    kept = [row for row in TrainingRecord(run).rows(0) if row.advantage is not None]
    assert (step.rows, step.tokens) == (len(kept), sum(row.length or 0 for row in kept))


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_changed_objective_gives_what_the_trainer_would_have_had(
    run: Path, objective: Objective
) -> None:
    """Independent path: the trainer's own batch and loss on the second step's
    rows, under other weights.
    """
    (step,) = replay(run, [1], objective, fresh(5), rows=2)
    policy, used = (
        fresh(5),
        [row for row in TrainingRecord(run).rows(1) if row.advantage is not None],
    )
    machine = Machine(policy, recipe(), _settings(run), Process(), 0)
    batch = rows_to_batch(used, objective)
    divisor = normaliser(batch.weights, objective, 6, rows=12)  # three groups of four were played
    scores = machine.score(batch.token_ids, batch.weights != 0)
    found = batch_loss(batch, *scores, objective, divisor)
    found.loss.backward()
    norm = torch.cat(
        [p.grad.flatten() for p in policy.model.parameters() if p.grad is not None]
    ).norm()
    assert step.loss == pytest.approx(found.loss.item(), rel=1e-4, abs=1e-6)
    assert step.gradient_norm == pytest.approx(float(norm), rel=1e-4)


def _settings(run: Path):
    from training.replayed_steps import recorded_settings

    return recorded_settings(TrainingRecord(run))


def recorded(folder: Path, **changes: object) -> Path:
    run = RUN.model_copy(
        update={
            "recipe": {"sampling": {"temperature": 1.0, "max_turn_tokens": 6, "max_tokens": 60}}
        }
    )
    with Recorder(folder, run) as recorder:
        recorder.submit(0, [row(0, sample=n, **changes) for n in range(2)], {"loss": 0.0})
    return folder


def minibatched(
    folder: Path, learning_rate: float, aggregation: str = "token-mean", **grpo_changes: object
) -> Recipe:
    """A run of one step in three minibatches and two epochs, from the weights of `fresh`."""
    plan = parse_recipe(
        {
            "policy": {"checkpoint": "x"},
            "environment": {"name": "mini-repo", "options": {"turns": "3"}},
            "rewards": {"coin": 1.0},
            "sampling": {"max_turn_tokens": 6, "max_tokens": 60},
            "grpo": {
                "steps": 1,
                "groups": 3,
                "samples": 4,
                "minibatches": 3,
                "epochs": 2,
                "gradient_norm": 1e9,
                "learning_rate": learning_rate,
                **grpo_changes,
            },
            "objective": {"aggregation": aggregation, "entropy_weight": 0.1},
        },
        "test",
    )
    grpo(fresh(), MiniRepo(turns="3"), plan, 3, folder)
    return plan


@pytest.mark.parametrize("aggregation", ["token-mean", "dr-grpo", "sequence-mean"])
def test_the_loss_of_minibatches_is_that_of_the_first_pass(
    tmp_path: Path, aggregation: str
) -> None:
    """Where the weights hardly move between minibatches, it is what one pass
    over the whole step gives.
    """
    plan = minibatched(tmp_path, 1e-9, aggregation)
    (step,) = replay(tmp_path, [0], plan.objective, fresh())
    assert (
        step.recorded_loss == pytest.approx(step.loss, rel=1e-3, abs=1e-6)
        and abs(step.loss or 0) > 1e-4
    )
    assert TrainingRecord(tmp_path).report(0)["optimizer_steps"] == 6
