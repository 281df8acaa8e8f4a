"""Training: finds a planted dictionary, goes on with the same bits, leaks
nothing, and says what is wrong.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from crosscoders.activations.streams import Block, Rows, difference_view
from crosscoders.dictionaries import crosscoder_run, train_crosscoder
from crosscoders.dictionaries.crosscoder_run import Progress, TrainedDictionary, train_crosscoders
from crosscoders.dictionaries.crosscoder_trainer import TrainingJob
from crosscoders.dictionaries.dictionary import DictionaryConfig
from crosscoders.dictionaries.settings import Partition, TrainerSettings
from forensics.errors import OutsideFailure, UserError
from tests.crosscoders.tensor_stream import TensorStream

WIDTH, SHARED, OWN, ACTIVE = 32, 40, 4, 4


def _world(rows: int, seed: int = 0) -> tuple[TensorStream, torch.Tensor]:
    """Activations from a known dictionary `[latents, 2, width]`: before-only,
    shared, after-only, in this order.
    """
    generator = torch.Generator().manual_seed(seed)
    latents = SHARED + 2 * OWN
    directions = torch.nn.functional.normalize(
        torch.randn((latents, WIDTH), generator=generator), dim=-1
    )
    known = directions[:, None].repeat(1, 2, 1)
    known[:OWN, 1] = 0
    known[-OWN:, 0] = 0
    active = torch.rand((rows, latents), generator=generator) < ACTIVE / latents
    value = active * (0.7 + torch.rand((rows, latents), generator=generator))
    noise = 0.02 * torch.randn((rows, 2, WIDTH), generator=generator)
    return TensorStream(
        activations=torch.einsum("rl,lmw->rmw", value, known) + noise, rows=Rows.blank(rows)
    ), known


def _config(activation: str = "batchtopk", **partition: int) -> DictionaryConfig:
    shape = Partition(**({"latents": 56, "before_only": 5, "after_only": 5} | partition))
    return DictionaryConfig(width=WIDTH, partition=shape, activation=activation, k=ACTIVE)


def _settings(**given: object) -> TrainerSettings:
    return TrainerSettings(
        **({"tokens": 4096, "batch": 256, "log_every": 4, "save_every": 4, "seed": 3} | given)
    )


@pytest.mark.parametrize(
    "activation",
    [
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("relu", "topk", "jumprelu")),
        "batchtopk",
    ],
)
def test_every_activation_finds_the_planted_directions(activation: str) -> None:
    stream, known = _world(20_000)
    settings = _settings(tokens=160_000, batch=160, learning_rate=5e-3, log_every=50, sparsity=2.0)
    fitted = train_crosscoder(stream, _config(activation), settings, device="cpu")
    cosines = (
        torch.nn.functional.normalize(known.flatten(1), dim=-1)
        @ torch.nn.functional.normalize(fitted.dictionary.directions().flatten(1), dim=-1).T
    )
    assert (cosines.amax(1) > 0.9).double().mean() >= 0.85
    assert (
        cosines[-OWN:, -5:].amax(1) > 0.9
    ).double().mean() >= 0.75  # after-only ones, in the after-only block
    assert min(fitted.history[-1]["variance_explained"]) > 0.75


class _Cut(Exception):
    """The machine went away."""


def _same_bits(one: TrainedDictionary, other: TrainedDictionary) -> None:
    theirs = other.dictionary.state_dict()
    for name, value in one.dictionary.state_dict().items():
        assert torch.equal(value, theirs[name]), name
    assert one.history == other.history


@pytest.mark.parametrize(
    "activation", ["batchtopk", pytest.param("jumprelu", marks=pytest.mark.slow)]
)
def test_a_training_that_was_cut_off_goes_on_with_the_same_bits(
    tmp_path: Path, activation: str
) -> None:
    """Cut in the fourth pass, between two checkpoints; by then some dead
    latents were drawn at random.
    """
    stream, _ = _world(1500)
    settings = _settings(tokens=8192, dead_after=256, auxiliary_latents=2)
    whole = train_crosscoder(
        stream, _config(activation, latents=300), settings, folder=tmp_path / "whole"
    )
    assert (
        whole.history[-1]["dead_share"] > 2 / 300 or activation == "jumprelu"
    )  # so some are drawn at random
    calls: list[int] = []

    @dataclass(frozen=True)
    class Breaking:
        stream: TensorStream
        models = 2
        width = WIDTH
        site, identity, texts = "synthetic", "synthetic", ()

        def blocks(self, seed: int | None = None) -> Iterator[Block]:
            for block in self.stream.blocks(seed):
                calls.append(1)
                if len(calls) > 34:
                    raise _Cut
                yield block

    small = TensorStream(activations=stream.activations, rows=stream.rows, block=200)
    with pytest.raises(_Cut):
        train_crosscoder(
            Breaking(small), _config(activation, latents=300), settings, folder=tmp_path / "cut"
        )
    done = json.loads((tmp_path / "cut" / "latest.json").read_text())
    assert 10 < int(done["checkpoint"].split("-")[1]) < settings.steps
    resumed = train_crosscoder(
        stream, _config(activation, latents=300), settings, folder=tmp_path / "cut", resume=True
    )
    _same_bits(whole, resumed)


class _Gone(BaseException):
    """As a kill: nothing that handles errors sees it."""


MOMENTS = ("save_file", "write_json", "rmtree")  # before it is there, is named, is alone


@pytest.mark.parametrize("moment", MOMENTS)
def test_cut_off_inside_a_checkpoint_it_goes_on_from_a_whole_one(
    tmp_path: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, _ = _world(1500)
    whole = train_crosscoder(stream, _config(), _settings())
    home = shutil if moment == "rmtree" else crosscoder_run
    before, calls = getattr(home, moment), []

    def cut(*given: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise _Gone
        return before(*given, **named)

    with monkeypatch.context() as late, pytest.raises(_Gone):
        late.setattr(home, moment, cut)
        train_crosscoder(stream, _config(), _settings(), folder=tmp_path)
    assert len(list(tmp_path.glob("step-*"))) == 2
    resumed = train_crosscoder(stream, _config(), _settings(), folder=tmp_path, resume=True)
    _same_bits(whole, resumed)
    assert [one.name for one in tmp_path.glob("step-*")] == ["step-00000016"]


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_inside_a_checkpoint_it_goes_on_from_a_whole_one(
    tmp_path: Path, moment: str
) -> None:
    code = f"""
