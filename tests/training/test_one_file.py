"""`examples/grpo_in_one_file.py` does what the core does."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

from forensics import policy_from
from forensics.protocols import Policy
from tests.training.test_grpo import SETTINGS, played, recipe, rollouts
from training.distributed import Process
from training.organisms.base_model import build_model, build_tokenizer
from training.trained_model import Machine
from training.trainer import make_batch
from training.update import update

FILE = Path(__file__).parents[2] / "examples" / "grpo_in_one_file.py"
REWARDS = [[1.0, 0.0, 0.5, 0.0], [0.0, 0.0, 0.0, 0.0]]  # the second task teaches nothing


def start() -> Policy:
    tokenizer = build_tokenizer()
    return policy_from(build_model(len(tokenizer), 0), tokenizer, "start")


@pytest.fixture(scope="module")
def example() -> Any:
    spec = importlib.util.spec_from_file_location("grpo_in_one_file", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("steps", [1, 3])  # from the second on, ratios are not 1
def test_loss_and_weights_are_those_of_the_core(example: Any, steps: int) -> None:
    ours, theirs = start(), start()
    plan = recipe()
    batch = make_batch(played(theirs, REWARDS))
    machine = Machine(theirs, plan, SETTINGS, Process(), 0)
    model: Any = ours.model  # SGD: AdamW makes a step of the sign of a gradient that is nearly 0
    optimizer, own = (torch.optim.SGD(one.parameters(), lr=1.0) for one in (machine.model, model))
    runs = [
        run.model_copy(update={"outcome": reward})
        for run, reward in zip(rollouts(ours), [*REWARDS[0], *REWARDS[1]], strict=True)
    ]
    for _ in range(steps):
        wanted = update(machine, batch, optimizer, plan, (0,)).loss
        assert example.step(model, own, runs, 4) == pytest.approx(wanted, abs=1e-6)
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(weight, machine.model.state_dict()[name], atol=1e-5, rtol=1e-4)
    assert example.step(model, own, runs[4:], 4) is None


def test_a_run_without_an_outcome_is_no_failure_of_the_policy(example: Any) -> None:
    policy = start()
    runs = [run.model_copy(update={"outcome": None}) for run in rollouts(policy)]
    assert example.step(policy.model, None, runs, 4) is None
