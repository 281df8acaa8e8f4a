"""The benchmark's real policy is the world it is made from: next words, potentials, lengths."""

import numpy as np
import pytest
import torch

from resampling.samplers.local_sampler import LocalSampler, traces
from resampling.solvable_traces import SolvableTrace
from resampling.trace_rollouts import Request
from tests.resampling.markov_policy import (
    LANE,
    environment_of,
    policy_of,
    recorded,
    settings_of,
)
from tests.resampling.random_traces import random_traces

LENGTH = 300


@pytest.fixture(scope="module")
def planted() -> list[SolvableTrace]:
    return random_traces("long", 3, 77)


def test_next_words_have_the_probabilities_of_the_world(planted: list[SolvableTrace]) -> None:
    policy = policy_of(planted)
    for run, world in zip(recorded(planted, policy), planted, strict=True):
        ids = [token for step in run.steps for token in step.token_ids or ()]
        with torch.no_grad():
            found = policy.model(torch.tensor([ids[:-1]])).logits[0].double().softmax(-1).numpy()
        pi = world.trace.probabilities
        good, bad = (
            found[:, LENGTH + LANE * lane : LENGTH + LANE * (lane + 1)].sum(1) for lane in (0, 1)
        )
        np.testing.assert_allclose(found[np.arange(LENGTH), np.arange(LENGTH)], pi, atol=1e-5)
        np.testing.assert_allclose(good, (1 - pi) * world.others, atol=1e-5)
        np.testing.assert_allclose(bad, (1 - pi) * (1 - world.others), atol=1e-5)


def test_a_lane_is_never_left(planted: list[SolvableTrace]) -> None:
    policy = policy_of(planted)
    prompt = LENGTH + 2 * LANE + 1
    for lane in (0, 1):
        words = slice(LENGTH + LANE * lane, LENGTH + LANE * (lane + 1))
        with torch.no_grad():
            found = (
                policy.model(torch.tensor([[prompt, 0, words.start, words.stop - 1]]))
                .logits[0]
                .softmax(-1)
            )
        assert found[2:, words].sum(1).tolist() == pytest.approx([1.0, 1.0], abs=1e-6)


def test_the_recorded_runs_score_as_the_worlds_traces_do(planted: list[SolvableTrace]) -> None:
    policy = policy_of(planted)
    for trace, world in zip(
        traces(policy, recorded(planted, policy), settings_of(planted)), planted, strict=True
    ):
        assert (trace.id, len(trace), trace.outcome) == (world.trace.id, LENGTH, world.final)
        np.testing.assert_allclose(trace.probabilities, world.trace.probabilities, atol=1e-5)


def test_success_from_a_prefix_is_its_potential(planted: list[SolvableTrace]) -> None:
    policy, n = policy_of(planted), 120
    sampler = LocalSampler(
        policy, environment_of(planted), recorded(planted, policy), settings_of(planted), 5
    )
    for world in planted:
        for kept, avoid in ((60, False), (230, False), (LENGTH, False), (280, True)):
            rollouts = list(
                sampler.draw([Request(trace=world.trace.id, kept=kept, n=n, avoid=avoid)])
            )
            assert {len(rollout.tokens) for rollout in rollouts} == {LENGTH - kept}
            p = world.others[kept] if avoid else world.potentials[kept]
            mean = np.mean([rollout.outcome for rollout in rollouts])
            assert abs(mean - p) < 4 * (p * (1 - p) / n) ** 0.5 + 1e-6
