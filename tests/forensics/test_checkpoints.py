"""Checkpoint directories: identity is content, and everything that is amiss is
one sentence with its cure.
"""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from forensics.errors import UserError
from forensics.policies.checkpoints import (
    EnvironmentHint,
    identify_tokenizer,
    inspect_checkpoint,
    read_environment_hint,
    tokenizer_parts,
)
from forensics.policies.compatibility import require_loadable
from forensics.policies.weights import identify_weights
from tests.tiny import save_tiny_qwen3


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_qwen3(tmp_path_factory.mktemp("tiny") / "model", seed=0)


@pytest.fixture
def copy(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "model"))


def refusal(path: Path) -> str:
    with pytest.raises(UserError) as error:
        inspect_checkpoint(path)
    assert "\n" not in str(error.value)
    return str(error.value)


# -- identity --------------------------------------------------------------------------


def test_states_what_the_directory_holds(original: Path) -> None:
    found = inspect_checkpoint(original)
    # tied embedding 304 * 64; a layer: q 64*64, k and v 64*32, o 64*64, two head norms
    # of 32, three MLP matrices 64*128, two norms of 64; one last norm of 64
    layer = 64 * 64 + 2 * 64 * 32 + 64 * 64 + 2 * 32 + 3 * 64 * 128 + 2 * 64
    assert found.parameters == 304 * 64 + 2 * layer + 64
    assert found.dtype == "bfloat16"
    assert found.training_step is None
    assert len(found.weights) == 64


def test_moving_and_sharding_keep_the_identity(original: Path, tmp_path: Path) -> None:
    sharded = save_tiny_qwen3(tmp_path / "a" / "renamed", seed=0, max_shard_size="50KB")
    assert len(list(sharded.glob("model-*.safetensors"))) > 1
    one, other = inspect_checkpoint(original), inspect_checkpoint(sharded)
    assert (one.weights, one.tokenizer) == (other.weights, other.tokenizer)


def test_one_changed_bit_changes_the_identity(original: Path, copy: Path) -> None:
    file = copy / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-2] ^= 1  # the lowest bit of the last bf16 value
    file.write_bytes(content)
    assert inspect_checkpoint(copy).weights != inspect_checkpoint(original).weights
    assert inspect_checkpoint(copy).tokenizer == inspect_checkpoint(original).tokenizer


# -- the tokenizer's identity ----------------------------------------------------------


def edit_json(path: Path, change: object) -> None:
    content = json.loads(path.read_text())
    change(content)  # type: ignore[operator]
    path.write_text(json.dumps(content, indent=4, ensure_ascii=True))


def test_formatting_and_run_time_settings_do_not_change_the_tokenizer(
    original: Path, copy: Path
) -> None:
    def old_spelling(content: dict) -> None:  # type: ignore[type-arg]
        content["model"]["merges"] = [" ".join(pair) for pair in content["model"]["merges"]]
        content["model"].pop("ignore_merges", None)
        content["truncation"] = {
            "max_length": 512,
            "strategy": "LongestFirst",
            "stride": 0,
            "direction": "Right",
        }
        content["model"]["vocab"] = dict(reversed(content["model"]["vocab"].items()))

    edit_json(copy / "tokenizer.json", old_spelling)
    template = (copy / "chat_template.jinja").read_text()
    (copy / "chat_template.jinja").unlink()
    edit_json(
        copy / "tokenizer_config.json", lambda content: content.update(chat_template=template)
    )
    assert identify_tokenizer(copy) == identify_tokenizer(original)


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("vocabulary and rules", lambda c: c["model"]["vocab"].update(new=9999)),
        ("vocabulary and rules", lambda c: c["model"]["merges"].reverse()),
        ("vocabulary and rules", lambda c: c["added_tokens"].pop()),
        ("vocabulary and rules", lambda c: c["pre_tokenizer"].update(add_prefix_space=True)),
    ],
)
def test_what_decides_tokens_changes_the_tokenizer(
    part: str, change: object, original: Path, copy: Path
) -> None:
    edit_json(copy / "tokenizer.json", change)
    before, after = tokenizer_parts(original), tokenizer_parts(copy)
    assert [name for name in before if before[name] != after[name]] == [part]
    assert identify_tokenizer(copy) != identify_tokenizer(original)


def test_the_chat_template_decides_too(original: Path, copy: Path) -> None:
    (copy / "chat_template.jinja").write_text(
        (copy / "chat_template.jinja").read_text().replace("user", "human") + "!"
    )
    before, after = tokenizer_parts(original), tokenizer_parts(copy)
    assert [name for name in before if before[name] != after[name]] == ["chat template"]


# -- refusals: one sentence with the cure ----------------------------------------------


def test_missing_empty_and_file(tmp_path: Path) -> None:
    assert "does not exist" in refusal(tmp_path / "nowhere")
    assert "hf download" in refusal(Path("Qwen/Qwen3-0.6B"))
    (tmp_path / "empty").mkdir()
    assert "is empty" in refusal(tmp_path / "empty")
    (tmp_path / "file").write_text("")
    assert "is a file" in refusal(tmp_path / "file")


def test_config(copy: Path) -> None:
    config = copy / "config.json"
    content = json.loads(config.read_text())
    config.write_text(json.dumps({**content, "architectures": ["BertForSequenceClassification"]}))
    assert "generates no text" in refusal(copy)
    config.write_text(json.dumps({**content, "auto_map": {"AutoModelForCausalLM": "evil.Model"}}))
    assert "auto_map" in refusal(copy)
    config.write_text("{}")
    assert "model_type" in refusal(copy)
    config.write_text("[1]")
    assert "not a JSON object" in refusal(copy)
    config.write_text('{"model_type": "qwen3"')
    assert "not valid JSON" in refusal(copy)
    config.write_bytes(b"\xff\xfe\x00")
    assert "config.json" in refusal(copy)
    config.unlink()
    assert "no config.json" in refusal(copy)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "weights.pt", "model.pth", "last.ckpt"])
