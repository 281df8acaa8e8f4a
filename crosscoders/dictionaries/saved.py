"""Saved dictionaries: our folder, plain dense tensors, and what a path holds.

1. Our folder is `cfg.json` (what the dictionary is) and
   `sae_weights.safetensors` (its tensors); nothing is unpickled. Weights are
   written first, the configuration last: a folder with a `cfg.json` is whole.
   The two names are those of SAELens, so that one look tells what a folder
   holds; stock SAELens reads what `saelens.py` writes, not this.
2. Reading holds names, shapes and values against the configuration, so that a
   file that was cut short, or belongs to another dictionary, is found before
   anything is computed with it.
3. Dense tensors lie between our layout and others'. `pre = x_1 E_1 + ... + b`
   with nothing subtracted first, `x_hat_m = f D_m + c_m`: scale and centres of
   ours are folded into the weights on the way out, and a centre is taken out of
   the bias again on the way in. Blocks that a partition forbids are zero here,
   since others know no partition.
4. What a path holds is asked of every installed format: a module with
   `recognise(path)` and `load(saved, width)`, named in the entry point group
   `forensics.dictionaries`. Where the files say at which site, or on which
   checkpoints, a dictionary was trained, that must be what it is used on.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Protocol

import torch
from einops import einsum, rearrange
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors, save
from torch import Tensor

from crosscoders.dictionaries.dictionary import Dictionary, DictionaryConfig
from crosscoders.dictionaries.settings import Partition
from forensics.errors import UserError
from forensics.plugins import load_point, plugin_points
from forensics.records import parse_json, read_text, write_atomically, write_json

CONFIG: Final = "cfg.json"
WEIGHTS: Final = "sae_weights.safetensors"
FORMAT: Final = "policy-forensics-dictionary"
VERSION: Final = 1
WITHOUT_THRESHOLD: Final = "threshold"  # the one tensor that may hold NaN: not trained yet
GROUP: Final = "forensics.dictionaries"
SIDES: Final = ("before", "after")


def save_dictionary(dictionary: Dictionary, folder: Path | str, **metadata: Any) -> Path:
    """Write a dictionary. `metadata`: JSON values about it (site, seeds,
    checkpoints), given back by `read_metadata`.

    Raises `UserError` where the disk is full or the folder cannot be written.
    """
    folder = Path(folder)
    tensors = {
        name: tensor.detach().cpu().contiguous() for name, tensor in dictionary.state_dict().items()
    }
    (folder / CONFIG).unlink(missing_ok=True)
    write_atomically(folder / WEIGHTS, save(tensors))
    write_json(
        folder / CONFIG,
        {
            "format": FORMAT,
            "version": VERSION,
            "dictionary": asdict(dictionary.config),
            "metadata": metadata,
        },
    )
    return folder


def load_dictionary(folder: Path | str, device: str | torch.device = "cpu") -> Dictionary:
    """The dictionary of a folder, on `device`. Raises `UserError` for files
    that are missing, cut or foreign.
    """
    folder = Path(folder)
    content = _content(folder)
    try:
        fields = dict(content["dictionary"])
        config = DictionaryConfig(**{**fields, "partition": Partition(**fields["partition"])})
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{folder / CONFIG} describes no dictionary ({error}); copy or save it again"
        ) from None
    tensors = read_tensors(folder / WEIGHTS)
    dictionary = Dictionary(config)
    _require_fit(folder / WEIGHTS, dictionary.state_dict(), tensors)
    dictionary.load_state_dict(tensors)
    return dictionary.to(device)


def read_metadata(folder: Path | str) -> dict[str, Any]:
    """What `save_dictionary` was told about the dictionary."""
    metadata = _content(Path(folder)).get("metadata", {})
    return metadata if isinstance(metadata, dict) else {}


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Every tensor of a safetensors file. Raises `UserError` where it is missing or not whole."""
    try:
        return dict(load_tensors(path.read_bytes()))
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; copy the whole folder of the dictionary") from None
    except (SafetensorError, OSError) as error:
        raise UserError(
            f"{path} cannot be read as safetensors ({error}); copy or save it again"
        ) from None


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object. Raises `UserError` where there is none."""
    text = read_text(path, "", "give the folder that a dictionary was saved in")
    try:
        content = parse_json(text)
    except ValueError as error:
        raise UserError(
            f"{path} cannot be read as JSON ({error}); copy or save the dictionary again"
        ) from None
    if not isinstance(content, dict):
        raise UserError(f"{path} holds no JSON object; copy or save the dictionary again")
    return content


def _content(folder: Path) -> dict[str, Any]:
    content = read_object(folder / CONFIG)
    if content.get("format") != FORMAT:
        raise UserError(
            f"{folder / CONFIG} is not that of a dictionary saved here; read one of SAELens with"
            " `load_saelens`"
        )
    if content.get("version") != VERSION:
        raise UserError(
            f"the dictionary in {folder} was saved by another version of this program; use that"
            " version, or train it again"
        )
    return content


def _require_fit(path: Path, wanted: dict[str, Tensor], found: dict[str, Tensor]) -> None:
    if differing := sorted(set(wanted) ^ set(found)):
        raise UserError(
            f"{path} and its {CONFIG} do not belong together ({differing[0]}); copy both again"
        )
    for name, tensor in found.items():
        if tensor.shape != wanted[name].shape:
            raise UserError(
                f"{name} in {path} is {list(tensor.shape)} and should be"
                f" {list(wanted[name].shape)}; copy it and its {CONFIG} again"
            )
        if name != WITHOUT_THRESHOLD and not bool(tensor.isfinite().all()):
            raise UserError(
                f"{name} in {path} holds NaN or infinite values; train or save the dictionary again"
            )


@dataclass(frozen=True, kw_only=True)
class DenseWeights:
    """Dense tensors, in raw units. `threshold` `None`: without one."""

    encoders: Float[Tensor, "models width latents"]
    bias: Float[Tensor, " latents"]
    decoders: Float[Tensor, "models latents width"]
    centres: Float[Tensor, "models width"]
    threshold: Float[Tensor, " latents"] | None = None

    @property
    def latents(self) -> int:
        return len(self.bias)


@torch.no_grad()
def to_dense(dictionary: Dictionary) -> DenseWeights:
    """The dense tensors of a dictionary, in float32 on the CPU."""
    config = dictionary.config
    encoders = torch.zeros(config.models, config.width, config.partition.latents)
    for model, read in enumerate(dictionary.read):
        encoders[model][:, read] = dictionary.encoders[model].detach().float().cpu().T
    scale, centres = dictionary.scale.float().cpu(), dictionary.centres.detach().float().cpu()
    bias = dictionary.bias.detach().float().cpu() - einsum(
        centres, encoders, "model width, model width latent -> latent"
    )
    known = dictionary.function.saelens == "jumprelu"
    return DenseWeights(
        encoders=encoders * scale,
        bias=bias,
        decoders=rearrange(dictionary.directions(), "latent model width -> model latent width")
        .float()
        .cpu()
        / scale,
        centres=centres / scale,
        threshold=dictionary.threshold.float().cpu().clone() if known else None,
    )


@torch.no_grad()
def from_dense(weights: DenseWeights, activation: str, k: int = 32) -> Dictionary:
    """A plain dictionary (no partition, scale 1) of dense tensors. Without a
    threshold it stays unknown.
    """
    models, width, latents = weights.encoders.shape
    dictionary = Dictionary(
        DictionaryConfig(
            width=width,
            partition=Partition(latents=latents),
            models=models,
            activation=activation,
            k=min(k, latents),
        )
    )
    for model in range(models):
        dictionary.encoders[model].copy_(weights.encoders[model].T)
        dictionary.decoders[model].copy_(weights.decoders[model])
    dictionary.centres.copy_(weights.centres)
    dictionary.bias.copy_(
        weights.bias
        + einsum(weights.centres, weights.encoders, "model width, model width latent -> latent")
    )
    if weights.threshold is not None:
        dictionary.threshold.copy_(weights.threshold)
    return dictionary


@dataclass(frozen=True, kw_only=True)
class SavedDictionary:
    """`kind`: the format in words. `site`, `checkpoints` (identities before and
    after) and `models`: `None` where the files do not say. `inputs`: features
    that a SAELens SAE reads. `key`: a hash of the files. `read` is the format's
    `load`.
    """

    path: Path
    kind: str
    site: str | None
    checkpoints: tuple[str, str] | None
    key: str
    read: Callable[["SavedDictionary", int], Dictionary]
    inputs: int | None = None
    models: int | None = None

    def load(self, width: int, device: str | torch.device = "cpu") -> Dictionary:
        """The dictionary of one or both models at a site of this width. Raises
        `UserError` where it is not whole or does not fit.
        """
        dictionary = self.read(self, width)
        if dictionary.config.models not in (1, 2):
            raise UserError(
                f"{self.path} speaks of {dictionary.config.models} models; give a dictionary of one"
                " model or of the two that are compared"
            )
        if dictionary.config.width != width:
            raise UserError(
                f"{self.path} is for activations {dictionary.config.width} wide and here they are"
                f" {width} wide; give a dictionary of this site"
            )
        return dictionary.to(device)

    def require_checkpoints(self, before: str, after: str) -> None:
        """Raise `UserError` where it says that it was trained on others (identities)."""
        for side, here, there in zip(
            SIDES, (before, after), self.checkpoints or (before, after), strict=True
        ):
            if here != there:
                raise UserError(
                    f"{self.path} was trained on another {side} checkpoint ({there}, and this is"
                    f" {here}); give the dictionary of this pair"
                )


class DictionaryFormat(Protocol):
    """What a module of the group `forensics.dictionaries` has."""

    def recognise(self, path: Path) -> SavedDictionary | None:
        """What lies there, where it is of this format; nothing is loaded yet."""
        ...

    def load(self, saved: SavedDictionary, width: int) -> Dictionary:
        """The dictionary, on the CPU, at a site of this width."""
        ...


def open_dictionary(path: Path | str) -> SavedDictionary:
    """What a path holds; others' formats are asked before ours. Raises
    `UserError` where that is no dictionary.
    """
    path = Path(path).expanduser()
    if not path.exists():
        raise UserError(f"{path} does not exist; give the folder of a saved dictionary")
    points = plugin_points(GROUP)
    for point in sorted(points, key=lambda p: p.value.startswith("crosscoders.")):
        saved: SavedDictionary | None = load_point(GROUP, point).recognise(path)
        if saved is not None:
            return saved
    if (path / CONFIG).is_file():
        raise UserError(
            f"{path / CONFIG} is neither that of a dictionary saved here nor that of a SAELens SAE"
            " (it names no d_in); give the folder of a saved dictionary"
        )
    raise UserError(
        f"{path} holds no dictionary that an installed format knows (no {CONFIG}); give the folder"
        " that one was saved in"
    )


def recognise(path: Path) -> SavedDictionary | None:
    """A dictionary of ours, by the format that its `cfg.json` names."""
    if not (path / CONFIG).is_file():
        return None
    content = read_object(path / CONFIG)
    if content.get("format") != FORMAT:
        return None
    return SavedDictionary(
        path=path,
        kind="ours",
        site=stated(content, "site"),
        checkpoints=stated_checkpoints(content),
        key=dictionary_key(path),
        read=load,
    )


def load(saved: SavedDictionary, width: int) -> Dictionary:
    """A dictionary of ours; it has a width of its own."""
    return load_dictionary(saved.path)


def files_key(files: Sequence[Path]) -> str:
    """A hash of what files hold, one after the other."""
    digest = sha256()
    for file in files:
        try:
            digest.update(file.read_bytes())
        except OSError as error:
            raise UserError(
                f"{file} cannot be read ({error.strerror}); copy the dictionary's whole folder"
            ) from None
    return digest.hexdigest()[:16]


def dictionary_key(folder: Path) -> str:
    """A hash of a dictionary of ours."""
    return files_key([folder / CONFIG, folder / WEIGHTS])


def stated(content: dict[str, Any], name: str) -> str | None:
    """What a `cfg.json`, or the metadata in it, says under a name."""
    metadata = content.get("metadata")
    value = {**content, **(metadata if isinstance(metadata, dict) else {})}.get(name)
    return value if isinstance(value, str) and value and value != "synthetic" else None


def stated_checkpoints(content: dict[str, Any]) -> tuple[str, str] | None:
    """The identities before and after, where both are said."""
    before, after = (stated(content, side) for side in SIDES)
    return None if before is None or after is None else (before, after)
