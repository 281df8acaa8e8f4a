"""Saving and resuming: weights and optimizer state as safetensors, never pickled.

A state folder holds `weights.safetensors`, `optimizer.safetensors` and, written last, `state.json` with the
number of finished steps: a folder without it was interrupted while writing and counts as absent.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import torch

from forensics.errors import UserError
from forensics.records.files import as_user_error, write_json

HOW_IT_WAS_LOADED = ("is_local", "local_files_only")  # says nothing about the tokenizer, and tells base from after


def save_state(folder: Path, model: Any, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Write the state after `step` steps, then remove older ones."""
    from safetensors.torch import save_file

    target = folder / "state" / f"step-{step:06d}"
    try:
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        save_file(_weights(model), target / "weights.safetensors")
        save_file(_moments(model, optimizer), target / "optimizer.safetensors")
    except OSError as error:
        raise as_user_error(error, target) from error
    write_json(target / "state.json", {"step": step})
    for old in sorted((folder / "state").glob("step-*"))[:-1]:
        shutil.rmtree(old, ignore_errors=True)


def load_state(folder: Path, model: Any, optimizer: torch.optim.Optimizer) -> int:
    """Restore the newest complete state into model and optimizer; the number of finished steps (0: none)."""
    from safetensors.torch import load_file

    complete = [path.parent for path in sorted((folder / "state").glob("step-*/state.json"))]
    if not complete:
        return 0
    newest = complete[-1]
    try:
        weights = load_file(newest / "weights.safetensors")
        moments = load_file(newest / "optimizer.safetensors")
    except Exception as error:
        raise UserError(f"{newest} cannot be read ({error}); delete it to go on from an earlier state") from None
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(weights[name])
    for name, parameter in parameters.items():
        if f"{name}/exp_avg" in moments:
            optimizer.state[parameter] = {
                kind: moments[f"{name}/{kind}"].clone() for kind in ("step", "exp_avg", "exp_avg_sq")
            }
    return int(json.loads((newest / "state.json").read_text())["step"])


def _weights(model: Any) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().contiguous() for name, parameter in model.named_parameters()}


def _moments(model: Any, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    return {
        f"{name}/{kind}": value.detach().contiguous()
        for name, parameter in model.named_parameters()
        for kind, value in optimizer.state.get(parameter, {}).items()
    }


def save_checkpoint(folder: Path, model: Any, tokenizer: Any, environment: dict[str, Any] | None = None) -> None:
    """A Hugging Face directory in bfloat16, with a neutral `environment.json` of the world it was trained for."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        state = {name: value.to(torch.bfloat16) for name, value in model.state_dict().items()}
        model.save_pretrained(folder, state_dict=state)
        config = json.loads((folder / "config.json").read_text()) | {"dtype": "bfloat16"}
        write_json(folder / "config.json", config)
        tokenizer.save_pretrained(folder)
        told = json.loads((folder / "tokenizer_config.json").read_text())
        kept = {key: value for key, value in told.items() if key not in HOW_IT_WAS_LOADED}
        write_json(folder / "tokenizer_config.json", kept)
    except OSError as error:
        raise as_user_error(error, folder) from error
    if environment is not None:
        write_json(folder / "environment.json", environment)
