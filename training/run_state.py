"""Saving and resuming: weights and optimizer state as safetensors, never
pickled.

A state folder holds `weights.safetensors`, `optimizer.safetensors` and, written
last, `state.json` with the number of finished steps and the plain state of
filters and curricula: a folder without it was interrupted while writing and
counts as absent. Sharded weights are not gathered: each process writes its own
rows. Either state can be resumed with another number of processes.

What a run is stands in its folder, written there before its first step, so that only
the same run can go on in it.

A checkpoint holds weights under the plain model's names, in the precision that they were
trained in, a tied weight once. Whether a folder holds the weights of a model is asked of
its bytes: names of files, steps and times say nothing of it.

Of weights that are sharded (FSDP2) each process writes and reads its own:

1. A process writes the rows that it holds of every weight and moment, into a file of its own.
   A tensor that is not sharded is written by the first process.
2. `shards.json`, written by the first process when all files are there, says of every tensor
   its whole shape, and which file holds its rows from which one on.
3. A process that goes on reads the rows that it holds now, wherever they lie. Rows of
   a tensor are one stretch of it (FSDP2 shards the first dimension), so none is gathered.

Tensors are written one at a time (`stream_tensors`). A state holds every trained weight and
two moments of it. The format's own writer wants them all at once in the memory of the host, 91
GB for seven billion parameters; here each is copied, written and let go. The bytes are those
that the format's own writer gives.
"""

import json
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial, reduce
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from forensics.errors import UserError
from forensics.policies import (
    SHARDS,
    TensorPlace,
    own_tensors,
    pieces,
    plain_model,
    saved_weights,
    sharded_tensors,
    trained_tensors,
)
from forensics.records import disk_told, read_json, write_json
from training.distributed import Process
from training.recipe import Recipe
from training.rewards import Rewards

CODES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
}


