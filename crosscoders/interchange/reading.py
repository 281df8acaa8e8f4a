"""A saved dictionary of whichever kind: what it is, is read off its files; whether it fits, is held against a site.

1. A folder with `cfg.json`: ours where it says so, otherwise SAELens (an SAE of one model, or one whose input is both
   models' activations, one after the other: told apart by the width of the site). Else weights of a dictionary_learning
   crosscoder, in safetensors.
2. Where it says at which site, or on which checkpoints, it was trained, that must be what it is used on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal

import torch

from crosscoders.dictionary import Dictionary
from crosscoders.interchange.dictionary_learning import load_dictionary_learning
from crosscoders.interchange.saelens import load_saelens
from crosscoders.interchange.storing import CONFIG, FORMAT, WEIGHTS, load_dictionary, read_object
from forensics.errors import UserError

Kind = Literal["ours", "SAELens", "dictionary_learning"]
WEIGHT_FILES: Final = ("*.safetensors", "*.pt")
SIDES: Final = ("before", "after")


@dataclass(frozen=True, kw_only=True)
class Saved:
    """`site`, `checkpoints` (identities before and after) and `models`: `None` where the files do not say. `inputs`:
    features that a SAELens SAE reads. `key`: a hash of the files."""

    path: Path
    kind: Kind
    site: str | None
    checkpoints: tuple[str, str] | None
    key: str
    inputs: int | None = None
    models: int | None = None

    def load(self, width: int, device: str | torch.device = "cpu") -> Dictionary:
        """The dictionary of one or both models at a site of this width. Raises `UserError` where it is not whole or
        does not fit."""
        if self.kind == "SAELens":
            return load_saelens(self.path, self._models(width)).to(device)
        found = load_dictionary(self.path) if self.kind == "ours" else load_dictionary_learning(self.path)
        if found.config.models not in (1, 2):
            raise UserError(f"{self.path} speaks of {found.config.models} models; give a dictionary of one model or of "
                            "the two that are compared")
        if found.config.width != width:
            raise UserError(f"{self.path} is for activations {found.config.width} wide and here they are {width} wide; "
                            "give a dictionary of this site")
        return found.to(device)

    def _models(self, width: int) -> int:
        for models in (1, 2):
            if self.inputs == models * width and self.models in (None, models):
                return models
        told = f" of {self.models} models" if self.models else ""
        raise UserError(f"{self.path} reads {self.inputs} features{told} and the activations here are {width} wide; "
                        f"give an SAE that reads {width} (one model) or {2 * width} (both, one after the other)")

    def require_checkpoints(self, before: str, after: str) -> None:
        """Raise `UserError` where it says that it was trained on others (identities)."""
        for side, here, there in zip(SIDES, (before, after), self.checkpoints or (before, after), strict=True):
            if here != there:
                raise UserError(f"{self.path} was trained on another {side} checkpoint ({there}, and this is {here}); "
                                "give the dictionary of this pair")


def find_dictionary(path: Path | str) -> Saved:
    """What a path holds. Raises `UserError` where that is no dictionary."""
    place = Path(path).expanduser()
    if not place.exists():
        raise UserError(f"{place} does not exist; give the folder of a saved dictionary")
    if not (place / CONFIG).is_file():
        return _of_weights(place)
    content = read_object(place / CONFIG)
    told = content.get("metadata")
    about = {**content, **told} if isinstance(told, dict) else content
    key = _key([place / CONFIG, place / WEIGHTS])
    if content.get("format") == FORMAT:
        return Saved(path=place, kind="ours", site=_text(about, "site"), checkpoints=_checkpoints(about),
                     key=key)
    if not isinstance(content.get("d_in"), int):
        raise UserError(f"{place / CONFIG} is neither that of a dictionary saved here nor that of a SAELens SAE (it "
                        "names no d_in); give the folder of a saved dictionary")
    return Saved(path=place, kind="SAELens", site=_text(about, "hook_name") or _text(about, "hook_point"),
                 checkpoints=_checkpoints(about), key=key, inputs=content["d_in"], models=about.get("concatenated"))


def _of_weights(place: Path) -> Saved:
    """Weights without our configuration or that of SAELens."""
    files = [place] if place.is_file() else [file for kind in WEIGHT_FILES for file in sorted(place.glob(kind))]
    if not files:
        raise UserError(f"{place} holds no dictionary (no {CONFIG} and no *.safetensors); give the folder that one was "
                        "saved in")
    return Saved(path=place, kind="dictionary_learning", site=None, checkpoints=None, key=_key(files[:1]))


def _key(files: Sequence[Path]) -> str:
    digest = sha256()
    for file in files:
        try:
            digest.update(file.read_bytes())
        except OSError as error:
            raise UserError(f"{file} cannot be read ({error.strerror}); copy the dictionary's whole folder") from None
    return digest.hexdigest()[:16]


def _text(about: dict[str, Any], name: str) -> str | None:
    value = about.get(name)
    return value if isinstance(value, str) and value and value != "synthetic" else None


def _checkpoints(about: dict[str, Any]) -> tuple[str, str] | None:
    before, after = (_text(about, side) for side in SIDES)
    return None if before is None or after is None else (before, after)
