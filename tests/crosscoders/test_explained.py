"""What is told of a latent, on rows where it is known."""

import numpy as np
import pytest
import torch

from crosscoders.activations.streams import Rows, StepNote, TextNote, plain_text
from crosscoders.dictionaries.dictionary import Dictionary, DictionaryConfig
from crosscoders.dictionaries.settings import Partition
from crosscoders.latents.explained import EACH, KINDS, explained, neuronpedia
from tests.crosscoders.tensor_stream import TensorStream

TEXTS, LENGTH, WIDTH = 60, 6, 4
CUE = 3  # the token that latent 0 is active on, in the policy's steps alone


@pytest.fixture(scope="module")
def dictionary():
    partition = Partition(latents=2, after_only=1, readers="all")
    made = Dictionary(DictionaryConfig(width=WIDTH, partition=partition, activation="relu", k=1))
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.zero_()
        for encoder in made.encoders:
            encoder[0, 0] = 0.5
        for decoder in made.decoders:
            decoder[0, 0] = 1.0
    return made


@pytest.fixture(scope="module")
def stream():
    token = np.tile([1, 2, CUE, 1, 2, CUE], TEXTS).astype(np.int32)
    step = np.tile([0, 0, 0, 1, 1, 1], TEXTS).astype(np.int32)
    text = np.repeat(np.arange(TEXTS), LENGTH).astype(np.int32)
    activations = torch.zeros((len(token), 2, WIDTH))
    fires = torch.from_numpy((token == CUE) & (step == 1))
    activations[fires, :, 0] = (1 + torch.from_numpy(text)[fires].float())[:, None]
    rows = vars(Rows.blank(len(token))) | {
        "text": text,
        "position": np.tile(np.arange(LENGTH), TEXTS).astype(np.int32),
        "token": token,
        "step": step,
    }
    notes = tuple(
        TextNote(
            id=f"{i}",
            task=f"{i}",
            steps=(StepNote(role="user"), StepNote(role="assistant", kinds=("read",))),
        )
        for i in range(TEXTS)
    )
    return TensorStream(activations=activations, rows=Rows(**rows), texts=notes)


@pytest.fixture(scope="module")
def unembedding():
    rows = torch.zeros((12, WIDTH))
    rows[:, 1] = 1.0
    rows[5], rows[9] = torch.tensor([2.0, 0, 0, 0]), torch.tensor([-2.0, 0, 0, 0])
    return rows


@pytest.fixture(scope="module")
def told(dictionary, stream, unembedding):
    return explained(dictionary, stream, [0, 1], unembedding)


def test_contexts_are_of_four_kinds_and_of_different_texts(told):
    contexts = told[0].contexts
    by_kind = {kind: [one for one in contexts if one.kind == kind] for kind in KINDS}
    assert {kind: len(some) for kind, some in by_kind.items()} == dict.fromkeys(
        ("strong", "middle", "weak", "silent"), EACH
    )
    assert len({one.text for one in contexts}) == len(contexts)
    least = {kind: min(one.value for one in some) for kind, some in by_kind.items()}
    assert least["strong"] > least["middle"] > least["weak"] > least["silent"] == 0
    assert all(one.position in (2, 5) for one in by_kind["silent"])  # the cue, elsewhere


def test_it_says_where_the_latent_fires_and_what_its_direction_raises(told):
    assert told[0].fires["kind read"] == (1.0, 0.5)
    assert told[0].fires["turn 1"] == (1.0, 0.5) and told[0].fires["role user"] == (0.0, 0.5)
    assert told[0].raises[0] == (5, pytest.approx(1.0))
    assert told[0].lowers[0] == (9, pytest.approx(-1.0))


def test_a_latent_that_never_fires_has_nothing_to_show(told):
    assert told[1].active == 0 and told[1].contexts == () and told[1].fires == {}
    assert told[1].raises == ()


def test_the_batch_holds_what_a_dashboard_shows(told, dictionary, stream):
    rows = stream.rows
    texts = [plain_text(rows.token[rows.text == i].tolist(), str(i)) for i in range(TEXTS)]
    batch = neuronpedia(
        list(told.values()),
        dictionary,
        model="m",
        layer=1,
        name="set",
        decode=str,
        texts=texts,
        rows=len(stream.rows),
    )
    feature = batch["features"][0]
    assert feature["pos_str"][0] == "5" and feature["frac_nonzero"] == pytest.approx(1 / 6)
    first = feature["activations"][0]
    assert first["tokens"][first["qualifying_token_index"]] == str(CUE)
    assert max(first["values"]) == first["values"][first["qualifying_token_index"]] > 0
