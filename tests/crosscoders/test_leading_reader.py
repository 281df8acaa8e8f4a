"""The readers of the difference: what they take out, what that causes, and which one leads."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from crosscoders.activations.harvest import harvest
from crosscoders.dictionaries.saved import load_dictionary
from crosscoders.latents.row_groups import decision_contrast
from crosscoders.latents.table import latent_table
from crosscoders.patching.decisions import starting_with
from crosscoders.steering.activation_edits import subspace_change
from crosscoders.study.causes import LENGTH
from crosscoders.study.diff_page import readers_table
from crosscoders.study.difference_baselines import groups_of, moments_of
from crosscoders.study.leading_reader import (
    _halves,
    _partners,
    account,
    accounted,
    linear_dictionary,
    read_difference,
    readers_of,
    sentences,
)
from crosscoders.study.material import PAIR
from tests.crosscoders.latent_worlds import held
from tests.crosscoders.steering_world import (
    SITE,
    cued_runs,
    inquiry_of,
    known_dictionary,
    shift_change,
    stream_of,
)
from tests.crosscoders.test_findings import table


@pytest.fixture(scope="module")
def studied(pair):
    """Streams of runs of both policies, and the behaviour."""
    runs = cued_runs(pair, pair.before, pair.after)
    stream = stream_of(pair, runs)
    tasks = list(dict.fromkeys(run.task for run in runs))
    learnt = [text for text in stream.tokenized if text.note.task in set(tasks[:15])]
    streams = SimpleNamespace(chosen=stream.part(learnt), reported=stream, small=True)
    return streams, starting_with("history", runs)


def read(*asked, **more):
    """The readers, where they could be tested."""
    found, why = read_or_why(*asked, **more)
    assert found and not why
    return found


def read_or_why(pair, studied, folder, asked="components", **more):
    streams, behaviour = studied
    dictionary = known_dictionary(pair)
    told = {"contrasts": (decision_contrast(("history",), "history"),), "behaviour": behaviour}
    inquiry = inquiry_of(pair, streams, folder, reader=asked, **told | more)
    table = latent_table(dictionary, streams.reported)
    return read_difference(inquiry, {PAIR: dictionary}, table, 0)


def test_a_linear_dictionary_gives_the_projection_and_the_mean():
    generator = torch.Generator().manual_seed(0)
    basis = torch.linalg.qr(torch.randn(8, 3, generator=generator)).Q.T
    mean, rows = torch.randn(8, generator=generator), torch.randn(20, 8, generator=generator)
    dictionary = linear_dictionary(basis, mean, mean)
    found = dictionary.decode(dictionary.encode(rows[:, None]), 0)
    expected = mean + (rows - mean) @ basis.T @ basis
    assert torch.allclose(found, expected, atol=1e-5)


def test_the_planted_direction_is_what_the_components_take_out(pair, studied, tmp_path):
    (tmp_path / "baselines" / "components").mkdir(parents=True)  # left by a run that was killed
    found = read(pair, studied, tmp_path)
    leads = found[0]
    assert leads.reader.name == "components" and leads.cause.holds
    assert leads.cause.effect.high < -0.05 and leads.explained > 0.95
    written = load_dictionary(tmp_path / "baselines" / "components").directions()[:, 0]
    assert abs(torch.cosine_similarity(written[0], pair.direction, dim=0)) > 0.95
    streams = studied[0]
    learnt, told = (moments_of(one).mean().float() for one in (streams.chosen, streams.reported))
    assert torch.allclose(written[-1], learnt) and not torch.allclose(learnt, told)
    assert leads.cause.tasks == leads.whole.tasks == 20  # 15 of them were learnt from
    (shares,) = accounted(streams.reported, [leads.reader.change])
    assert shares == (leads.explained, leads.size)
    assert shares != accounted(streams.chosen, [leads.reader.change])[0]
    assert leads.reader.back >= 1  # the second component of a change in one direction is noise
    said = sentences(found, SITE, "components")
    assert said[0].startswith("The mean and the first 2 principal components") and SITE in said[0]
    assert "at a dose of 25 % more than 20 rotations of equal size (p = 0.048)" in said[0]
    row = readers_table([one.plain() for one in found]).rows[0]
    assert row[0] == "components" and row[2].startswith("yes")
    verdicts = {-0.5: "does less than", -0.27: "does as well as", -0.02: "does more than"}
    for effect, verdict in (verdicts | {0.3: "moves it the other way than"}).items():
        both = [moved(leads, -0.3), moved(found[1], effect)]
        assert verdict in sentences(both, SITE, "components")[1]
    idle = replace(leads, cause=replace(leads.cause, holds=False))
    text = sentences([idle, moved(found[1], -0.3)], SITE, "components")[1]
    assert text.startswith("Taking out the dictionary's 1 latent moves it more than rotations do")


def test_a_reader_that_undoes_more_than_all_or_less_than_nothing_says_so(pair, studied, tmp_path):
    leads = read(pair, studied, tmp_path)[0]
    for share, told in (
        (0.5, ", 50 % [40 %, 60 %] of what training changed there"),
        (2.5, ", more than all of what training changed there"),
        (-2.46, ", the other way by more than all of what training changed there"),
    ):
        undone = replace(leads.cause.effect, estimate=share, low=share - 0.1, high=share + 0.1)
        one = replace(leads, cause=replace(leads.cause, undone=undone))
        assert told in sentences([one], SITE, "components")[0]


def test_what_no_test_of_a_reader_shows_is_said_once(pair, studied, tmp_path):
    leads = read(pair, studied, tmp_path)[0]
    short = replace(leads.cause, holds=False, random=(0.5,), p_value=1.0)
    assert "neither at a dose of 25 % (p = 1.000) nor as a whole shown to be more" in said(
        replace(leads, cause=short, whole=replace(short))
    )
    assert "since the first one does as much (p = 1.000), as a whole more than 20" in said(
        replace(leads, cause=short)
    )
    near = replace(leads.cause, holds=False, beyond=replace(leads.cause.beyond, low=-1.0))
    assert "the tasks' spread explains, so not shown (p = 0.048)" in said(
        replace(leads, cause=near, whole=near)
    )


def said(one):
    """The sentence on the leader."""
    return sentences([one], SITE, one.reader.name)[0]


def moved(one, effect):
    """A reader that surely moves so much."""
    estimate = replace(one.cause.effect, estimate=effect)
    return replace(one, cause=replace(one.cause, effect=estimate, holds=True))


def test_directions_come_back_from_both_halves_or_it_was_not_measured(studied):
    axes, stream = torch.eye(2, 4), studied[0].reported
    assert _partners(axes, -axes[[1, 0]]) == 2
    assert _partners(axes, axes[:1]) == _partners(axes[:1], axes) == 1
    task = stream.tokenized[0].note.task
    alone = stream.part([one for one in stream.tokenized if one.note.task == task])
    contrast = decision_contrast(("history",), "history")
    found = readers_of(["components", "mean-after"], None, alone, contrast, None, 0)
    assert found and {one.back for one in found} == {None}


def test_the_halves_share_no_task_and_are_held_against_each_other(studied, monkeypatch):
    learnt = studied[0].chosen
    first, second = ({one.task for one in half.texts} for half in _halves(learnt))
    assert first and second and first | second == {one.task for one in learnt.texts}
    assert not first & second

    def along(axes):
        """Rows that differ along two axes, the first of them more."""
        gap = torch.randn(400, 2, generator=torch.Generator().manual_seed(3)) * axes.shape[0]
        rows = torch.zeros(400, 2, 6)
        rows[:, 1] = gap @ axes
        return held(rows)

    halves = along(3 * torch.eye(6)[:2]), along(torch.eye(6)[2:4])
    whole = held(torch.cat([half.activations for half in halves]))
    monkeypatch.setattr("crosscoders.study.leading_reader._halves", lambda _: halves)
    (found,) = readers_of(["components"], None, whole, None, None, 0)
    assert found.back == 0  # whatever one half shares with the whole


def test_the_after_models_direction_is_from_its_other_steps_to_those_with_the_behaviour(studied):
    learnt, contrast = studied[0].chosen, decision_contrast(("history",), "history")
    groups = groups_of(learnt, contrast)
    after, first = groups.pairs[:, 1], torch.from_numpy(groups.first)
    others = after[~first].mean(0)
    unit = torch.nn.functional.normalize(after[first].mean(0) - others, dim=0)
    (found,) = readers_of(["mean-after"], None, learnt, contrast, None, 0)
    change = found.change
    taken = -change.coefficients(after, after) @ change.directions
    torch.testing.assert_close(taken, ((after - others) @ unit)[:, None] * unit, atol=1e-4, rtol=0)


def test_a_latent_of_the_crosscoder_comes_back_where_every_seed_has_it(pair):
    known = known_dictionary(pair)
    own = table([1, 2, 3], [1.0, 1.0, 0.5, 0.0])
    for seeds, back in ((2, 1), (0, None)):
        (found,) = readers_of(["crosscoder"], known, None, None, own, seeds)
        assert (found.directions, found.back) == (3, back)


def test_what_another_direction_takes_out_causes_nothing_and_explains_nothing(pair, studied):
    from crosscoders.steering.activation_edits import feature_change
    from crosscoders.study.causes import Probe, caused

    streams, behaviour = studied
    other = torch.randn(len(pair.direction), generator=torch.Generator().manual_seed(5))
    other -= (other @ pair.direction) * pair.direction / pair.direction.square().sum()
    unit = other / other.norm()
    dictionary = linear_dictionary(unit[None], torch.zeros_like(unit))
    change = feature_change(dictionary, (0, 1), mode="ablate", acting="after", strength=1.0)
    mean = moments_of(streams.reported).mean().float()
    constant = shift_change(mean, mode="ablate", strength=1.0)
    all_of_it = undone(pair)
    whole, (explained, size), (none, _) = accounted(streams.reported, [all_of_it, change, constant])
    assert whole == pytest.approx((1, 1))
    assert abs(explained) < 0.1 and size < 0.3 and abs(none) < 1e-4  # the mean is no variance
    probe = Probe.of(pair.after, streams.reported, behaviour)
    assert not caused(probe, change).holds


def undone(pair):
    """All that parts the models is taken out."""
    everything = torch.eye(len(pair.direction))
    return subspace_change(everything, mode="ablate", acting="after", strength=1.0)


def costs_by_hand(pair, stream, change):
    """By task, of the before model's first run without the behaviour: KL of the after model from
    itself with the change, where no action is decided.
    """
    found = {}
    for text in stream.tokenized:
        note = text.note
        used = any("history" in step.kinds for step in note.steps)
        if note.source == "after" or used or note.task in found:
            continue
        ids = torch.from_numpy(text.token_ids[:LENGTH]).long()[None]
        rows = torch.cat([block.activations for block in stream.part([text]).blocks()]).float()
        added = change.apply(rows[:, 1], rows[:, 0])[: ids.shape[1]] - rows[: ids.shape[1], 1]
        handle = pair.after.model.model.layers[1].register_forward_hook(
            lambda _m, _a, out, added=added: (
                (out[0] + added, *out[1:]) if isinstance(out, tuple) else out + added
            )
        )
        with torch.no_grad():
            changed = pair.after.model(ids).logits[0].double().log_softmax(-1)
            handle.remove()
            own = pair.after.model(ids).logits[0].double().log_softmax(-1)
        apart = (own.exp() * (own - changed)).sum(-1)
        found[note.task] = float(apart[~torch.from_numpy(text.deciding[:LENGTH])].mean())
    return found


def test_the_cost_elsewhere_is_that_of_texts_without_the_behaviour(pair, studied, tmp_path):
    leads = read(pair, studied, tmp_path)[0]
    assert leads.cost is not None and 0 <= leads.cost.estimate < 0.2
    by_hand = list(costs_by_hand(pair, studied[0].reported, leads.reader.change).values())
    assert leads.cost.clusters == len(by_hand)
    everything = sum(costs_by_hand(pair, studied[0].reported, undone(pair)).values())
    assert leads.cost_share == pytest.approx(sum(by_hand) / everything, rel=1e-3)
    assert leads.cost.estimate == pytest.approx(sum(by_hand) / len(by_hand), rel=1e-3, abs=1e-7)
    unknown = read(pair, studied, tmp_path, contrasts=(), behaviour=None)[0]
    assert unknown.cost is None and unknown.cost_share is None
    assert "costs elsewhere was not measured" in account(unknown)


def test_the_reader_that_is_asked_for_leads_or_is_said_to_be_missing(pair, studied, tmp_path):
    found = read(pair, studied, tmp_path, "mean-after")
    assert found[0].reader.name == "mean-after" and found[0].reader.encoding == "own"
    assert found[0].cause.effect.estimate < -0.05
    gone = read(pair, studied, tmp_path, "mean-after", contrasts=(), behaviour=None)
    said = sentences(gone, SITE, "mean-after")
    assert said[0] == "The reader mean-after that was asked for has nothing to read here."


def test_models_that_do_not_differ_have_no_components(pair, studied, tmp_path):
    texts = studied[0].reported.tokenized
    stream = harvest((pair.before, pair.before), texts, SITE)
    same = SimpleNamespace(chosen=stream, reported=stream, small=True)
    found, why = read_or_why(pair, (same, studied[1]), tmp_path)
    assert found == [] and "the models do not differ there" in why


def test_where_no_reader_can_be_tested_a_sentence_says_so_and_why(pair, studied, tmp_path):
    streams, behaviour = studied
    task = streams.reported.tokenized[0].note.task
    alone = streams.reported.part([t for t in streams.reported.tokenized if t.note.task == task])
    few = SimpleNamespace(chosen=streams.chosen, reported=alone, small=True)
    for more, lack in (({}, "in which an action is decided"), ({"behaviour": None}, "to read")):
        found, why = read_or_why(pair, (few, behaviour), tmp_path, **more)
        (said,) = sentences(found, SITE, "components", why)
        assert found == [] and SITE in said and "was not tested" in said
        assert f"fewer than two of the tasks reported on have a text {lack}" in said
    assert not (tmp_path / "readers.json").exists()
