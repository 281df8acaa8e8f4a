"""Shares, their intervals, and the choice of a site, on readings whose
answer is known.
"""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from crosscoders.patching.maps import graft_map, patch_map
from crosscoders.patching.results import (
    Change,
    Readings,
    behaviour_moved,
    kl_moved,
    mean_share,
    summed,
    task_means,
)
from crosscoders.patching.site_choice import choose_site
from forensics.errors import UserError
from forensics.records import content_hash
from tests.crosscoders.patching_worlds import (
    bundled,
    changed,
    first_decisions,
    random_decisions,
    shaken,
    tiny,
)

TASKS = tuple(f"task {i}" for i in range(40))


def readings(hybrids, before=0.1, after=0.9, tasks=TASKS):
    """Chances `hybrids [hybrids, tasks]`; the KLs are those of a coin with these chances."""
    hybrids = np.asarray(hybrids, dtype=float)
    ends = np.array([np.full(len(tasks), before), np.full(len(tasks), after)])
    return Readings(
        tasks=tasks,
        chance=ends,
        hybrid_chance=hybrids,
        between=np.stack([coin(ends[1], ends[0]), coin(*ends)]),
        hybrid_kl=np.stack([np.stack([coin(ends[1], one), coin(ends[0], one)]) for one in hybrids]),
    )


def coin(p, q):
    return p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))


@given(st.floats(0, 1), st.sampled_from(["into-before", "into-after", "all-but"]))
def test_nothing_is_zero_everything_one_and_a_part_its_part(part, way):
    start, target = (0.9, 0.1) if way == "into-after" else (0.1, 0.9)
    found = readings(
        [np.full(40, value) for value in (start, target, start + part * (target - start))]
    )
    shares = behaviour_moved(found, [way] * 3)
    assert [share.estimate for share in shares] == pytest.approx([0, 1, part])
    kl = kl_moved(found, [way] * 3)
    assert (kl[0].estimate, kl[1].estimate) == (0, 1)
    assert 0 <= kl[2].estimate <= 1


def test_tasks_weigh_alike_however_many_decisions_they_have():
    """Task a has three decisions at 0.2, task b one at 0.6: (0.2 + 0.6) / 2,
    not (3 x 0.2 + 0.6) / 4.
    """
    assert task_means(np.array([0.2, 0.2, 0.2, 0.6]), list("aaab")).mean() == pytest.approx(0.4)


def test_too_few_tasks_have_no_interval_and_say_so():
    share = mean_share(np.array([0.2, 0.6]), ["a", "b"], (0, 1))
    assert (share.low, share.high) == (None, None) and "2 tasks are too few" in share.reason


def test_a_share_of_no_difference_has_no_value():
    found = readings(np.full((1, 40), 0.5), before=0.4, after=0.4)
    shares = behaviour_moved(found, ["into-before"])
    assert shares[0].estimate is None and "does not differ" in shares[0].reason
    assert kl_moved(found, ["into-before"])[0].estimate is None


def test_intervals_cover_the_truth_about_as_often_as_they_say():
    """True share 0.4; tasks differ in how far after is from before, and in what moves."""
    draw_from, covered = np.random.default_rng(0), 0
    for _ in range(300):
        before, lift = draw_from.uniform(0, 0.2, 40), draw_from.uniform(0.2, 0.8, 40)
        moved = 0.4 * lift + draw_from.normal(0, 0.1, 40)
        found = Readings(
            tasks=TASKS,
            between=np.zeros((2, 40)),
            hybrid_kl=np.zeros((1, 2, 40)),
            chance=np.stack([before, before + lift]),
            hybrid_chance=(before + moved)[None],
        )
        share = behaviour_moved(found, ["into-before"])[0]
        covered += share.low <= 0.4 <= share.high
    assert 0.90 < covered / 300 < 0.99


def site(layer, positions="deciding"):
    return Change(
        place=f"blocks.{layer}.hook_resid_post", direction="into-before", positions=positions
    )


def grafts_of(moved, tasks=TASKS):
    change = Change(place="blocks.3.mlp+final_norm+unembed", direction="into-before")
    return summed(
        "graft",
        readings(np.full((1, len(tasks)), 0.1 + 0.8 * moved), tasks=tasks),
        [change],
        "x",
        4,
    )


