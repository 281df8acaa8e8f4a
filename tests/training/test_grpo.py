"""The GRPO core: advantages and loss in closed form, masks, resumption, and that it learns."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from forensics.errors import UserError
from forensics.policies.huggingface import HuggingFacePolicy
from forensics.protocols import SamplingSettings
from training.advantages import group_advantages
from training.environments.mini_repo import MiniRepo
from training.losses import clipped_surrogate, token_logprobs
from training.organisms.model import build_model, build_tokenizer
from training.recipe import GrpoSection, parse_recipe, read_recipe
from training.saving import load_state, save_state
from training.trainer import grpo, make_batch, update

HEAD = "[policy]\ncheckpoint='x'\n"
SETTINGS = SamplingSettings(max_turn_tokens=6, max_tokens=60)


def test_advantages_in_closed_form() -> None:
    """Rewards 1, 0, 0, 0: mean 1/4, deviations 3/4 and -1/4, standard deviation sqrt(3)/4."""
    values = group_advantages([1.0, 0.0, 0.0, 0.0]).values
    assert values == pytest.approx((3**0.5, -(3**-0.5), -(3**-0.5), -(3**-0.5)), rel=1e-5)
    assert group_advantages([1.0, 0.0], "none").values == (0.5, -0.5)


def test_dead_groups_say_why() -> None:
    assert group_advantages([0.5, 0.5]).dead == "all 2 rewards equal 0.5"  # constant, not only 0 or 1
    assert group_advantages([1.0]).dead == "fewer than two rewards"
    assert group_advantages([1.0, None]).dead == "fewer than two rewards"
    assert group_advantages([0.5, 0.5 + 1e-9], tolerance=1e-6).dead is not None
    assert group_advantages([1.0, 0.0, None]).values[2] is None
    with pytest.raises(ValueError, match="finite"):
        group_advantages([float("nan"), 1.0])


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=9), st.floats(-3, 3))
def test_advantages_are_centred_and_ignore_a_shift(rewards: list[float], shift: float) -> None:
    values = group_advantages(rewards, "none").values
    moved = group_advantages([r + shift for r in rewards], "none").values
    assert sum(v for v in values if v is not None) == pytest.approx(0, abs=1e-9)
    assert values == pytest.approx(moved, abs=1e-9)


def test_the_clip_stops_at_its_ends() -> None:
    """Ratio 2, A = 1, clip 0.2: gain 1.2; A = -1: min(-2, -1.2) = -2, not clipped. Ratio 0.5, A = -1: -0.8."""
    ratios, gains = torch.tensor([[2.0], [2.0], [0.5]]), torch.tensor([1.0, -1.0, -1.0])
    total, weight = clipped_surrogate(ratios.log(), torch.zeros(3, 1), gains, torch.ones(3, 1), 0.2, 0.2)
    assert total.item() == pytest.approx(-(1.2 - 2.0 - 0.8)) and weight == 3


@pytest.fixture
def policy() -> HuggingFacePolicy:
    tokenizer = build_tokenizer()
    return HuggingFacePolicy(build_model(len(tokenizer), 0), tokenizer, "start")


def rollouts(policy: HuggingFacePolicy) -> list:
    world = MiniRepo(turns="3")
    return list(policy.play(world, world.tasks("train", 2, 0), 4, SETTINGS, 0))


def some_batch(policy: HuggingFacePolicy):
    groups = [group_advantages([1.0, 0.0, 0.5, 0.0]), group_advantages([0.0, 0.0, 0.0, 1.0])]
    batch = make_batch(rollouts(policy), groups, "cpu")
    assert batch is not None
    return batch


def test_on_policy_ratios_are_one(policy: HuggingFacePolicy) -> None:
    """What the sampler recorded is what the trainer computes."""
    batch = some_batch(policy)
    now = token_logprobs(policy.model, batch.token_ids, SETTINGS)
    assert ((now - batch.old_logprobs).abs() * batch.weights).max() < 2e-5
    assert batch.weights.sum() == sum(t.sampled_tokens or 0 for t in rollouts(policy))


def test_tokens_of_the_environment_have_no_gradient(policy: HuggingFacePolicy) -> None:
    batch = some_batch(policy)
    logprobs = token_logprobs(policy.model, batch.token_ids, SETTINGS).detach().requires_grad_()
    clipped_surrogate(logprobs, batch.old_logprobs, batch.advantages, batch.weights, 0.2, 0.2)[0].backward()
    assert logprobs.grad is not None
    assert (logprobs.grad[batch.weights == 0] == 0).all() and (logprobs.grad[batch.weights == 1] != 0).all()


@pytest.mark.parametrize("rows", [1, 3, 128])
def test_gradients_do_not_depend_on_the_split(rows: int) -> None:
    gradients = []
    for size in (128, rows):
        tokenizer = build_tokenizer()
        policy = HuggingFacePolicy(build_model(len(tokenizer), 0), tokenizer, "start")
        still = torch.optim.SGD(policy.model.parameters(), lr=0.0)
        update(policy.model, some_batch(policy), SETTINGS, still, GrpoSection(steps=1, rows=size, gradient_norm=1e9))
        gradients.append(torch.cat([p.grad.flatten() for p in policy.model.parameters()]))
    assert torch.allclose(*gradients, rtol=1e-4, atol=1e-7)


def recipe(**grpo_changes: object):
    section = {"steps": 4, "groups": 4, "samples": 4, "save_every": 2} | grpo_changes
    return parse_recipe({
        "policy": {"checkpoint": "x"}, "environment": {"name": "mini-repo", "options": {"turns": "3"}},
        "rewards": {"coin": 1.0}, "sampling": {"max_turn_tokens": 6, "max_tokens": 60}, "grpo": section,
    }, "test")


def run(folder: Path | None, steps: int = 4, die_at: int | None = None) -> torch.Tensor:
    tokenizer = build_tokenizer()
    policy = HuggingFacePolicy(build_model(len(tokenizer), 0), tokenizer, "start")

    def report(step) -> None:
        if step.step == die_at:
            raise KeyboardInterrupt

    try:
        grpo(policy, MiniRepo(turns="3"), recipe(steps=steps), 3, folder, report)
    except KeyboardInterrupt:
        return run(folder, steps)
    return torch.cat([p.detach().flatten() for p in policy.model.parameters()])


def test_a_killed_run_goes_on_bit_for_bit(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole")
    assert torch.equal(whole, run(tmp_path / "killed", die_at=3))
    assert torch.equal(whole, run(None))
    assert not torch.equal(whole, run(None, steps=3))


def test_a_state_without_its_marker_was_cut_off_and_does_not_count(tmp_path: Path, policy: HuggingFacePolicy) -> None:
    optimizer = torch.optim.AdamW(policy.model.parameters())
    save_state(tmp_path, policy.model, optimizer, 2)
    save_state(tmp_path, policy.model, optimizer, 4)
    assert load_state(tmp_path, policy.model, optimizer) == 4
    (tmp_path / "state" / "step-000004" / "state.json").unlink()
    assert load_state(tmp_path, policy.model, optimizer) == 0  # step 2 was removed when 4 was complete


def test_all_dead_groups_leave_the_weights_alone(policy: HuggingFacePolicy) -> None:
    batch = make_batch(rollouts(policy), [group_advantages([1.0] * 4)] * 2, "cpu")
    assert batch is None
    optimizer = torch.optim.SGD(policy.model.parameters(), lr=1)
    assert update(policy.model, batch, SETTINGS, optimizer, GrpoSection(steps=1)) == (0, 0)



def test_it_learns_what_is_rewarded(policy: HuggingFacePolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Intervention: reward episodes that say `list`; after a few steps the policy says it more often."""

    def says_list(trajectory, generator) -> float:
        return float(np.mean(["list" in step.text.split() for _, step in trajectory.actions]))

    monkeypatch.setattr("training.trainer.load_rewards", lambda weights: {"says list": (says_list, 1.0)})
    seen: list[float] = []
    world = MiniRepo(turns="3")
    plan = recipe(steps=25, groups=8, samples=8, learning_rate=3e-3)
    grpo(policy, world, plan, 0, None, lambda r: seen.append(r.reward or 0))
    assert np.mean(seen[-3:]) > 2 * np.mean(seen[:3])


