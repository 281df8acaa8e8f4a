"""Halves that are told apart by their tasks alone, and what the second rule makes of figures."""

from collections import Counter

import numpy as np
import pytest

from crosscoders import harvest, texts_of
from experiments.coming_back.rule_2.__main__ import held, null, share_of
from experiments.coming_back.rule_2.disjoint_halves import (
    BASE,
    SITE,
    WORLD,
    HalfOfTasks,
    likeness,
    unpaired,
)
from forensics.policies import load_policy
from forensics.protocols import SamplingSettings
from training import MiniRepo


def test_each_row_stands_beside_one_of_the_other_half_that_is_like_it_and_used_once():
    policy, world = load_policy(BASE, device="cpu"), MiniRepo(**WORLD)
    tasks = world.tasks("held-out", 12, 3)
    texts = texts_of(policy.play(world, tasks, 1, SamplingSettings(max_tokens=480), 3))
    whole = harvest([policy], texts, SITE)
    theirs = {
        tuple(row.tolist()): key
        for text, (values,) in zip(texts[:6], whole.values[:6], strict=True)
        for row, key in zip(values, likeness(text), strict=True)
    }
    pairs = unpaired(whole, texts[:6], texts[6:], np.random.default_rng(0))
    own = [
        key
        for text, kept in zip(pairs.tokenized, pairs.chosen, strict=True)
        for key in np.array(likeness(text), object)[kept].tolist()
    ]
    (block,) = pairs.blocks()
    before, after = block.activations.unbind(1)
    assert [theirs[tuple(row.tolist())] for row in before] == [tuple(key) for key in own]
    held_by = Counter(tuple(row.tolist()) for (one,) in whole.values[:6] for row in one)
    assert Counter(tuple(row.tolist()) for row in before) <= held_by and len(own) > 40
    alone = next(iter(whole.part(texts[6:]).blocks())).activations[:, 0]
    kept = {tuple(row.tolist()) for row in alone}
    assert all(tuple(row.tolist()) in kept for row in after)
    assert not np.array_equal(before.numpy(), after.numpy())


def test_halves_of_the_tasks_ask_nothing_in_common():
    world = MiniRepo(**WORLD)
    asked = [
        {world.spawn().reset(task, 0).text for task in half.tasks("train", 40, seed)}
        for half, seed in ((HalfOfTasks(world, 1, side), 7 + side) for side in (0, 1))
    ]
    assert not asked[0] & asked[1] and min(map(len, asked)) > 20


@pytest.mark.parametrize(
    ("shares", "verdict"),
    [
        ([0.9, 1.0, 0.95, None], "holds"),
        ([0.9, 1.0, None, None], "not shown on three pairs"),
        ([0.89, 1.0, 1.0, None], "missed"),
        ([None] * 4, "not shown on three pairs"),
    ],
)
def test_a_silent_pair_neither_holds_nor_misses(shares, verdict):
    assert held(shares) == verdict


def test_latents_of_both_diffs_of_a_pair_count_alike_and_runs_are_counted_once():
    rows = [{"reported": {"1": [1.0, 0.5], "2": [0.4, 0.5]}}, {"reported": {"3": [1.0, 0.8]}}]
    assert share_of(rows) == pytest.approx([0.8, 0.6])
    assert share_of([{"reported": {}}]) == [None, None]
    none, two, three = ({"reported": a, "moves nothing": b} for a, b in ((0, 0), (0, 2), (3, 0)))
    done = {f"unpaired-{i}": none for i in range(1, 21)}
    done |= {"unpaired-1": two, "unpaired-2": three}
    assert null(done, "unpaired") == {
        "runs": 20,
        "report": 1,
        "would by two conditions": 2,
        "holds": True,
    }
    assert not null(done | {"unpaired-3": three}, "unpaired")["holds"]
