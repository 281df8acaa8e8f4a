"""Which latents come back: those that were kept, each with one partner, and none by chance."""

import copy

import numpy as np
import pytest
import torch

from crosscoders.dictionaries.dictionary import Dictionary
from crosscoders.dictionaries.settings import Partition
from crosscoders.latents.controls import Pairs, assigned, other_seeds_row, stability
from crosscoders.latents.table import LatentTable, latent_table
from crosscoders.study.reported import CAUSELESS, COMES_BACK, SPECIFIC, reported
from forensics.errors import UserError
from tests.crosscoders.latent_worlds import held, oracle, planted, random_dictionary

LATENTS, KEPT = 40, 30


def rows(width: int = 48) -> torch.Tensor:
    return torch.randn(600, 2, width, generator=torch.Generator().manual_seed(5))


def turned(first: Dictionary, order: torch.Tensor, seed: int) -> Dictionary:
    """Another dictionary whose first `KEPT` latents are those of `first`, in another order."""
    other = random_dictionary(first.config.partition, seed=seed, width=first.config.width)
    with torch.no_grad():
        other.centres.copy_(first.centres)
        for m in range(2):
            for mine, theirs in (
                (other.decoders[m], 3 * first.decoders[m]),  # length does not matter
                (other.encoders[m], first.encoders[m]),
            ):
                new = mine.clone()
                new[:KEPT] = theirs[:KEPT]
                mine.copy_(new[order])
        bias = other.bias.clone()
        bias[:KEPT] = first.bias[:KEPT]
        other.bias.copy_(bias[order])
    return other


@pytest.fixture
def first() -> Dictionary:
    found = random_dictionary(Partition(latents=LATENTS), seed=1, width=48)
    with torch.no_grad():
        found.bias.zero_()  # so that all are active
        found.centres.zero_()
    return found


def shuffled_order() -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).permutation(LATENTS))


def test_what_was_kept_comes_back_and_nothing_by_chance(first: Dictionary) -> None:
    order = shuffled_order()
    found = stability(first, [turned(first, order, seed) for seed in (2, 3)], held(rows()))
    assert found.share[:KEPT].tolist() == [1.0] * KEPT
    assert not found.share[KEPT:].any() and found.chance == 0
    assert [int(order[p]) for p in found.partners[0][:KEPT]] == list(range(KEPT))
    row = other_seeds_row(found)
    assert row["share"] == pytest.approx(KEPT / LATENTS) and "75" in row["found"]


def test_one_that_points_the_same_way_and_fires_elsewhere_does_not_come_back(
    first: Dictionary,
) -> None:
    other = turned(first, torch.arange(LATENTS), seed=2)
    with torch.no_grad():
        for encoder in other.encoders:
            encoder[:5] *= -1
    found = stability(first, [other], held(rows()))
    assert not found.share[:5].any() and (found.share[5:KEPT] == 1).all()


def test_a_latent_that_is_never_active_has_no_stability(first: Dictionary) -> None:
    other = copy.deepcopy(first)
    with torch.no_grad():
        first.bias[3] = -1e9
    found = stability(first, [other], held(rows()))
    assert np.isnan(found.share[3]) and np.delete(found.share, 3).tolist() == [1.0] * (LATENTS - 1)


def test_two_of_one_feature_share_one_partner_and_the_assignment_is_the_best_in_all() -> None:
    """By best cosine both would take 0; in all it is more if the first yields."""
    pairs = Pairs(
        torch.tensor([0, 0, 1, 2]),
        torch.tensor([0, 1, 0, 2]),
        torch.tensor([0.99, 0.97, 0.98, 0.9]),
    )
    assert assigned(pairs, torch.ones(4), 4).tolist() == [1, 0, 2, -1]
    assert assigned(pairs, torch.tensor([1.0, 0.1, 1.0, 1.0]), 4).tolist() in (
        [0, -1, 2, -1],
        [-1, 0, 2, -1],
    )


def test_dictionaries_of_other_sites_are_refused(first: Dictionary) -> None:
    with pytest.raises(UserError, match="differ in width"):
        stability(first, [random_dictionary(Partition(latents=9), seed=0, width=12)], held(rows()))
    with pytest.raises(UserError, match="needs a second"):
        stability(first, [], held(rows()))


@pytest.fixture(scope="module")
def table() -> LatentTable:
    """Planted features, of which the first of every two after-only ones comes back."""
    world = planted(shared=19, before_only=0, after_only=5, width=40, rows=3000, seed=11)
    found = latent_table(
        oracle(world, Partition(latents=24, after_only=5, tied=True)), world.stream
    )
    return found.with_column("stability", np.arange(24) % 2 * 1.0)


def test_what_is_reported_is_specific_and_comes_back_and_the_rest_is_counted(
    table: LatentTable,
) -> None:
    specific = table.specific("after").tolist()
    assert len(specific) == 5
    stability = table.column("stability")
    found = reported(table, [0, 1, *specific], 1)
    assert found.latents == [one for one in specific if stability[one] == 1]
    assert found.left_out[SPECIFIC] == 2
    assert found.left_out[COMES_BACK] == len(specific) - len(found.latents) > 0
    tested = reported(table, [], 1, dict.fromkeys(specific, True))
    untested = reported(table, [], 1)
    assert tested.latents == untested.latents and CAUSELESS not in untested.left_out
    none = reported(table, [], 1, dict.fromkeys(specific, False))
    assert not none.latents and none.left_out[CAUSELESS] == len(found.latents)
    assert "not shown to move more" in none.sentence  # a test that fails shows no absence
    assert len(repr(table)) < 2000  # a prompt that prints it is not flooded


def test_without_other_seeds_it_is_said_that_stability_was_not_measured(
    table: LatentTable,
) -> None:
    found = reported(table, [], 0)
    assert found.latents == table.specific("after").tolist()
    assert "Stability was not measured" in found.sentence


def test_a_latent_that_some_of_the_others_have_comes_back_from_that_share(
    first: Dictionary,
) -> None:
    """Found once in four it is not found from every other seed."""
    foreign = [random_dictionary(Partition(latents=LATENTS), seed=n, width=48) for n in (7, 8, 9)]
    again = turned(first, shuffled_order(), 2)
    with torch.no_grad():
        for encoder in again.encoders:
            encoder.mul_(0.2)  # how active it is does not matter
    found = stability(first, [*foreign, again], held(rows()))
    assert found.share[:KEPT].tolist() == [0.25] * KEPT
