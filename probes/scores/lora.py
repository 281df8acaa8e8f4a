"""A LoRA adapter against its base with one copy of the weights: the adapter is
switched off to read the reference.

The adapter is a directory that peft wrote (safetensors). Needs the extra
`lora`.
"""

import hashlib
from pathlib import Path

from forensics.errors import UserError
from forensics.policies import load_policy, policy_from
from forensics.protocols import Policy
from forensics.records import content_hash

FILES = ("adapter_config.json", "adapter_model.safetensors")


def load_adapter(
    adapter: Path | str, base: Path | str, *, device: str = "auto", dtype: str | None = None
) -> tuple[Policy, Policy]:
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
    parts = (plain.tokenizer, plain.renderer)
    without = policy_from(model, parts[0], plain.identity, parts[1], within=model.disable_adapter)
    return policy_from(model, parts[0], both, parts[1]), without


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
