"""The synthetic world is what it says: its activations are its dictionary's, it
streams, and it swaps.
"""

from collections.abc import Iterable

import numpy as np
import pytest
import torch

from crosscoders.activations.streams import Block
from tests.crosscoders.planted_world import World, WorldConfig

WORLD = World(WorldConfig(), 3)


def rows(blocks: Iterable[Block]) -> torch.Tensor:
    return torch.cat([block.activations for block in blocks])


def test_counts_activity_spread_and_blocks() -> None:
    strengths = WORLD.strengths(np.random.default_rng(0), 20_000) > 0
    assert strengths.sum(1).mean() == pytest.approx(12, abs=0.3)
    assert WORLD.norms.max() / WORLD.norms.min() == pytest.approx(4, rel=0.05)
    assert {kind: WORLD.kinds.count(kind) for kind in set(WORLD.kinds)} == {
        "before-only": 16,
        "shared": 256,
        "after-only": 16,
    }
    together = np.corrcoef(strengths.T)
    same = WORLD.blocks[:, None] == WORLD.blocks[None]
    apart = ~np.eye(len(same), dtype=bool)
    assert together[same & apart].min() > 0.05 and np.abs(together[~same]).mean() < 0.01
    mixed = {WORLD.kinds[i] for i in np.flatnonzero(np.isin(WORLD.blocks, WORLD.blocks[-16:]))}
    assert mixed >= {"shared", "after-only"}


def test_noise_is_its_share_of_the_variance_and_belongs_to_one_model() -> None:
    clean = WORLD.strengths(np.random.default_rng(1), 40_000) @ WORLD.directions[:, 0].numpy()
    assert WORLD.noise**2 / (clean.var(0).mean() + WORLD.noise**2) == pytest.approx(0.05, rel=0.05)
    same = World(WorldConfig(pair="same-model"), 3)
    gap = rows(same.stream(20_000).blocks()).diff(dim=1)
    assert float(gap.std()) == pytest.approx(2**0.5 * same.noise, rel=0.02)
    identical = World(WorldConfig(pair="identical"), 3)
    assert float(rows(identical.stream(2000).blocks()).diff(dim=1).abs().max()) == 0


def test_one_model_features_are_silent_in_the_other_and_swapping_swaps_them() -> None:
    swapped = World(WorldConfig(pair="swapped"), 3)
    assert (
        float(WORLD.directions[:16, 1].abs().max()) == 0
        and float(WORLD.directions[-16:, 0].abs().max()) == 0
    )
    assert torch.equal(WORLD.truth("before-only", 0), swapped.truth("after-only", 1))
    quiet, mirrored = (
        World(WorldConfig(noise=0.0, pair=pair), 3).stream(2000) for pair in ("as-is", "swapped")
    )
    assert torch.allclose(rows(quiet.blocks()).flip(1), rows(mirrored.blocks()), atol=1e-6)
    assert not World(WorldConfig(pair="identical"), 3).truth("after-only", 1).numel()


def test_without_noise_the_features_themselves_explain_all() -> None:
    world = World(WorldConfig(noise=0.0), 5)
    seen = rows(world.stream(500).blocks())
    generator = np.random.default_rng([world.seed, 0, 0, 11])
    strengths = torch.from_numpy(world.strengths(generator, 500)).float()
    for model in (0, 1):
        assert torch.allclose(strengths @ world.directions[:, model], seen[:, model], atol=1e-4)


def test_weaker_rarer_and_drifting_worlds() -> None:
    weak, rare = World(WorldConfig(weakness=0.5), 3), World(WorldConfig(rarity=0.1), 3)
    assert torch.allclose(weak.directions[-16:, 1], WORLD.directions[-16:, 1] / 2)
    assert torch.equal(weak.directions[16:-16], WORLD.directions[16:-16])
    often = [w.strengths(np.random.default_rng(2), 50_000) > 0 for w in (WORLD, rare)]
    assert often[1][:, -16:].mean() / often[0][:, -16:].mean() == pytest.approx(0.1, rel=0.15)
    drifting = World(WorldConfig(drift=0.3), 3)
    cosines = torch.cosine_similarity(
        drifting.directions[16:-16, 0], drifting.directions[16:-16, 1], dim=-1
    )
    assert torch.allclose(cosines, torch.full_like(cosines, float(np.cos(0.3))), atol=1e-5)


def test_a_pass_is_a_permutation_that_the_seed_fixes_and_parts_differ() -> None:
    stream = WORLD.stream(10_000, block=1024)
    plain, first, again = rows(stream.blocks()), rows(stream.blocks(1)), rows(stream.blocks(1))
    assert torch.equal(first, again) and not torch.equal(plain, first)
    assert torch.equal(plain[:, 0, 0].sort().values, first[:, 0, 0].sort().values)
    assert not torch.equal(plain, rows(WORLD.stream(10_000, part=1, block=1024).blocks()))
    assert stream.identity != WORLD.stream(10_000, part=1, block=1024).identity
    texts = np.concatenate([block.rows.text for block in stream.blocks()])
    assert texts.max() + 1 == len(stream.texts) == -(-10_000 // 64)
