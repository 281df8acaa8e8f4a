"""The policy and its reference as a grading reads them: checkpoints here, servers
that score instead, or a LoRA adapter against its base.

An adapter (a directory that peft wrote, safetensors; needs the extra `lora`) and
its base are one copy of the weights: it is switched off to read the reference.
"""

import hashlib
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

from forensics.errors import UserError
from forensics.policies import load_policy, policy_from
from forensics.policies.checkpoints import inspect_checkpoint, require_directory
from forensics.policies.compatibility import require_loadable, resolve_device
from forensics.policies.completions import ServerConfig
from forensics.policies.score_store import PolicyRef
from forensics.protocols import Policy
from forensics.records import content_hash

ADAPTER: Final = ("adapter_config.json", "adapter_model.safetensors")
UNNAMED: Final = "server "  # begins the name of what has no weights here


def open_sides(
    policy: Path,
    reference: Path,
    servers: tuple[ServerConfig | None, ServerConfig | None],
    device: str,
    backend: str,
) -> tuple[tuple[PolicyRef, PolicyRef], tuple[str, str]]:
    """The policy and its reference, and their identities. `servers`: who scores
    instead of the checkpoints here. Raises `UserError` for what cannot be loaded
    or reached.
    """
    how = {"backend": backend, "device": resolve_device(device)}
    if (policy / ADAPTER[0]).is_file() and servers[0] is None:
        if servers[1] is not None:
            raise UserError(
                "an adapter is read here with its base; leave out --reference-server, or give"
                " --server too"
            )
        return _adapted(policy, reference, **how)
    ours, theirs = (
        _side(path, served, how) for path, served in zip((policy, reference), servers, strict=True)
    )
    served, other = servers
    if served and other and ours[0].load().identity == theirs[0].load().identity:
        raise UserError(
            f"{served.url} serves one model as the policy and as the reference; name two"
            " with --server-model and --reference-server-model, or give another address"
        )
    return (ours[0], theirs[0]), (ours[1], theirs[1])


def _side(path: Path, served: ServerConfig | None, how: Mapping[str, str]) -> tuple[PolicyRef, str]:
    """A checkpoint and its name in records."""
    require_directory(path.expanduser())
    if served is not None:
        policy: Any = load_policy(served.url, backend="openai", model=served.model, checkpoint=path)
        weights = any(path.expanduser().glob("model*.safetensors"))
        name = inspect_checkpoint(path).identity if weights else f"{UNNAMED}{policy.served_as}"
        return PolicyRef(identity=None, load=lambda: policy), name
    identity = inspect_checkpoint(path).identity
    require_loadable(path)
    # one copy in memory, however many files the log has
    held = cache(partial(load_policy, path.expanduser(), identity=identity, **how))
    return PolicyRef(identity=identity, load=held), identity


def _adapted(
    adapter: Path, base: Path, *, backend: str, device: str
) -> tuple[tuple[PolicyRef, PolicyRef], tuple[str, str]]:
    """A LoRA adapter against its base, with one copy of the weights."""
    if backend != "huggingface":
        raise UserError("an adapter is read by the backend huggingface; leave out --backend")
    require_loadable(base)
    policy, reference = load_adapter(adapter, base.expanduser(), device=device)
    ours = PolicyRef(identity=policy.identity, load=lambda: policy)
    theirs = PolicyRef(identity=reference.identity, load=lambda: reference)
    return (ours, theirs), (policy.identity, reference.identity)


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
    digest, folder = hashlib.sha256(), Path(adapter).expanduser()
    for name in ADAPTER:
        if not (folder / name).is_file():
            raise UserError(
                f"{folder} has no {name}; give a directory that peft's save_pretrained wrote"
            )
        digest.update((folder / name).read_bytes())
    plain = load_policy(base, device=device, dtype=dtype)
    try:
        model = PeftModel.from_pretrained(plain.model, str(adapter), local_files_only=True)
    except (ValueError, RuntimeError, KeyError, TypeError) as error:
        raise UserError(
            f"the adapter {adapter} does not fit {base} ({str(error).splitlines()[0]}); give the"
            " base that it was trained on"
        ) from error
    both = content_hash([plain.identity, digest.hexdigest()], 64)
    parts = (plain.tokenizer, plain.renderer)
    without = policy_from(model, parts[0], plain.identity, parts[1], within=model.disable_adapter)
    return policy_from(model, parts[0], both, parts[1]), without
