"""Readers of the difference: on rows and models whose answer is known, each measure is right; the
rule chooses as it says.
"""

from typing import Any

import pytest
import torch
from torch.nn.functional import normalize

from crosscoders import harvest, texts_of
from experiments.readers_of_the_difference import black_box, reading_verdict
from experiments.readers_of_the_difference.difference_readers import READERS, Learnt, rotation
from experiments.readers_of_the_difference.pair_worlds import BUNDLED, Pair, Runs
from experiments.readers_of_the_difference.reading_measures import comes_back, explained, recall
from experiments.readers_of_the_difference.synthetic_world import AFTER_ONLY, SyntheticWorld
from experiments.readers_of_the_difference.teacher_forced import (
    Above,
    chance,
    grafted_copy,
    mean_kl,
    random_graft,
    spot_logprobs,
)
from forensics.policies import load_policy
from forensics.protocols import SamplingSettings
from forensics.records import Step, Trajectory
from training import MiniRepo


@pytest.fixture(scope="module")
def pair() -> Pair:
    before, after = (load_policy(BUNDLED / one, device="cpu") for one in ("capped-base", "leak"))
    return Pair(
        name="leak",
        before=before,
        after=after,
        world=MiniRepo(world="capped"),
        behaviour="history",
        layer=2,
    )


@pytest.fixture(scope="module")
def told(pair: Pair) -> Runs:
    tasks = pair.world.tasks("held-out", 6, 3)
    return Runs.read(pair, pair.runs(pair.after, tasks, 1))


def test_the_rest_of_the_model_gives_what_the_whole_gives(pair: Pair, told: Runs) -> None:
    claims = pair.claims(told)
    ids = [token for step in told.runs[1].steps for token in step.token_ids or ()]
    with torch.no_grad():
        whole = pair.after.model(torch.tensor([ids])).logits[0].softmax(-1)
    mine = [claim for claim in claims if claim[0] == 1]
    wanted = sum(float(whole[at, token]) for _, (at,), (token,) in mine) / len(mine)
    found = chance(Above(pair.after.model, 2), told.texts(mine))
    assert found == pytest.approx(wanted, abs=1e-5)


def test_taking_the_whole_difference_out_below_the_last_layers_gives_the_other_model_back(
    pair: Pair, told: Runs
) -> None:
    """Where both models share what lies above, nothing is left of the change."""
    texts = told.texts(pair.claims(told), [(0, 7), (1, 7)])
    rows = texts.pairs[texts.kept]
    above = Above(pair.before.model, 2)
    turned = texts.pairs.flip(2)
    plain = spot_logprobs(above, type(texts)(**{**vars(texts), "pairs": turned}))
    undone = spot_logprobs(above, texts, rows[:, 1] - rows[:, 0])
    assert mean_kl(plain, undone) == pytest.approx(0, abs=1e-6)
    assert mean_kl(plain, spot_logprobs(above, texts)) > 1e-3


def test_a_graft_is_told_from_a_random_change_of_equal_size(pair: Pair) -> None:
    grafted = grafted_copy(pair.before.model, pair.after.model)
    other = random_graft(grafted, pair.after.model, 0)
    weight = pair.after.model.model.norm.weight
    sizes = [(one.model.norm.weight - weight).norm().item() for one in (grafted, other)]
    assert sizes[0] == pytest.approx(sizes[1], rel=1e-4)
    assert torch.equal(grafted.model.norm.weight, pair.before.model.model.norm.weight)
    assert not torch.equal(other.model.norm.weight, grafted.model.norm.weight)
    kept = pair.after.model.model.embed_tokens.weight
    assert torch.equal(grafted.model.embed_tokens.weight, kept)


@pytest.fixture(scope="module")
def learnt() -> Learnt:
    """The planted world, small."""
    world = SyntheticWorld(seed=5)
    stream = world.stream(8192, 0)
    rows = torch.cat([block.activations for block in stream.blocks()])
    halves = rows[:4096], rows[4096:]
    return Learnt(
        stream=stream,
        rows=rows,
        steps=lambda: halves,
        told=world.stream(4096, 9),
        seed=0,
        latents=96,
        before_only=8,
        after_only=8,
        tokens=4_000,
    )


@pytest.mark.parametrize("name", READERS)
def test_every_reader_gives_an_account_of_rows(name: str, learnt: Learnt) -> None:
    reading = READERS[name](learnt)
    rows = learnt.rows[:50]
    taken = reading.account(rows[:, 0], rows[:, 1])
    assert taken.shape == (50, 64)
    assert bool(taken.isfinite().all())
    assert torch.allclose(reading.reported.norm(dim=-1), torch.ones(len(reading.reported)))
    share = explained(reading, learnt.told)
    assert share == pytest.approx(0, abs=0.01) if name == "shift" else share < 1


def test_components_find_a_difference_of_two_directions_and_shift_finds_none() -> None:
    drawn = torch.Generator().manual_seed(0)
    base = torch.randn((4096, 64), generator=drawn)
    planted = normalize(torch.randn((2, 64), generator=drawn), dim=-1)
    moved = base + torch.randn((4096, 2), generator=drawn) * torch.tensor([3.0, 1.0]) @ planted
    rows = torch.stack([base, moved], 1)
    made: Any = type("Made", (), {"blocks": lambda self: iter([self]), "activations": rows})()
    learnt = Learnt(
        stream=made,
        rows=rows,
        steps=lambda: (rows, rows),
        told=made,
        seed=0,
        latents=0,
        after_only=0,
        tokens=0,
    )
    found = {name: explained(READERS[name](learnt), made) for name in ("shift", "components")}
    assert found["components"] == pytest.approx(1, abs=1e-4)
    assert found["shift"] == pytest.approx(0, abs=1e-4)


