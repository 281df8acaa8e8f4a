"""A deep network is patched layers first, and what changed in it is still found; a small
one as ever.
"""

import json
from pathlib import Path

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from crosscoders import diff
from crosscoders.activations.harvest import Side
from crosscoders.patching.maps import layered_graft_map, layered_patch_map
from crosscoders.patching.results import choose_site
from crosscoders.study.diff_files import DICTIONARY, PATCHING, DiffRequest, Shape
from crosscoders.study.material import TRAINING
from crosscoders.study.plan import plan, sizes_of
from forensics import policy_from
from forensics.budget import Budget
from tests.crosscoders.patching_worlds import changed, random_decisions, shaken
from tests.crosscoders.test_outlier_positions import cued, texts_file
from tests.crosscoders.test_study_diff import CUE
from tests.tiny import save_tiny_qwen3, tiny_tokenizer

LAYERS = 26


@pytest.fixture(scope="module")
def deep():
    config = Qwen3Config(
        vocab_size=304,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        tie_word_embeddings=True,
        eos_token_id=2,
        pad_token_id=0,
        bos_token_id=None,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Qwen3ForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4 if parameter.dim() > 1 else 1)
    return policy_from(model, tiny_tokenizer(), "deep")


@pytest.mark.parametrize("layer", [4, 13, 25])
def test_what_one_layer_changed_is_found_there(deep, layer):
    """One MLP differs; the residual moves all from there on, and its group's graft as well."""
    after = changed(deep, lambda model: shaken(model.model.layers[layer].mlp, 1.0))
    texts, heard = random_decisions(16, 16), []
    asked = {"behaviour": None, "progress": lambda *said: heard.append(said)}
    patches = layered_patch_map(deep, after, texts, **asked)
    grafts = layered_graft_map(deep, after, texts, **asked)
    for row in patches.rows:
        if row.change.positions == "all" and row.change.place.endswith("resid_post"):
            before_it = (row.change.layer or 0) < layer
            assert row.kl_moved.estimate == pytest.approx(0 if before_it else 1, abs=1e-4)
    moved = {
        row.change.place: row.kl_moved.estimate
        for row in grafts.rows
        if row.change.direction == "into-before"
    }
    (alone,) = [place for place in moved if place == f"blocks.{layer}.mlp"]
    assert moved[alone] == pytest.approx(1, abs=1e-5)
    places = [row.change for row in patches.rows]
    assert len(places) == len(set(places)) < 60
    choice = choose_site(patches, grafts)
    if layer < LAYERS - 1:
        assert choice.where == "inside" and choice.inside.estimate == pytest.approx(1, abs=1e-4)
    assert heard[0][1] == 0 and {said[0] for said in heard} >= {
        "patching every few layers",
        "grafting groups of layers",
    }


def asked(before, **more):
    return DiffRequest(before=before, after="after", texts=Path("texts.txt"), **more)


def test_a_plan_says_every_step_with_its_time(tmp_path):
    model = save_tiny_qwen3(tmp_path / "model")
    sizes = sizes_of(model)
    assert (sizes.layers, sizes.width, sizes.vocabulary) == (2, 64, 304)
    assert sizes.inside == 2 * (2 * 64 * 64 * 1.5 + 3 * 64 * 128)
    slow, fast = (plan(asked(model), tmp_path, speed) for speed in (1e9, 1e12))
    assert slow[0].startswith("Plan, about") and "--resume" in slow[0]
    assert "every site and module" in slow[1] and "(about" in slow[1]
    assert "an unknown size on disk until it is done" in slow[2]
    assert "6 dictionaries on 400,000 tokens" in slow[3]
    assert slow != fast
    told = plan(asked(model, controls=False, decisions=0, site="hook_embed"), tmp_path, 1e9)
    assert "4 dictionaries" in told[2] and len(told) == 4
    one = plan(asked(model, controls=False, baselines=False, seeds=1), tmp_path, 1e9)
    assert "train 1 dictionary on" in one[3]


