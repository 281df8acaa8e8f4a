"""Patching across checkpoints, held against pairs in which it is known where the change lives."""

import pytest
import torch

from crosscoders.patching.decisions import (
    Behaviour,
    Decision,
    decisions_of,
    starting_with,
    whole_actions,
)
from crosscoders.patching.hybrids import grafted, patched, pieces_of
from crosscoders.patching.maps import graft_map, patch_map
from forensics.errors import UserError
from forensics.policies import last_logprobs, recorded
from forensics.protocols import SamplingSettings
from tests.crosscoders.patching_worlds import (
    bundled,
    changed,
    first_decisions,
    random_decisions,
    tiny,
)
from tests.episodes import episode_of
from training.environments.mini_repo import MiniRepo


@pytest.fixture(scope="module")
def base():
    return bundled("capped-base")


@pytest.fixture(scope="module")
def read(base):
    return first_decisions(base, 24)


def test_a_planted_direction_that_one_mlp_writes_is_found_at_the_layer_that_writes_it(base, read):
    """A rank-one edit: what the MLP does at the deciding tokens also writes the
    history's own direction.
    """
    inside = {}
    handle = base.model.model.layers[1].mlp.down_proj.register_forward_pre_hook(
        lambda _module, args: inside.update(at=args[0][:, -1].mean(0))
    )
    with torch.no_grad():
        base.model(
            torch.tensor(
                [decision.token_ids for decision in read[0] if len(decision.token_ids) == 8]
            )
        )
    handle.remove()

    def plant(model):
        table = model.lm_head.weight
        direction = (
            table[read[1].actions[0][0]] - table[19]
        )  # against `open`, what the base prefers
        cue = inside["at"] / inside["at"].square().sum()
        model.model.layers[1].mlp.down_proj.weight.add_(
            torch.outer(20 * direction / direction.norm(), cue)
        )

    planted = changed(base, plant)
    sites = [f"blocks.{layer}.hook_resid_post" for layer in range(3)]
    found = patch_map(base, planted, read[0], behaviour=read[1], sites=sites, positions=("all",))
    assert found.after.estimate - found.before.estimate > 0.2
    shares = [found.row(site, "into-before", "all").behaviour_moved.estimate for site in sites]
    assert shares == pytest.approx([0, 1, 1], abs=1e-5)


def test_the_final_residual_at_all_positions_moves_everything_up_to_the_unembedding():
    before, after = tiny(0), tiny(1)
    texts = random_decisions(12, 12, lengths=(6,))
    behaviour = Behaviour(name="some", actions=((5,), (9,)))
    found = patch_map(before, after, texts, behaviour=behaviour, positions=("all",))
    ids = torch.tensor([text.token_ids for text in texts])
    with torch.no_grad(), recorded(after.model, ["blocks.1.hook_resid_post"]) as seen:
        after.model(ids)
        logits = before.model.lm_head(before.model.model.norm(seen["blocks.1.hook_resid_post"]))[
            :, -1
        ]
    wanted = logits.softmax(-1)[:, [5, 9]].sum(-1)
    at = [row.change for row in found.rows].index(
        found.row("blocks.1.hook_resid_post", "into-before", "all").change
    )
    assert found.readings.hybrid_chance[at] == pytest.approx(wanted.numpy(), abs=1e-6)


def test_the_kl_is_the_formula_and_the_share_is_its_ratio():
    before, after = tiny(0), tiny(1)
    texts = random_decisions(10, 10, lengths=(6,))
    found = patch_map(before, after, texts, sites=["blocks.0.hook_resid_post"], positions=("all",))
    ids = torch.tensor([text.token_ids for text in texts])
    with torch.no_grad():
        p, q = (side.model(ids).logits[:, -1].double().log_softmax(-1) for side in (after, before))
        with recorded(after.model, ["blocks.0.hook_resid_post"]) as seen:
            after.model(ids)
        with patched(before.model, "blocks.0.hook_resid_post", seen, slice(None)):
            r = before.model(ids).logits[:, -1].double().log_softmax(-1)
    whole, left = ((p.exp() * (p - other)).sum(-1).mean().item() for other in (q, r))
    assert found.kl.estimate == pytest.approx(whole, rel=1e-5)
    assert found.rows[0].kl_moved.estimate == pytest.approx(1 - left / whole, rel=1e-4)


def test_the_scorer_heeds_an_exchanged_output_weight_and_a_head_that_cannot_be_taken_off():
    model, other = (tiny(seed) for seed in (0, 1))
    texts = torch.tensor([text.token_ids for text in random_decisions(3, 3, lengths=(6,))])

    def is_what_the_model_says():
        with torch.no_grad():
            wanted = model.model(texts).logits[:, -2:].log_softmax(-1)
        found = last_logprobs(model, texts, 2)
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0)
        return found

    own = is_what_the_model_says()
    with grafted(*(pieces_of(one.model).of("unembed") for one in (model, other))):
        assert not torch.equal(is_what_the_model_says(), own)
    model.model.lm_head.register_forward_hook(lambda _module, _args, output: output * 2)
    assert not torch.equal(is_what_the_model_says(), own)


