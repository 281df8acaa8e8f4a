"""Controls: what must show nothing shows nothing, what must show everything
does, a false rule is caught, and so it is for dictionaries that were trained.
"""

from collections import Counter

import numpy as np
import pytest
import torch

from crosscoders.activations.streams import Stream, TensorStream
from crosscoders.dictionaries.crosscoder_run import train_crosscoder
from crosscoders.dictionaries.dictionary import Dictionary, DictionaryConfig
from crosscoders.dictionaries.settings import Partition, TrainerSettings
from crosscoders.latents.controls import (
    false_discovery_row,
    mutual_best,
    pair_row,
    same_pair,
    second_seed_row,
    shuffled_pair,
)
from crosscoders.latents.table import SpecificConfig, latent_table, study_latents
from forensics.errors import UserError
from tests.crosscoders.latent_worlds import World, held, oracle, planted, random_dictionary

CLAIMS = Partition(
    latents=27, before_only=6, after_only=8
)  # three features of each side are shared in truth


def world() -> World:
    return planted(shared=19, before_only=3, after_only=5, width=40, rows=6000, seed=11)


def centred(dictionary: Dictionary, stream: TensorStream) -> Dictionary:
    """Centres at which the errors have mean zero, as training leaves them; the
    codes stay what they were.
    """
    with torch.no_grad():
        codes = dictionary.encode(dictionary.scaled(stream.activations))
        for m, seen in enumerate(dictionary.ranges):
            centre = (stream.activations[:, m] - dictionary.decode(codes, m)).mean(0)
            dictionary.centres[m] = centre
            dictionary.bias[seen] += dictionary.encoders[m] @ centre
    return dictionary


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


def test_in_a_shuffled_pair_nearly_every_latent_of_a_model_s_own_is_specific() -> None:
    known = planted(shared=27, before_only=0, after_only=0, width=40, rows=8000, seed=3)
    part = Partition(latents=27, before_only=13, after_only=14)
    dictionary = centred(oracle(known, part), known.stream)
    straight, shuffled = (
        latent_table(dictionary, known.stream),
        latent_table(dictionary, shuffled_pair(known.stream)),
    )
    assert not len(straight.specific())
    control = pair_row(shuffled, shuffled=True)
    assert control["holds"], control


def test_a_rule_without_latent_scaling_fails_the_same_model_control() -> None:
    known = world()
    blind = SpecificConfig(error=np.inf, difference=np.inf, share=0)
    table = latent_table(oracle(known, CLAIMS), same_pair(known.stream), specific=blind)
    control = pair_row(table, shuffled=False)
    assert control["share"] == 1
    assert control["holds"] is False


def test_shuffled_rows_never_meet_their_own_token_and_none_is_lost() -> None:
    known = held(torch.arange(100.0)[:, None, None].repeat(1, 2, 3), block=7)
    before, after = [], []
    for block in shuffled_pair(known, seed=4).blocks():
        before += block.activations[:, 0, 0].tolist()
        after += block.activations[:, 1, 0].tolist()
        np.testing.assert_array_equal(
            block.rows.token, block.activations[:, 0, 0].numpy().astype(int)
        )
    assert before == list(range(100))
    assert Counter(after) == Counter(range(100))
    assert not any(b == a for b, a in zip(before, after, strict=True))
    again: Stream = shuffled_pair(known, seed=4)
    assert torch.equal(
        torch.cat([block.activations[:, 1, 0] for block in again.blocks()]), torch.tensor(after)
    )


def test_streams_of_controls_say_what_they_are() -> None:
    stream = held(torch.randn(10, 2, 3, generator=torch.Generator().manual_seed(0)))
    names = {
        stream.identity,
        same_pair(stream).identity,
        same_pair(stream, model=1).identity,
        shuffled_pair(stream).identity,
        shuffled_pair(stream, seed=1).identity,
    }
    assert len(names) == 5
    for control in (same_pair(stream, model=1), shuffled_pair(stream)):
        assert (control.models, control.width, control.site) == (2, 3, "synthetic")
    block = next(same_pair(stream, model=1).blocks())
    assert torch.equal(block.activations[:, 0], stream.activations[:, 1])


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


def turned(dictionary: Dictionary, order: torch.Tensor, keep: int, seed: int) -> Dictionary:
    """The shared latents in another order, of which the first `keep` stay what they were."""
    other = random_dictionary(dictionary.config.partition, seed=seed, width=dictionary.config.width)
    with torch.no_grad():
        for m in range(2):
            new = other.decoders[m].clone()
            new[:keep] = 3 * dictionary.decoders[m][:keep]  # length does not matter
            other.decoders[m].copy_(new[order])
    return other


def test_the_share_that_recurs_is_the_share_that_was_kept() -> None:
    first = random_dictionary(Partition(latents=40), seed=1, width=48)
    order = torch.from_numpy(np.random.default_rng(0).permutation(40))
    second = turned(first, order, keep=30, seed=2)
    found = second_seed_row(first, second)
    assert found["share"] == pytest.approx(30 / 40)
    assert found["chance"] == 0
    partner, cosine = mutual_best(first.directions(), second.directions())
    assert [int(order[p]) for p in partner[:30]] == list(range(30))
    assert (cosine[30:] < 0.9).all()


def test_two_latents_cannot_recur_in_one_and_dead_ones_do_not_count() -> None:
    first = random_dictionary(Partition(latents=20), seed=1, width=24)
    second = turned(first, torch.arange(20), keep=20, seed=2)
    with torch.no_grad():
        for decoder in second.decoders:
            decoder[1] = decoder[0]
    assert second_seed_row(first, second)["share"] == pytest.approx(19 / 20)
    assert second_seed_row(second, first)["share"] == pytest.approx(
        19 / 20
    )  # two like the same one: only one has it
    alive = np.arange(20) != 1
    assert second_seed_row(first, second, alive=(alive, alive))["share"] == 1
    with pytest.raises(UserError, match="no living latent"):
        second_seed_row(first, second, alive=(alive, ~alive & False))
    with pytest.raises(UserError, match="differ in width"):
        second_seed_row(first, random_dictionary(Partition(latents=20), seed=1, width=8))


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
