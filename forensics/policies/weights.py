"""Weights in safetensors files: checked, counted and hashed in one streaming
pass.

1. Each file's header is read and held against the file's size, so that a
   cut-off or corrupt file is found before a byte of weights is.
2. The tensors of all shards are streamed in the order of their names, at most
   16 MiB in memory at a time, into one SHA-256 and through one check for NaN
   and infinite values.

The hash covers names, dtypes, shapes and bytes and nothing else: a checkpoint
that was moved, renamed or sharded in another way keeps its identity. Nothing is
unpickled and no model library is loaded. The format: 8 bytes little-endian
header length, a JSON header, then the tensors' bytes. A tensor lies there whole, or
in parts that several processes wrote.

A LoRA adapter is merged here, one weight at a time and never in place: merging and
taking it out again would not give the same bits. A merged weight is as wide as
the wider of base and adapter, because an update that was trained in float32
vanishes in a bfloat16 weight.
"""

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from forensics.errors import UserError
from forensics.progress import Progress
from forensics.protocols import Policy
from forensics.records import content_hash
from forensics.records.given_files import parse_json, read_text

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class SavedWeight:
    """One weight under its name in the checkpoint. `key` is the same for names
    that share one weight; `value` gives the tensor, merged where it is adapted.
    """

    name: str
    key: tuple[int, str]
    value: "Callable[[], torch.Tensor]"


def saved_weights(model: Any) -> Iterator[SavedWeight]:
    """Every weight and saved buffer of a model, with an adapter or without."""
    plain = plain_model(model)
    adapted = {
        name: module
        for name, module in plain.named_modules()
        if hasattr(model, "peft_config") and hasattr(module, "get_delta_weight")
    }
    for name, weight in plain.state_dict(keep_vars=True).items():
        owner = next((o for o in adapted if name.startswith(f"{o}.")), None)
        if owner is None:
            yield SavedWeight(name=name, key=(id(weight), ""), value=weight.detach)
            continue
        part = name.removeprefix(f"{owner}.")
        if not part.startswith("base_layer."):
            continue  # the adapter's own
        own = f"{owner}.{part.removeprefix('base_layer.')}"
        if part == "base_layer.weight":
            yield SavedWeight(
                name=own, key=(id(weight), owner), value=_merge(weight, adapted[owner])
            )
        else:
            yield SavedWeight(name=own, key=(id(weight), ""), value=weight.detach)


def plain_model(model: Any) -> Any:
    """The model itself, without the wrapper of an adapter."""
    return model.get_base_model() if hasattr(model, "peft_config") else model


def _merge(weight: "torch.Tensor", module: Any) -> "Callable[[], torch.Tensor]":
    import torch

    @torch.no_grad()
    def merged() -> torch.Tensor:
        total = weight.detach()
        for adapter in module.active_adapters:
            total = total + module.get_delta_weight(adapter)
        return total

    return merged


def merged_tensors(model: Any) -> "Iterator[tuple[str, torch.Tensor]]":
    """Each weight once, in the order of names."""
    once: dict[tuple[int, str], SavedWeight] = {}
    for weight in saved_weights(model):
        once.setdefault(weight.key, weight)
    for weight in sorted(once.values(), key=lambda one: one.name):
        yield weight.name, weight.value()


PIECE: Final = 1 << 24
HEADER_LIMIT: Final = 100_000_000  # bytes, the limit of the format's own reader
SHARDS: Final = "shards.json"  # of a state that several processes wrote, each its own rows

# dtype code -> (its name, bytes a value, exponent bits; all of them set: NaN or infinite)
DTYPES: Final = {
    "F64": ("float64", 8, 0x7FF0000000000000),
    "F32": ("float32", 4, 0x7F800000),
    "F16": ("float16", 2, 0x7C00),
    "BF16": ("bfloat16", 2, 0x7F80),
    "F8_E4M3": ("float8_e4m3fn", 1, 0x7F),
    "F8_E5M2": ("float8_e5m2", 1, 0x7C),
    "I64": ("int64", 8, None),
    "I32": ("int32", 4, None),
    "I16": ("int16", 2, None),
    "I8": ("int8", 1, None),
    "U64": ("uint64", 8, None),
    "U32": ("uint32", 4, None),
    "U16": ("uint16", 2, None),
    "U8": ("uint8", 1, None),
    "BOOL": ("bool", 1, None),
}


@dataclass(frozen=True, kw_only=True)
class TensorPlace:
    """One tensor in one file: `start` and `end` are byte offsets from the file's first byte;
    or in several, its rows in the order of `parts`, and then offsets from the first part's.
    """

    name: str
    file: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int
    parts: tuple["TensorPlace", ...] = ()

    @property
    def dtype_name(self) -> str:
        """The dtype as numpy and torch spell it."""
        return DTYPES[self.dtype][0]