def test_the_chance_of_whole_actions_is_what_the_policy_says(base, read):
    """Another way to the same number: the policy's own log-probabilities of prefix and action."""
    world = MiniRepo(world="capped")
    runs = list(base.play(world, world.tasks("held-out", 24, 0), 4, SamplingSettings(), seed=3))
    opening = whole_actions("open-file", runs)
    assert {len(action) for action in opening.actions} >= {3}
    decisions = read[0][:5]
    found = patch_map(base, base, decisions, behaviour=opening, sites=[])
    wanted = 0.0
    for decision in decisions:
        texts = [[*decision.token_ids, *action] for action in opening.actions]
        own = base.logprobs(texts, SamplingSettings())
        wanted += sum(
            float(torch.tensor(row[len(decision.token_ids) - 1 :]).double().sum().exp())
            for row in own
        )
    assert found.before.estimate == pytest.approx(wanted / len(decisions), rel=1e-5)
    assert found.before.estimate > 0.3


def test_decisions_and_behaviours_come_from_runs(base):
    world = MiniRepo(world="capped")
    runs = list(base.play(world, world.tasks("held-out", 12, 0), 2, SamplingSettings(), seed=1))
    first, every = decisions_of(runs), decisions_of(runs, "all")
    assert len(first) == 12 and set(first) < set(every)  # two runs of a task start from one text
    for run in runs:
        wanted = [
            tuple(t for step in run.steps[:at] for t in step.token_ids) for at, _ in run.actions
        ]
        assert set(wanted) <= {d.token_ids for d in every if d.task == run.task}
    with pytest.raises(UserError, match="take whole actions"):
        starting_with("open-file", _both_open())
    with pytest.raises(UserError, match="no action of kind 'fly'"):
        whole_actions("fly", runs)
    with pytest.raises(UserError, match="begins another"):
        Behaviour(name="x", actions=((1,), (1, 2)))
    with pytest.raises(UserError, match="at least one token"):
        Behaviour(name="x", actions=())


def _both_open():
    from forensics.records import Step

    def run(number, kind):
        step = Step(
            role="assistant",
            text="open",
            kinds=(kind,),
            token_ids=(4, 5),
            sampled=(True, True),
            logprobs=(0.0, 0.0),
        )
        return episode_of(id=str(number), steps=(step,), outcome=0.0)

    return [run(0, "open-file"), run(1, "open-notes")]


@pytest.mark.parametrize("behaviour", [None, Behaviour(name="two tokens", actions=((5, 6), (9,)))])
def test_layers_that_are_not_run_again_change_no_bit(behaviour, monkeypatch):
    """Every site and every module, with and without the layers before them."""
    before, after = tiny(0), tiny(1)
    texts = random_decisions(8, 8)

    def read():
        maps = [make(before, after, texts, behaviour=behaviour) for make in (patch_map, graft_map)]
        return [(one.readings.hybrid_kl.tolist(), one.rows) for one in maps]

    found = read()
    ran = []
    handles = [
        layer.mlp.register_forward_hook(lambda *_: ran.append(1))
        for policy in (before, after)
        for layer in policy.model.model.layers
    ]
    assert read() == found
    fewer = len(ran)
    monkeypatch.setattr("crosscoders.patching.maps.untouched", lambda *_: 0)
    assert read() == found and len(ran) - fewer > 1.3 * fewer
    [handle.remove() for handle in handles]
    assert not any("forward" in layer.__dict__ for layer in before.model.model.layers)


def sunk(policy, token, seed, times=100):
    """With one token whose embedding is `times` as long as the others, in a direction
    that the seed gives.
    """

    def sink(model):
        table = model.model.embed_tokens.weight
        drawn = torch.randn(table.shape[1], generator=torch.Generator().manual_seed(seed))
        table[token] = drawn / drawn.norm() * times * table.norm(dim=-1).median()

    return changed(policy, sink)


def test_a_sink_is_left_as_it_is_and_what_is_patched_beside_it_still_moves():
    """The models differ at the sink, which stands first, and at a token behind it."""
    base = tiny(0)
    before = sunk(base, 60, 1)
    after = changed(sunk(base, 60, 2), lambda model: model.model.embed_tokens.weight[50].add_(0.2))
    texts = [Decision(task=f"t{i}", token_ids=(60, 10 + i, 50, 20, 30 + i)) for i in range(10)]
    site = "blocks.0.hook_resid_post"
    asked = {"sites": ["hook_embed", site], "positions": ["earlier"]}
    left, kept = (patch_map(before, after, texts, **asked, keep_outliers=k) for k in (False, True))
    assert left.outliers is not None and "position 0 had" in left.outliers
    assert kept.outliers is None
    ids = torch.tensor([text.token_ids for text in texts])
    with torch.no_grad(), recorded(after.model, [site]) as seen:
        after.model(ids)
    chances = {}
    for name, where in (("left", slice(1, -1)), ("kept", slice(0, -1))):
        with torch.no_grad(), patched(before.model, site, seen, where):
            chances[name] = before.model(ids).logits[:, -1].double().log_softmax(-1)
    with torch.no_grad():
        p = after.model(ids).logits[:, -1].double().log_softmax(-1)
    for name, found in (("left", left), ("kept", kept)):
        at = [row.change for row in found.rows].index(
            found.row(site, "into-before", "earlier").change
        )
        wanted = (p.exp() * (p - chances[name])).sum(-1)
        assert found.readings.hybrid_kl[at][0] == pytest.approx(wanted.numpy(), rel=1e-3, abs=1e-6)
    assert not torch.allclose(chances["left"], chances["kept"])