def patches_of(*moved, tasks=TASKS):
    hybrids = [np.broadcast_to(0.1 + 0.8 * np.asarray(one), (len(tasks),)) for one in moved]
    return summed(
        "patch",
        readings(hybrids, tasks=tasks),
        [site(i) for i in range(len(moved))],
        "x",
        4,
    )


def test_a_site_is_chosen_on_some_tasks_and_reported_on_others():
    """Layer 1 moves everything on the tasks that choose and nothing on the others."""
    order = sorted(TASKS, key=lambda task: content_hash([0, task]))
    lucky = np.array([float(task in order[:20]) for task in TASKS])
    found = choose_site(patches_of(0.5, lucky, 0.6))
    assert (
        found.inside_site == "blocks.1.hook_resid_post" and found.moved.estimate == pytest.approx(0)
    )
    assert found.site is None and "no residual" in found.reason


def test_of_equal_sites_the_earliest_is_taken():
    assert choose_site(patches_of(0.2, 0.79, 0.8)).site == "blocks.1.hook_resid_post"
    assert choose_site(patches_of(0.2, 0.7, 0.8)).site == "blocks.2.hook_resid_post"


def test_the_last_layer_is_no_middle():
    assert choose_site(patches_of(0.2, 0.3, 0.4, 1.0)).site == "blocks.2.hook_resid_post"


@pytest.mark.parametrize(
    ("inside", "output", "where", "words"),
    [
        (0.3, 0.6, "output", "re-weighting at the output"),
        (0.9, 0.2, "inside", "carried in the middle"),
        (0.6, 0.8, "spread", "spread over the network"),
        (0.3, 0.1, "spread", "spread over the network"),
    ],
)
def test_where_the_change_lives_is_said_by_the_rule(inside, output, where, words):
    found = choose_site(patches_of(0.1, 0.1, inside), grafts_of(output))
    assert found.where == where and words in found.sentence
    assert (found.inside.estimate, found.output.estimate) == pytest.approx((inside, output))


def test_without_grafts_where_is_not_known():
    found = choose_site(patches_of(0.1, 0.2, 0.9))
    assert found.where == "unknown" and "not held against" in found.sentence
    assert found.site == "blocks.2.hook_resid_post"


def test_a_choice_that_cannot_be_made_says_why():
    with pytest.raises(UserError, match="at least two tasks"):
        choose_site(patches_of(0.5, tasks=("a",)))
    with pytest.raises(UserError, match="not measured at all positions"):
        choose_site(patches_of(0.5, 0.5), positions="all")
    same = choose_site(patch_map(tiny(0), tiny(0), random_decisions(16, 16)))
    assert same.site is None and same.reason and same.where == "unknown"


def test_the_bundled_leak_is_a_re_weighting_at_the_output():
    base, leak = bundled("capped-base"), bundled("leak")
    texts, behaviour = first_decisions(base, 48)
    patches = patch_map(base, leak, texts, behaviour=behaviour, directions=["into-before"])
    found = choose_site(patches, graft_map(base, leak, texts, behaviour=behaviour))
    assert (found.where, found.site) == ("output", "blocks.1.hook_resid_post")
    assert 0.2 < found.moved.estimate < found.inside.estimate < 0.5 < found.output.estimate


def test_a_change_in_an_early_mlp_is_found_inside_and_at_its_layer():
    base = bundled("capped-base")
    texts, behaviour = first_decisions(base, 24)
    after = changed(base, lambda model: shaken(model.model.layers[0].mlp))
    patches = patch_map(base, after, texts, behaviour=behaviour)
    grafts = graft_map(base, after, texts, behaviour=behaviour)
    found = choose_site(patches, grafts, positions="all", measure="kl")
    assert (found.where, found.site) == ("inside", "blocks.0.hook_resid_post")
    assert found.moved.estimate == pytest.approx(1, abs=1e-5) and found.output.estimate == 0


def test_a_row_as_plain_values():
    patches = patch_map(tiny(0), tiny(1), random_decisions(16, 4))
    assert len(patches.rows) == 8 * 3 * 2
    row = patches.rows[0].flat()
    assert row["place"] == "hook_embed" and "kl_moved_low" in row