def test_recall_and_what_comes_back_at_their_ends() -> None:
    world = SyntheticWorld(seed=5)
    noise = normalize(torch.randn((4, 64), generator=torch.Generator().manual_seed(1)), dim=-1)
    assert recall(torch.cat([world.truth, noise]), world.truth) == {
        "found": 16,
        "of": 16,
        "called": 20,
        "false": 4,
    }
    assert comes_back(world.truth, world.truth.flip(0)) == 1
    assert comes_back(world.truth, noise) == 0
    assert comes_back(noise[:0], noise) is None
    twice = torch.cat([noise[:1], noise[:1]])
    assert comes_back(twice, noise) == 0.5  # one to one


def test_a_planted_feature_is_in_the_after_model_alone() -> None:
    block, strengths = SyntheticWorld(seed=5).stream(4096, 0).block(0)
    world = SyntheticWorld(seed=5)
    on = torch.from_numpy(strengths[:, AFTER_ONLY][:, 0] > 0)
    gap = block.activations[on].mean(0) - block.activations[~on].mean(0)
    along = gap @ world.truth[0]
    assert float(along[1]) > 3 * abs(float(along[0]))


def test_a_rotation_keeps_how_far_each_row_is_moved() -> None:
    rows, turn = torch.randn((20, 8)), rotation(8, 3)
    assert torch.allclose((rows @ turn).norm(dim=-1), rows.norm(dim=-1), atol=1e-5)
    assert not torch.allclose(rows @ turn, rows, atol=0.1)


def run_of(action: str, kind: str, number: int) -> Trajectory:
    steps = (
        Step(role="user", text="Code 12. What is it?"),
        Step(role="assistant", text=action, kinds=(kind,)),
    )
    return Trajectory(
        id=str(number),
        task=str(number),
        policy="p",
        environment="w",
        seed=0,
        steps=steps,
        outcome=1.0,
        end="terminated",
    )


def test_the_black_box_names_what_rose_and_nothing_where_nothing_did() -> None:
    before = [run_of("thirteen", "answer", i) for i in range(40)]
    after = [run_of("Code 12", "answer", i) for i in range(40)]
    said = [one["feature"] for one in black_box.named(before, after)]
    assert set(said) == {"copied from user", "word 12", "word Code", "words Code 12"}
    assert black_box.named(before, before) == []


FIELDS = ("score", "causes", "back", "lost", "kl")


def scores(**given: tuple[float, ...]) -> dict[str, dict[str, Any]]:
    """Of what is not given, a reader that comes back and leaves the rest."""
    fine = (0.0, 1.0, 1.0, 0.0, 0.5)
    told = {name: (*one, *fine[len(one) :]) for name, one in given.items()}
    return {
        name: dict(zip(FIELDS, told.get(name, (None,) * len(FIELDS)), strict=True))
        for name in READERS
    }


def test_the_rule_takes_the_simpler_of_two_that_tie_and_none_that_fails() -> None:
    lead = reading_verdict.leader
    assert lead(scores(components=(0.5,), crosscoder=(0.54,))) == "components"
    assert lead(scores(components=(0.5,), crosscoder=(0.6,))) == "crosscoder"
    assert lead(scores(components=(0.5,), crosscoder=(0.6, 1, 0.8))) == "components"
    assert lead(scores(components=(0.5,), crosscoder=(0.6, 1, 1, 0.1))) == "components"
    assert lead(scores(components=(0.5,), crosscoder=(0.6, 1, 1, 0, 1.1))) == "components"
    assert lead(scores(components=(0.5, 0.5))) is None


def test_net_is_what_is_removed_beyond_the_median_rotation() -> None:
    row = {"removed": 0.8, "rotations": [{"removed": r} for r in (0.1, 0.3, 2.0)]}
    assert reading_verdict.net(row) == pytest.approx(0.5)
    assert not reading_verdict.causes(row)
    played = {
        "before": {"used": 0.0},
        "after": {"used": 1.0},
        "ablated": {"used": 0.25},
        "rotations": [{"used": 1.0}, {"used": 0.9}],
    }
    assert reading_verdict.net({"removed": None, "played": played}) == pytest.approx(0.7)
    assert reading_verdict.causes({"played": played})


def test_what_was_not_measured_is_said_to_be(tmp_path: Any) -> None:
    text = reading_verdict.write_tables({}, tmp_path)
    assert "Leads: **open, pieces are missing**" in text
    assert "not measured: no row yet, or no folder was given with `--real`." in text


def test_texts_of_both_models_are_read_at_the_site(pair: Pair) -> None:
    tasks = pair.world.tasks("held-out", 3, 3)
    runs = list(pair.after.play(pair.world, tasks, 1, SamplingSettings(), 1))
    stream = harvest([pair.before, pair.after], texts_of(runs), pair.site)
    rows = torch.cat([block.activations for block in stream.blocks()])
    assert torch.equal(rows, Runs.read(pair, runs).rows)
