"""A run is taken again exactly, or refused in one sentence; luck is the snapshot's or fresh."""

import pytest

from forensics import policy_from
from forensics.errors import UserError
from forensics.protocols import Environment, Policy, SamplingSettings
from forensics.records import Trajectory
from resampling.samplers.branches import NO_OTHER_TOKEN, replay_run
from resampling.samplers.local_sampler import LocalSampler
from resampling.trace_rollouts import Request, Rollout
from tests.resampling.lucky_world import Lucky, Reseeded
from tests.tiny import tiny_qwen3, tiny_tokenizer
from training.environments.mini_repo import MiniRepo

SETTINGS = SamplingSettings(max_turn_tokens=4, max_tokens=500)


@pytest.fixture(scope="module")
def policy() -> Policy:
    model = tiny_qwen3(1)
    model.model.norm.weight.data *= 12
    return policy_from(model, tiny_tokenizer(), "chat")


def played(policy: Policy, world: Environment, number: int = 1, **changes: int) -> list[Trajectory]:
    settings = SamplingSettings(**{"max_turn_tokens": 4, "max_tokens": 500, **changes})
    return list(policy.play(world, world.tasks("train", number, 0), 1, settings, 9))


def drawn(policy: Policy, world: Environment, run: Trajectory, **request: object) -> list[Rollout]:
    sampler = LocalSampler(policy, world, [run], SETTINGS, 5)
    return list(sampler.draw([Request(**{"trace": run.id, "kept": 0, "n": 1, **request})]))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "world", [Lucky(), MiniRepo(world="open", turns="5")], ids=["luck", "mini-repo"]
)
def test_restored_environments_go_on_as_the_run_did(policy: Policy, world: Environment) -> None:
    for run in played(policy, world, 3):
        again = replay_run(run, world, policy.renderer)
        for number, (step, action) in enumerate(run.actions):
            scenes = [again.before(number, 0), again.before(number, 1)]
            for scene in scenes:  # one of one's own: what the first does, the second does not see
                assert scene.step(action.text).observation == run.steps[step + 1].text
                for _, later in run.actions[number + 1 :]:
                    result = scene.step(later.text)
            if number + 1 < len(run.actions):
                assert result.outcome == run.outcome


def test_what_does_not_replay_is_refused_with_its_step(policy: Policy) -> None:
    run = played(policy, Lucky(6))[0]
    told = [step for step, other in enumerate(run.steps) if other.role == "tool"]
    changed = run.model_copy(
        update={
            "steps": tuple(
                step.model_copy(update={"text": "open 9"}) if number == told[2] else step
                for number, step in enumerate(run.steps)
            )
        }
    )
    with pytest.raises(UserError, match=f"does not replay .* step {told[2]} "):
        replay_run(changed, Lucky(6))
    with pytest.raises(UserError, match="does not replay"):
        replay_run(run.model_copy(update={"outcome": 1.0 - (run.outcome or 0.0)}), Lucky(6))
    with pytest.raises(UserError, match="does not replay"):
        for _ in range(
            20
        ):  # the coins of a world that forgets its seed fall otherwise at least once
            replay_run(run, Lucky(6, forgetful=True))
    with pytest.raises(UserError, match="lucky, not in mini-repo"):
        replay_run(run, MiniRepo())
    repo = played(policy, MiniRepo(world="open", turns="4"))[0]
    with pytest.raises(UserError, match="mini-repo, not in mini-repo without git-history"):
        replay_run(repo, MiniRepo(world="open", turns="4").without("git-history"))


def test_luck_is_the_snapshots_or_fresh(policy: Policy) -> None:
    """Without `reseed` the coins fall as they did; with it they are fair, and
    following ends where they fall.
    """
    run = played(policy, Lucky())[0]
    fixed = drawn(policy, Lucky(), run, n=200)
    assert {rollout.outcome for rollout in fixed} == {run.outcome}
    first = sum(step.sampled.count(True) for step in run.steps[:2] if step.sampled)
    assert max(rollout.followed for rollout in fixed) > first
    run = played(policy, Reseeded())[0]
    fair = drawn(policy, Reseeded(), run, n=400)
    assert abs(sum(rollout.outcome or 0 for rollout in fair) / 400 - 0.5) < 0.13
    assert max(rollout.followed for rollout in fair) == first - 1
    assert {
        rollout.outcome for rollout in drawn(policy, Reseeded(), run, kept=run.sampled_tokens, n=30)
    } == {0.0, 1.0}


def test_a_token_without_alternative_cannot_be_avoided(policy: Policy) -> None:
    greedy = SamplingSettings(temperature=0, max_turn_tokens=4, max_tokens=500)
    run = next(iter(policy.play(Lucky(), ["try 0"], 1, greedy, 9)))
    sampler = LocalSampler(policy, Lucky(), [run], greedy, 5)
    found = list(
        sampler.draw(
            [Request(trace=run.id, kept=1, n=3, avoid=True), Request(trace=run.id, kept=1, n=2)]
        )
    )
    assert [(r.outcome, r.end_reason) for r in found if r.avoid] == [(None, NO_OTHER_TOKEN)] * 3
    assert all(
        r.followed == run.sampled_tokens - 1 and r.outcome == run.outcome
        for r in found
        if not r.avoid
    )