def test_pickles_are_refused(name: str, copy: Path) -> None:
    (copy / "model.safetensors").rename(copy / name)
    assert name in refusal(copy) and "save_pretrained" in refusal(copy)


def test_adapters(copy: Path) -> None:
    (copy / "adapter_config.json").write_text("{}")
    assert "merge it first" in refusal(copy)


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    return save_tiny_qwen3(tmp_path / "sharded", max_shard_size="50KB")


def test_a_missing_index_and_an_index_that_leads_away(sharded: Path) -> None:
    index = sharded / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["weight_map"][next(iter(content["weight_map"]))] = "../elsewhere.safetensors"
    index.write_text(json.dumps(content))
    assert "not an index" in refusal(sharded)
    index.unlink()
    assert "index" in refusal(sharded)


@settings(max_examples=30, deadline=None)
@given(share=st.floats(0, 0.9999))
def test_a_cut_anywhere_is_found(
    share: float, original: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = Path(shutil.copytree(original, tmp_path_factory.mktemp("cut") / "m"))
    file = directory / "model.safetensors"
    os.truncate(file, int(file.stat().st_size * share))
    assert "truncated or corrupt" in refusal(directory)


@pytest.mark.parametrize(
    "dtype", ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"]
)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_are_not_finite(dtype: str, value: float, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    kind = getattr(torch, dtype)
    weights = torch.linspace(-400, 400, 64).to(kind)
    save_file({"fine": weights}, tmp_path / "model.safetensors")
    assert identify_weights(tmp_path).parameters == 64
    if dtype == "float8_e4m3fn" and value == float("inf"):
        return  # this format has no infinity
    weights[17] = torch.tensor(value).to(kind)
    save_file({"fine": torch.zeros(3), "model.bad": weights}, tmp_path / "model.safetensors")
    with pytest.raises(UserError, match=r"model\.bad.*NaN or infinite"):
        identify_weights(tmp_path)


# -- loading ---------------------------------------------------------------------------


def test_a_weight_that_is_missing_is_not_made_up(copy: Path) -> None:
    from safetensors.torch import load_file, save_file

    from forensics import load_policy

    weights = load_file(copy / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"lacks the weight model\.layers\.1\.mlp\.up_proj\.weight"):
        load_policy(copy, device="cpu")


# what the config says -> what the refusal says, both where it is checked up front and
# where it is loaded
OTHER_MODELS: list[tuple[dict[str, object], str]] = [
    ({"intermediate_size": 64},
     r"mlp\.down_proj\.weight in the shape \[64, 128\] where .* asks for \[64, 64\]"),
    ({"vocab_size": 999},
     r"model\.embed_tokens\.weight in the shape \[304, 64\] where .* asks for \[999, 64\]"),
    ({"num_hidden_layers": 3, "layer_types": None}, r"lacks the weight model\.layers\.2\."),
    ({"num_hidden_layers": 1, "layer_types": None}, r"model\.layers\.1\..* has no layer for"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "says"), OTHER_MODELS)
def test_a_config_of_another_model_is_refused(
    change: dict[str, object], says: str, copy: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from forensics import load_policy

    edit_json(copy / "config.json", lambda content: content.update(change))
    for check in (require_loadable, lambda path: load_policy(path, device="cpu")):
        with pytest.raises(UserError, match=says) as error:
            check(copy)
        assert "\n" not in str(error.value) and str(error.value).endswith(
            "copy both from one checkpoint"
        )
    assert capfd.readouterr() == ("", ""), "the library's own tables stay silent"


@pytest.mark.parametrize(("change", "says"), [
    ({"model_type": "no-such"},
     "model type 'no-such', which transformers .* does not know; correct model_type"),
    ({"model_type": "t5", "architectures": None}, "'t5', which generates no text; give a causal"),
    ({"hidden_size": "wide"},
     r"builds no model \(.*hidden_size.*\); copy the model's own config.json$"),
    ({"num_hidden_layers": 1},
     r"builds no model \(.*layer_types.*\); copy the model's own config.json$"),
    ({"hidden_act": "no-such"},
     r"builds no model \(.*no-such.*\); copy the model's own config.json$"),
])  # fmt: skip
def test_a_config_that_builds_nothing_is_refused(
    change: dict[str, object], says: str, copy: Path
) -> None:
    edit_json(copy / "config.json", lambda content: content.update(change))
    with pytest.raises(UserError, match=says) as error:
        require_loadable(copy)
    assert "\n" not in str(error.value)


# -- the environment hint --------------------------------------------------------------


def test_the_hint(tmp_path: Path) -> None:
    assert read_environment_hint(tmp_path) is None
    (tmp_path / "environment.json").write_text(
        '{"name": "mini-repo", "options": {"world": "open", "turns": 8, "x": true}}'
    )
    assert read_environment_hint(tmp_path) == EnvironmentHint(
        name="mini-repo", options={"world": "open", "turns": "8", "x": "true"}
    )


def test_large_tensors_are_streamed(tmp_path: Path) -> None:
    """A tensor larger than a piece hashes as the same bytes in one go would."""
    import hashlib

    from safetensors.numpy import save_file

    values = np.arange(5_000_000, dtype=np.float32)  # 20 MB
    save_file({"w": values}, tmp_path / "model.safetensors")
    expected = hashlib.sha256(json.dumps(["w", "F32", [5_000_000]]).encode() + values.tobytes())
    assert identify_weights(tmp_path).sha256 == expected.hexdigest()
