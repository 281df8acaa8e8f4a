"""Checkpoints that a trainer leaves below a folder: which there are, whether they are
whole, and the policy in one of them.

1. A checkpoint is a folder with weights as safetensors (Hugging Face's names), with a
   LoRA adapter as peft saves it, or with a state that our trainer goes on from. What
   lies below one belongs to it.
2. Its step is what the trainer noted in it, else the number that its name ends in, or
   that of the nearest folder above (`global_step_20/actor/huggingface`).
3. It is whole when every file that its index names is there and every file is as long
   as its header says. No clock is asked.
4. Config and tokenizer are its own where it has them, else those of the base: training
   changes neither.
"""

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from forensics.errors import UserError, stop_outside
from forensics.policies import (
    SAVED_ADAPTER,
    SHARDS,
    load_adapter,
    load_policy,
    load_tokenizer,
    new_adapter,
    read_object,
    require_loadable,
    trained_tensors,
)
from forensics.records import content_hash

DEPTH: Final = 6  # folders below the watched one that are looked into
CONFIG: Final = "config.json"
WEIGHTS: Final = ("model.safetensors", "model.safetensors.index.json")
STATE: Final = ("weights.safetensors", "state.json")
TOKENIZERS: Final = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
PASSED_BY: Final = (".", "tmp", "critic")  # drafts, and verl's critic, which is no policy
NOTES: Final = frozenset({"trainer_state.json", "promotable.json", "optimizer.safetensors"})
KINDS: Final = frozenset({".safetensors", ".json", ".jinja", ".model", ".txt"})
Kind = Literal["model", "adapter", "state"]
PICKLES: Final = ", and pickles are not opened; have the trainer save safetensors"
VERL: Final = "; verl writes them where checkpoint.save_contents names hf_model"


@dataclass(frozen=True, kw_only=True)
class SavedFolder:
    """A checkpoint. `name`: where it lies below the watched folder."""

    place: Path
    name: str
    kind: Kind

    @property
    def step(self) -> int | None:
        """The updates that led to it; `None` where nothing says how many."""
        noted = {"trainer_state.json": "global_step", "state.json": "step"}
        for file, key in noted.items():
            if (self.place / file).is_file():
                step = read_object(self.place / file).get(key)
                if isinstance(step, int):
                    return step
        states = sorted((self.place.parent / "state").glob("step-*/state.json"))
        if states and self.kind == "model":  # our trainer's last checkpoint, beside its state
            return int(read_object(states[-1])["step"])
        parts = (re.search(r"(\d+)$", part) for part in reversed(self.name.split("/")))
        return next((int(found[1]) for found in parts if found), None)

    def files(self) -> str:
        """What the files that make it up look like: a hash of names, sizes and times."""
        found = []
        for file in sorted(self.place.iterdir()):
            if file.suffix in KINDS and file.name not in NOTES:
                with suppress(FileNotFoundError):  # it goes just now
                    found.append((file.name, file.stat().st_size, file.stat().st_mtime_ns))
        return content_hash(found)

    def lacks(self) -> str | None:
        """What it lacks to be whole, in a sentence; `None` where it is."""
        needed = {"adapter": SAVED_ADAPTER, "state": STATE, "model": ()}[self.kind]
        missing = [name for name in needed if not (self.place / name).is_file()]
        if self.kind == "state" and (self.place / SHARDS).is_file():
            missing = [name for name in missing if name != STATE[0]]
        if self.kind == "model" and not any((self.place / name).is_file() for name in WEIGHTS):
            missing = [WEIGHTS[0]]
        if missing:
            return f"It has no {missing[0]}{self._cure()}."
        try:
            trained_tensors(self.place)
        except UserError as error:
            return f"It is not whole: {str(error).partition(';')[0]}."
        return None

    def _cure(self) -> str:
        """Where its weights may be instead."""
        if any(self.place.parent.glob("model_world_size_*")):
            return VERL
        return PICKLES if any(self.place.glob("pytorch_model*.bin*")) else ""


def saved_folders(out: Path, own: Path) -> list[SavedFolder]:
    """The checkpoints below a folder, itself among them, in the order of their names.
    `own`: a folder that is left out.
    """
    found = []
    for where, folders, files in os.walk(out):
        place = Path(where)
        below = place.relative_to(out)
        kind = _kind(place, set(files))
        if kind is not None:
            found.append(SavedFolder(place=place, name=below.as_posix(), kind=kind))
        deeper = len(below.parts) < DEPTH and (kind is None or place == out)
        folders[:] = sorted(
            name
            for name in folders
            if deeper and not name.startswith(PASSED_BY) and place / name != own
        )
    return found


