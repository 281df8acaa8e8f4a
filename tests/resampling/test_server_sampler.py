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
from forensics.errors import UserError
from forensics.policies.completions import Client, ServerConfig
from forensics.policies.server import echoed_logprobs, probe
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


@pytest.mark.slow
def test_outcomes_are_as_frequent_as_the_policys_own(
    server: CompletionStub, policy: Policy, runs: list[Trajectory]
) -> None:
    """From the prompt: the policy's own episodes. Two proportions of n = 400,
    four standard errors.
    """
    run = runs[0]
    drawn = list(opened(server, runs).draw([Request(trace=run.id, kept=0, n=400)]))
    own = [t.outcome for t in policy.play(WORLD, [run.task], 400, SETTINGS, 99)]
    rates = [
        np.mean([float(x) for x in values if x is not None])
        for values in ([r.outcome for r in drawn], own)
    ]
    assert len(drawn) == 400 and all(r.outcome is not None for r in drawn)
    assert 0.1 < rates[1] < 0.9
    assert abs(rates[0] - rates[1]) < 4 * np.sqrt(2 * 0.25 / 400)


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


@pytest.mark.slow
def test_followed_counts_the_traces_own_tokens_in_the_same_run(
    server: CompletionStub, runs: list[Trajectory]
) -> None:
    """Brute force: tokens compared one by one; behind an action the environment
    must have said the same.
    """
    traces = {run.id: trace_of(run) for run in runs}
    requests = [
        Request(trace=t.id, kept=k, n=80)
        for t in traces.values()
        for k in (0, 3, middle(t), len(t) - 1)
    ]
    counts = Counter[int]()
    for rollout in opened(server, runs).draw(requests):
        own = traces[rollout.trace].tokens[rollout.kept :]
        same = next(
            (i for i, (a, b) in enumerate(zip(rollout.tokens, own, strict=False)) if a != b),
            min(len(own), len(rollout.tokens)),
        )
        assert (
            rollout.followed == same
        )  # equal actions get equal words here, so brute force needs no environment
        counts[same] += 1
    assert counts[0] and sum(counts[i] for i in counts if i > 0) > 20


def test_appended_tokens_are_kept_and_not_counted_as_drawn(
    server: CompletionStub, runs: list[Trajectory]
) -> None:
    trace = trace_of(runs[0])
    stop = tiny_tokenizer().eos_token_id
    request = Request(trace=trace.id, kept=middle(trace), n=4, append=(40, 41, stop))
    rollouts = list(opened(server, runs).draw([request, replace(request, append=(40,))]))
    enforced = [r for r in rollouts if len(r.append) == 3]
    assert {(r.tokens, r.outcome, r.end) for r in enforced} == {
        ((), enforced[0].outcome, "terminated")
    }
    assert enforced[0].outcome is not None
    assert all(r.tokens and r.followed == 0 for r in rollouts if len(r.append) == 1)


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


def test_avoiding_under_top_k_never_lets_another_token_in(policy: Policy) -> None:
    """A bias acts before top-k: with k = 2 it would admit the third token. Redrawing does not."""
    settings = replace(SETTINGS, top_k=2)
    runs = list(policy.play(WORLD, ["guess 0"], 1, settings, 3))
    trace = trace_of(runs[0])
    best = set(np.argsort(-token_chances(policy, trace, 0))[:2].tolist())
    assert trace.tokens[0] in best
    with serving(policy) as stub:
        rollouts = list(
            opened(stub, runs, settings).draw([Request(trace=trace.id, kept=0, n=40, avoid=True)])
        )
    assert {r.tokens[0] for r in rollouts} == best - {trace.tokens[0]}


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


def test_another_policy_behind_the_address_is_noticed(runs: list[Trajectory]) -> None:
    with (
        serving(make_policy(seed=2)) as stub,
        pytest.raises(UserError, match="serve the policy that made it"),
    ):
        opened(stub, runs)


def test_many_episodes_are_under_way_at_once_and_no_more_than_allowed(
    policy: Policy, runs: list[Trajectory]
) -> None:
    with serving(policy) as stub:
        sampler = opened(stub, runs, at_once=5)
        stub.most_at_once = 0
        stub.several.clear()
        stub.troubles.extend(
            ["", *["in company"] * 20]
        )  # the first request, for all that begin alike, is alone
        assert len(list(sampler.draw([Request(trace=runs[0].id, kept=0, n=60)]))) == 60
        assert 3 <= stub.most_at_once <= 5


def test_token_budgets_count_from_the_start_of_the_run(
    server: CompletionStub, runs: list[Trajectory]
) -> None:
    trace = trace_of(runs[0])
    kept = middle(trace)
    settings = replace(SETTINGS, max_tokens=len(trace.prefix(kept)) + 2)
    rollouts = list(opened(server, runs, settings).draw([Request(trace=trace.id, kept=kept, n=40)]))
    assert max(len(r.tokens) for r in rollouts) == 2
    assert all(
        r.end == "truncated" for r in rollouts if r.tokens[-1] != tiny_tokenizer().eos_token_id
    )
