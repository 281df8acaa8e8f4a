"""A LoRA adapter against its base with one copy of the weights: the adapter is
switched off to read the reference.

The adapter is a directory that peft wrote (safetensors). Needs the extra
`lora`.
"""

import hashlib
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forensics.errors import UserError
from forensics.policies.huggingface import HuggingFacePolicy, load_policy
from forensics.records import content_hash

FILES = ("adapter_config.json", "adapter_model.safetensors")


@dataclass(frozen=True, kw_only=True)
class WithoutAdapter:
    """The policy's model with its adapter switched off, for `score_log`.
    `identity`: of the base.
    """

    model: Any
    tokenizer: Any
    identity: str

    def within(self) -> AbstractContextManager[Any]:
        """Entered around every pass."""
        switched: AbstractContextManager[Any] = self.model.disable_adapter()
        return switched


def load_adapter(
    adapter: Path | str, base: Path | str, *, device: str = "auto", dtype: str | None = None
) -> tuple[HuggingFacePolicy, WithoutAdapter]:
    """The base with the adapter as policy, and without it as reference. Raises
    `UserError` for what does not fit.
    """
    try:
        from peft import PeftModel
    except ImportError:
        raise UserError(
            "an adapter needs peft; install it with `pip install 'policy-forensics[lora]'`"
        ) from None
    identity = _identity(Path(adapter).expanduser())
    plain = load_policy(base, device=device, dtype=dtype)
    try:
        model = PeftModel.from_pretrained(plain.model, str(adapter), local_files_only=True)
    except (ValueError, RuntimeError, KeyError, TypeError) as error:
        raise UserError(
            f"the adapter {adapter} does not fit {base} ({str(error).splitlines()[0]}); give the"
            " base that it was trained on"
        ) from error
    both = content_hash([plain.identity, identity], 64)
    policy = HuggingFacePolicy(model, plain.tokenizer, both, plain.renderer)
    return policy, WithoutAdapter(model=model, tokenizer=plain.tokenizer, identity=plain.identity)


def _identity(folder: Path) -> str:
    """Of the adapter's config and weights."""
    digest = hashlib.sha256()
    for name in FILES:
        if not (folder / name).is_file():
            raise UserError(
                f"{folder} has no {name}; give a directory that peft's save_pretrained wrote"
            )
        digest.update((folder / name).read_bytes())
    return digest.hexdigest()