def read_header(path: Path) -> list[TensorPlace]:
    """The tensors of one file. Raises `UserError` where header and size disagree."""
    size = path.stat().st_size
    try:
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(HEADER_LIMIT, size - 8):
                raise ValueError("the header is cut off")
            header = json.loads(file.read(length))
        places = [
            _place(path, name, entry, 8 + length)
            for name, entry in header.items()
            if name != "__metadata__"
        ]
        require_contiguous(places, 8 + length, size)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = str(error) if type(error) is ValueError else "its header cannot be read"
        raise UserError(
            f"{path} is truncated or corrupt ({reason}); copy or save the checkpoint again"
        ) from None
    return places


def _place(path: Path, name: str, entry: dict[str, Any], base: int) -> TensorPlace:
    shape = tuple(int(size) for size in entry["shape"])
    start, end = entry["data_offsets"]
    if entry["dtype"] not in DTYPES:
        raise ValueError(f"tensor '{name}' has the unknown dtype {entry['dtype']}")
    if min(shape, default=0) < 0 or end - start != math.prod(shape) * DTYPES[entry["dtype"]][1]:
        raise ValueError(f"tensor '{name}' does not fill its place")
    return TensorPlace(
        name=name, file=path, dtype=entry["dtype"], shape=shape, start=base + start, end=base + end
    )


def require_contiguous(places: list[TensorPlace], base: int, size: int) -> None:
    """Tensors follow one another without holes up to the end of the file, as the format asks."""
    at = base
    for place in sorted(places, key=lambda place: (place.start, place.end)):
        if place.start != at:
            raise ValueError(f"tensor '{place.name}' is not where the header says")
        at = place.end
    if at != size:
        raise ValueError(f"the header promises {at} bytes, the file has {size}")


def pieces(place: TensorPlace) -> Iterator[bytes]:
    """A tensor's bytes in order, at most 16 MiB at a time."""
    for part in place.parts:
        yield from pieces(part)
    if place.parts:
        return
    with open(place.file, "rb") as file:
        file.seek(place.start)
        left = place.end - place.start
        while left:
            piece = file.read(min(PIECE, left))
            if not piece:
                raise UserError(
                    f"{place.file} became shorter while it was read; copy the checkpoint again"
                )
            left -= len(piece)
            yield piece


def sharded_tensors(directory: Path, group: str) -> list[TensorPlace]:
    """The tensors of a state that several processes wrote (`training.run_state`). Raises
    `UserError` where a file or a row is missing.
    """
    try:
        index = parse_json(read_text(directory / SHARDS, "", "copy the state again"))[group]
        files = sorted({file for one in index.values() for file, _ in one["parts"]})
        if missing := [file for file in files if not (directory / file).is_file()]:
            raise UserError(f"{directory / missing[0]} is missing; copy every file of the state")
        held = {
            file: {place.name: place for place in read_header(directory / file)} for file in files
        }
        return [
            _joined(tuple(one["shape"]), [(held[f][name], first) for f, first in one["parts"]])
            for name, one in index.items()
        ]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(
            f"{directory / SHARDS} does not fit its files; copy the state again"
        ) from None


def _joined(shape: tuple[int, ...], rows: list[tuple[TensorPlace, int]]) -> TensorPlace:
    """One tensor of its rows. Raises `ValueError` unless all are there, in order."""
    parts = [part for part, _ in rows]
    ends = [0, *accumulate(part.shape[0] if shape else 0 for part in parts)]
    if [first for _, first in rows] != ends[:-1] or ends[-1] != (shape[0] if shape else 0):
        raise ValueError("rows are missing")
    end = sum(part.end - part.start for part in parts)
    return replace(parts[0], start=0, end=end, shape=shape, parts=tuple(parts))


SINGLE: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"
ADAPTER: Final = "adapter_model.safetensors"
OPTIMIZER: Final = "optimizer.safetensors"


@dataclass(frozen=True, kw_only=True)
class WeightsIdentity:
    """SHA-256 over all tensors, the dtype that most bytes are in, and how many
    numbers there are.
    """

    sha256: str
    dtype: str
    parameters: int


def identify_weights(directory: Path, progress: Progress | None = None) -> WeightsIdentity:
    """Check and hash the weights of a checkpoint directory. Raises `UserError`
    for anything amiss.
    """
    return _identified(directory, find_tensors(directory), progress)


def identify_folder(directory: Path) -> WeightsIdentity:
    """The same of any folder that a trainer saved, also one with an adapter alone
    or a state to go on with.
    """
    return _identified(directory, trained_tensors(directory))


