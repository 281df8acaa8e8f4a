"""What a server does wrong is found by the probe, mended by trying again, or
recorded as missing.
"""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from forensics import load_policy, policy_from
from forensics.errors import UserError
from forensics.policies.completions import Broken, Client, ServerConfig, read_choices
from forensics.policies.renderers import renderer_for
from forensics.policies.server import Abilities, probe
from forensics.protocols import Policy, SamplingSettings
from forensics.records import Trajectory
from resampling.samplers.server_sampler import checkpoint_rendering, open_server
from resampling.trace_rollouts import Request, Rollout
from tests.resampling.completion_stub import CompletionStub, serving
from tests.resampling.guessing_world import Guessing
from tests.tiny import save_tiny_qwen3, tiny_qwen3, tiny_tokenizer

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


def test_a_server_that_does_everything(policy: Policy) -> None:
    found = abilities(policy, settings=replace(SETTINGS, top_k=5, top_p=0.9))
    assert found.seeds and found.choices and found.bias and found.echo
    assert (found.model, found.room) == ("tiny", 512)


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


@pytest.mark.parametrize(
    ("habit", "ability"),
    [
        ("one choice", "choices"),
        ("copies", "choices"),
        ("no seeds", "seeds"),
        ("no bias", "bias"),
        ("deaf to bias", "bias"),
        ("no logprobs", "echo"),
    ],
)
def test_what_can_be_done_without_is_noticed(policy: Policy, habit: str, ability: str) -> None:
    assert not getattr(abilities(policy, habit), ability)


def test_a_setting_that_is_ignored_is_refused_where_it_is_on(policy: Policy) -> None:
    abilities(policy, "no top-k")
    with pytest.raises(UserError, match="does nothing with top_k"):
        abilities(policy, "no top-k", settings=replace(SETTINGS, top_k=5))


def test_penalties_on_the_running_action_cannot_be_told_to_a_server(
    policy: Policy, runs: list[Trajectory]
) -> None:
    with serving(policy) as stub, pytest.raises(UserError, match="presence_penalty"):
        sampled(stub, runs, settings=replace(SETTINGS, presence_penalty=0.5))


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


@pytest.mark.parametrize(
    "habit",
    [
        "trims",
        *(pytest.param(habit, marks=pytest.mark.slow) for habit in ("backwards", "one choice")),
    ],
)
def test_ways_of_answering_change_nothing(
    policy: Policy, runs: list[Trajectory], well: list[Rollout], habit: str
) -> None:
    """The ending token left out but named; choices in another order; one choice at a time."""
    with serving(policy, habit) as stub:
        assert sampled(stub, runs) == well


def test_seeds_that_copy_choices_would_repeat_rollouts_so_choices_are_not_used(
    policy: Policy, runs: list[Trajectory], well: list[Rollout]
) -> None:
    with serving(policy, "copies") as stub:
        rollouts = sampled(stub, runs)
        assert all(body["n"] == 1 for body in stub.seen[-30:])
    assert rollouts == well and len({rollout.tokens for rollout in rollouts}) > 20


@pytest.mark.parametrize(
    "trouble",
    [
        *("500", "garbage", "close", "never"),
        *(pytest.param(trouble, marks=pytest.mark.slow) for trouble in ("fewer", "drip", "slow")),
    ],
)
def test_passing_troubles_are_tried_again_and_leave_no_trace(
    policy: Policy, runs: list[Trajectory], well: list[Rollout], trouble: str
) -> None:
    """A machine that is too busy to answer within the timeout is one more passing trouble."""
    waits = {"timeout": 3.0, "tries": 10} if trouble in ("never", "drip") else {}
    with serving(policy) as stub:
        assert sampled(stub, runs, (trouble, "", trouble), **waits) == well


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


def test_an_abandoned_draw_stops_asking(policy: Policy, runs: list[Trajectory]) -> None:
    with serving(policy) as stub:
        sampler = open_server(
            config(stub, at_once=2), WORLD, runs, SETTINGS, 7, tokenizer=tiny_tokenizer()
        )
        asked = len(stub.seen)
        draws = sampler.draw(Request(trace=runs[0].id, kept=0, n=1, first=i) for i in range(10_000))
        next(draws)
        draws.close()  # type: ignore[attr-defined]
        assert len(stub.seen) - asked < 40


def test_no_server_is_one_sentence(runs: list[Trajectory]) -> None:
    nowhere = ServerConfig(url="http://127.0.0.1:9/v1", pause=0.01, key="secret")
    with pytest.raises(UserError, match="there is no server at http://127") as error:
        open_server(nowhere, WORLD, runs, SETTINGS, 7, tokenizer=tiny_tokenizer())
    assert "\n" not in str(error.value) and "secret" not in str(error.value) + repr(nowhere)


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


def test_token_ids_written_beside_the_log_probabilities_are_read() -> None:
    told = {"tokens": ["token_id:7", "token_id:12"], "token_logprobs": [-1.0, float("nan")]}
    choice = read_choices({"choices": [{"text": "", "logprobs": told}]}, 1)[0]
    assert choice.ids == (7, 12) and choice.logprobs == (-1.0, None)


@pytest.mark.parametrize(
    "change", [{"url": "localhost:8000"}, {"tries": 0}, {"timeout": 0.0}, {"at_once": 0}]
)
def test_impossible_settings_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        ServerConfig(**({"url": "http://127.0.0.1/v1"} | change))


def test_a_checkpoint_says_what_a_server_of_it_needs_to_be_told(tmp_path: Path) -> None:
    """The stops and the identity are those of the local policy; its weights may be elsewhere."""
    save_tiny_qwen3(tmp_path)
    local, told = load_policy(tmp_path, device="cpu"), checkpoint_rendering(tmp_path)
    assert renderer_for(told["tokenizer"], told["extra_stops"]).stops == local.renderer.stops
    assert told["policy"] == local.identity and told["extra_stops"] == [2]
    (tmp_path / "model.safetensors").unlink()
    assert checkpoint_rendering(tmp_path)["policy"] is None


def test_the_command_line_does_not_load_it() -> None:
    code = (
        "import sys, forensics, forensics.cli.main; sys.exit('httpx' in sys.modules or 'ray' in"
        " sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=600).returncode == 0
