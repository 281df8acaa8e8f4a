"""LoRA adapters (2106.09685), opened: a new one to be trained, or one that peft saved,
on its base. Needs the extra `lora`.

An adapter's policy has the identity of the checkpoint that it would be merged into,
whatever precision and device it is opened in.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch

from forensics.errors import UserError
from forensics.policies import load_policy, policy_from
from forensics.policies.checkpoints import inspect_checkpoint
from forensics.policies.compatibility import resolve_device
from forensics.policies.weights import identify_model, trained_tensors
from forensics.protocols import Policy

SAVED_ADAPTER: Final = ("adapter_config.json", "adapter_model.safetensors")


def new_adapter(model: Any, *, rank: int, alpha: float, targets: str | tuple[str, ...]) -> Any:
    """The model with an adapter, which starts as no change at all. Raises `UserError`."""
    peft = _peft("[lora] needs")
    if hasattr(model, "peft_config"):
        raise UserError(
            "the model already has an adapter; merge it first with model.merge_and_unload()"
        )
    names = targets if isinstance(targets, str) else list(targets)
    wanted = peft.LoraConfig(r=rank, lora_alpha=alpha, target_modules=names, task_type="CAUSAL_LM")
    try:
        with _quiet():
            return peft.get_peft_model(model, wanted).eval()
    except ValueError as error:
        raise UserError(
            f"[lora] targets = {names} cannot be adapted ({str(error).splitlines()[0]})"
        ) from None


def load_adapter(
    adapter: Path | str, base: Path | str, *, device: str = "auto", dtype: str | None = None
) -> tuple[Policy, Policy]:
    """The base with the adapter as policy, and without it as reference; they share one
    copy of the weights. Raises `UserError` for what does not fit.
    """
    peft, folder = _peft("an adapter needs"), Path(adapter).expanduser()
    for name in SAVED_ADAPTER:
        if not (folder / name).is_file():
            raise UserError(
                f"{folder} has no {name}; give a directory that peft's save_pretrained wrote"
            )
    of_base, place = inspect_checkpoint(base), resolve_device(device)
    plain = load_policy(base, device="cpu", dtype=of_base.dtype, identity=of_base.identity)
    try:
        with _quiet():
            model = peft.PeftModel.from_pretrained(plain.model, str(folder), local_files_only=True)
    except (ValueError, RuntimeError, KeyError, TypeError) as error:
        raise UserError(
            f"the adapter {adapter} does not fit {base} ({str(error).splitlines()[0]}); give the"
            " base that it was trained on"
        ) from error
    _require_taken(model, folder, peft)
    both = identify_model(model).sha256[:16]
    kind = getattr(torch, dtype or ("float32" if place == "cpu" else "bfloat16"))
    for name, weight in model.named_parameters():
        weight.data = weight.data.to(place, weight.dtype if "lora_" in name else kind)
    model.to(place)
    parts = (plain.tokenizer, plain.renderer)
    without = policy_from(model, parts[0], plain.identity, parts[1], within=model.disable_adapter)
    return policy_from(model, parts[0], both, parts[1]), without


def _require_taken(model: Any, folder: Path, peft: Any) -> None:
    """peft leaves out weights that it has no place for, and lets layers without any be as if
    untrained. Raises `UserError`: such a model is another one than was trained.
    """
    saved = {place.name for place in trained_tensors(folder) if place.file.name in SAVED_ADAPTER}
    wanted = set(peft.get_peft_model_state_dict(model, save_embedding_layers=False))
    lacking, beyond = sorted(wanted - saved), sorted(saved - wanted - set(model.state_dict()))
    if lacking or beyond:
        told = f"lacks {lacking[0]}" if lacking else f"holds {beyond[0]}, which has no place there"
        raise UserError(
            f"the adapter {folder} is not the one that its {SAVED_ADAPTER[0]} describes: it {told};"
            " give the base that it was trained on, and save it by peft's save_pretrained"
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """peft asks transformers for a name that is going away, and warns of each weight that
    `_require_taken` refuses.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Found missing adapter keys")
        warnings.filterwarnings(
            "ignore", message=".*is_gradient_checkpointing", category=FutureWarning
        )
        yield


def _peft(needs: str) -> Any:
    try:
        import peft
    except ImportError:
        raise UserError(
            f"{needs} peft; install it with `pip install 'policy-forensics[lora]'`"
        ) from None
    return peft