def stream_tensors(
    path: Path,
    tensors: Mapping[str, torch.Tensor],
    whole: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    """Write tensors, each as `whole` gives it."""
    kinds = list(CODES)  # in the order of the format
    names = sorted(tensors, key=lambda name: (kinds.index(tensors[name].dtype), name))
    with path.open("wb") as file:
        file.write(_header({name: tensors[name] for name in names}))
        for name in names:
            plain = whole(tensors[name]).detach().cpu().contiguous().reshape(-1)
            file.write(plain.view(torch.uint8).numpy().data)


def _header(tensors: Mapping[str, torch.Tensor]) -> bytes:
    """Name, type, shape and place of each, in order, filled up to 8 bytes."""
    ends = list(accumulate(one.numel() * one.element_size() for one in tensors.values()))
    places: dict[str, Any] = {
        name: {"dtype": CODES[one.dtype], "shape": list(one.shape), "data_offsets": [start, end]}
        for (name, one), start, end in zip(tensors.items(), [0, *ends], ends, strict=False)
    }
    text = json.dumps(places, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


Like = Callable[[torch.Tensor], torch.Tensor]  # what is saved, spread as the given tensor is


def is_sharded(tensor: torch.Tensor) -> bool:
    return hasattr(tensor, "device_mesh")


def write_shards(
    target: Path, groups: Mapping[str, Mapping[str, torch.Tensor]], process: Process
) -> None:
    """Write this process's rows of the tensors of every group into the folder `target`, which
    all processes see; the index is there when it returns on the first one.
    """
    process.wait()  # the folder is there, and what was in it is gone
    mine = {
        name: tensor
        for tensors in groups.values()
        for name, tensor in tensors.items()
        if is_sharded(tensor) or process.first
    }
    file = f"shard-{process.rank:05d}-of-{process.size:05d}.safetensors"
    local = {name: _local(tensor) for name, tensor in mine.items()}
    stream_tensors(target / file, local, torch.Tensor.contiguous)
    firsts = process.to_first((file, {name: _first_row(one) for name, one in mine.items()}))
    if process.first:
        index = {
            group: {
                name: {
                    "shape": list(tensor.shape),
                    "parts": [[part, rows[name]] for part, rows in firsts if name in rows],
                }
                for name, tensor in tensors.items()
            }
            for group, tensors in groups.items()
        }
        write_json(target / SHARDS, index)


def read_shards(state: Path, group: str) -> dict[str, Like]:
    """How to read each tensor of a group. Raises `UserError` for a state that is not whole."""
    return {place.name: partial(_read, place) for place in sharded_tensors(state, group)}


def _read(place: TensorPlace, like: torch.Tensor) -> torch.Tensor:
    if not is_sharded(like):
        return _rows(place, 0, None).to(like.device)
    from torch.distributed.tensor import DTensor

    assert isinstance(like, DTensor)
    first = _first_row(like)
    local = _rows(place, first, first + _local(like).shape[0]).to(like.device)
    return DTensor.from_local(
        local,
        like.device_mesh,
        like.placements,
        run_check=False,
        shape=like.shape,
        stride=like.stride(),
    )


def _rows(place: TensorPlace, start: int, stop: int | None) -> torch.Tensor:
    """Rows of a tensor (a number has none, and is read whole), from the files that hold them."""
    if not place.shape:
        return _slice(place.parts[0], ...)
    found, at = [torch.empty((0, *place.shape[1:]), dtype=getattr(torch, place.dtype_name))], 0
    for part in place.parts:
        rows = part.shape[0]
        begin, end = max(start - at, 0), rows if stop is None else min(stop - at, rows)
        if begin < end:
            found.append(_slice(part, slice(begin, end)))
        at += rows
    return torch.cat(found)


def _slice(part: TensorPlace, rows: Any) -> torch.Tensor:
    with safe_open(part.file, framework="pt") as file:
        if rows is ...:
            return torch.as_tensor(file.get_tensor(part.name)).clone()
        return torch.as_tensor(file.get_slice(part.name)[rows])


def _local(tensor: torch.Tensor) -> torch.Tensor:
    value: Any = tensor.detach()
    local: torch.Tensor = value.to_local() if is_sharded(tensor) else value
    return local


def _first_row(tensor: Any) -> int:
    """The first of the rows that this process holds: FSDP2 deals them out as `torch.chunk`."""
    if not is_sharded(tensor):
        return 0
    from torch.distributed.tensor import Shard

    assert tuple(tensor.placements) == (Shard(0),), "FSDP2 shards the first dimension"
    mesh, rows = tensor.device_mesh, tensor.shape[0]
    each = -(-rows // mesh.size())
    first = min(mesh.get_local_rank() * each, rows)
    assert _local(tensor).shape[0] == min(each, rows - first)
    return int(first)


def checkpoint_tensors(
    model: Any, dtype: torch.dtype | None, keep: bool
) -> tuple[dict[str, torch.Tensor], bool]:
    """What a checkpoint of the model is written from, on the CPU, and whether an
    adapter has parted weights that were tied.

    `dtype`: of all floating-point weights (`None`: each in its own). Names of one
    weight share one tensor. Weights that are sharded are gathered one at a time,
    which every process takes part in; only one that is to `keep` them holds more
    than one.
    """
    made: dict[tuple[int, str], torch.Tensor] = {}
    found: dict[str, torch.Tensor] = {}
    for weight in saved_weights(model):
        if weight.key not in made:
            value = whole(weight.value())
            kind = dtype if dtype is not None and value.is_floating_point() else value.dtype
            made[weight.key] = value.to("cpu", kind) if keep else value.new_empty(0)
        found[weight.name] = made[weight.key]
    parted = len({number for number, _ in made}) < len(made)
    return found, parted


def whole(value: torch.Tensor) -> torch.Tensor:
    """A tensor, gathered where it is sharded."""
    gather = getattr(value.detach(), "full_tensor", None)
    return (gather() if gather else value.detach()).contiguous()


def difference(model: Any, folder: Path) -> str | None:
    """Where the weights saved in `folder` (a checkpoint, an adapter, or a state of
    ours) are not those of `model`, in one sentence; `None` where every one is, bit
    for bit. Raises `UserError` for files that cannot be read.
    """
    live = {_plain_name(name): tensor.detach for name, tensor in own_tensors(model)}
    live |= {_plain_name(weight.name): weight.value for weight in saved_weights(model)}
    for place in trained_tensors(folder):
        value = live.get(_plain_name(place.name))
        if value is None:
            return f"The folder holds a weight '{place.name}' that the trained model has not."
        tensor = value()
        kind = str(tensor.dtype).removeprefix("torch.")
        if kind != place.dtype_name:
            return (
                f"The weight '{place.name}' was saved in {place.dtype_name} and trained in {kind},"
                " so the folder holds another policy; leave save_dtype out of [compute]."
            )
        if tuple(tensor.shape) != place.shape or not _equal(tensor, place):
            return f"The weight '{place.name}' in the folder is not the trained model's."
    return None


def _plain_name(name: str) -> str:
    """A weight's name without what wrappers put around it."""
    name = name.removeprefix("module.").removeprefix("base_model.model.")
    return name.replace(".default.", ".")


def _equal(tensor: torch.Tensor, place: TensorPlace) -> bool:
    here = tensor.cpu().contiguous().flatten().view(torch.uint8).numpy().data
    at = 0
    for piece in pieces(place):
        if here[at : at + len(piece)] != piece:
            return False
        at += len(piece)
    return True


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
