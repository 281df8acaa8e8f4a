"""Attention sinks are found, named and left out, what lies beside them is still found,
and where there is none nothing changes.
"""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from crosscoders import diff
from crosscoders.activations.harvest import harvest
from crosscoders.activations.outlier_positions import limits_of, sentences, survey
from crosscoders.activations.streams import Block, plain_text
from crosscoders.study.diff_files import LATENTS, TOKENS, Shape
from forensics import policy_from
from tests.crosscoders.latent_worlds import held
from tests.crosscoders.test_study_diff import CUE, SITE, WORDS
from tests.tiny import save_tiny_qwen3, tiny_qwen3, tiny_tokenizer

SINK, PLAIN = "Z", "the"
TIMES = 100  # as large as the others


def token_of(word):
    return tiny_tokenizer()(word)["input_ids"][0]


def rows(number=400, width=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn((number, 2, width), generator=generator)


def planted(stream, every=50, times=TIMES, models=(0, 1)):
    """Every 50th row as large in some models."""
    changed = stream.clone()
    for m in models:
        changed[::every, m] *= times
    return changed


def test_a_survey_finds_names_and_weighs_the_planted_rows():
    plain = rows()
    found = survey(held(planted(plain), tasks=8))
    assert (found.number, found.rows, found.texts, found.of_texts) == (8, 400, 8, 8)
    assert found.positions == ((0, 8),) and found.by_model == (8, 8)
    assert found.tokens[0] == (0, 1) and len(found.tokens) == 5
    squares = planted(plain).square().sum(-1)[:, 0]
    assert found.squares[0] == pytest.approx(float(squares[::50].sum() / squares.sum()), rel=1e-5)
    assert min(found.squares) > 0.99 and found.difference > 0.99
    assert found.applied == limits_of(planted(plain).norm(dim=-1))
    (said,) = sentences(found, decode=lambda token: f"word{token}")
    assert "8 rows in 8 of 8 texts" in said and "position 0 (8 times)" in said
    assert "'word0'" in said and "left out of what follows" in said
    assert "kept, as asked" in sentences(found, kept=True)[0]


@pytest.mark.parametrize("times", [1, 5])
def test_without_a_sink_there_are_no_limits(times):
    found = survey(held(planted(rows(), times=times)))
    assert found.number == 0 and found.applied is None and sentences(found) == []


def sunk(model, scale=1.0):
    """The model with an embedding of `SINK` that is `TIMES` as long as the others."""
    with torch.no_grad():
        table = model.get_input_embeddings().weight
        table[token_of(SINK)] *= (
            scale * TIMES * table.norm(dim=-1).median() / table[token_of(SINK)].norm()
        )
    return model


def sunk_texts(number=6, length=12):
    random = np.random.default_rng(0)
    return [
        plain_text([token_of(SINK), *random.integers(3, 60, length + i).tolist()], f"t{i}")
        for i in range(number)
    ]


@pytest.fixture(scope="module")
def policies():
    return [policy_from(sunk(tiny_qwen3(i)), tiny_tokenizer(), f"sunk-{i}") for i in (0, 1)]


def whole(stream, seed=None):
    return Block.join(list(stream.blocks(seed)))


def test_a_part_leaves_out_what_is_beyond_the_limits_and_nothing_else(policies):
    texts = sunk_texts()
    stream = harvest(policies, texts, SITE)
    found, full = survey(stream), whole(stream)
    assert (found.number, found.positions) == (6, ((0, 6),))
    assert found.tokens == ((token_of(SINK), 6),)
    part = stream.part(texts[3:], found.applied)
    wanted = (full.rows.text >= 3) & (full.rows.position > 0)
    assert torch.equal(whole(part).activations, full.activations[torch.from_numpy(wanted)])
    assert (whole(part).rows.text == full.rows.text[wanted] - 3).all()
    assert [note.id for note in part.texts] == ["t3", "t4", "t5"]
    assert survey(part).applied is None
    assert len({stream.identity, part.identity, stream.part(texts[3:]).identity}) == 3


@pytest.fixture(scope="module")
def sunk_pair(tmp_path_factory):
    """A sink that differs between the models, and a direction that one word has more
    after training, which is a hundredth as long.
    """
    folder = tmp_path_factory.mktemp("sunk")
    places = [save_tiny_qwen3(folder / name, seed=3) for name in ("before", "after")]
    direction = torch.randn(64, generator=torch.Generator().manual_seed(1))
    for place, moved, more in zip(places, (0.0, 1.5), (0.0, 0.6), strict=True):
        tensors = load_file(place / "model.safetensors")
        (name,) = [name for name in tensors if "embed_tokens" in name]
        table = tensors[name].float()
        table[token_of(CUE)] += direction / direction.norm() * moved
        sink = torch.randn(64, generator=torch.Generator().manual_seed(2))
        sink += more * torch.randn(64, generator=torch.Generator().manual_seed(4))
        table[token_of(SINK)] = sink / sink.norm() * TIMES * table.norm(dim=-1).median()
        tensors[name] = table.to(torch.bfloat16)
        save_file(tensors, place / "model.safetensors", metadata={"format": "pt"})
    return places


def texts_file(path, first):
    generator = torch.Generator().manual_seed(7)
    lines = []
    for _ in range(80):
        words = [WORDS[i] for i in torch.randint(len(WORDS), (14,), generator=generator).tolist()]
        words.insert(int(torch.randint(14, (1,), generator=generator)), CUE)
        lines.append(json.dumps({"text": first + " ".join(words)}))
    path.write_text("\n".join(lines))
    return path


ASKED = {
    "shape": Shape(latents=96, after_only=8, k=6),
    "tokens": 8_000,
    "decisions": 0,
    "site": SITE,
    "controls": False,
}


def cued(out, summary):
    """Whether what is called specific fires on the cue."""
    tokens = json.loads((out / TOKENS).read_text())
    return [
        all(one["tokens"][one["at"]].strip() == CUE for one in tokens[str(latent)])
        for latent in summary["specific"]
    ]


def test_a_feature_beside_a_planted_sink_is_found_and_the_sink_is_named(sunk_pair, tmp_path):
    texts = texts_file(tmp_path / "texts.jsonl", SINK)
    summary = diff(*sunk_pair, out=tmp_path / "out", texts=texts, **ASKED)
    found = summary["outliers"]
    assert found["left_out"] and list(map(list, found["positions"])) == [[0, 80]]
    assert found["number"] == found["texts"] == found["of_texts"] == 80
    assert min(found["squares"]) > 0.9 and found["difference"] > 0.9
    (said,) = [one for one in summary["sentences"] if "attention sinks" in one]
    assert "position 0 (80 times)" in said and repr(SINK) in said
    assert said in json.loads((tmp_path / "out" / "diff.json").read_text())["sentences"]
    assert summary["specific"] and all(cued(tmp_path / "out", summary))
    kept = diff(*sunk_pair, out=tmp_path / "kept", texts=texts, **ASKED, keep_outliers=True)
    assert not kept["outliers"]["left_out"] and kept["asked"]["keep_outliers"]
    assert not all(cued(tmp_path / "kept", kept)) or not kept["specific"]


def test_without_a_sink_the_same_bytes_come_out(sunk_pair, tmp_path):
    texts = texts_file(tmp_path / "texts.jsonl", "")
    small = {**ASKED, "tokens": 1_000, "baselines": False}
    told = [
        diff(*sunk_pair, out=tmp_path / name, texts=texts, **small, keep_outliers=kept)
        for name, kept in (("out", False), ("kept", True))
    ]
    assert "outliers" not in told[0] and told[0]["sentences"] == told[1]["sentences"]
    files = [LATENTS, TOKENS, "quality.json", "dictionary/sae_weights.safetensors"]
    first, second = (
        [(tmp_path / n / file).read_bytes() for file in files] for n in ("out", "kept")
    )
    assert first == second
