"""Latent scaling against a direct least-squares fit, at its two ends, and swapped."""

from itertools import product

import numpy as np
import pytest
import torch

from crosscoders.dictionaries.dictionary import Dictionary, DictionaryConfig
from crosscoders.dictionaries.settings import Partition
from crosscoders.latents.controls import same_pair
from crosscoders.latents.table import TARGETS, latent_table
from tests.crosscoders.latent_worlds import World, held, oracle, planted, random_dictionary

CASES = [
    Partition(latents=12),
    Partition(latents=12, before_only=3, after_only=4),
    Partition(latents=12, after_only=4, tied=True),
]


def fitted(target: np.ndarray, f: np.ndarray, v: np.ndarray) -> float:
    """`argmin_b sum |target - b f v|^2` by a dense least-squares solver."""
    return float(
        np.linalg.lstsq((f[:, None] * v).reshape(-1, 1), target.reshape(-1), rcond=None)[0][0]
    )


@pytest.mark.parametrize("partition", CASES, ids=["plain", "dedicated", "tied"])
@pytest.mark.parametrize("seed", range(3))
def test_nu_is_what_a_dense_least_squares_fit_gives(partition: Partition, seed: int) -> None:
    dictionary = random_dictionary(partition, seed=seed, width=7)
    stream = held(torch.randn(90, 2, 7, generator=torch.Generator().manual_seed(seed)), block=13)
    found = latent_table(dictionary, stream).scaling
    scaled = dictionary.scaled(stream.activations).detach()
    codes = dictionary.encode(scaled)
    f, d = codes.dense(12).detach().numpy(), dictionary.directions().numpy()
    h, centres = scaled.numpy(), dictionary.centres.detach().numpy()
    spoken = np.stack([f @ d[:, m] for m in range(2)], axis=1)
    for latent, direction in product(range(12), range(2)):
        v, other = d[latent, direction], 1 - direction
        nus = (found.before, found.after)[direction]
        if not v.any() or not f[:, latent].any():
            assert np.isnan(nus["error"].estimate[latent])
            continue
        own = [f[:, latent, None] * d[latent, m] for m in range(2)]
        error = [
            fitted(h[:, m] - centres[m] - spoken[:, m] + own[m], f[:, latent], v) for m in range(2)
        ]
        part = [fitted(spoken[:, m], f[:, latent], v) for m in range(2)]
        whole = [fitted(h[:, m] - centres[m], f[:, latent], v) for m in range(2)]
        assert found.beta[latent, direction] == pytest.approx(error, rel=1e-4, abs=1e-5)
        if error[direction] > 0.01:
            assert nus["error"].estimate[latent] == pytest.approx(
                error[other] / error[direction], rel=1e-3, abs=1e-4
            )
            gap = (whole[direction] - whole[other]) / error[direction]
            assert nus["difference"].estimate[latent] == pytest.approx(1 - gap, rel=1e-3, abs=1e-3)
        if part[direction] > 0.01:
            wanted = part[other] / part[direction]
            assert nus["reconstruction"].estimate[latent] == pytest.approx(
                wanted, rel=1e-3, abs=1e-4
            )


def test_a_latent_that_claims_a_shared_feature_is_found_out_and_a_true_one_is_not() -> None:
    """The last eight latents claim to be after-only; four of their features are shared in truth."""
    world = planted(shared=20, before_only=0, after_only=4, width=32, rows=6000, seed=1)
    dictionary = oracle(world, Partition(latents=24, after_only=8))
    nus = latent_table(dictionary, world.stream).scaling.after
    liars, true = slice(16, 20), slice(20, 24)
    for target in ("error", "difference"):
        assert (nus[target].estimate[liars] > 0.8).all()
        assert (np.abs(nus[target].estimate[true]) < 0.15).all()
        assert (nus[target].low[liars] > 0.5).all()
        assert (nus[target].high[true] < 0.3).all()


