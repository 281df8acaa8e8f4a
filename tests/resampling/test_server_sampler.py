"""Sampling over HTTP against the local policy: a stub that speaks vLLM's
completions, on a real socket.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from forensics import policy_from
from forensics.policies.completions import Client, ServerConfig
from forensics.policies.server_abilities import echoed_logprobs, probe
from forensics.protocols import Policy, SamplingSettings
from forensics.records import Trajectory
from resampling.samplers.local_sampler import LocalSampler
from resampling.samplers.server_sampler import open_server
from resampling.trace_rollouts import Request, Rollout, Sampler, Trace, trace_of
from tests.resampling.completion_stub import CompletionStub, serving
from tests.resampling.guessing_world import Guessing
from tests.tiny import tiny_qwen3, tiny_tokenizer

SETTINGS = SamplingSettings(max_turn_tokens=6, max_tokens=300)
WORLD = Guessing(turns=2)


def make_policy(seed: int = 1, sharp: float = 6.0) -> Policy:
    """A random policy that is sure enough for its traces to be followed now and then."""
    model = tiny_qwen3(seed)
    with torch.no_grad():
        model.model.norm.weight *= sharp
    return policy_from(model, tiny_tokenizer(), f"tiny-{seed}")


@pytest.fixture(scope="module")
def policy() -> Policy:
    return make_policy()


@pytest.fixture(scope="module")
def runs(policy: Policy) -> list[Trajectory]:
    return list(policy.play(WORLD, WORLD.tasks("held-out", 2, 1), 1, SETTINGS, 3))


@pytest.fixture(scope="module")
def server(policy: Policy) -> Iterator[CompletionStub]:
    with serving(policy) as stub:
        yield stub


def config(server: CompletionStub, **changes: Any) -> ServerConfig:
    return replace(ServerConfig(url=server.url, pause=0.01, timeout=300), **changes)


def opened(
    server: CompletionStub,
    runs: list[Trajectory],
    settings: SamplingSettings = SETTINGS,
    **changes: Any,
) -> Sampler:
    return open_server(
        config(server, **changes), WORLD, runs, settings, 7, tokenizer=tiny_tokenizer()
    )


def key(rollout: Rollout) -> tuple[Any, ...]:
    return rollout.trace, rollout.kept, rollout.append, rollout.avoid, rollout.number


def ordered(rollouts: Any) -> list[Rollout]:
    return sorted(rollouts, key=key)


def middle(trace: Trace) -> int:
    """A prefix that ends inside the second action."""
    return trace.steps.index(trace.steps[-1]) + 1


def test_outcomes_from_inside_a_run_are_those_of_the_local_sampler(
    server: CompletionStub, policy: Policy, runs: list[Trajectory]
) -> None:
    """At the end of the first action, inside the second, and with a token put
    there: n = 250, four standard errors.
    """
    trace, n = trace_of(runs[1]), 250
    requests = [
        Request(trace=trace.id, kept=middle(trace) - 1, n=n),
        Request(trace=trace.id, kept=middle(trace), n=n),
        Request(trace=trace.id, kept=middle(trace), n=n, append=(40,)),
    ]
    rates: list[dict[Any, list[float]]] = [
        {(r.kept, r.append): [] for r in requests} for _ in range(2)
    ]
    samplers = opened(server, runs), LocalSampler(policy, WORLD, runs, SETTINGS, 5)
    for found, sampler in zip(rates, samplers, strict=True):
        for rollout in sampler.draw(requests):
            assert rollout.outcome is not None
            found[rollout.kept, rollout.append].append(rollout.outcome)
    for place, outcomes in rates[0].items():
        assert len(outcomes) == n and abs(
            np.mean(outcomes) - np.mean(rates[1][place])
        ) < 4 * np.sqrt(2 * 0.25 / n)


def test_first_tokens_from_the_middle_of_an_action_follow_the_policys_distribution(
    server: CompletionStub, policy: Policy, runs: list[Trajectory]
) -> None:
    trace = trace_of(runs[0])
    kept, n = middle(trace), 500
    drawn = Counter(
        r.tokens[0] for r in opened(server, runs).draw([Request(trace=trace.id, kept=kept, n=n)])
    )
    chances = token_chances(policy, trace, kept)
    assert (
        chi_square(drawn, chances, n) < 60
    )  # at most 30 cells: 5 standard deviations above their number


def token_chances(policy: Policy, trace: Trace, kept: int) -> np.ndarray:
    with torch.no_grad():
        return (
            policy.model(torch.tensor([trace.prefix(kept)]))
            .logits[0, -1]
            .double()
            .softmax(-1)
            .numpy()
        )


def chi_square(drawn: Counter[int], chances: np.ndarray, n: int) -> float:
    """Over tokens expected at least five times (30 at most), the rest as one cell."""
    cells = [int(i) for i in np.argsort(-chances)[:30] if chances[i] * n >= 5]
    rest = n * (1 - chances[cells].sum())
    found = sum((drawn[i] - n * chances[i]) ** 2 / (n * chances[i]) for i in cells)
    return float(found + (n - sum(drawn[i] for i in cells) - rest) ** 2 / max(rest, 5))


def test_a_rollout_is_a_function_of_its_request_and_number(
    server: CompletionStub, runs: list[Trajectory]
) -> None:
    """However requests are cut, in whatever order, and one at a time or many at once."""
    trace = trace_of(runs[0])
    places = (0, 2, middle(trace), len(trace))
    whole = ordered(opened(server, runs).draw(Request(trace=trace.id, kept=k, n=6) for k in places))
    cut = [
        Request(trace=trace.id, kept=k, n=n, first=f)
        for k in reversed(places)
        for f, n in ((4, 2), (0, 4))
    ]
    again = ordered(opened(server, runs, at_once=1, most_choices=3).draw(cut))
    assert whole == again and len(whole) == 24
    assert len({r.tokens for r in whole if r.kept == 0}) > 3


@pytest.mark.parametrize(
    "habits",
    [
        (),
        *(
            pytest.param(habits, marks=pytest.mark.slow)
            for habits in (("deaf to bias",), ("no bias",), ("deaf to bias", "one choice"))
        ),
    ],
)
def test_avoiding_draws_from_the_other_tokens_whether_the_server_has_a_bias_or_not(
    policy: Policy, runs: list[Trajectory], habits: tuple[str, ...]
) -> None:
    trace = trace_of(runs[0])
    kept, n = middle(trace), 150
    with serving(policy, *habits) as stub:
        sampler = opened(stub, runs)
        stub.seen.clear()
        rollouts = list(sampler.draw([Request(trace=trace.id, kept=kept, n=n, avoid=True)]))
        assert any("logit_bias" in body for body in stub.seen) == (habits == ())
    chances = token_chances(policy, trace, kept)
    chances[trace.tokens[kept]] = 0
    drawn = Counter(r.tokens[0] for r in rollouts)
    assert trace.tokens[kept] not in drawn and sum(drawn.values()) == n
    assert chi_square(drawn, chances / chances.sum(), n) < 60


def test_log_probabilities_are_the_policys(
    server: CompletionStub, policy: Policy, runs: list[Trajectory]
) -> None:
    client = Client(config(server))
    abilities = probe(client, trace_of(runs[0]).prefix(0), SETTINGS)
    for run in runs:
        ids = trace_of(run).ids
        assert (
            np.abs(
                echoed_logprobs(client, abilities.model, ids) - policy.logprobs([ids], SETTINGS)[0]
            ).max()
            < 1e-4
        )
