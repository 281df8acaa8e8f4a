"""Scores over HTTP, on a stub that speaks vLLM's completions."""

from typing import Any

import numpy as np
import pytest

from forensics import policy_from
from forensics.errors import UserError
from forensics.policies.completions import ServerConfig
from forensics.policies.scored_log import score_log
from forensics.policies.server import ServerPolicy
from forensics.protocols import Policy, SamplingSettings
from forensics.records import Step, Trajectory
from tests.episodes import episode_of
from tests.resampling import completion_stub
from tests.resampling.completion_stub import generate, serving
from tests.tiny import tiny_qwen3, tiny_tokenizer


def policy(seed: int) -> Policy:
    return policy_from(tiny_qwen3(seed), tiny_tokenizer(), str(seed))


def log() -> list[Trajectory]:
    """One ordinary run, one without an action, one that is longer than the stub's room of 512."""
    generator = np.random.default_rng(0)

    def run(name: str, *lengths: int) -> Trajectory:
        steps = []
        for number, length in enumerate(lengths):
            drawn = number % 2 == 1
            steps.append(
                Step(
                    role="assistant" if drawn else "user",
                    text="",
                    sampled=(drawn,) * length,
                    token_ids=tuple(generator.integers(0, 300, length).tolist()),
                )
            )
        return episode_of(id=name, steps=tuple(steps))

    return [run("a", 4, 5, 3, 6), run("b", 4), run("c", 3, 20, 500, 8)]


def config(url: str, **more: Any) -> ServerConfig:
    return ServerConfig(url=url, tries=1, pause=0, **more)


def test_a_server_tells_what_the_model_says() -> None:
    ours, theirs = policy(0), policy(1)
    with serving(ours) as one, serving(theirs) as other:
        servers = ServerPolicy(config(one.url)), ServerPolicy(config(other.url))
        found = list(score_log(*servers, log()))
        assert all(len(body["prompt"]) < 512 for body in one.seen)
    wanted = list(score_log(ours, theirs, log(), most_tokens=511))
    for told, scored in zip(found, wanted, strict=True):
        assert set(told.columns) == {"policy", "reference"} and told.unread == scored.unread
        for name, column in told.columns.items():
            np.testing.assert_allclose(column, scored.columns[name], atol=1e-4)
    assert found[2].unread == {1}


def test_one_side_may_be_a_model_here() -> None:
    ours, theirs = policy(0), policy(1)
    with serving(ours) as one:
        found = list(score_log(ServerPolicy(config(one.url)), theirs, log()[:2]))
    for told, scored in zip(found, score_log(ours, theirs, log()[:2]), strict=True):
        np.testing.assert_allclose(told.ratio, scored.ratio, atol=1e-4)


class Anything:
    names = ("x",)

    def __call__(self, policy: Any, reference: Any, at: Any) -> Any:
        return policy[:, 0]


def test_what_a_server_cannot_do_is_said_in_one_sentence() -> None:
    with serving(policy(0)) as one:
        server = ServerPolicy(config(one.url))
        with pytest.raises(UserError, match="no whole distributions"):
            list(score_log(server, None, log(), readouts=(Anything(),)))
        with pytest.raises(UserError, match=r"temperature = 0\.5"):
            list(score_log(server, None, log(), settings=SamplingSettings(temperature=0.5)))
        bare = log()[0].model_copy(
            update={"steps": (Step(role="user", text="x"), Step(role="assistant", text="y"))}
        )
        with pytest.raises(UserError, match="its tokenizer"):
            list(score_log(server, None, [bare]))
        with pytest.raises(UserError, match="no server"):
            ServerPolicy(config("http://127.0.0.1:9/v1"))


@pytest.mark.parametrize("deaf", [False, True])
def test_a_server_without_log_probabilities_of_a_prompt_is_refused(
    deaf: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It tells none at all, or takes `echo` and tells those of the drawn token only."""
    if deaf:
        monkeypatch.setattr(
            completion_stub,
            "generate",
            lambda policy, body, *rest: generate(policy, {**body, "echo": False}, *rest),
        )
    with serving(policy(0), *([] if deaf else ["no logprobs"])) as one:
        with pytest.raises(UserError, match="tells no log-probabilities of a prompt"):
            ServerPolicy(config(one.url))