def test_a_feature_that_other_latents_carry_is_seen_by_two_targets_and_not_by_the_error() -> None:
    """Decoupling: a shared feature, said by a before-only latent in one model
    and an after-only one in the other.
    """
    world = planted(shared=9, before_only=0, after_only=0, width=16, rows=4000, seed=2)
    number = len(world.features)
    split = world.features[[0, *range(1, number), 0]].clone()
    split[0, 1] = 0
    split[-1, 0] = 0
    active = torch.cat([world.active, world.active[:, :1]], dim=1)
    double = World(stream=world.stream, features=split, active=active)
    dictionary = oracle(double, Partition(latents=number + 1, before_only=1, after_only=1))
    nus = latent_table(dictionary, world.stream).scaling.after
    assert abs(nus["error"].estimate[-1]) < 0.15  # blind
    assert nus["reconstruction"].estimate[-1] > 0.8
    assert nus["difference"].estimate[-1] > 0.8


def test_in_a_pair_of_equal_models_the_difference_target_is_one_whatever_the_dictionary_says() -> (
    None
):
    world = planted(shared=12, before_only=2, after_only=4, width=24, rows=3000, seed=4)
    dictionary = oracle(world, Partition(latents=18, before_only=2, after_only=8))
    stream = same_pair(world.stream, model=1)
    nu = latent_table(dictionary, stream).scaling.after["difference"].estimate
    assert np.isfinite(nu[10:]).all()
    np.testing.assert_allclose(nu[np.isfinite(nu)], 1, atol=1e-3)


def test_intervals_cover_the_truth_and_rest_on_tasks_not_on_rows() -> None:
    """Activations differ by task alone: with rows as units the interval would be far too narrow."""
    hits, widths = 0, []
    for seed in range(60):
        random = np.random.default_rng(seed)
        tasks, rows = 24, 20
        ratio = np.repeat(
            random.normal(0.5, 0.2, tasks), rows
        )  # of the feature in before, drawn by task
        h = torch.zeros(tasks * rows, 2, 2)
        h[:, 1, 0] = 1.0
        h[:, 0, 0] = torch.from_numpy(ratio)
        dictionary = one_direction()
        nu = latent_table(dictionary, held(h, tasks=tasks)).scaling.after["error"]
        hits += nu.low[0] <= 0.5 <= nu.high[0]
        widths.append(nu.high[0] - nu.low[0])
    assert hits >= 50  # 95 % of 60 is 57; 50 or fewer has a chance of 1e-3 at a true 91 %
    assert (
        0.10 < np.mean(widths) < 0.22
    )  # 2 x 1.96 x 0.2 / sqrt(24) = 0.16; by rows it would be 0.036


def test_an_sae_reads_one_model_and_is_compared_with_its_own_codes_on_the_other() -> None:
    """Two orthogonal features; the first in both models, the second in after alone."""
    dictionary = Dictionary(
        DictionaryConfig(width=4, partition=Partition(latents=2), models=1, activation="relu", k=1)
    )
    with torch.no_grad():
        dictionary.encoders[0].copy_(torch.eye(4)[:2])
        dictionary.decoders[0].copy_(torch.eye(4)[:2])
    active = torch.rand(100, 2, generator=torch.Generator().manual_seed(0))
    h = torch.zeros(100, 2, 4)
    h[:, 1, :2] = active
    h[:, 0, 0] = active[:, 0]
    nus = latent_table(dictionary, held(h)).scaling.after
    for target in TARGETS:
        np.testing.assert_allclose(nus[target].estimate, [1, 0], atol=1e-5)


def one_direction() -> Dictionary:
    """One after-only latent along the first axis."""
    config = DictionaryConfig(
        width=2, partition=Partition(latents=1, after_only=1), activation="relu", k=1
    )
    dictionary = Dictionary(config)
    with torch.no_grad():
        dictionary.encoders[1].copy_(torch.tensor([[1.0, 0.0]]))
        dictionary.decoders[1].copy_(torch.tensor([[1.0, 0.0]]))
    return dictionary
