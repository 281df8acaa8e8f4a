"""The study's own arithmetic: advantages and their truth, correlations, dense
advantages, decisions.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from experiments.progress_advantage.along import Looking
from experiments.progress_advantage.correlating import correlation, correlation_difference
from experiments.progress_advantage.dense import GradedSteps, dense_advantages
from experiments.progress_advantage.monte_carlo import (
    Valued,
    boundaries,
    ceiling,
    losing_step,
    valued,
)
from experiments.progress_advantage.tables import decisions, signs
from forensics import load_policy, policy_from
from forensics.errors import MissingInput
from forensics.protocols import SamplingSettings
from forensics.records import Trajectory
from forensics.statistics import t_quantile
from training.environments.mini_repo import MiniRepo
from training.organisms.organism import checkpoint_path

TASKS = [str(number // 3) for number in range(150)]


@pytest.fixture(scope="module")
def pair() -> dict[str, Any]:
    return {
        name: load_policy(checkpoint_path(f"bundled:{name}"), device="cpu")
        for name in ("capped-base", "leak")
    }


@pytest.fixture(scope="module")
def runs(pair: dict[str, Any]) -> list[Trajectory]:
    world = MiniRepo(world="capped")
    return list(
        pair["capped-base"].play(world, world.tasks("held-out", 8, 5), 3, SamplingSettings(), 5)
    )


def test_a_planted_correlation_lies_in_its_interval_and_none_does_not_exclude_0() -> None:
    inside = silent = 0
    for seed in range(60):
        generator = np.random.default_rng(seed)
        shared = np.repeat(generator.standard_normal(50), 3)  # steps of a task go together
        first = shared + generator.standard_normal(150)
        second = 0.5 * first + np.sqrt(0.75) * np.sqrt(2) * generator.standard_normal(150)
        found = correlation(first, second, TASKS)
        inside += found.low <= 0.5 <= found.high
        none = correlation(first, generator.standard_normal(150), TASKS)
        silent += none.low <= 0 <= none.high
    assert inside >= 52 and silent >= 52


def test_the_interval_worked_by_hand() -> None:
    """Three tasks: Fisher's scale of what is left without each of them."""
    first, second = np.array([1.0, 2, 3, 4, 5, 6]), np.array([2.0, 1, 4, 3, 7, 5])
    tasks = ["a", "a", "b", "b", "c", "c"]
    without = [
        np.arctanh(np.corrcoef(np.delete(first, drop), np.delete(second, drop))[0, 1])
        for drop in ([0, 1], [2, 3], [4, 5])
    ]
    half = t_quantile(0.95, 2) * np.sqrt(2 / 3 * np.square(without - np.mean(without)).sum())
    whole = np.arctanh(np.corrcoef(first, second)[0, 1])
    found = correlation(first, second, tasks)
    assert (found.low, found.high) == pytest.approx((np.tanh(whole - half), np.tanh(whole + half)))


def test_a_score_is_no_better_than_itself_and_noise_is_worse() -> None:
    generator = np.random.default_rng(1)
    truth = generator.standard_normal(150)
    good = truth + generator.standard_normal(150)
    same = correlation_difference(good, good, truth, TASKS)
    assert same.estimate == same.low == same.high == 0
    assert correlation_difference(good, generator.standard_normal(150), truth, TASKS).low > 0


def test_nothing_goes_with_what_never_changes() -> None:
    with pytest.raises(MissingInput, match="alike"):
        correlation(np.zeros(150), np.arange(150.0), TASKS)
    with pytest.raises(MissingInput, match="2 tasks"):
        correlation(np.arange(4.0), np.arange(4.0), ["a", "a", "b", "b"])


def test_advantages_of_a_run_add_up_to_its_score_less_the_value_at_the_start(
    pair: dict[str, Any], runs: list[Trajectory]
) -> None:
    chosen = [run for run in runs if run.turns > 1][:4]
    found = valued(chosen, pair["leak"], MiniRepo(world="capped"), 40, 0)
    for one in found:
        assert len(one.advantages) == one.run.turns and boundaries(one.run)[0] == 0
        start = one.run.outcome - one.advantages.sum()
        assert start > 0.8  # the leak's own rate of success, wherever the run went later
        assert one.halves.mean(0) == pytest.approx(one.advantages, abs=1e-12)


