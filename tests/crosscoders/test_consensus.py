"""What seeds agree on is merged into what they have in common, and trained on from there."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from crosscoders.dictionaries import (
    DictionaryConfig,
    Partition,
    TrainerSettings,
    TrainingJob,
    train_crosscoders,
)
from crosscoders.dictionaries.dictionary import Dictionary
from crosscoders.latents.consensus import agreed, merged
from crosscoders.latents.stability import Stability, stability
from crosscoders.steering.activation_edits import account_change
from tests.crosscoders.latent_worlds import (
    held,
    mirrored,
    oracle,
    planted,
    random_dictionary,
    silent,
)

PARTITION = Partition(latents=24, before_only=4, after_only=6, tied=True, readers="all")
EVERYWHERE = np.ones(24)


def said_otherwise(first: Dictionary, seed: int) -> Dictionary:
    """The same function in other units: latents of a block in another order, decoders of another
    length, activations scaled by another number.
    """
    other = Dictionary(first.config)
    other.load_state_dict(first.state_dict())
    part, generator = first.config.partition, torch.Generator().manual_seed(seed)
    length = 0.5 + torch.rand(part.latents, generator=generator)
    order, units = torch.arange(part.latents), 1.7
    for block in (slice(0, part.before_only), part.shared, slice(part.shared.stop, None)):
        order[block] = order[block][torch.randperm(len(order[block]), generator=generator)]
    with torch.no_grad():
        for m in range(2):
            other.encoders[m].copy_((first.encoders[m] / length[:, None])[order])
            own = order[first.own(m)]
            other.decoders[m].copy_(first.decoders[m][own - first.own(m).start] * length[own, None])
        shared = order[part.shared]
        other.tied_decoder.copy_(
            first.tied_decoder[shared - part.before_only] * length[shared, None]
        )
        other.bias.copy_((first.bias * units / length)[order])
        other.threshold.copy_((first.threshold * units / length)[order])
        other.centres.mul_(units)
        other.scale.mul_(units)
    return other


def reconstructed(one: Dictionary, rows: torch.Tensor) -> torch.Tensor:
    codes = one.encode(one.scaled(rows))
    return torch.stack([one.decode(codes, m) / one.scale for m in range(2)], 1).detach()


def test_seeds_that_say_the_same_in_other_units_are_merged_into_that() -> None:
    first = random_dictionary(PARTITION, seed=1, width=20)
    with torch.no_grad():
        first.centres.mul_(0.1)  # so that all are active
        first.threshold.copy_(torch.rand(24, generator=torch.Generator().manual_seed(4)))
    others = [said_otherwise(first, seed) for seed in (2, 3)]
    rows = torch.randn(300, 2, 20, generator=torch.Generator().manual_seed(5))
    for other in others:
        torch.testing.assert_close(
            reconstructed(other, rows), reconstructed(first, rows), rtol=1e-4, atol=1e-4
        )
    found = stability(first, others, held(rows))
    one = merged([first, *others], found, EVERYWHERE)
    assert one is not None and one.config.partition == PARTITION
    torch.testing.assert_close(
        reconstructed(one, rows), reconstructed(first, rows), rtol=1e-4, atol=1e-4
    )
    norms, own = (each.directions().flatten(1).norm(dim=1) for each in (one, first))
    torch.testing.assert_close(norms, torch.ones(24))
    torch.testing.assert_close(one.threshold, first.threshold * own)


def matched(partners: list[list[int]]) -> Stability:
    return Stability(partners=np.array(partners), alive=np.ones(len(partners[0]), bool), chance=0.0)


def test_a_latent_that_fewer_than_half_of_the_others_have_is_left_out_of_its_block() -> None:
    seeds = [random_dictionary(PARTITION, seed=seed, width=20) for seed in (1, 2, 3)]
    partners = np.full((2, 24), -1)
    partners[:, 0], partners[0, 7], partners[1, 23] = (1, 1), 5, 20
    found = matched(partners.tolist())
    assert agreed(found).tolist() == [0, 7, 23]
    one = merged(seeds, found, EVERYWHERE)
    assert one is not None
    part = one.config.partition
    assert (part.latents, part.before_only, part.after_only) == (3, 1, 1)
    units = [torch.nn.functional.normalize(each.directions().flatten(1)) for each in seeds]
    expected = torch.nn.functional.normalize(units[0][7] + units[1][5], dim=0)
    torch.testing.assert_close(one.directions().flatten(1)[1], expected)  # the third has none
    assert merged(seeds, matched([[-1] * 24] * 2), EVERYWHERE) is None


def test_as_many_are_active_as_those_that_are_left_were() -> None:
    first = Dictionary(DictionaryConfig(width=20, partition=PARTITION, k=7, own_k=2.0), seed=1)
    found = matched([list(range(9)) + [-1] * 9 + list(range(18, 21)) + [-1] * 3])
    active = np.where(np.arange(24) < 18, 0.5, 0.2)  # 4 before-only, 14 shared, 6 after-only
    one = merged([first, first], found, active)
    assert one is not None
    assert one.config.k == round(7 * 5 / 14)  # shared ones that are left: 5 of 14, alike active
    assert one.config.own_k == pytest.approx(2 * (4 * 0.5 + 3 * 0.2) / (4 * 0.5 + 6 * 0.2))


def test_the_merged_directions_are_nearer_to_the_truth_than_one_seeds() -> None:
    world = planted(shared=19, before_only=0, after_only=5, width=40, rows=1500, seed=11)
    truth = oracle(world, Partition(latents=24, after_only=5, tied=True))
    seeds = []
    for seed in range(5):
        one = Dictionary(truth.config)
        one.load_state_dict(truth.state_dict())
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for table in (*one.decoders, one.tied_decoder):
                table.add_(0.03 * torch.randn(table.shape, generator=generator))
        seeds.append(one)
    one = merged(seeds, stability(seeds[0], seeds[1:], world.stream), EVERYWHERE)
    assert one is not None and len(one.bias) == 24

    def cosines(each: Dictionary) -> torch.Tensor:
        unit = torch.nn.functional.normalize
        return (unit(each.directions().flatten(1)) * unit(truth.directions().flatten(1))).sum(1)

    assert cosines(one).min() > 0.99 > cosines(seeds[0]).max()


def test_a_training_goes_on_from_its_start() -> None:
    world = planted(shared=12, before_only=0, after_only=2, width=16, rows=600, seed=3)
    partition = Partition(latents=14, after_only=2, tied=True, readers="all")
    config = DictionaryConfig(width=16, partition=partition, k=3, own_k=1.0)
    settings = TrainerSettings(tokens=2_000, batch=100, learning_rate=1e-3)
    jobs = {"first": TrainingJob(config=config, settings=settings)}
    first = train_crosscoders(world.stream, jobs, device="cpu")["first"].dictionary
    still = replace(settings, tokens=100, learning_rate=1e-12, seed=9)
    jobs = {"on": TrainingJob(config=config, settings=still, start=first)}
    again = train_crosscoders(world.stream, jobs, device="cpu")["on"].dictionary
    for name, part in first.state_dict().items():
        if name != "threshold":  # which a step moves on
            torch.testing.assert_close(again.state_dict()[name], part, msg=name)


def test_of_the_difference_only_the_account_is_left() -> None:
    before, after = torch.randn(2, 50, 4, generator=torch.Generator().manual_seed(0))
    whole = account_change(mirrored(4))  # accounts for all of it
    torch.testing.assert_close(whole.apply(after, before), after)
    none = account_change(silent(4, torch.zeros(2, 4)))
    torch.testing.assert_close(none.apply(after, before), before)