def widened_hash(directory: Path) -> str:
    """The SHA-256 of a checkpoint whose 16-bit weights are held in float32, as by a trainer
    that opens them so. No value changes: only the same weights have the same hash.
    """
    places = sorted(find_tensors(directory), key=lambda place: place.name)
    return _identity(
        (place.name, *_widened(place.dtype, place.shape, pieces(place))) for place in places
    ).sha256


def _widened(
    dtype: str, shape: Sequence[int], pieces: Iterable[bytes]
) -> tuple[str, Sequence[int], Iterable[bytes]]:
    if dtype == "BF16":
        bits = (np.frombuffer(piece, "<u2").astype("<u4") << 16 for piece in pieces)
        return "F32", shape, (piece.tobytes() for piece in bits)
    if dtype == "F16":
        return "F32", shape, (np.frombuffer(one, "<f2").astype("<f4").tobytes() for one in pieces)
    return dtype, shape, pieces


def _identified(
    directory: Path, found: Iterable[TensorPlace], progress: Progress | None = None
) -> WeightsIdentity:
    places = sorted(found, key=lambda place: place.name)
    total, done = sum(place.end - place.start for place in places), 0
    told = f"reading {directory.resolve().name or directory}"  # `.` and `..` have no name

    def checked(place: TensorPlace) -> Iterator[bytes]:
        nonlocal done
        for piece in pieces(place):
            _require_finite(place, piece)
            done += len(piece)
            if progress:
                progress(told, done, total)
            yield piece

    return _identity((place.name, place.dtype, place.shape, checked(place)) for place in places)


def _identity(
    tensors: Iterable[tuple[str, str, Sequence[int], Iterable[bytes]]],
) -> WeightsIdentity:
    """Of tensors in the order of their names: name, dtype code, shape, bytes."""
    digest, sizes, parameters = hashlib.sha256(), Counter[str](), 0
    for name, code, shape, parts in tensors:
        digest.update(json.dumps([name, code, list(shape)]).encode())
        for piece in parts:
            digest.update(piece)
            sizes[code] += memoryview(piece).nbytes
        parameters += math.prod(shape)
    most = max(sizes, key=sizes.__getitem__, default="")
    return WeightsIdentity(
        sha256=digest.hexdigest(), dtype=DTYPES.get(most, (most,))[0], parameters=parameters
    )


def find_tensors(directory: Path) -> list[TensorPlace]:
    """Where each tensor lies, from the headers alone; every file is held against its size."""
    if (directory / SINGLE).is_file():
        return _present(directory, read_header(directory / SINGLE))
    if (directory / INDEX).is_file():
        return _present(directory, _indexed(directory))
    raise _no_weights(directory)


def trained_tensors(directory: Path) -> list[TensorPlace]:
    """The weights of a folder that a trainer saved: those of a checkpoint, or else
    of every safetensors file in it but the optimizer's. Beside an adapter a model is not
    the whole.
    """
    if (directory / SHARDS).is_file():
        return _present(directory, sharded_tensors(directory, "weights.safetensors"))
    whole = (directory / SINGLE).is_file() or (directory / INDEX).is_file()
    if whole and not (directory / ADAPTER).is_file():
        return find_tensors(directory)
    files = sorted(set(directory.glob("*.safetensors")) - {directory / OPTIMIZER})
    return _present(directory, [place for file in files for place in read_header(file)])


def _present(directory: Path, places: list[TensorPlace]) -> list[TensorPlace]:
    if sum(place.end - place.start for place in places) == 0:
        raise UserError(
            f"the safetensors files of {directory} hold no weights; save the checkpoint again"
        )
    return places


def _indexed(directory: Path) -> list[TensorPlace]:
    """The tensors that the index names, each in the shard that it names."""
    shard_of = _read_index(directory / INDEX)
    missing = sorted({shard for shard in shard_of.values() if not (directory / shard).is_file()})
    if missing:
        raise UserError(
            f"the shard {missing[0]} of {directory} is missing; copy every file that {INDEX} names"
        )
    found = {
        (place.file.name, place.name): place
        for shard in sorted(set(shard_of.values()))
        for place in read_header(directory / shard)
    }
    for name, shard in shard_of.items():
        if (shard, name) not in found:
            raise UserError(
                f"{directory / shard} lacks the tensor '{name}' of {INDEX}; copy the checkpoint"
                " again"
            )
    return [found[shard, name] for name, shard in shard_of.items()]