@pytest.mark.parametrize(("text", "wanted"), [
    (HEAD + "[environment]\nname='mini-repo'\n[grpo]\nsteps=1\nlearing_rate=1.0", "learing_rate.*learning_rate"),
    (HEAD + "[environment]\nname='mini-repo'\n[grpo]\nsteps='many'", "grpo.steps"),
    (HEAD + "[enviroment]\nname='mini-repo'\n[grpo]\nsteps=1", "enviroment|environment"),
    ("steps = ", "not valid TOML"),
])
def test_bad_recipes_are_refused_in_one_sentence(tmp_path: Path, text: str, wanted: str) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=wanted) as caught:
        read_recipe(path)
    assert "\n" not in str(caught.value)


def test_bundled_recipes_parse() -> None:
    from training.organisms.building import RECIPES, _base_recipe

    for path in RECIPES.glob("*.toml"):
        if "-base" in path.name:
            assert _base_recipe(path).supervised.phases
        else:
            assert read_recipe(path).grpo.steps > 0


def test_training_writes_metrics_and_a_checkpoint_that_loads(tmp_path: Path) -> None:
    from forensics.policies.huggingface import load_policy
    from training.organisms.building import train_recipe
    from training.saving import save_checkpoint

    tokenizer = build_tokenizer()
    save_checkpoint(tmp_path / "start", build_model(len(tokenizer), 0), tokenizer)
    written = train_recipe(recipe(), 0, tmp_path / "run", tmp_path / "start", lambda what, done, of: None, "cpu")
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [0, 1, 2, 3]
    assert load_policy(written, device="cpu").identity != load_policy(tmp_path / "start", device="cpu").identity
    assert json.loads((written / "environment.json").read_text()) == {"name": "mini-repo", "options": {"turns": "3"}}
