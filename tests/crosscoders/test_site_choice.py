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
    choose_site,
    kl_moved,
    summed,
)
from forensics.records import content_hash
from tests.crosscoders.patching_worlds import bundled, first_decisions

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
        "patch", readings(hybrids, tasks=tasks), [site(i) for i in range(len(moved))], "x", 4
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


def test_what_moves_more_than_the_whole_change_is_no_percentage():
    said = choose_site(patches_of(0.1, 0.1, 1.1), grafts_of(0.2)).sentence
    assert "moves more than all of the change in behaviour" in said and "110" not in said


def test_the_bundled_leak_is_a_re_weighting_at_the_output():
    base, leak = bundled("capped-base"), bundled("leak")
    texts, behaviour = first_decisions(base, 48)
    patches = patch_map(base, leak, texts, behaviour=behaviour, directions=["into-before"])
    found = choose_site(patches, graft_map(base, leak, texts, behaviour=behaviour))
    assert (found.where, found.site) == ("output", "blocks.1.hook_resid_post")
    assert 0.2 < found.moved.estimate < found.inside.estimate < 0.5 < found.output.estimate
