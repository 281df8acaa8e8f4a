"""At which of three checkpoints a latent came, where it is known."""

import numpy as np
import pytest
import torch

from crosscoders.dictionaries.crosscoder_run import train_crosscoder
from crosscoders.dictionaries.dictionary import Dictionary, DictionaryConfig
from crosscoders.dictionaries.settings import Partition, TrainerSettings
from crosscoders.latents.table import came, presence
from forensics.errors import UserError
from tests.crosscoders.latent_worlds import held

NAMES = ("base", "sft", "rl")
# of each feature, whether base, SFT and RL write it
STAGES = {"base": (1, 1, 1), "sft": (0, 1, 1), "rl": (0, 0, 1), "gone": (1, 1, 0)}
ROWS, WIDTH = 6000, 24


@pytest.fixture(scope="module")
def world():
    """Orthogonal features, two of each stage; the stream, their directions and names."""
    generator = torch.Generator().manual_seed(3)
    basis = torch.linalg.qr(torch.randn((WIDTH, WIDTH), generator=generator))[0]
    names = [name for name in STAGES for _ in range(2)]
    directions = basis[: len(names)]
    fires = torch.rand((ROWS, len(names)), generator=generator) < 0.15
    values = fires * (1 + torch.rand((ROWS, len(names)), generator=generator))
    seen = torch.tensor([STAGES[name] for name in names]).float()
    rows = torch.einsum("rf,fm,fw->rmw", values, seen, directions)
    noise = 0.02 * torch.randn(rows.shape, generator=generator)
    return held(rows + noise, tasks=40), directions, names


def known(directions):
    """A dictionary with these directions, whose decoders claim that all models have all."""
    config = DictionaryConfig(
        width=WIDTH, models=3, activation="relu", k=2, partition=Partition(latents=len(directions))
    )
    made = Dictionary(config)
    with torch.no_grad():
        for encoder, decoder in zip(made.encoders, made.decoders, strict=True):
            encoder.copy_(directions / 3)
            decoder.copy_(directions)
        made.bias.fill_(-0.2)
        made.centres.zero_()
    return made


def test_presence_says_where_a_feature_is_whatever_the_decoders_claim(world):
    stream, directions, names = world
    found = came(presence(known(directions[:6]), stream), NAMES)
    assert found.tolist() == names[:6]


def test_a_trained_dictionary_tells_the_stages_apart(world):
    stream, directions, names = world
    config = DictionaryConfig(width=WIDTH, models=3, k=2, partition=Partition(latents=16))
    settings = TrainerSettings(tokens=120_000, batch=256, learning_rate=3e-3)
    trained = train_crosscoder(stream, config, settings, device="cpu").dictionary
    stages = came(presence(trained, stream), NAMES)
    written = torch.nn.functional.normalize(trained.directions().sum(1), dim=1)
    cosine = (directions @ written.T).abs()
    best = cosine.argmax(1)
    learnt = cosine.amax(1) > 0.95
    assert int(learnt.sum()) >= 5
    told = [stages[i] for i in best[learnt].tolist()]
    assert told == [name for name, known in zip(names, learnt, strict=True) if known]


def test_what_is_never_active_is_unknown_and_other_streams_are_refused(world):
    stream, directions, _ = world
    silent = known(directions)
    with torch.no_grad():
        silent.bias.fill_(-100)
    found = presence(silent, stream)
    assert np.isnan(found).all() and set(came(found, NAMES)) == {"unknown"}
    with pytest.raises(UserError, match="as many names"):
        came(found, NAMES[:2])
    with pytest.raises(UserError, match="train one on all checkpoints"):
        presence(known(directions), held(torch.zeros((10, 2, WIDTH))))
