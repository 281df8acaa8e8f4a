"""A policy behind a server plays, samples and goes on inside texts as the same policy here."""

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from forensics import policy_from
from forensics.errors import UserError
from forensics.policies import ServerConfig, ServerPolicy, server_abilities
from forensics.protocols import Constraint, Policy, SamplingSettings, StepResult
from forensics.records import Trajectory
from resampling.samplers.local_sampler import LocalSampler
from resampling.trace_rollouts import Request
from tests.resampling.completion_stub import CompletionStub, serving
from tests.resampling.guessing_world import Guessing
from tests.tiny import tiny_qwen3, tiny_tokenizer

SETTINGS = SamplingSettings(max_turn_tokens=4, max_tokens=200)
WORLD = Guessing(turns=2)
TASKS = tuple(WORLD.tasks("held-out", 3, 1))
SHORT = SamplingSettings(max_turn_tokens=1)


@pytest.fixture(scope="module")
def policy() -> Policy:
    model = tiny_qwen3(1)
    model.model.norm.weight.data *= 6
    return policy_from(model, tiny_tokenizer(), "tiny")


@pytest.fixture(scope="module")
def stub(policy: Policy) -> Iterator[CompletionStub]:
    with serving(policy) as server:
        yield server


def served(stub: CompletionStub, **changes: Any) -> ServerPolicy:
    config = replace(ServerConfig(url=stub.url, pause=0.01, tries=2), **changes)
    return ServerPolicy(config, tokenizer=tiny_tokenizer())


def played(stub: CompletionStub, samples: int = 4, **changes: Any) -> list[Trajectory]:
    return list(served(stub, **changes).play(WORLD, TASKS, samples, SETTINGS, 5))


def test_episodes_are_those_of_a_policy_here_with_its_log_probabilities(
    stub: CompletionStub, policy: Policy
) -> None:
    """Same prompts, turns and endings; every drawn token with the model's own log-probability."""
    runs = played(stub)
    here = list(policy.play(WORLD, TASKS, 4, SETTINGS, 5))
    assert [(r.task, r.sample, r.steps[0]) for r in runs] == [
        (r.task, r.sample, r.steps[0]) for r in here
    ]
    assert {len(run.steps) for run in runs} == {len(run.steps) for run in here}
    for run in runs:
        ids = [i for step in run.steps for i in step.token_ids or ()]
        flags = [s for step in run.steps for s in step.sampled or ()]
        told = [x for step in run.steps for x in step.logprobs or ()]
        own = policy.logprobs([ids], SETTINGS)[0][np.array(flags)[1:]]
        np.testing.assert_allclose(told, own, atol=1e-4)


def test_an_episode_depends_on_its_seed_and_on_nothing_else(stub: CompletionStub) -> None:
    whole = played(stub)
    assert whole == played(stub, at_once=1)
    assert whole[:2] == [run for run in played(stub, samples=2) if run.task == TASKS[0]]
    assert len({run.steps[1].token_ids for run in whole}) > 4


def test_environments_answer_while_other_requests_wait(stub: CompletionStub) -> None:
    stub.most_at_once = 0
    played(stub)
    assert stub.most_at_once > 2


def test_refused_actions_are_drawn_again_with_the_distribution_of_what_is_left(
    stub: CompletionStub, policy: Policy
) -> None:
    """The most probable token (.43) is refused: 300 draws of one token, against the
    probabilities of the others. That one alone counts once against the constraint; four times
    in a row, as one in 30 would draw it, would be too often.
    """
    prompt = policy.renderer.prompt("open guess 1", None)
    server, one_token = served(stub), SHORT
    with torch.inference_mode():
        chances = policy.model(torch.tensor([prompt])).logits[0, -1].softmax(-1).numpy()
    texts = {policy.renderer.action_text([int(chances.argmax())])}
    constraint = Constraint(name="not that", allows=lambda x, _: x not in texts, max_redraws=3)
    found = server.sample([prompt], 300, one_token, 3, constraint)[0]
    drawn = Counter(one.token_ids[0] for one in found if one.token_ids)
    left = [i for i in range(len(chances)) if policy.renderer.action_text([i]) not in texts]
    rest = chances[left] / chances[left].sum()
    likely = [place for place in np.argsort(-rest)[:8] if rest[place] * 300 >= 5]
    assert len(likely) > 3 and chances.max() > 0.3
    assert not set(drawn) - set(left) and sum(drawn.values()) == 300
    for place in likely:
        expected = 300 * rest[place]
        assert abs(drawn[left[place]] - expected) < 4.5 * np.sqrt(expected)


