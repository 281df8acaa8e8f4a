"""What a server does wrong is found by the probe, mended by trying again, or
recorded as missing.
"""

from dataclasses import replace
from typing import Any

import pytest

from forensics import policy_from
from forensics.errors import UserError
from forensics.policies.completions import (
    Broken,
    Client,
    ServerConfig,
    Unanswered,
    ids_body,
    read_choices,
)
from forensics.policies.server_abilities import Abilities, probe
from forensics.protocols import Policy, SamplingSettings
from forensics.records import Trajectory
from resampling.samplers.server_sampler import open_server
from resampling.trace_rollouts import Request, Rollout
from tests.resampling.completion_stub import CompletionStub, serving
from tests.resampling.guessing_world import Guessing
from tests.tiny import tiny_qwen3, tiny_tokenizer

SETTINGS = SamplingSettings(max_turn_tokens=5, max_tokens=200)
WORLD = Guessing(turns=2)
PROMPT = (1, 40, 41, 42, 43)


@pytest.fixture(scope="module")
def policy() -> Policy:
    return policy_from(tiny_qwen3(1), tiny_tokenizer(), "tiny")


@pytest.fixture(scope="module")
def runs(policy: Policy) -> list[Trajectory]:
    return list(policy.play(WORLD, ["guess 0"], 1, SETTINGS, 3))


def config(server: CompletionStub, **changes: Any) -> ServerConfig:
    return replace(ServerConfig(url=server.url, pause=0.01, timeout=300, tries=3), **changes)


def abilities(policy: Policy, *habits: str, settings: SamplingSettings = SETTINGS) -> Abilities:
    with serving(policy, *habits) as stub:
        return probe(Client(config(stub)), PROMPT, settings)


@pytest.mark.parametrize(
    ("habit", "said"),
    [
        ("no ids in", "takes no token ids as a prompt"),
        ("strict", "refuses a field that is needed"),
        ("adds a token", "counts 6 tokens in a prompt of 5"),
        ("no ids out", "does not tell the ids"),
        ("greedy", "does not sample"),
        ("one seed", "does not sample"),
        ("no stops", "does not end an answer"),
    ],
)
def test_what_is_needed_is_refused_in_one_sentence(policy: Policy, habit: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as refusal:
        abilities(policy, habit)
    assert "vLLM" in str(refusal.value) and "\n" not in str(refusal.value)


def sampled(
    stub: CompletionStub,
    runs: list[Trajectory],
    troubles: tuple[str, ...] = (),
    n: int = 12,
    settings: SamplingSettings = SETTINGS,
    **changes: Any,
) -> list[Rollout]:
    sampler = open_server(
        config(stub, **changes), WORLD, runs, settings, 7, tokenizer=tiny_tokenizer()
    )
    stub.troubles.extend(troubles)
    rollouts = sampler.draw(
        [Request(trace=runs[0].id, kept=0, n=n), Request(trace=runs[0].id, kept=2, n=n)]
    )
    return sorted(rollouts, key=lambda rollout: (rollout.kept, rollout.number))


@pytest.fixture(scope="module")
def well(policy: Policy, runs: list[Trajectory]) -> list[Rollout]:
    with serving(policy) as stub:
        return sampled(stub, runs)


def test_what_stays_unanswered_is_missing_and_never_a_failure(
    policy: Policy, runs: list[Trajectory], well: list[Rollout]
) -> None:
    """One try each, half of them fail: missing ones say why, the others are
    what they would have been.
    """
    with serving(policy, "one choice") as stub:
        rollouts = sampled(stub, runs, ("500", "", "garbage", "") * 8, tries=1)
    missing = [rollout for rollout in rollouts if rollout.outcome is None]
    assert len(rollouts) == 24 and 8 <= len(missing) < 24
    assert all(r.end == "errored" and "no usable answer" in (r.end_reason or "") for r in missing)
    assert all(
        mine == theirs
        for mine, theirs in zip(rollouts, well, strict=True)
        if mine.outcome is not None
    )


@pytest.mark.parametrize(
    ("troubles", "waited"),
    [
        (("500", "garbage", "close"), [0.5, 1.0, 2.0]),
        (("429", "429", "429"), [5.0, 10.0, 20.0]),
        (("429", "500", "429"), [5.0, 1.0, 20.0]),  # each by what was met last
        (("429 7", "429 0.25", "429 500"), [7.0, 1.0, 30.0]),  # as it asks, within bounds
        (("429 Fri, 31 Dec 1999 23:59:59 GMT",), [5.0]),
    ],
)
def test_a_busy_server_is_left_alone_for_as_long_as_it_asks(
    policy: Policy, troubles: tuple[str, ...], waited: list[float]
) -> None:
    slept: list[float] = []
    with serving(policy) as stub:
        client = Client(ServerConfig(url=stub.url), sleep=slept.append)
        stub.troubles.extend(troubles)
        body = ids_body("tiny", PROMPT, SETTINGS, max_tokens=2, seed=1)
        assert len(client.complete(body)) == 1
        assert slept == waited
        stub.troubles.extend(["429"] * 4)
        with pytest.raises(Unanswered, match=r"in 4 tries.*status 429.*busy"):
            client.complete(body)


def test_a_server_that_goes_away_in_the_middle_loses_nothing_that_was_drawn(
    policy: Policy, runs: list[Trajectory]
) -> None:
    with serving(policy) as stub:
        sampler = open_server(
            config(stub, at_once=2), WORLD, runs, SETTINGS, 7, tokenizer=tiny_tokenizer()
        )
        draws = sampler.draw(Request(trace=runs[0].id, kept=0, n=1, first=i) for i in range(20))
        early = [next(draws) for _ in range(4)]
        stub.hang_up()
        late = list(draws)
    assert len(early) + len(late) == 20
    assert all(rollout.outcome is not None for rollout in early) and late[-1].outcome is None
    assert late[-1].end == "errored" and "no usable answer" in (late[-1].end_reason or "")


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        {},
        {"choices": {}},
        {"choices": [1]},
        {"choices": [{"index": 0}]},
        {"choices": [{"text": 3}]},
        {"choices": [{"text": "", "index": 3}]},
        {"choices": [{"text": "", "token_ids": ["a"]}]},
        {"choices": [{"text": "", "token_ids": [True]}]},
        {"choices": [{"text": "", "finish_reason": "abort"}]},
        {"choices": [{"text": "", "index": 0}, {"text": "", "index": 0}]},
    ],
)
def test_malformed_answers_are_broken_and_nothing_worse(answer: Any) -> None:
    with pytest.raises(Broken):
        read_choices(answer, 1)