def test_a_plan_for_a_deep_network_reads_and_trains_less(tmp_path):
    stated = {"num_hidden_layers": 30, "hidden_size": 576, "intermediate_size": 1536}
    (tmp_path / "config.json").write_text(json.dumps({**stated, "vocab_size": 49152}))
    told = plan(asked(tmp_path), tmp_path, 1e11)
    assert "32 decisions: layers first" in told[1] and "and find sinks (about" in told[2]
    assert "once (about 0.18 GB on disk until it is done)" in told[2]
    assert (
        "6 dictionaries on 48,000 tokens, the pair's from 3 seeds (about" in told[3]
        and len(told) == 5
    )
    more = plan(asked(tmp_path, tokens=200_000, decisions=7), tmp_path, 1e11)
    assert "7 decisions" in more[1] and "on 200,000 tokens" in more[3]


def test_a_plan_says_what_is_done(tmp_path):
    model = save_tiny_qwen3(tmp_path / "model")
    (tmp_path / PATCHING).write_text("{}")
    (tmp_path / DICTIONARY).mkdir()
    (tmp_path / DICTIONARY / "cfg.json").write_text("{}")
    told = plan(asked(model), tmp_path, 1e9)
    assert told[0].startswith("Plan;") and [line.endswith("(done)") for line in told[1:4]] == [
        True,
        False,
        True,
    ]


def test_a_plan_knows_the_episodes_of_a_world(tmp_path):
    model = save_tiny_qwen3(tmp_path / "model")
    request = DiffRequest(
        before=model, after="after", environment="mini-repo", budget=Budget(tasks=7, samples=3)
    )
    assert "42 episodes (about" in plan(request, tmp_path, 1e9)[1]
    unknown = DiffRequest(before=model, after="after", environment="nowhere")
    assert "an unknown number of episodes" in plan(unknown, tmp_path, 1e9)[1]


@pytest.fixture(scope="module")
def deep_pair(deep, tmp_path_factory):
    """Directories of a deep pair that differ in one word's embedding."""
    folder = tmp_path_factory.mktemp("deep")
    direction = torch.randn(32, generator=torch.Generator().manual_seed(1))
    token = tiny_tokenizer()(CUE)["input_ids"][0]

    def move(model):
        table = model.model.embed_tokens.weight
        table[token] += 8 * table.norm(dim=-1).median() * direction / direction.norm()

    for name, policy in (("before", deep), ("after", changed(deep, move))):
        policy.model.save_pretrained(folder / name)
        tiny_tokenizer().save_pretrained(folder / name)
    return folder / "before", folder / "after"


def test_a_deep_pair_is_read_once_and_gone_on_with(deep_pair, tmp_path, monkeypatch):
    texts, out = texts_file(tmp_path / "texts.jsonl", ""), tmp_path / "out"
    small = {"shape": Shape(latents=64, after_only=8, k=4), "controls": False}
    small |= {"texts": texts, "device": "cpu", "decisions": 8, "tokens": 1200}
    read, rows = [], Side.read

    def counted(side, window, tick):
        read.append(side.site)
        return rows(side, window, tick)

    def cut_off(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(Side, "read", counted)
    with monkeypatch.context() as early, pytest.raises(KeyboardInterrupt):
        early.setattr("crosscoders.study.pipeline.dictionaries_of", cut_off)
        diff(*deep_pair, out=out, **small)
    assert len(read) == 2 and any((out / TRAINING / "activations").iterdir())
    monkeypatch.setattr("crosscoders.study.pipeline.locate", cut_off)
    found = diff(*deep_pair, out=out, resume=True, **small)
    assert len(read) == 2 and not (out / TRAINING).exists()
    assert found["specific"] and all(cued(out, found))
    patching = json.loads((out / PATCHING).read_text())
    assert len(patching["patch"]) < 60 and patching["decisions"] == 8
    assert {"embed+unembed"} < {row["place"] for row in patching["graft"]}