def test_continuations_of_one_text_share_a_request(stub: CompletionStub) -> None:
    server, prompt = served(stub), [1, 40, 41, 42]
    server.sample([prompt], 1, SHORT, 0)
    stub.seen.clear()
    [found] = server.sample([prompt], 6, SHORT, 0)
    assert [body["n"] for body in stub.seen] == [6] and len(found) == 6
    assert server.sample([prompt], 3, SHORT, 0)[0] == found[:3]


def test_whatever_continues_traces_here_does_so_over_a_server(
    stub: CompletionStub, policy: Policy
) -> None:
    run = next(iter(policy.play(WORLD, TASKS[:1], 1, SETTINGS, 3)))
    sampler = LocalSampler(served(stub), WORLD, [run], SETTINGS, 7)  # type: ignore[arg-type]
    requests = [Request(trace=run.id, kept=kept, n=5, avoid=kept == 1) for kept in (0, 1, 3)]
    found = list(sampler.draw(requests))
    assert len(found) == 15 and all(one.outcome is not None for one in found)
    own = [i for s in run.steps if s.sampled and any(s.sampled) for i in s.token_ids or ()]
    assert all(one.tokens[0] != own[1] for one in found if one.avoid)


def test_what_stays_unanswered_is_an_errored_episode(stub: CompletionStub, policy: Policy) -> None:
    with serving(policy) as other:
        server = served(other, tries=1)
        list(server.play(WORLD, TASKS[:1], 1, SETTINGS, 5))
        other.troubles.extend(["500", ""] * 3)
        runs = list(server.play(WORLD, TASKS, 2, SETTINGS, 5))
    broken = [run for run in runs if run.end == "errored"]
    assert 0 < len(broken) < len(runs) == 6
    assert all(run.outcome is None and "no usable" in (run.end_reason or "") for run in broken)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"top_p": 0.9}, "top_p = 0.9 would bias every ratio"),
        ({"top_k": 5}, "top_k = 5 would bias every ratio"),
        ({"repetition_penalty": 1.1}, "repetition_penalty = 1.1"),
        ({"temperature": 0.7}, "processed_logprobs"),
    ],
)
def test_log_probabilities_that_would_be_others_are_refused(
    stub: CompletionStub, change: dict[str, float], said: str
) -> None:
    settings: Any = replace(SETTINGS, **change)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=said):
        list(served(stub).play(WORLD, TASKS[:1], 1, settings, 5))


def test_a_prompt_with_one_certain_answer_does_not_hide_whose_numbers_are_told(
    stub: CompletionStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    best = server_abilities._best_told

    def told(client: Any, model: str, prompt: Sequence[int], heat: float) -> float | None:
        return best(client, model, prompt, heat) if len(prompt) == 1 else 0.0

    monkeypatch.setattr(server_abilities, "_best_told", told)
    with pytest.raises(UserError, match="processed_logprobs"):
        list(served(stub).play(WORLD, TASKS[:1], 1, replace(SETTINGS, temperature=0.7), 5))


def test_a_server_that_tells_what_it_drew_from_may_draw_at_another_temperature(
    policy: Policy,
) -> None:
    settings = replace(SETTINGS, temperature=0.7)
    with serving(policy, "processed") as stub:
        [run] = served(stub).play(WORLD, TASKS[:1], 1, settings, 5)
    ids = [i for step in run.steps for i in step.token_ids or ()]
    flags = np.array([s for step in run.steps for s in step.sampled or ()])[1:]
    told = [x for step in run.steps for x in step.logprobs or ()]
    np.testing.assert_allclose(told, policy.logprobs([ids], settings)[0][flags], atol=1e-4)


class Slow(Guessing):
    """A world in which the first step of an episode ends once four of them wait at a time."""

    steps_at_once = 4
    gate = threading.Barrier(4)

    def spawn(self) -> "Slow":
        return Slow(self.turns)

    def step(self, action: str) -> StepResult:
        if not self._state[1]:
            self.gate.wait(60)
        return super().step(action)


def test_a_world_that_may_be_asked_in_threads_is_and_the_episodes_are_the_same(
    stub: CompletionStub,
) -> None:
    """One after the other no first step would ever end."""
    slow = list(served(stub, at_once=2).play(Slow(turns=2), TASKS[:2], 4, SETTINGS, 5))
    assert slow == [run for run in played(stub) if run.task in TASKS[:2]]
