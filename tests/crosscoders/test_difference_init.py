"""Initialisation from the difference: what the difference-SAE says is moved without a loss, to the
right model, and nothing moves before.
"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from crosscoders.activations.streams import Rows, TensorStream
from crosscoders.dictionaries.crosscoder_run import train_crosscoder, train_crosscoders
from crosscoders.dictionaries.crosscoder_trainer import Trainer, TrainingJob
from crosscoders.dictionaries.dictionary import Dictionary, DictionaryConfig
from crosscoders.dictionaries.difference_init import (
    DifferenceInit,
    merge_coactive,
    trainer_of,
    write_latents,
)
from crosscoders.dictionaries.settings import Partition, TrainerSettings
from forensics.errors import UserError

WIDTH = 24
PART = Partition(latents=40, before_only=6, after_only=9, tied=True, readers="all")
CONFIG = DictionaryConfig(width=WIDTH, partition=PART, k=3, own_k=0.8)
SETTINGS = TrainerSettings(
    tokens=100_000, batch=200, learning_rate=5e-3, opening=0.5, log_every=20, save_every=10
)


def _strengths(rows: int, generator: torch.Generator) -> torch.Tensor:
    return (torch.rand((rows, 26), generator=generator) < 0.12) * (
        0.5 + torch.rand((rows, 26), generator=generator)
    )


def _world(
    rows: int = 8000, seed: int = 0, turned: float = 0.0
) -> tuple[TensorStream, torch.Tensor]:
    """20 shared directions (turned apart by an angle), then 3 of before and 3
    of after alone; unit `[26, 2, width]`.
    """
    generator = torch.Generator().manual_seed(seed)
    one, aside = torch.nn.functional.normalize(
        torch.randn((2, 26, WIDTH), generator=generator), dim=-1
    )
    other = torch.cos(torch.tensor(turned)) * one + torch.sin(torch.tensor(turned)) * aside
    known = torch.stack([one, torch.nn.functional.normalize(other, dim=-1)], 1)
    known[20:23, 1] = 0
    known[23:, 0] = 0
    strength = _strengths(rows, generator)
    noise = 0.02 * torch.randn((rows, 2, WIDTH), generator=generator)
    return TensorStream(
        activations=torch.einsum("rl,lmw->rmw", strength, known) + noise, rows=Rows.blank(rows)
    ), known


def _swapped(stream: TensorStream) -> TensorStream:
    return TensorStream(activations=stream.activations.flip(1), rows=stream.rows)


def _opened(stream: TensorStream, config: DictionaryConfig = CONFIG) -> Trainer:
    """A trainer at the very end of its initialisation."""
    job = TrainingJob(config=config, settings=SETTINGS)
    trainer = trainer_of(job, stream.activations[:4000], torch.device("cpu"))
    assert isinstance(trainer.init, DifferenceInit)
    batches = stream.activations.split(SETTINGS.batch)
    for step in range(trainer.init.steps):
        trainer.step(batches[step % len(batches)])
    return trainer


@pytest.mark.parametrize("model", [0, 1])
def test_a_moved_latent_says_in_its_model_what_it_said_of_the_difference(model: int) -> None:
    generator = torch.Generator().manual_seed(1)
    dictionary = Dictionary(CONFIG, seed=1).double()
    inner = Dictionary(
        DictionaryConfig(width=WIDTH, partition=Partition(latents=18), models=1, k=1), seed=2
    ).double()
    with torch.no_grad():
        for weights in (*dictionary.parameters(), *inner.parameters()):
            weights += 0.3 * torch.randn(weights.shape, generator=generator, dtype=torch.float64)
        dictionary.scale.fill_(0.7)
        inner.scale.fill_(2.5)
    first = 0 if model == 0 else PART.shared.stop
    places, chosen = torch.arange(first, first + 4), torch.tensor([11, 3, 0, 17])
    others = [i for i in range(40) if i not in places.tolist()]
    before = dictionary.directions()
    write_latents(dictionary, inner, model, places, chosen)
    rows = torch.randn((50, 2, WIDTH), generator=generator, dtype=torch.float64)
    told = (
        inner.pre_activations(inner.scaled(rows[:, 1:] - rows[:, :1]))[:, chosen] / inner.scale
    )  # raw units
    found = dictionary.pre_activations(dictionary.scaled(rows))[:, places] / dictionary.scale
    torch.testing.assert_close(found, told)
    said = dictionary.directions()[places]
    torch.testing.assert_close(said[:, model], inner.decoder(0)[chosen] * (1 if model == 1 else -1))
    assert not said[:, 1 - model].any() and torch.equal(
        dictionary.directions()[others], before[others]
    )


def test_a_feature_kept_as_two_latents_is_moved_as_one_and_features_that_only_meet_are_not() -> (
    None
):
    """Latents 0 and 1 always fire alike, at right angles, and together write
    axis 0; 2 and 3 fire together half of the time, with strengths of their own.
    """
    generator = torch.Generator().manual_seed(0)
    inner = Dictionary(
        DictionaryConfig(width=4, partition=Partition(latents=4), models=1, k=1)
    ).double()
    half = 0.5**0.5
    pair = torch.tensor([[half, half, 0, 0], [half, -half, 0, 0]], dtype=torch.float64)
    strength = torch.rand((4000, 3), generator=generator, dtype=torch.float64) + 0.5
    active = torch.rand((4000, 3), generator=generator) < torch.tensor([0.3, 0.5, 0.5])
    drawn = strength * active
    rows = torch.stack([drawn[:, 0], 0 * drawn[:, 0], drawn[:, 1], drawn[:, 2]], 1)
    with torch.no_grad():
        for weights in (inner.encoders[0], inner.decoders[0]):
            weights.copy_(torch.cat([pair, torch.eye(4, dtype=torch.float64)[2:]]))
    before = inner.pre_activations(rows[:, None]).relu().detach()
    kept = merge_coactive(inner, torch.tensor([2, 1, 0, 3]), before.T @ before)
    assert kept.tolist() == [2, 1, 3]
    after = inner.pre_activations(rows[:, None]).relu().detach()[:, kept]
    torch.testing.assert_close(
        inner.decoder(0)[1].detach(), torch.tensor([1, 0, 0, 0], dtype=torch.float64)
    )
    torch.testing.assert_close(after @ inner.decoder(0)[kept].detach(), rows)


@pytest.mark.parametrize("swap", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_each_model_gets_the_features_that_are_its_own(swap: bool) -> None:
    """At the end of the opening, before they have learnt anything in their places."""
    stream, known = _world()
    found = _opened(_swapped(stream) if swap else stream).dictionary.directions()
    for model, block in ((0, slice(0, 6)), (1, slice(31, 40))):
        own = known[20:23, 0] if (model == 0) != swap else known[23:, 1]
        cosines = (
            torch.nn.functional.normalize(found[block, model], dim=-1) @ own.T
        )  # the sign counts
        assert (cosines.amax(0) > 0.95).all()


@pytest.mark.slow
def test_shared_features_that_turned_are_nobodys_own() -> None:
    """All that parts the models is shared features whose directions are turned:
    both models move along it.
    """
    stream, _ = _world(turned=0.8)
    shared = stream.activations - _one_model_part(stream, *_world(turned=0.8))
    trainer = _opened(TensorStream(activations=shared, rows=stream.rows))
    start = Dictionary(CONFIG, SETTINGS.seed).directions()
    taken = (trainer.dictionary.directions() - start).abs().amax((1, 2)) > 1e-3
    taken[PART.shared] = False
    assert (
        int(taken.sum()) <= 1
    )  # of 18: the weakest, which stand for no feature, have moved along by chance


def _one_model_part(stream: TensorStream, again: TensorStream, known: torch.Tensor) -> torch.Tensor:
    """What the one-model features add to rows: the same draws once more, with
    these features alone.
    """
    generator = torch.Generator().manual_seed(0)
    torch.randn((2, 26, WIDTH), generator=generator)
    strength = _strengths(8000, generator)
    assert torch.equal(stream.activations, again.activations)
    return torch.einsum("rl,lmw->rmw", strength[:, 20:], known[20:])


def test_until_the_move_one_model_latents_hold_still_and_the_shared_ones_learn() -> None:
    stream, _ = _world()
    trainer = trainer_of(
        TrainingJob(config=CONFIG, settings=SETTINGS),
        stream.activations[:4000],
        torch.device("cpu"),
    )
    start = {name: value.clone() for name, value in trainer.dictionary.state_dict().items()}
    for batch in stream.activations.split(200)[:5]:
        trainer.step(batch)
    now, shared = trainer.dictionary.state_dict(), torch.zeros(40, dtype=torch.bool)
    shared[PART.shared] = True
    for name in ("encoders.0", "encoders.1", "bias"):
        assert torch.equal(now[name][~shared], start[name][~shared]) and not torch.equal(
            now[name], start[name]
        )
    for name in ("decoders.0", "decoders.1"):
        torch.testing.assert_close(
            now[name], start[name]
        )  # their norm is set to one again at every step


def test_identical_models_have_nothing_to_move() -> None:
    stream, _ = _world(2000)
    twice = TensorStream(activations=stream.activations[:, [0, 0]], rows=stream.rows)
    trainer = _opened(twice)
    assert float(trainer.init.products.sum()) == 0
    assert all(bool(weights.isfinite().all()) for weights in trainer.dictionary.parameters())


# while it opens, at the move, and after it
@pytest.mark.slow
@pytest.mark.parametrize("cut", (40, 75, 100))
def test_a_training_cut_off_around_the_move_goes_on_with_the_same_bits(
    tmp_path: Path, cut: int
) -> None:
    stream, _ = _world(3000)
    settings = replace(SETTINGS, tokens=30_000, save_every=5, log_every=1)
    whole = train_crosscoder(stream, CONFIG, settings, device="cpu").dictionary.state_dict()

    def stop(now: object) -> None:
        if now.step >= cut:  # type: ignore[attr-defined]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_crosscoder(stream, CONFIG, settings, device="cpu", folder=tmp_path, progress=stop)
    again = train_crosscoder(stream, CONFIG, settings, device="cpu", folder=tmp_path, resume=True)
    for name, value in again.dictionary.state_dict().items():
        assert torch.equal(value, whole[name]), name


def test_without_an_opening_nothing_is_changed_and_where_it_cannot_be_it_is_refused() -> None:
    stream, _ = _world(2000)
    plain = trainer_of(
        TrainingJob(config=CONFIG, settings=replace(SETTINGS, opening=0.0)),
        stream.activations,
        torch.device("cpu"),
    )
    assert plain.init is None
    for config in (
        replace(CONFIG, own_k=None),
        replace(CONFIG, partition=replace(PART, readers="own")),
    ):
        with pytest.raises(UserError, match=r"opening is 0\.5"):
            train_crosscoders(stream, {"dictionary": TrainingJob(config=config, settings=SETTINGS)})
    with pytest.raises(UserError, match=r"opening is 1\.5"):
        replace(SETTINGS, opening=1.5)