def _kind(place: Path, files: set[str]) -> Kind | None:
    if files & {*SAVED_ADAPTER}:
        return "adapter"
    shards = any(re.match(r"model-\d", name) for name in files)
    if (
        shards
        or files & {*WEIGHTS, "trainer_state.json"}
        or (CONFIG in files and _of_a_model(place / CONFIG))
    ):
        return "model"
    return "state" if files & {STATE[0], SHARDS} else None


def _of_a_model(config: Path) -> bool:
    with suppress(OSError):
        return b'"model_type"' in config.read_bytes()
    return False


def saved_dtype(folder: SavedFolder, base: Path) -> str:
    """The precision that the weights were saved in; an adapter's base is played as it lies."""
    of = base if folder.kind == "adapter" else folder.place
    sizes: dict[str, int] = {}
    for place in trained_tensors(of):
        sizes[place.dtype_name] = sizes.get(place.dtype_name, 0) + place.end - place.start
    kind = max(sizes, key=sizes.__getitem__)
    if kind not in ("float32", "bfloat16", "float16", "float64"):
        raise UserError(
            f"{of} holds weights in {kind}, which cannot be played; name one by --dtype"
        )
    return kind


def tokenizer_of(folder: SavedFolder, base: Path) -> Any:
    """The checkpoint's own tokenizer, else the base's."""
    own = any((folder.place / name).is_file() for name in TOKENIZERS)
    return load_tokenizer(folder.place if own else base)


def load_model(folder: SavedFolder, base: Path, device: str, dtype: str) -> Any:
    """The model in a checkpoint. Raises `UserError` for what cannot be loaded."""
    if folder.kind == "adapter":
        return load_adapter(folder.place, base, device=device, dtype=dtype)[0].model
    if folder.kind == "state":
        return _with_state(load_base(base, device, dtype), folder.place)
    with _completed(folder.place, base) as whole:
        require_loadable(whole)
        return load_base(whole, device, dtype)


def load_start(folder: SavedFolder, base: Path, device: str, dtype: str) -> Any:
    """The model that training began with. Where an adapter is trained, it is there and
    changes nothing, as in the trainer: what is played goes through the same layers. One that
    trains more than the two factors of LoRA leaves no start but the base.
    """
    if folder.kind != "model" and _factors_alone(folder):
        model = load_model(folder, base, device, dtype)
        if hasattr(model, "peft_config"):
            for name, weight in model.named_parameters():
                if re.search(r"lora_(embedding_)?B\b", name):
                    weight.data.zero_()
            return model
    return load_base(base, device, dtype)


def _factors_alone(folder: SavedFolder) -> bool:
    """Whether an adapter is nothing else: no magnitudes (DoRA), biases or whole layers."""
    names = [place.name for place in trained_tensors(folder.place)]
    return folder.kind == "state" or all(re.search(r"lora_(embedding_)?[AB]\b", n) for n in names)


def load_base(place: Path, device: str, dtype: str) -> Any:
    """The model of a checkpoint directory whose weights were read and checked."""
    return load_policy(place, device=device, dtype=dtype, identity="checked").model


@contextmanager
def _completed(folder: Path, base: Path) -> Iterator[Path]:
    """The checkpoint's folder, with the base's config and tokenizer where it has none:
    links alone.
    """
    own = {file.name: file for file in folder.iterdir() if file.is_file()}
    given = {file.name: file for file in base.iterdir() if file.suffix in KINDS}
    configs = {CONFIG, "generation_config.json"}
    lent = set() if CONFIG in own else configs
    if not own.keys() & {*TOKENIZERS}:
        lent |= given.keys() - configs - NOTES - {*WEIGHTS}
    files = {name: file for name, file in given.items() if name in lent} | own
    with tempfile.TemporaryDirectory() as passing:
        for name, file in files.items():
            (Path(passing) / name).symlink_to(file.resolve())
        try:
            yield Path(passing)
        except UserError as error:
            stop_outside(error)
            raise UserError(str(error).replace(passing, str(folder))) from error


def _with_state(model: Any, state: Path) -> Any:
    """The base with the weights of a state of our trainer, in an adapter where it trains one."""
    from training.run_state import load_weights

    recipe = read_object(state.parents[1] / "training.json")["recipe"]
    if lora := recipe.get("lora"):
        targets = lora["targets"]
        lora = lora | {"targets": targets if isinstance(targets, str) else tuple(targets)}
        model = new_adapter(model, **lora)
    load_weights(state, model)
    return model
