"""Saving and resuming: weights and optimizer state as safetensors, never
pickled.

A state folder holds `weights.safetensors`, `optimizer.safetensors` and, written
last, `state.json` with the number of finished steps and the plain state of
filters and curricula: a folder without it was interrupted while writing and
counts as absent. Sharded weights are not gathered: each process writes its own
rows (`sharded_state`). Either state can be resumed with another number of processes.

What a run is stands in its folder, written into its folder before its first
step, so that only the same run can go on in it.
"""

import json
import logging
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial, reduce
from pathlib import Path
from typing import Any

import torch

from forensics.errors import UserError
from forensics.policies import SHARDS, plain_model
from forensics.records import disk_told, read_json, write_json
from training.distributed import Process
from training.recipe import Recipe
from training.rewards import Rewards
from training.saved_weights import checkpoint_tensors, whole
from training.sharded_state import Like, is_sharded, read_shards, write_shards
from training.tensor_file import stream_tensors

HOW_IT_WAS_LOADED = (
    "is_local",
    "local_files_only",
)  # says nothing about the tokenizer, and tells base from after
ALONE = Process()
CONFIG = "config.json"
WEIGHTS, MOMENTS = "weights.safetensors", "optimizer.safetensors"  # of a state
SHARD = "5GB"  # so much of a checkpoint is copied at once on its way to the disk


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
    target = folder / "state" / f"step-{step:06d}"
    weights = dict(_trained(model))
    moments = {
        f"{name}/{kind}": value
        for name, parameter in weights.items()
        for kind, value in optimizer.state.get(parameter, {}).items()
    }
    with disk_told(target):
        if process.first:
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir(parents=True)
        if any(map(is_sharded, weights.values())):
            write_shards(target, {WEIGHTS: weights, MOMENTS: moments}, process)
        elif process.first:
            for file, tensors in ((WEIGHTS, weights), (MOMENTS, moments)):
                stream_tensors(target / file, tensors, whole)
    if process.first:
        write_json(target / "state.json", {"step": step, **(extra or {})})
        for old in sorted((folder / "state").glob("step-*"))[:-1]:
            shutil.rmtree(old, ignore_errors=True)
    process.wait()
    return target


