"""A saved checkpoint is the trained policy: its precision, its adapter, its tied
weights; and what is asked otherwise.
"""

import json
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from forensics import load_policy, policy_from
from forensics.errors import UserError
from forensics.policies.adapters import new_adapter
from forensics.policies.checkpoints import inspect_checkpoint, model_checkpoint
from forensics.policies.weights import find_tensors
from forensics.protocols import Policy, SamplingSettings
from tests.tiny import tiny_qwen3, tiny_tokenizer
from training.environments.mini_repo import MiniRepo
from training.recipe import parse_recipe
from training.run_state import difference, save_checkpoint, stream_tensors
from training.trainer import grpo

IDS = [[5, 6, 7, 8, 9, 10, 11], [12, 250, 30, 4, 9, 77, 3]]


def trained(folder: Path, rate: float = 1e-6, steps: int = 2, **sections: Any) -> Policy:
    """A run from random weights with the small learning rate of an ordinary one."""
    policy = policy_from(tiny_qwen3(0), tiny_tokenizer(), "start")
    recipe = parse_recipe(
        {
            "policy": {"checkpoint": "x"},
            "environment": {"name": "mini-repo", "options": {"turns": 2}},
            "rewards": {"coin": 1.0},
            "sampling": {"max_turn_tokens": 4, "max_tokens": 200},
            "grpo": {"steps": steps, "groups": 2, "samples": 4, "learning_rate": rate},
            **sections,
        },
        "test",
    )
    grpo(policy, MiniRepo(turns="2"), recipe, 0, folder)
    return policy


def logprobs(policy: Policy) -> np.ndarray:
    return np.concatenate(policy.logprobs(IDS, SamplingSettings()))


def loaded(folder: Path) -> Policy:
    return load_policy(folder, device="cpu", dtype="float32")


def test_a_small_update_reaches_the_checkpoint(tmp_path: Path) -> None:
    """Two steps of 1e-6 are a tenth of what bfloat16 tells apart at .02."""
    policy = trained(tmp_path)
    saved = load_file(tmp_path / "checkpoint" / "model.safetensors")
    start, now = tiny_qwen3(0).state_dict(), policy.model.state_dict()
    moved = [name for name in saved if not torch.equal(start[name], now[name])]
    assert len(moved) > 20 and all(torch.equal(saved[name], now[name]) for name in saved)
    assert np.array_equal(logprobs(loaded(tmp_path / "checkpoint")), logprobs(policy))
    found = inspect_checkpoint(tmp_path / "checkpoint")
    assert (found.weights, found.dtype) == (model_checkpoint(policy.model, "").weights, "float32")
    assert json.loads((tmp_path / "checkpoint" / "config.json").read_text())["dtype"] == "float32"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_tied_head_is_saved_once(tmp_path: Path, dtype: str) -> None:
    model = tiny_qwen3(0)
    save_checkpoint(tmp_path, model, tiny_tokenizer(), dtype=dtype)
    names = [place.name for place in find_tensors(tmp_path)]
    assert "model.embed_tokens.weight" in names and "lm_head.weight" not in names
    head = loaded(tmp_path).model.get_output_embeddings().weight
    assert torch.equal(head, model.lm_head.weight.to(getattr(torch, dtype)).float())


def adapted(dtype: torch.dtype, targets: Any) -> Any:
    """A model with an adapter that says something, small beside the weights."""
    pytest.importorskip("peft")
    model = new_adapter(tiny_qwen3(0).to(dtype), rank=4, alpha=32.0, targets=targets)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter += 1e-3 * torch.randn(parameter.shape, generator=generator)
    return model


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_merged_adapter_is_as_wide_as_it_was_trained(tmp_path: Path, dtype: torch.dtype) -> None:
    """Merged by hand in float64; a bfloat16 base would swallow most of it."""
    model = adapted(dtype, "all-linear")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    save_checkpoint(tmp_path, model, tiny_tokenizer())
    saved = load_file(tmp_path / "model.safetensors")
    layer = model.get_base_model().model.layers[1].mlp.up_proj
    update = (layer.lora_B["default"].weight.double() @ layer.lora_A["default"].weight.double()) * 8
    wanted = layer.base_layer.weight.double() + update
    merged = saved["model.layers.1.mlp.up_proj.weight"]
    assert merged.dtype == torch.float32 and (merged.double() - wanted).abs().max() < 1e-8
    assert saved["model.embed_tokens.weight"].dtype == dtype
    assert len(saved) == len(list(tiny_qwen3(0).parameters()))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert (tmp_path / "adapter" / "adapter_model.safetensors").exists()
    if dtype == torch.float32:
        live = logprobs(policy_from(model, tiny_tokenizer(), "x"))
        assert np.abs(logprobs(loaded(tmp_path)) - live).max() < 5e-6


@pytest.mark.parametrize("lora", [False, True])
def test_every_folder_of_a_run_is_compared_with_the_weights_in_memory(
    tmp_path: Path, lora: bool
) -> None:
    """Checkpoint, state and adapter; one bit of one weight is another policy."""
    if lora:
        pytest.importorskip("peft")
    policy = trained(tmp_path, **({"lora": {"rank": 4}} if lora else {}))
    state = tmp_path / "state" / "step-000002"
    adapter = [tmp_path / "checkpoint" / "adapter"] if lora else []
    for folder in (tmp_path / "checkpoint", state, *adapter):
        assert difference(policy.model, folder) is None
        (file,) = [path for path in folder.glob("*.safetensors") if path.stem != "optimizer"]
        weights = load_file(file)
        name = sorted(weights)[-1]
        weights[name].view(torch.int32).flatten()[-1] ^= 1
        save_file(weights, file)
        assert f"'{name}' in the folder is not the trained model's" in str(
            difference(policy.model, folder)
        )
    with pytest.raises(UserError, match="no weights"):
        difference(policy.model, tmp_path)


def test_a_state_is_written_one_tensor_at_a_time_with_the_bytes_of_the_formats_writer(
    tmp_path: Path,
) -> None:
    """Whatever is in it: several precisions, a single number, none at all."""
    kinds = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
    tensors = {
        f"{letter}.é/{i}": torch.randn(shape).to(kind)
        for i, kind in enumerate(kinds)
        for letter, shape in (("b", (3, 5)), ("a", ()), ("c", (4, 0)))
    }
    held, most = [0], [0]

    def copied(value: torch.Tensor) -> torch.Tensor:
        copy = value.clone()
        held[0] += 1
        most[0] = max(most[0], held[0])
        weakref.finalize(copy, lambda: held.__setitem__(0, held[0] - 1))
        return copy

    for name, given in (("some", tensors), ("none", {})):
        stream_tensors(tmp_path / f"{name}-ours", given, copied)
        save_file(given, tmp_path / f"{name}-theirs")
        ours, theirs = ((tmp_path / f"{name}-{who}").read_bytes() for who in ("ours", "theirs"))
        assert ours == theirs
    assert most[0] <= 2, "each is let go"
