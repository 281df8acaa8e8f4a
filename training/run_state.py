"""Saving and resuming: weights and optimizer state as safetensors, never
pickled.

A state folder holds `weights.safetensors`, `optimizer.safetensors` and, written
last, `state.json` with the number of finished steps and the plain state of
filters and curricula: a folder without it was interrupted while writing and
counts as absent. Sharded weights are gathered: a state can be resumed with
another number of processes.

What a run is stands in its folder, written into its folder before its first
step, so that only the same run can go on in it.
"""

import copy
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from forensics.errors import UserError
from forensics.records.files import disk_told, read_json, write_json
from training.distributed import Process
from training.recipe import PreferenceRecipe, Recipe
from training.rewards import Rewards

HOW_IT_WAS_LOADED = (
    "is_local",
    "local_files_only",
)  # says nothing about the tokenizer, and tells base from after
ALONE = Process()


def save_state(
    folder: Path,
    model: Any,
    optimizer: torch.optim.Optimizer,
    step: int,
    extra: Mapping[str, Any] | None = None,
    process: Process = ALONE,
) -> Path:
    """Write the state after `step` steps (trained weights only), then remove
    older ones; the state's folder.
    """
    from safetensors.torch import save_file

    target = folder / "state" / f"step-{step:06d}"
    weights, moments = {}, {}  # gathered by every process
    for name, parameter in _trained(model):
        weights[name] = whole(parameter)
        for kind, value in optimizer.state.get(parameter, {}).items():
            moments[f"{name}/{kind}"] = whole(value)
    if process.first:
        with disk_told(target):
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir(parents=True)
            save_file(weights, target / "weights.safetensors")
            save_file(moments, target / "optimizer.safetensors")
        write_json(target / "state.json", {"step": step, **(extra or {})})
        for old in sorted((folder / "state").glob("step-*"))[:-1]:
            shutil.rmtree(old, ignore_errors=True)
    process.wait()
    return target


def load_state(folder: Path, model: Any, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Restore the newest complete state into model and optimizer; what its
    `state.json` says (`step` 0: none).
    """
    from safetensors.torch import load_file

    complete = [path.parent for path in sorted((folder / "state").glob("step-*/state.json"))]
    if not complete:
        return {"step": 0}
    newest = complete[-1]
    try:
        weights = load_file(newest / "weights.safetensors")
        moments = load_file(newest / "optimizer.safetensors")
    except Exception as error:
        raise UserError(
            f"{newest} cannot be read ({error}); delete it to go on from an earlier state"
        ) from None
    trained = dict(_trained(model))
    if set(weights) != set(trained):
        raise UserError(
            f"{newest} holds other weights than this run trains; resume with the recipe it was"
            " made by"
        )
    with torch.no_grad():
        for name, parameter in trained.items():
            parameter.copy_(_like(weights[name], parameter))
    for name, parameter in trained.items():
        if f"{name}/exp_avg" in moments:
            optimizer.state[parameter] = {
                kind: (
                    moments[f"{name}/{kind}"].clone()
                    if kind == "step"
                    else _like(moments[f"{name}/{kind}"], parameter).clone()
                )
                for kind in ("step", "exp_avg", "exp_avg_sq")
            }
    state: dict[str, Any] = read_json(newest / "state.json")
    return state


def _trained(model: Any) -> list[tuple[str, torch.nn.Parameter]]:
    return [
        (name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad
    ]


def whole(value: torch.Tensor) -> torch.Tensor:
    """A tensor, gathered where it is sharded."""
    gather = getattr(value.detach(), "full_tensor", None)
    return (gather() if gather else value.detach()).contiguous()


def _like(value: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """A whole tensor on the parameter's device, sharded as the parameter is."""
    value = value.to(parameter.device)
    if not hasattr(parameter, "device_mesh"):
        return value
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(parameter, DTensor)
    return distribute_tensor(value, parameter.device_mesh, parameter.placements)


def save_checkpoint(
    folder: Path,
    model: Any,
    tokenizer: Any,
    environment: dict[str, Any] | None = None,
    process: Process = ALONE,
) -> None:
    """A Hugging Face directory in bfloat16, with a neutral `environment.json`
    of the world it was trained for.

    An adapter is merged into a copy of the weights, and kept beside them in
    `adapter/`.
    """
    from transformers.utils import logging

    logging.disable_progress_bar()
    adapted = hasattr(model, "peft_config")
    plain = copy.deepcopy(model).merge_and_unload() if adapted else model
    state = {name: whole(value).to(torch.bfloat16) for name, value in plain.state_dict().items()}
    if process.first:
        with disk_told(folder):
            folder.mkdir(parents=True, exist_ok=True)
            plain.save_pretrained(folder, state_dict=state)
            config = json.loads((folder / "config.json").read_text()) | {"dtype": "bfloat16"}
            write_json(folder / "config.json", config)
            tokenizer.save_pretrained(folder)
            told = json.loads((folder / "tokenizer_config.json").read_text())
            kept = {key: value for key, value in told.items() if key not in HOW_IT_WAS_LOADED}
            write_json(folder / "tokenizer_config.json", kept)
            if adapted:
                model.save_pretrained(folder / "adapter")
        if environment is not None:
            write_json(folder / "environment.json", environment)
    process.wait()


FILE = "training.json"
MAY_CHANGE = frozenset(
    {  # how far a run goes, and what is kept of it
        "grpo.steps",
        "grpo.save_every",
        "preference.epochs",
        "preference.save_every",
        "audit",
        "record",
        "parallel",
    }
)


def reward_identities(rewards: Rewards) -> dict[str, dict[str, Any]]:
    """Weight of each named reward, and where its function is defined
    (`module:qualname`).

    A function that is edited in place keeps its identity, so such a change is
    not noticed.
    """
    return {
        name: {"weight": float(weight), "function": _defined(reward)}
        for name, (reward, weight) in rewards.items()
    }


def _defined(function: Any) -> str:
    function = getattr(function, "func", function)  # of a partial
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}:{named.__qualname__}"