def _read_index(path: Path) -> dict[str, str]:
    try:
        shard_of = parse_json(read_text(path, "", "copy the checkpoint again"))["weight_map"]
        # a shard is a plain file name: an index must not lead out of its directory
        if shard_of and all(re.fullmatch(r"[\w.\-]+", shard) for shard in shard_of.values()):
            return dict(shard_of)
    except UserError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise UserError(f"{path} is not an index of safetensors shards; copy the checkpoint again")


def _require_finite(place: TensorPlace, piece: bytes) -> None:
    _, size, exponent = DTYPES[place.dtype]
    if exponent is None:
        return
    bits = np.frombuffer(piece, dtype=f"<u{size}")
    if np.any((bits & bits.dtype.type(exponent)) == exponent):
        raise UserError(
            f"tensor '{place.name}' of {place.file} holds NaN or infinite values; use a checkpoint"
            " from before training broke"
        )


def _no_weights(directory: Path) -> UserError:
    """Why there are no safetensors weights, with the cure for what is there instead."""
    pickles = sorted(
        p.name for p in directory.iterdir() if p.suffix in {".bin", ".pt", ".pth", ".ckpt", ".pkl"}
    )
    others = sorted(p.name for p in directory.glob("*.safetensors"))
    if pickles:
        return UserError(
            f"{directory} holds pickled weights ({pickles[0]}), which can run code when loaded and"
            " are refused; convert them where you trust them:"
            " AutoModelForCausalLM.from_pretrained(DIR).save_pretrained(NEW_DIR)"
        )
    if len(others) > 1:
        return UserError(
            f"{directory} has shards such as {others[0]} but no {INDEX}; copy the index file too"
        )
    if SINGLE in others:  # a folder, or a link to nothing
        return UserError(f"{directory / SINGLE} is no file; copy the checkpoint again")
    if others:
        return UserError(
            f"{directory} has {others[0]} but no {SINGLE}; rename the file to {SINGLE}"
        )
    return UserError(
        f"{directory} has no weights ({SINGLE}); give a directory written by save_pretrained"
    )


def identity_of_weights(policy: Policy) -> str:
    """The content hash of a policy's identity with its weights as they are now;
    its own identity where it has no weights here.

    A live policy in a trainer still has the start's identity after a thousand
    updates, and what is kept under that name would be another policy's. Reads
    the weights: about a second a gigabyte.
    """
    if "weights" not in policy.capabilities:
        return policy.identity
    return content_hash([policy.identity, identify_model(policy.model).sha256], 64)


def identify_model(model: Any) -> WeightsIdentity:
    """What `identify_weights` says of the directory that the model would be saved
    in, in the same dtype: names sorted, tied tensors once, an adapter merged. So a
    model in memory and its checkpoint are one policy. Reads every weight: about a
    second a gigabyte.

    Raises `UserError` where a weight is not finite, or lies in pieces in several
    processes.
    """
    import torch

    from forensics.policies.weights import merged_tensors

    codes = {name: code for code, (name, *_) in DTYPES.items()}

    def checked(name: str, tensor: Any) -> Iterator[bytes]:
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise UserError(
                f"the weight {name} is not finite; use weights from before training broke, or lower"
                " the learning rate"
            )
        # a copy: what numpy has seen, FSDP2 could not free
        copied = tensor.detach().to("cpu", copy=True).contiguous()
        yield copied.flatten().view(torch.uint8).numpy().data

    tensors = merged_tensors(model) if hasattr(model, "peft_config") else sorted(own_tensors(model))
    named = ((n, t, str(t.dtype).removeprefix("torch.")) for n, t in tensors)
    return _identity((n, codes.get(kind, kind), t.shape, checked(n, t)) for n, t, kind in named)


def own_tensors(model: Any) -> Iterator[tuple[str, Any]]:
    """Parameters and saved buffers, each storage once under its first name.

    Not `state_dict`: under FSDP2 it would put whole weights back into pieces,
    in this process alone.
    """
    seen: set[int] = set()
    for name, tensor in chain(
        model.named_parameters(remove_duplicate=False), _saved_buffers(model)
    ):
        if hasattr(tensor, "device_mesh") or hasattr(tensor, "ds_id"):
            raise UserError(
                f"the weights are sharded over processes ({name}), so this one cannot play them;"
                " switch audits off, and audit saved checkpoints with `forensics watch OUT --before"
                " BASE`"
            )
        if tensor.data_ptr() not in seen or tensor.numel() == 0:
            seen.add(tensor.data_ptr())
            yield name, tensor


def _saved_buffers(model: Any) -> Iterator[tuple[str, Any]]:
    for prefix, module in model.named_modules(remove_duplicate=False):
        for name, buffer in module.named_buffers(recurse=False, remove_duplicate=False):
            if name not in module._non_persistent_buffers_set:
                yield f"{prefix}.{name}".lstrip("."), buffer