import shutil
from crosscoders.dictionaries import crosscoder_run, train_crosscoder
from tests.crosscoders.test_training_run import _config, _settings, _world
from tests.killed import killed_before
home = shutil if {moment!r} == "rmtree" else crosscoder_run
setattr(home, {moment!r}, killed_before(getattr(home, {moment!r}), 2))
train_crosscoder(_world(1500)[0], _config(), _settings(), folder={str(tmp_path)!r})
"""
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": "."})
    assert done.returncode == -signal.SIGKILL
    stream, _ = _world(1500)
    resumed = train_crosscoder(stream, _config(), _settings(), folder=tmp_path, resume=True)
    _same_bits(train_crosscoder(stream, _config(), _settings()), resumed)


def test_a_full_disk_is_one_sentence_and_the_checkpoint_before_it_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, _ = _world(1500)
    whole, write, calls = train_crosscoder(stream, _config(), _settings()), save_file, []

    def full(*given: Any) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise SafetensorError("I/O error: No space left on device (os error 28)")
        write(*given)

    with monkeypatch.context() as late, pytest.raises(OutsideFailure, match="o space left"):
        late.setattr(crosscoder_run, "save_file", full)
        train_crosscoder(stream, _config(), _settings(), folder=tmp_path)
    _same_bits(
        whole, train_crosscoder(stream, _config(), _settings(), folder=tmp_path, resume=True)
    )


def test_other_settings_another_stream_or_no_leave_to_resume_are_refused(tmp_path: Path) -> None:
    stream, _ = _world(1500)
    train_crosscoder(stream, _config(), _settings(), folder=tmp_path)
    with pytest.raises(UserError, match="resume it, or choose another folder"):
        train_crosscoder(stream, _config(), _settings(), folder=tmp_path)
    with pytest.raises(UserError, match=r"learning_rate none, not 0\.5"):
        train_crosscoder(
            stream, _config(), _settings(learning_rate=0.5), folder=tmp_path, resume=True
        )
    other = TensorStream(activations=stream.activations, rows=stream.rows, identity="other")
    with pytest.raises(UserError, match="stream synthetic, not other"):
        train_crosscoder(other, _config(), _settings(), folder=tmp_path, resume=True)


def test_several_on_one_stream_are_what_each_is_alone_and_the_stream_is_read_once() -> None:
    stream, _ = _world(2000)
    read: list[int] = []

    @dataclass(frozen=True)
    class Counting:
        models = 2
        width = WIDTH
        site, identity, texts = "synthetic", "synthetic", ()

        def blocks(self, seed: int | None = None) -> Iterator[Block]:
            read.append(1)
            yield from stream.blocks(seed)

    single = DictionaryConfig(width=WIDTH, models=1, partition=Partition(latents=20), k=2)
    jobs = {
        "dedicated": TrainingJob(config=_config(), settings=_settings()),
        "difference": TrainingJob(config=single, settings=_settings(), view=difference_view),
    }
    together = train_crosscoders(Counting(), jobs)
    passes = -(-16 // (2000 // 256))
    assert len(read) == 1 + passes  # one look for the scale
    _same_bits(together["dedicated"], train_crosscoder(stream, _config(), _settings()))
    _same_bits(
        together["difference"],
        train_crosscoders(stream, {"difference": jobs["difference"]})["difference"],
    )


def test_another_seed_of_the_weights_sees_the_same_batches() -> None:
    """Other first weights, and so another dictionary; each what it is alone."""
    stream, _ = _world(2000)
    jobs = {
        str(seed): TrainingJob(config=_config(), settings=_settings(weights_seed=seed))
        for seed in (3, 4)
    }
    found = train_crosscoders(stream, jobs)
    _same_bits(found["3"], train_crosscoder(stream, _config(), _settings()))
    one, two = (found[name].dictionary for name in jobs)
    assert torch.equal(one.scale, two.scale)
    assert not torch.allclose(one.encoders[0], two.encoders[0], atol=0.1)


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_a_broken_activation_is_told_in_one_sentence_and_the_checkpoint_stays(
    tmp_path: Path, broken: float
) -> None:
    good, _ = _world(3000)
    settings = _settings(scale_rows=256)

    @dataclass(frozen=True)
    class Rotting:
        models = 2
        width = WIDTH
        site, identity, texts = "blocks.1.hook_resid_post", "rotting", ()

        def blocks(self, seed: int | None = None) -> Iterator[Block]:
            blocks = TensorStream(activations=good.activations, rows=good.rows, block=256).blocks()
            for number, block in enumerate(blocks):
                if number == 6:
                    block.activations[3, 1, 2] = broken
                yield block

    with pytest.raises(UserError, match=r"blocks\.1\.hook_resid_post hold NaN or infinite"):
        train_crosscoder(Rotting(), _config(), settings, folder=tmp_path)
    state = json.loads((tmp_path / "latest.json").read_text())
    assert (tmp_path / state["checkpoint"] / "dictionary.safetensors").exists()
    assert state["checkpoint"] == "step-00000004"


def test_a_pass_shorter_than_a_batch_is_a_batch() -> None:
    stream, _ = _world(100)
    fitted = train_crosscoder(stream, _config(), _settings(tokens=1024))
    assert fitted.history[-1]["step"] == 4


def _stacked(seed: int, **given: object) -> TrainingJob:
    """As those of a diff: small, latents that read both models, the one-model ones chosen apart."""
    part = Partition(latents=64, after_only=8, tied=True, readers="all")
    config = DictionaryConfig(width=WIDTH, partition=part, k=ACTIVE, own_k=2.0)
    settings = _settings(weights_seed=seed, difference_weight=(1.0, 10.0), **given)
    return TrainingJob(config=config, settings=settings)


def test_a_stack_takes_the_steps_that_each_takes_alone() -> None:
    """Dead latents, the threshold and a view of its own included."""
    stream, _ = _world(2000)
    jobs = {str(seed): _stacked(seed, tokens=6144, dead_after=256) for seed in (3, 4)}
    swapped = replace(jobs["4"], view=lambda rows: rows.flip(1))
    jobs["swapped"] = swapped
    found = train_crosscoders(stream, jobs)
    for name, job in jobs.items():
        alone = train_crosscoders(stream, {name: job})[name]
        for part, value in alone.dictionary.state_dict().items():
            torch.testing.assert_close(
                found[name].dictionary.state_dict()[part], value, atol=2e-3, rtol=2e-2
            )
        assert found[name].history[-1]["loss"] == pytest.approx(alone.history[-1]["loss"], rel=1e-3)
        assert found[name].history[-1]["dead_share"] == alone.history[-1]["dead_share"]


def test_a_stack_that_was_cut_off_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    stream, _ = _world(1500)
    jobs = {str(seed): _stacked(seed) for seed in (3, 4)}
    whole = train_crosscoders(stream, jobs)
    seen: list[int] = []

    def cut(now: Progress) -> None:
        seen.append(now.step)
        if len(seen) == 3:
            raise _Cut

    with pytest.raises(_Cut):
        train_crosscoders(stream, jobs, folder=tmp_path, progress=cut)
    resumed = train_crosscoders(stream, jobs, folder=tmp_path, resume=True)
    for name in jobs:
        _same_bits(whole[name], resumed[name])