def description(
    recipe: Recipe | PreferenceRecipe, seed: int, start: str, rewards: Rewards
) -> dict[str, Any]:
    """What makes a run this one. `start`: content hash of the weights it begins with."""
    return {
        "recipe": recipe.model_dump(mode="json"),
        "seed": seed,
        "start": start,
        "rewards": reward_identities(rewards),
    }


def check(folder: Path, mine: Mapping[str, Any]) -> None:
    """Raise `UserError` where `folder` holds another run than the one
    described, naming what differs.
    """
    if not (folder / FILE).exists():
        return
    was = {"rewards": mine["rewards"]} | read_json(folder / FILE)  # older runs noted none
    for part in ("seed", "recipe", "start", "rewards"):
        name = "" if part == "recipe" else part
        for what, earlier, now in differences(name, was.get(part), mine[part]):
            if what == "start":
                raise UserError(
                    f"{folder} holds a run that began with other weights than policy.checkpoint ="
                    f" {mine['recipe']['policy']['checkpoint']} has now (content hash {earlier},"
                    f" not {now}); resume it with the checkpoint that it was begun with, or choose"
                    " another folder"
                )
            old, new = ("nothing" if value is None else value for value in (earlier, now))
            raise UserError(
                f"{folder} holds a run with {what} = {old}, not {new}; resume it with the recipe"
                " and seed that it was begun with, or choose another folder"
            )


def claim(folder: Path, mine: Mapping[str, Any]) -> None:
    """Note the run in `folder`."""
    write_json(folder / FILE, mine)


def differences(name: str, earlier: Any, now: Any) -> Iterator[tuple[str, Any, Any]]:
    """Names of what differs and may not, with both values."""
    if name in MAY_CHANGE or earlier == now:
        return
    if isinstance(earlier, dict) and isinstance(now, dict):
        for key in sorted({*earlier, *now}):
            yield from differences(f"{name}.{key}".lstrip("."), earlier.get(key), now.get(key))
    else:
        yield name, earlier, now