def load_state(folder: Path, model: Any, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Restore the newest complete state into model and optimizer; what its
    `state.json` says (`step` 0: none).
    """
    newest = _newest(folder)
    if newest is None:
        return {"step": 0}
    load_weights(newest, model)
    moments, trained = _tensors(newest, MOMENTS), dict(_trained(model))
    number = torch.empty(())  # as `step` is
    for name, parameter in trained.items():
        if f"{name}/exp_avg" in moments:
            optimizer.state[parameter] = {
                kind: moments[f"{name}/{kind}"](number if kind == "step" else parameter).clone()
                for kind in ("step", "exp_avg", "exp_avg_sq")
            }
    state: dict[str, Any] = read_json(newest / "state.json")
    return state


def load_weights(state: Path, model: Any) -> None:
    """Put the weights of a state's folder in place. Raises `UserError` where they are
    those of another run, or cannot be read.
    """
    weights, trained = _tensors(state, WEIGHTS), dict(_trained(model))
    if set(weights) != set(trained):
        raise UserError(
            f"{state} holds other weights than this run trains; resume with the recipe it was"
            " made by"
        )
    with torch.no_grad():
        for name, parameter in trained.items():
            parameter.copy_(weights[name](parameter))


def _tensors(state: Path, file: str) -> dict[str, Like]:
    """What is saved of each weight or moment, to be spread as the parameter is."""
    from safetensors.torch import load_file

    try:
        if (state / SHARDS).is_file():
            return read_shards(state, file)
        return {name: partial(_like, value) for name, value in load_file(state / file).items()}
    except Exception as error:
        raise UserError(
            f"{state} cannot be read ({error}); delete it to go on from an earlier state"
        ) from None


def _newest(folder: Path) -> Path | None:
    """The newest complete state in a run's folder."""
    complete = sorted((folder / "state").glob("step-*/state.json"))
    return complete[-1].parent if complete else None


def check_steps(folder: Path, steps: int, key: str) -> None:
    """Refuse a run that has gone further than it is now asked to: no state of its
    earlier steps is left.
    """
    newest = _newest(folder)
    done = 0 if newest is None else int(read_json(newest / "state.json")["step"])
    if done > steps:
        raise UserError(
            f"{folder} holds a run of {done} steps, more than the {steps} of {key}; set {key} to"
            " as much at least, or choose another folder"
        )


def _trained(model: Any) -> list[tuple[str, torch.nn.Parameter]]:
    return [
        (name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad
    ]


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
    dtype: str | None = None,
) -> None:
    """A Hugging Face directory that holds the very weights of the model, each in its
    own precision (`dtype`: rounded to that one), with a neutral `environment.json` of
    the world it was trained for.

    An adapter is merged into the weights, and kept beside them in `adapter/`.
    """
    from transformers.utils import logging

    logging.disable_progress_bar()
    kind = None if dtype is None else getattr(torch, dtype)
    state, parted = checkpoint_tensors(model, kind, keep=process.first)
    if process.first:
        with whole_checkpoint(folder) as draft:
            said: dict[str, Any] = {"dtype": str(_widest(state.values())).removeprefix("torch.")}
            plain_model(model).save_pretrained(draft, state_dict=state, max_shard_size=SHARD)
            if parted:
                said["tie_word_embeddings"] = False
            config = json.loads((draft / "config.json").read_text()) | said
            write_json(draft / "config.json", config)
            tokenizer.save_pretrained(draft)
            told = json.loads((draft / "tokenizer_config.json").read_text())
            kept = {key: value for key, value in told.items() if key not in HOW_IT_WAS_LOADED}
            write_json(draft / "tokenizer_config.json", kept)
            if hasattr(model, "peft_config"):
                model.save_pretrained(draft / "adapter")
            if environment is not None:
                write_json(draft / "environment.json", environment)
    process.wait()


def options_from(folder: Path, options: Mapping[str, str]) -> dict[str, str]:
    """Options of a world for the `environment.json` of a checkpoint in `folder`: a relative path
    in `file` starts here, and is read from there (`read_environment_hint`).
    """
    file = Path(options.get("file", "")).expanduser()
    if "file" not in options or file.is_absolute():
        return dict(options)
    return {**options, "file": os.path.relpath(file.resolve(), folder.resolve())}


@contextmanager
def whole_checkpoint(folder: Path) -> Iterator[Path]:
    """Where to write what goes into a checkpoint's directory, all of it or nothing. Its
    `config.json`, without which it is none, comes last. A full disk is an `OutsideFailure`.
    """
    draft = folder / ".checkpoint.draft"
    with disk_told(folder):
        try:
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(parents=True)
            yield draft
            (folder / CONFIG).unlink(missing_ok=True)
            for part in sorted(draft.iterdir(), key=lambda part: part.name == CONFIG):
                if part.is_dir():
                    shutil.rmtree(folder / part.name, ignore_errors=True)
                part.replace(folder / part.name)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
            with suppress(OSError):
                folder.rmdir()  # empty: nothing was saved


def _widest(tensors: Iterable[torch.Tensor]) -> torch.dtype:
    """The precision that holds every floating-point weight as it is."""
    kinds = {tensor.dtype for tensor in tensors if tensor.is_floating_point()}
    return reduce(torch.promote_types, kinds)


FILE = "training.json"
RATE = "learning_rate"
logger = logging.getLogger("forensics")
MAY_CHANGE = frozenset(
    {  # how far a run goes, what is kept of it, and what brings a broken one on its way again
        "grpo.steps",
        "grpo.rows",  # memory alone
        "grpo.save_every",
        "grpo.learning_rate",
        "grpo.most_skipped",
        "compute.save_dtype",
        "audit",
        "logging",
        "record",
        "parallel",
        "server",
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


def description(recipe: Recipe, seed: int, start: str, rewards: Rewards) -> dict[str, Any]:
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
        found = [*differences(name, was.get(part), mine[part])]
        for what, earlier, now in sorted(found, key=lambda one: None in one[1:]):
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
    """Note the run in `folder`. Another learning rate than until now is said, and
    every step's report tells its own.
    """
    was = read_json(folder / FILE)["recipe"] if (folder / FILE).exists() else {}
    rates = [recipe.get("grpo", {}).get(RATE) for recipe in (was, mine["recipe"])]
    if None not in rates and rates[0] != rates[1]:
        logger.warning(
            "%s goes on with %s = %g instead of %g; the steps' reports say which had which.",
            folder,
            RATE,
            rates[1],
            rates[0],
        )
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
