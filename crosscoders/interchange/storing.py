"""A dictionary in a folder: `cfg.json` (what it is) and `sae_weights.safetensors` (its tensors). Nothing is unpickled.

1. Weights are written first, the configuration last: a folder with a `cfg.json` is whole.
2. Reading holds names, shapes and values against the configuration, so that a file that was cut short, or belongs to
   another dictionary, is found before anything is computed with it.

The two names are those of SAELens, so that one look tells what a folder holds; stock SAELens reads what `saelens.py`
writes, not this.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from crosscoders.dictionary import Dictionary, DictionaryConfig
from crosscoders.partition import Partition
from forensics.errors import UserError
from forensics.records.files import write_atomically, write_json

CONFIG: Final = "cfg.json"
WEIGHTS: Final = "sae_weights.safetensors"
FORMAT: Final = "policy-forensics-dictionary"
VERSION: Final = 1
WITHOUT_THRESHOLD: Final = "threshold"  # the one tensor that may hold NaN: not trained yet


def save_dictionary(dictionary: Dictionary, folder: Path | str, **metadata: Any) -> Path:
    """Write a dictionary. `metadata`: JSON values about it (site, seeds, checkpoints), given back by `read_metadata`.

    Raises `UserError` where the disk is full or the folder cannot be written.
    """
    place = Path(folder)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in dictionary.state_dict().items()}
    (place / CONFIG).unlink(missing_ok=True)
    write_atomically(place / WEIGHTS, save(tensors))
    write_json(place / CONFIG, {
        "format": FORMAT, "version": VERSION, "dictionary": asdict(dictionary.config), "metadata": metadata,
    })
    return place


def load_dictionary(folder: Path | str, device: str | torch.device = "cpu") -> Dictionary:
    """The dictionary of a folder, on `device`. Raises `UserError` for files that are missing, cut or foreign."""
    place = Path(folder)
    config = _config(place, _content(place))
    tensors = read_tensors(place / WEIGHTS)
    dictionary = Dictionary(config)
    _require_fit(place / WEIGHTS, dictionary.state_dict(), tensors)
    dictionary.load_state_dict(tensors)
    return dictionary.to(device)


def read_metadata(folder: Path | str) -> dict[str, Any]:
    """What `save_dictionary` was told about the dictionary."""
    found = _content(Path(folder)).get("metadata", {})
    return found if isinstance(found, dict) else {}


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Every tensor of a safetensors file. Raises `UserError` where it is missing or not whole."""
    try:
        return dict(load(path.read_bytes()))
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; copy the whole folder of the dictionary") from None
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} cannot be read as safetensors ({error}); copy or save it again") from None


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object. Raises `UserError` where there is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; give the folder that a dictionary was saved in") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read as JSON ({error}); copy or save the dictionary again") from None
    if not isinstance(found, dict):
        raise UserError(f"{path} holds no JSON object; copy or save the dictionary again")
    return found


def _content(folder: Path) -> dict[str, Any]:
    """`cfg.json` of a dictionary of ours."""
    content = read_object(folder / CONFIG)
    if content.get("format") != FORMAT:
        raise UserError(
            f"{folder / CONFIG} is not that of a dictionary saved here; read one of SAELens with `load_saelens`, one "
            "of dictionary_learning with `load_dictionary_learning`"
        )
    if content.get("version") != VERSION:
        raise UserError(f"{folder / CONFIG} has version {content.get('version')}, and {VERSION} is read here; update")
    return content


def _config(folder: Path, content: dict[str, Any]) -> DictionaryConfig:
    try:
        fields = dict(content["dictionary"])
        return DictionaryConfig(**{**fields, "partition": Partition(**fields["partition"])})
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{folder / CONFIG} describes no dictionary ({error}); copy or save it again") from None


def _require_fit(path: Path, wanted: dict[str, torch.Tensor], found: dict[str, torch.Tensor]) -> None:
    if differing := sorted(set(wanted) ^ set(found)):
        raise UserError(f"{path} and its {CONFIG} do not belong together ({differing[0]}); copy both again")
    for name, tensor in found.items():
        if tensor.shape != wanted[name].shape:
            raise UserError(
                f"{name} in {path} is {list(tensor.shape)} and should be {list(wanted[name].shape)}; copy it and its "
                f"{CONFIG} again"
            )
        if name != WITHOUT_THRESHOLD and not bool(tensor.isfinite().all()):
            raise UserError(f"{name} in {path} holds NaN or infinite values; train or save the dictionary again")
