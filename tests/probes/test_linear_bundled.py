"""Probes on real checkpoints: the right tokens are read, what the model knows
is found, the text is a fair rival.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from forensics import Budget, conformance
from forensics.case import Case
from forensics.instruments import run_instrument
from forensics.investigation.inputs import CaseRequest, check_inputs
from forensics.records import Evidence, Table, Trajectory, Undefined
from probes.linear.instrument import linear
from probes.linear.probe_data import collect_activations, will_use
from probes.linear.probe_evaluation import ProbeConfig, evaluate_probe
from training.organisms.organism import BUNDLED

SITES = ("blocks.0.hook_resid_post", "blocks.1.hook_attn_out", "blocks.2.hook_resid_pre")
QUICK = ProbeConfig(shuffles=0)


def case(folder: Path, tasks: int, samples: int) -> Case:
    budget = Budget(tasks=tasks, samples=samples)
    request = CaseRequest(
        before=BUNDLED / "capped-base", after=BUNDLED / "leak", budget=budget, seed=11, device="cpu"
    )
    return check_inputs(request).case(folder)


@pytest.fixture(scope="module")
def leak(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return case(tmp_path_factory.mktemp("leak"), tasks=60, samples=4)


def every(trajectory: Trajectory) -> Iterator[tuple[int, bool]]:
    return ((number, False) for number, _ in trajectory.actions)


class Plain:
    """A backend without a model to hook: only the protocol."""

    identity = "plain"
    capabilities = frozenset({"activations"})

    def __init__(self, policy: Any) -> None:
        self.activations = policy.activations


def test_packed_reading_equals_one_text_at_a_time(leak: Case) -> None:
    policy = leak.policy("before")
    runs = list(leak.rollouts("before"))[:30]
    together = collect_activations(policy, runs, sites=SITES, question=every)
    alone = collect_activations(Plain(policy), runs, sites=SITES, question=every)
    for site in SITES:
        np.testing.assert_allclose(together.activations[site], alone.activations[site], atol=2e-5)
    assert (
        together.runs == tuple(run.id for run in runs for _ in run.actions) and together.unread == 0
    )
    assert together.steps.tolist() == [number for run in runs for number, _ in run.actions]


def test_the_deciding_token_is_the_last_before_the_action(leak: Case) -> None:
    policy = leak.policy("before")
    (run,) = list(leak.rollouts("before"))[:1]
    found = collect_activations(policy, [run], sites=SITES[:1], question=every)
    ids = [token for step in run.steps for token in step.token_ids or ()]
    whole = policy.activations([ids], SITES[:1])[0][SITES[0]]
    for row, (number, step) in enumerate(run.actions):
        behind = [token for one in run.steps[:number] for token in one.token_ids or ()]
        first = (step.sampled or ()).index(True)  # template tokens of the step come before
        seen = [*behind, *(step.token_ids or ())[:first]]
        assert found.prefixes[row].tolist() == seen
        np.testing.assert_allclose(
            found.activations[SITES[0]][row], whole[len(seen) - 1], atol=2e-5
        )
        assert found.columns["turn number"][row] == row


def test_what_the_model_is_about_to_say_is_read_off_it(leak: Case) -> None:
    """The positive control: the policy's own chance of `history` is a function
    of the last residual.
    """
    policy: Any = leak.policy("before")
    (history,) = policy.tokenizer("history", add_special_tokens=False)["input_ids"]
    runs = list(leak.rollouts("before"))
    found = collect_activations(
        policy,
        runs,
        sites=["blocks.0.hook_resid_pre", "blocks.2.hook_resid_post"],
        question=lambda run: iter([(run.actions[0][0], False)]),
    )
    with torch.inference_mode():
        chance = [
            float(
                policy.model(torch.tensor([prefix.tolist()])).logits[0, -1].log_softmax(-1)[history]
            )
            for prefix in found.prefixes
        ]
    found.labels[:] = np.array(chance) > np.median(chance)
    told = evaluate_probe(found, config=QUICK)
    assert told.by_site["blocks.2.hook_resid_post"].estimate > 0.9
    assert (
        told.by_site["blocks.0.hook_resid_pre"].estimate == 0.5
    )  # the embedding of one and the same token


def test_reading_the_history_is_announced_by_the_turn_as_well(leak: Case) -> None:
    """The honest figure: the probe is far above chance and no better than the text."""
    found = collect_activations(
        leak.policy("after-0"),
        leak.rollouts("after-0"),
        question=will_use(("history",)),
        sites=["blocks.1.hook_resid_post"],
    )
    told = evaluate_probe(found, config=QUICK)
    assert told.auroc.low > 0.9
    assert all(abs(one.advantage.estimate) < 0.05 for one in told.baselines.values())


def test_the_instrument_is_off_until_it_is_told_how_much_to_read(leak: Case) -> None:
    found = list(run_instrument(linear, leak))
    assert {one.question for one in found} == set(linear.questions)
    assert all(isinstance(one, Undefined) and "off" in one.reason for one in found)


@pytest.mark.slow
def test_the_instrument_keeps_the_rules_and_shows_its_controls(leak: Case, tmp_path: Path) -> None:
    tool = linear.configured(tasks=20, shuffles=20)
    found = conformance.answers(tool, leak)
    told = found["probes.shortcut", "git-history"]
    assert (
        isinstance(told, Evidence)
        and conformance.alarms(told)
        and told.estimate > 0.9
        and told.clusters == 20
    )
    assert told.control and told.control.interval and told.control.interval.high < told.estimate
    table = next(one for one in told.artifacts if isinstance(one, Table))
    names = {str(row[0]) for row in table.rows}
    (dealt,) = [
        row for row in table.rows if str(row[0]).startswith("labels shuffled by task, 20 times")
    ]
    assert dealt[1:4] == (
        told.control.estimate,
        told.control.interval.low,
        told.control.interval.high,
    )
    assert {"bag of tokens", "turn number", "logistic probe fitted before training"} <= names
    assert "the text tells" in told.summary
    tool = linear.configured(tasks=10, shuffles=2, sites=("blocks.1.hook_resid_post",))
    conformance.check_questions(tool, leak)
    conformance.check_same_bits(tool, leak)
    conformance.check_saved(tool, leak, tmp_path)
    stored = replace(
        leak, stored={(side, ()): leak.rollouts(side) for side in ("before", "after-0")}
    )
    conformance.check_order(tool, stored, tmp_path, np.random.default_rng(0))
