"""The files that explain latents."""

from types import SimpleNamespace

import pytest
import torch

from crosscoders.activations.streams import plain_text
from crosscoders.study.diff_files import EXPLANATIONS, NEURONPEDIA, Latent
from crosscoders.study.diff_page import latent_fold
from crosscoders.study.measures import write_explanations
from forensics.records.files import read_json
from tests.crosscoders.test_explained import TEXTS, dictionary, stream, unembedding  # noqa: F401


@pytest.fixture
def given(dictionary, stream, unembedding):  # noqa: F811
    rows, head = stream.rows, torch.nn.Linear(unembedding.shape[1], len(unembedding), bias=False)
    head.weight.data.copy_(unembedding)
    policy = SimpleNamespace(
        model=SimpleNamespace(get_output_embeddings=lambda: head),
        tokenizer=SimpleNamespace(decode=lambda ids: f" t{ids[0]}"),
        identity="after",
    )
    texts = [plain_text(rows.token[rows.text == i].tolist(), str(i)) for i in range(TEXTS)]
    stored = SimpleNamespace(
        **vars(stream),
        tokenized=texts,
        number=len(rows),
        blocks=stream.blocks,
        models=stream.models,
        width=stream.width,
    )
    return (dictionary, [policy], stored, [0, 1])


def test_files_say_what_a_latent_says(given, tmp_path):
    write_explanations(tmp_path, *given)
    found = read_json(tmp_path / EXPLANATIONS)
    assert found["0"]["raises"][0][0] == " t5"
    assert {one["kind"] for one in found["0"]["contexts"]} == {"strong", "middle", "weak", "silent"}
    assert found["1"]["contexts"] == []
    assert read_json(tmp_path / NEURONPEDIA)["features"][0]["pos_str"][0] == " t5"


def test_the_output_side_is_the_after_models(given, tmp_path):
    own, policies, *more = given
    write_explanations(tmp_path, own, [SimpleNamespace(model=None), *policies], *more)
    assert read_json(tmp_path / EXPLANATIONS)["0"]["raises"][0][0] == " t5"


def test_a_context_reaches_as_far_to_either_side(given, tmp_path, monkeypatch):
    monkeypatch.setattr("crosscoders.study.measures.WINDOW", 2)
    lengths = {one.note.id: len(one) for one in given[2].tokenized}
    reaches = []
    for context in write_explanations(tmp_path, *given)["0"]["contexts"]:
        at, last = context["position"], lengths[context["text"]] - 1
        reaches.append((context["at"], len(context["tokens"]) - context["at"] - 1))
        assert reaches[-1] == (min(at, 2), min(last - at, 2))
    assert (2, 2) in reaches


def test_the_page_says_what_the_files_say(given, tmp_path):
    found = write_explanations(tmp_path, *given)
    shown = dict.fromkeys(("relative_norm", "decoder_cosine", "nu_after", "nu_before"))
    latent = Latent(latent=0, partition="shared", frequency=0.5, q_value=None, **shown)
    fold = latent_fold(latent, found["0"]["contexts"][:1], found["0"])
    told = [block for block in fold.blocks if isinstance(block, str)]
    assert told[0].startswith("At the output it raises (cosine with the unembedding): ' t5' 1.00")
    assert any("turn 1 100.0 % (of all rows 50.0 %)" in one for one in told)
