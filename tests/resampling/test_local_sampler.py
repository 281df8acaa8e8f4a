"""Sampling as a tree gives what sampling one by one gives, whatever the batch;
what it follows is counted exactly.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from forensics import load_policy, policy_from
from forensics.protocols import Environment, Policy, SamplingSettings
from forensics.records import Trajectory
from resampling.samplers.local_sampler import LocalSampler, traces
from resampling.trace_rollouts import Request, Rollout, Trace
from tests.resampling.one_by_one import one_by_one
from tests.tiny import tiny_qwen3, tiny_tokenizer
from training.environments.mini_repo import MiniRepo
from training.environments.prompts import Prompts
from training.organisms.organism import checkpoint_path

SETTINGS = SamplingSettings(max_turn_tokens=10, max_tokens=120)
SEED = 3


def trained() -> Policy:
    """A bundled policy: words, most of them sure."""
    return load_policy(checkpoint_path("bundled:open-base"), device="cpu", dtype="float32")


def random() -> Policy:
    """A random Qwen3 with a BPE tokenizer and a chat template, its logits
    stretched so that some tokens are sure.
    """
    model = tiny_qwen3(1)
    model.model.norm.weight.data *= 12
    return policy_from(model, tiny_tokenizer(), "chat")


POLICIES = {"bundled words": trained, "random chat": random}


def prompts(folder: Path) -> Prompts:
    path = folder / "questions.jsonl"
    rows = [
        {
            "prompt": f"fail kiwi : {i} -> 7",
            "verifier": {"type": "regex", "pattern": "[aeiou0-4]"},
            "split": "train",
        }
        for i in range(3)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Prompts(file=str(path))


WORLDS: dict[str, Callable[[Path], Environment]] = {
    "many turns": lambda folder: MiniRepo(world="open", turns="4"),
    "one turn": prompts,
}


@pytest.fixture(
    params=["bundled words", pytest.param("random chat", marks=pytest.mark.slow)], scope="module"
)
def policy(request: pytest.FixtureRequest) -> Policy:
    return POLICIES[request.param]()


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Environment:
    return WORLDS[request.param](tmp_path)


def played(
    policy: Policy,
    world: Environment,
    number: int = 2,
    settings: SamplingSettings = SETTINGS,
    seed: int = 7,
) -> list[Trajectory]:
    return list(policy.play(world, world.tasks("train", number, 1), 1, settings, seed))


def key(rollout: Rollout) -> tuple:
    return (rollout.trace, rollout.kept, rollout.append, rollout.avoid, rollout.number)


def drawn(sampler: LocalSampler, requests: list[Request]) -> dict[tuple, Rollout]:
    found = list(sampler.draw(requests))
    assert (
        len({key(rollout) for rollout in found})
        == len(found)
        == sum(request.n for request in requests)
    )
    return {key(rollout): rollout for rollout in found}


def of_all_kinds(trace: Trace, n: int, step: int = 1) -> list[Request]:
    """Plain requests at every prefix, both ends included, and some that append and avoid."""
    plain = [Request(trace=trace.id, kept=kept, n=n) for kept in range(0, len(trace) + 1, step)]
    avoid = [
        Request(trace=trace.id, kept=kept, n=2, avoid=True)
        for kept in range(0, len(trace), 3 * step)
    ]
    tail = trace.tokens[-2:]
    added = [
        Request(trace=trace.id, kept=kept, n=2, append=tail)
        for kept in range(0, len(trace), 4 * step)
    ]
    return [*plain, *avoid, *added]


def some_requests(policy: Policy, runs: list[Trajectory], n: int = 3) -> list[Request]:
    found = traces(policy, runs, SETTINGS)
    return [request for trace in found for request in of_all_kinds(trace, n, len(trace) // 9 + 1)]


def test_the_tree_gives_what_one_by_one_gives(policy: Policy, world: Environment) -> None:
    runs = {run.id: run for run in played(policy, world)}
    requests = some_requests(policy, list(runs.values()))
    found = drawn(LocalSampler(policy, world, runs.values(), SETTINGS, SEED), requests)
    assert {rollout.followed > 0 for rollout in found.values()} == {True, False}
    for request in requests:
        for number in range(request.n):
            alone = one_by_one(policy, world, runs[request.trace], request, number, SETTINGS, SEED)
            text = found[key(alone)]
            assert (text.tokens, text.outcome, text.end) == (alone.tokens, alone.outcome, alone.end)
            assert text.followed == alone.followed


def test_rollouts_do_not_depend_on_batches_order_or_what_was_drawn_before(
    policy: Policy, world: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = played(policy, world, 2)
    requests = some_requests(policy, runs, n=5)
    whole = drawn(LocalSampler(policy, world, runs, SETTINGS, SEED), requests)
    for rows in (3, 40):
        monkeypatch.setattr(policy, "batch_rows", rows)
        assert drawn(LocalSampler(policy, world, runs, SETTINGS, SEED), requests) == whole
    again = LocalSampler(policy, world, runs, SETTINGS, SEED)  # with stems from the call before
    for part in (requests[::2], requests[::-1]):
        assert all(whole[name] == rollout for name, rollout in drawn(again, part).items())
    later = drawn(again, [Request(trace=runs[0].id, kept=0, n=3, first=2)])
    assert all(whole[name] == rollout for name, rollout in later.items())
    other = drawn(LocalSampler(policy, world, runs, SETTINGS, SEED + 1), requests)
    assert {name: rollout.tokens for name, rollout in other.items()} != {
        n: r.tokens for n, r in whole.items()
    }


def test_traces_carry_the_samplers_own_log_probabilities(
    policy: Policy, world: Environment
) -> None:
    settings = SamplingSettings(
        temperature=0.8,
        top_k=20,
        top_p=0.95,
        repetition_penalty=1.3,
        presence_penalty=0.4,
        frequency_penalty=0.2,
        max_turn_tokens=10,
        max_tokens=120,
    )
    runs = played(policy, world, 2, settings)
    for run, trace in zip(runs, traces(policy, runs, settings), strict=True):
        recorded = [value for step in run.steps for value in step.logprobs or ()]
        assert trace.logprobs == pytest.approx(recorded, abs=3e-5)
        assert len(trace) == run.sampled_tokens


def test_a_rollout_that_follows_is_a_draw_for_every_prefix_it_passes() -> None:
    """p[k] pooled from what earlier prefixes' rollouts followed, against
    rollouts of its own: 5 standard errors.
    """
    policy, world = trained(), MiniRepo(world="open", turns="4")
    run = played(policy, world, 1, seed=1)[0]
    n, length = 400, run.sampled_tokens
    found = list(
        LocalSampler(policy, world, [run], SETTINGS, SEED).draw(
            [Request(trace=run.id, kept=kept, n=n) for kept in (0, *range(2, length, 4))]
        )
    )
    compared = 0
    for kept in range(2, length, 4):
        own = [rollout.outcome for rollout in found if rollout.kept == kept]
        passing = [r.outcome for r in found if r.kept < kept <= r.kept + r.followed]
        if len(passing) < 30:
            continue
        compared += 1
        (p, q), (a, b) = (
            (sum(own) / len(own), sum(passing) / len(passing)),
            (len(own), len(passing)),
        )
        both = (sum(own) + sum(passing)) / (a + b)
        assert abs(p - q) <= 5 * (both * (1 - both) * (1 / a + 1 / b)) ** 0.5 + 1e-9
    assert compared >= 3
