"""Adapters that a watch must not take for what they are not."""

import json
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file

from forensics import load_policy
from forensics.policies import identify_folder, new_adapter
from tests.training.watched_runs import moved, states, trained, watched
from training.live import promotable
from training.live.watcher import SavedFolder, load_base, load_start
from training.run_state import save_checkpoint

WEIGHTS = "adapter_model.safetensors"


@pytest.mark.parametrize("wrong", ["other names", "some are gone", "fewer layers"])
def test_an_adapter_that_peft_would_leave_out_is_not_audited(tmp_path: Path, wrong: str) -> None:
    """Its weights would be those of the base, and nothing in the audit would say so."""
    trained(tmp_path, 0)
    place = tmp_path / "run" / "step-3"
    model = new_adapter(
        load_policy(tmp_path / "base").model, rank=2, alpha=4.0, targets=("q_proj",)
    )
    moved(model, 3)
    model.save_pretrained(place)
    weights = load_file(place / WEIGHTS)
    if wrong == "other names":  # torch.compile
        weights = {name.replace("layers", "_orig_mod.layers"): x for name, x in weights.items()}
    elif wrong == "some are gone":
        weights = {name: x for name, x in weights.items() if "layers.0" not in name}
    else:
        config = json.loads((place / "adapter_config.json").read_text())
        config |= {"layers_to_transform": [0]}
        (place / "adapter_config.json").write_text(json.dumps(config))
    save_file(weights, place / WEIGHTS)
    told = watched(tmp_path / "run")
    assert states(tmp_path / "run") == {"step-3": "broken"} and "is not the one that" in told[-1]
    assert not promotable(place, tmp_path / "run" / "watch")


@pytest.mark.parametrize("more", [{"modules_to_save": ["norm"]}, {"use_dora": True}])
def test_the_start_of_an_adapter_has_nothing_of_what_it_learned(
    tmp_path: Path, more: dict[str, object]
) -> None:
    trained(tmp_path, 0)
    base, place = tmp_path / "base", tmp_path / "run" / "step-3"
    config = LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM", **more)
    model = get_peft_model(load_policy(base).model, config)
    moved(model, 3)
    model.save_pretrained(place)
    folder = SavedFolder(place=place, name="step-3", kind="adapter")
    start, ids = load_start(folder, base, "cpu", "float32"), torch.arange(5, 25)[None]
    with torch.no_grad():
        wanted = load_base(base, "cpu", "float32")(ids).logits
        assert (start(ids).logits - wanted).abs().max() < 1e-5


def test_an_adapter_beside_a_model_is_part_of_what_is_marked(tmp_path: Path) -> None:
    trained(tmp_path, 0)
    place = tmp_path / "both"
    policy = load_policy(tmp_path / "base")
    save_checkpoint(place, policy.model, policy.tokenizer)
    model = new_adapter(policy.model, rank=2, alpha=4.0, targets=("q_proj",))
    model.save_pretrained(place)
    before = identify_folder(place).sha256
    moved(model, 3)
    model.save_pretrained(place)
    assert identify_folder(place).sha256 != before
