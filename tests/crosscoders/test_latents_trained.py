"""A trained dictionary: its planted latents are specific, and in a pair of equal models none is."""

import numpy as np
import pytest
import torch

from crosscoders.dictionary import DictionaryConfig
from crosscoders.fitting import FittingSettings, train_crosscoder
from crosscoders.latents import false_discovery, null_controls, same_pair, study_latents
from crosscoders.partition import Partition
from tests.crosscoders.latent_worlds import World, planted

SETTINGS = FittingSettings(tokens=120_000, batch=512, seed=5)


@pytest.fixture(scope="module")
def world() -> World:
    return planted(shared=24, before_only=4, after_only=4, width=24, rows=12_000, seed=21, chance=0.08)


def dedicated() -> DictionaryConfig:
    part = Partition(latents=44, before_only=6, after_only=6, tied=True)
    return DictionaryConfig(width=24, partition=part, k=3)


def test_planted_latents_are_specific_and_in_the_same_pair_trained_alike_none_is(world: World) -> None:
    fitted = train_crosscoder(world.stream, dedicated(), SETTINGS, device="cpu").dictionary
    study = study_latents(fitted, world.stream)
    assert min(share for share in study.quality.variance_explained if share is not None) > 0.7
    found = study.table.specific("after")
    directions = torch.nn.functional.normalize(fitted.directions()[:, 1], dim=-1).numpy()
    own = np.arange(44) >= 38
    planted_ones = np.flatnonzero(own & ((directions @ world.features[-4:, 1].numpy().T).max(1) > 0.9))
    assert set(found) == set(planted_ones)  # all that training found, and nothing else of its block
    assert len(found) >= 2  # whether training finds every one is another test's business
    same = same_pair(world.stream, model=1)
    null = study_latents(train_crosscoder(same, dedicated(), SETTINGS, device="cpu").dictionary, same).table
    assert (null.column("partition") != "shared").sum() == 12
    control = null_controls(same=null)[0]
    assert control.holds is not False, control
    assert not np.isin(null.column("specific"), ["after", "before"]).any()
    rate = false_discovery(study.table, null)
    assert rate.rate in (0, None)
