"""Controls: what must show nothing shows nothing, what must show everything
does, a false rule is caught, and so it is for dictionaries that were trained.
"""

import numpy as np
import pytest
import torch

from crosscoders.dictionaries.crosscoder_run import train_crosscoder
from crosscoders.dictionaries.dictionary import DictionaryConfig
from crosscoders.dictionaries.settings import Partition, TrainerSettings
from crosscoders.latents.controls import (
    false_discovery_row,
    pair_row,
    same_pair,
)
from crosscoders.latents.table import SpecificConfig, latent_table, study_latents
from tests.crosscoders.latent_worlds import World, oracle, planted

CLAIMS = Partition(
    latents=27, before_only=6, after_only=8
)  # three features of each side are shared in truth


def world() -> World:
    return planted(shared=19, before_only=3, after_only=5, width=40, rows=6000, seed=11)


def test_in_a_pair_of_equal_models_no_latent_is_specific() -> None:
    """By partition many are; the dictionary is that of the real pair, and one
    that claims everything.
    """
    known = world()
    for part in (
        CLAIMS,
        Partition(latents=27, before_only=13, after_only=14),
        Partition(latents=27),
    ):
        for model in (0, 1):
            table = latent_table(oracle(known, part), same_pair(known.stream, model=model))
            control = pair_row(table, shuffled=False)
            assert control["holds"] or control["share"] is None, control
            assert not len(table.specific("after"))
            assert not len(table.specific("before"))


def test_a_rule_without_latent_scaling_fails_the_same_model_control() -> None:
    known = world()
    blind = SpecificConfig(error=np.inf, difference=np.inf, share=0)
    table = latent_table(oracle(known, CLAIMS), same_pair(known.stream), specific=blind)
    control = pair_row(table, shuffled=False)
    assert control["share"] == 1
    assert control["holds"] is False


def test_false_discovery_by_hand() -> None:
    known = world()
    dictionary = oracle(known, CLAIMS)
    real = latent_table(dictionary, known.stream)
    null = latent_table(dictionary, same_pair(known.stream, model=1))
    found = false_discovery_row(real, null)["counts"]
    assert list(found.values())[:4] == [5, 8, 0, 8]
    assert found["rate"] == 0
    assert found["high"] == pytest.approx(
        (1 - 0.05 ** (1 / 8)) * 8 / 5
    )  # 0 of 8: at most 1 - 0.05^(1/8), one-sided
    blind = SpecificConfig(error=np.inf, difference=np.inf, share=0)
    all_of_it = false_discovery_row(
        latent_table(dictionary, known.stream, specific=blind),
        latent_table(dictionary, same_pair(known.stream, model=1), specific=blind),
    )
    assert all_of_it["counts"]["rate"] == 1
    assert false_discovery_row(null, null)["counts"]["rate"] is None  # nothing was found


SETTINGS = TrainerSettings(tokens=120_000, batch=512, seed=5)


def dedicated() -> DictionaryConfig:
    part = Partition(latents=44, before_only=6, after_only=6, tied=True)
    return DictionaryConfig(width=24, partition=part, k=3)


def test_planted_latents_are_specific_and_in_the_same_pair_trained_alike_none_is() -> None:
    world = planted(
        shared=24, before_only=4, after_only=4, width=24, rows=12_000, seed=21, chance=0.08
    )
    fitted = train_crosscoder(world.stream, dedicated(), SETTINGS, device="cpu").dictionary
    study = study_latents(fitted, world.stream)
    assert min(share for share in study.quality.variance_explained if share is not None) > 0.7
    found = study.table.specific("after")
    directions = torch.nn.functional.normalize(fitted.directions()[:, 1], dim=-1).numpy()
    own = np.arange(44) >= 38
    planted_ones = np.flatnonzero(
        own & ((directions @ world.features[-4:, 1].numpy().T).max(1) > 0.9)
    )
    assert set(found) == set(planted_ones)  # all that training found, and nothing else of its block
    assert len(found) >= 2  # whether training finds every one is another test's business
    same = same_pair(world.stream, model=1)
    null = study_latents(
        train_crosscoder(same, dedicated(), SETTINGS, device="cpu").dictionary, same
    ).table
    assert (null.column("partition") != "shared").sum() == 12
    control = pair_row(null, shuffled=False)
    assert control["holds"] is not False, control
    assert not np.isin(null.column("specific"), ["after", "before"]).any()
    assert false_discovery_row(study.table, null)["counts"]["rate"] in (0, None)