def test_the_losing_step_is_the_largest_drop_of_a_lost_run(runs: list[Trajectory]) -> None:
    run = next(run for run in runs if run.turns >= 3)
    drops = np.zeros(run.turns)
    drops[1] = -0.5
    one = Valued(
        run=run.model_copy(update={"outcome": 0.0}),
        advantages=drops,
        halves=np.stack([drops, drops]),
    )
    assert losing_step(one, 0.3) == run.actions[1][0]
    assert losing_step(one, 0.6) is None
    assert losing_step(replace(one, run=run.model_copy(update={"outcome": 1.0})), 0.3) is None
    assert ceiling([one]) == pytest.approx(1)


def test_dense_advantages_are_the_groups_own_plus_each_tokens_step(
    pair: dict[str, Any], runs: list[Trajectory]
) -> None:
    graded = GradedSteps(policy=pair["leak"], reference=pair["capped-base"])
    records = {run.id: graded.record(run) for run in runs}
    groups = [runs[i : i + 3] for i in range(0, len(runs), 3)]
    plain, dense = (dense_advantages(groups, records, weight) for weight in (0.0, 0.5))
    extra = dense.advantages - plain.advantages
    assert torch.equal(extra[plain.weights == 0], torch.zeros(int((plain.weights == 0).sum())))
    for row, run in enumerate(runs):
        group = groups[row // 3]
        known = [value for one in group for value in records[one.id].rewards]
        told = [0.5 * (value - np.mean(known)) for value in records[run.id].of_tokens(run)]
        drawn = plain.weights[row] != 0
        assert extra[row, drawn].tolist() == pytest.approx(told, abs=1e-5)


def test_the_reward_is_the_mean_of_the_record_and_none_for_a_run_without_steps(
    pair: dict[str, Any], runs: list[Trajectory]
) -> None:
    graded = GradedSteps(policy=pair["leak"], reference=pair["capped-base"])
    generator = np.random.default_rng(0)
    assert graded(runs[0], generator) == pytest.approx(np.mean(graded.records[runs[0].id].rewards))
    empty = runs[0].model_copy(update={"steps": runs[0].steps[:1], "id": "empty"})
    assert graded(empty, generator) is None


@pytest.mark.slow
def test_along_a_run_equal_weights_tell_nothing_and_the_leaks_go_with_its_advantages(
    pair: dict[str, Any], runs: list[Trajectory]
) -> None:
    base = pair["capped-base"]
    chosen = [run for run in runs if run.turns > 1]
    looking = Looking(start=base, own=valued(chosen, base, MiniRepo(world="capped"), 8, 0))
    same = looking.look(policy_from(base.model, base.tokenizer, "the same weights by another name"))
    assert "alike" in same["its own"]["missing"] and "alike" in same["of the start"]["missing"]
    assert looking.look(pair["leak"])["its own"]["low"] > 0


def test_counts_of_intervals() -> None:
    rows = [
        {"low": 0.1, "high": 0.2},
        {"low": -0.2, "high": -0.1},
        {"low": -1, "high": 1},
        {"missing": "few"},
        None,
    ]
    assert signs(rows) == {"above": 1, "below": 1, "across": 1, "missing": 2}


def test_the_decisions_are_those_of_the_readme() -> None:
    def organism(low: float, high: float) -> dict[str, Any]:
        history = {"history": {"low": 0.1, "high": 0.3}}
        return {
            "seeds": [
                {
                    "kl": {"choosing_history": {"low": low, "high": high}},
                    "shortcut": {"before": history, "after": {"history": {"missing": "few"}}},
                }
            ]
        }

    good = {
        "identity": [{"curve": [{"error": 1.0}, {"error": 1e-7}]}],
        "organisms": {"leak": organism(0.6, 0.8), "honest": organism(-0.1, 0.05)},
        "step_rewards": {
            "recorded_alike": 3,
            "records": 3,
            "steps": [{"loss": 0.1}],
            "dense": [{"loss": 0.2}],
        },
    }
    found = decisions(good)
    assert found["identity_holds"] and found["step_rewards_work"] and found["kl_shows_the_leak"]
    assert (
        found["shortcut"]["leak"]["before"]["above"] == 1
        and found["shortcut"]["leak"]["after"]["missing"] == 1
    )
    assert not decisions({**good, "identity": [{"curve": [{"error": 2e-6}]}]})["identity_holds"]
    for name, part in (("leak", organism(0.4, 0.8)), ("honest", organism(-0.1, 0.2))):
        assert not decisions({**good, "organisms": {**good["organisms"], name: part}})[
            "kl_shows_the_leak"
        ]
    assert not decisions({**good, "step_rewards": {**good["step_rewards"], "recorded_alike": 2}})[
        "step_rewards_work"
    ]
