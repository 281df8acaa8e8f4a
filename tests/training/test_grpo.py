"""The GRPO core: its gradient, masks, resumption, and that it learns."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from forensics import policy_from
from forensics.protocols import Policy, SamplingSettings
from training.advantages import Group, TrainedGroup, select_groups, step_advantages
from training.distributed import Process
from training.environments.mini_repo import MiniRepo
from training.organisms.base_model import build_model, build_tokenizer
from training.recipe import parse_recipe, read_recipe
from training.run_state import load_state, save_state
from training.trained_model import Machine
from training.trainer import grpo, make_batch
from training.update import Batch, _minibatches, update

SETTINGS = SamplingSettings(max_turn_tokens=6, max_tokens=60)


@pytest.fixture
def policy() -> Policy:
    tokenizer = build_tokenizer()
    return policy_from(build_model(len(tokenizer), 0), tokenizer, "start")


def rollouts(policy: Policy) -> list:
    world = MiniRepo(turns="3")
    return list(policy.play(world, world.tasks("train", 2, 0), 4, SETTINGS, 0))


def played(policy: Policy, totals: list[list[float | None]]) -> list[TrainedGroup]:
    runs = rollouts(policy)
    groups = [
        Group(
            task=runs[4 * i].task,
            trajectories=tuple(runs[4 * i : 4 * i + 4]),
            components=({},) * 4,
            totals=tuple(rewards),
        )
        for i, rewards in enumerate(totals)
    ]
    return select_groups(groups, step_advantages(totals), None)


def some_batch(policy: Policy) -> Batch:
    batch = make_batch(played(policy, [[1.0, 0.0, 0.5, 0.0], [0.0, 0.0, 0.0, 1.0]]))
    assert batch is not None
    return batch


def machine(policy: Policy, **changes: object) -> Machine:
    return Machine(policy, recipe(**changes), SETTINGS, Process(), 0)


def fresh() -> Policy:
    tokenizer = build_tokenizer()
    return policy_from(build_model(len(tokenizer), 0), tokenizer, "start")


def test_on_policy_ratios_are_one(policy: Policy) -> None:
    """What the sampler recorded is what the trainer computes."""
    batch = some_batch(policy)
    now, entropies = machine(policy).old(batch.token_ids, batch.weights != 0)
    assert ((now - batch.old_logprobs).abs() * batch.weights).max() < 2e-5
    assert batch.weights.sum() == sum(t.sampled_tokens or 0 for t in rollouts(policy))
    assert (entropies[batch.weights != 0] > 0).all() and entropies.max() <= np.log(
        len(policy.tokenizer)
    ) + 1e-4


def test_tokens_of_the_environment_have_no_gradient(policy: Policy) -> None:
    """Intervention: other log-probabilities at tokens of the environment change
    neither loss nor gradient.
    """
    batch = some_batch(policy)
    changed = replace(batch, old_logprobs=torch.where(batch.weights == 0, 7.0, batch.old_logprobs))
    one, other = (gradients(fresh(), b) for b in (batch, changed))
    assert torch.equal(one, other)


def gradients(policy: Policy, batch: Batch, **changes: object) -> torch.Tensor:
    """Of one update over the batch, without an optimizer step."""
    plan = recipe(**{"gradient_norm": 1e9} | changes)
    still = torch.optim.SGD(policy.model.parameters(), lr=0.0)
    update(
        Machine(policy, plan, SETTINGS, Process(), 0),
        batch,
        still,
        plan,
        (0,),
    )
    return torch.cat([p.grad.flatten() for p in policy.model.parameters()])


@pytest.mark.parametrize("rows", [1, 3, 5])
def test_gradients_do_not_depend_on_the_split(rows: int) -> None:
    batch = some_batch(fresh())
    whole, split = (gradients(fresh(), batch, rows=size) for size in (128, rows))
    assert torch.allclose(whole, split, rtol=1e-4, atol=1e-7)


def test_a_step_equals_its_formula() -> None:
    """The gradient of the update is that of the written-out loss, by plain
    autograd on dense logits.
    """
    policy = fresh()
    batch = some_batch(policy)
    found = gradients(fresh(), batch)
    logits = policy.model(batch.token_ids[:, :-1]).logits.log_softmax(-1)
    now = logits.gather(-1, batch.token_ids[:, 1:, None]).squeeze(-1)
    loss = (
        -(batch.advantages * (now - batch.old_logprobs).exp() * batch.weights).sum()
        / batch.weights.sum()
    )
    wanted = torch.autograd.grad(loss, list(policy.model.parameters()))
    assert torch.allclose(found, torch.cat([g.flatten() for g in wanted]), rtol=1e-3, atol=1e-6)


def recipe(**grpo_changes: object):
    section = {"steps": 4, "groups": 4, "samples": 4, "save_every": 2} | grpo_changes
    return parse_recipe(
        {
            "policy": {"checkpoint": "x"},
            "environment": {"name": "mini-repo", "options": {"turns": "3"}},
            "rewards": {"coin": 1.0},
            "sampling": {"max_turn_tokens": 6, "max_tokens": 60},
            "grpo": section,
        },
        "test",
    )


def run(
    folder: Path | None, steps: int = 4, die_at: int | None = None, **changes: object
) -> torch.Tensor:
    tokenizer = build_tokenizer()
    policy = policy_from(build_model(len(tokenizer), 0), tokenizer, "start")

    def report(step) -> None:
        if step.step == die_at:
            raise KeyboardInterrupt

    try:
        grpo(policy, MiniRepo(turns="3"), recipe(steps=steps, **changes), 3, folder, report)
    except KeyboardInterrupt:
        return run(folder, steps, **changes)
    return torch.cat([p.detach().flatten() for p in policy.model.parameters()])


def test_a_killed_run_goes_on_bit_for_bit(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole")
    assert torch.equal(whole, run(tmp_path / "killed", die_at=3))
    assert torch.equal(whole, run(None))
    assert not torch.equal(whole, run(None, steps=3))


def test_a_state_without_its_marker_was_cut_off_and_does_not_count(
    tmp_path: Path, policy: Policy
) -> None:
    optimizer = torch.optim.AdamW(policy.model.parameters())
    save_state(tmp_path, policy.model, optimizer, 2)
    save_state(tmp_path, policy.model, optimizer, 4)
    assert load_state(tmp_path, policy.model, optimizer)["step"] == 4
    (tmp_path / "state" / "step-000004" / "state.json").unlink()
    assert (
        load_state(tmp_path, policy.model, optimizer)["step"] == 0
    )  # step 2 was removed when 4 was complete


def test_truncated_runs_are_masked_and_nothing_else_is(policy: Policy) -> None:
    """Rows that were cut off have weight 0, the others keep theirs; with all of
    them masked nothing moves.
    """
    groups = played(policy, [[1.0, 0.0, 0.5, 0.0], [0.0, 0.0, 0.0, 1.0]])
    cut = [
        replace(
            group,
            played=replace(
                group.played,
                trajectories=tuple(
                    t.model_copy(update={"end": "truncated" if i % 2 else "terminated"})
                    for i, t in enumerate(group.played.trajectories)
                ),
            ),
        )
        for group in groups
    ]
    plain, masked = make_batch(cut), make_batch(cut, mask_truncated=True)
    assert plain is not None and masked is not None
    kept = torch.tensor([True, False] * 4)
    assert (
        torch.equal(masked.weights[kept], plain.weights[kept]) and not masked.weights[~kept].any()
    )
    optimizer, plan = torch.optim.AdamW(policy.model.parameters(), lr=1e-2), recipe()
    engine = machine(policy)
    update(engine, plain, optimizer, plan, (0,))  # gives Adam a momentum
    before = [p.detach().clone() for p in policy.model.parameters()]
    none = replace(plain, weights=torch.zeros_like(plain.weights))
    done = update(engine, none, optimizer, plan, (0,))
    assert (done.optimizer_steps, done.notes) == (0, {})
    assert all(torch.equal(a, b) for a, b in zip(before, policy.model.parameters(), strict=True))


def test_a_minibatch_without_a_living_row_is_no_step(policy: Policy) -> None:
    """Intervention: four of eight rows are masked, and minibatches of one row each, so
    four steps are taken; the weights are those that these four alone give.
    """
    plain = some_batch(policy)
    living = torch.tensor([0, 2, 5, 7])
    masked = replace(plain, weights=torch.zeros_like(plain.weights))
    masked.weights[living] = plain.weights[living]
    found = []
    for alone in (False, True):
        other, plan = fresh(), recipe(minibatches=8)
        engine, optimizer = machine(other), torch.optim.AdamW(other.model.parameters(), lr=1e-2)
        update(engine, plain, optimizer, plan, (9,))  # gives Adam a momentum
        if alone:
            for row in [int(rows) for rows in _minibatches(8, 8, [0, 0]) if rows in living]:
                update(engine, masked.rows(torch.tensor([row])), optimizer, recipe(), (0,))
        else:
            done = update(engine, masked, optimizer, plan, (0,))
            assert (done.optimizer_steps, done.skipped) == (4, 0)
        found.append(torch.cat([p.detach().flatten() for p in other.model.parameters()]))
    assert torch.equal(*found)


@pytest.mark.parametrize("rows", [128, 3])
def test_old_log_probabilities_take_no_pass_where_nothing_has_moved(
    monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """Sampler numbers far off: the ratio is exactly 1, the record's are the trainer's,
    and every row goes through the model once.
    """
    policy = fresh()
    batch = some_batch(policy)
    wrong = replace(batch, old_logprobs=batch.old_logprobs - 0.3)
    seen = []
    real = Machine.old

    def old(self, *given):
        seen.append(given)
        return real(self, *given)

    monkeypatch.setattr(Machine, "old", old)
    plan = recipe(recompute_old=True, rows=rows)
    still = torch.optim.SGD(policy.model.parameters(), lr=0.0)
    engine = Machine(policy, plan, SETTINGS, Process(), 0)
    done = update(engine, wrong, still, plan, (0,))
    assert not seen and done.diagnostics["kl_old"] == 0
    wanted = real(engine, batch.token_ids, batch.weights != 0)[0]
    for row, numbers in enumerate(done.notes["old_logprobs"]):
        assert numbers == pytest.approx(wanted[row][batch.weights[row] != 0].tolist(), abs=1e-5)
    more = recipe(recompute_old=True, epochs=2)
    update(engine, wrong, still, more, (0,))
    assert seen


def test_it_learns_what_is_rewarded(policy: Policy) -> None:
    """Intervention: reward episodes that say `list`; after a few steps the
    policy says it more often.
    """

    def says_list(trajectory, generator) -> float:
        return float(np.mean(["list" in step.text.split() for _, step in trajectory.actions]))

    seen: list[float] = []
    world = MiniRepo(turns="3")
    plan = recipe(steps=14, groups=8, samples=8, learning_rate=3e-3)
    grpo(
        policy,
        world,
        plan,
        0,
        None,
        lambda r: seen.append(r.reward or 0),
        rewards={"says list": (says_list, 1.0)},
    )
    assert np.mean(seen[-3:]) > 2 * np.mean(seen[:3])


def test_bundled_recipes_parse() -> None:
    from training.organisms.base_model import RECIPES, read_base_recipe

    for path in RECIPES.glob("*.toml"):
        if "-base" in path.name:
            assert read_base_recipe(path).supervised.phases
        else:
            assert read_recipe(path).grpo.steps > 0


def test_training_writes_metrics_and_a_checkpoint_that_loads(tmp_path: Path) -> None:
    from forensics import load_policy
    from training.organisms.organism import train_recipe
    from training.run_state import save_checkpoint

    tokenizer = build_tokenizer()
    save_checkpoint(tmp_path / "start", build_model(len(tokenizer), 0), tokenizer)
    written = train_recipe(
        recipe(), 0, tmp_path / "run", tmp_path / "start", lambda what, done, of: None, "cpu"
    )
    rows = [
        json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    ]
    assert [row["step"] for row in rows] == [0, 1, 2, 3]
    assert (
        load_policy(written, device="cpu").identity
        != load_policy(tmp_path / "start", device="cpu").identity
    )
    assert json.loads((written / "environment.json").read_text()) == {
        "name": "mini-repo",
        "options": {"turns": "3"},
        "sampling": {"temperature": 1.0, "max_turn_tokens": 6, "max_tokens": 60},
    }
