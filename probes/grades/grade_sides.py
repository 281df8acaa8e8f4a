"""The policy and its reference as a grading reads them: checkpoints here, servers
that score instead, or a LoRA adapter against its base.

An adapter (a directory that peft wrote, safetensors; needs the extra `lora`) and
its base are one copy of the weights: it is switched off to read the reference.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from forensics.errors import UserError
from forensics.policies import (
    SAVED_ADAPTER,
    PolicyRef,
    ServerConfig,
    inspect_checkpoint,
    load_adapter,
    require_directory,
    require_loadable,
    resolve_device,
)
from forensics.subjects import BEFORE, CheckpointSubject, Role, ServedPolicy

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
    if (policy / SAVED_ADAPTER[0]).is_file() and servers[0] is None:
        if servers[1] is not None:
            raise UserError(
                "an adapter is read here with its base; leave out --reference-server, or give"
                " --server too"
            )
        return _adapted(policy, reference, **how)
    ours, theirs = (
        _side(role, path, served, how)
        for role, path, served in zip((Role(0), BEFORE), (policy, reference), servers, strict=True)
    )
    served, other = servers
    if served and other and ours[0].load().identity == theirs[0].load().identity:
        raise UserError(
            f"{served.url} serves one model as the policy and as the reference; name two"
            " with --server-model and --reference-server-model, or give another address"
        )
    return (ours[0], theirs[0]), (ours[1], theirs[1])


def _side(
    role: Role, path: Path, served: ServerConfig | None, how: Mapping[str, str]
) -> tuple[PolicyRef, str]:
    """A checkpoint and its name in records."""
    require_directory(path.expanduser())
    if served is not None:
        subject = ServedPolicy(role=role, url=served.url, model=served.model, checkpoint=path)
        policy: Any = subject.open()
        weights = any(path.expanduser().glob("model*.safetensors"))
        name = inspect_checkpoint(path).identity if weights else f"{UNNAMED}{policy.served_as}"
        return PolicyRef(identity=None, load=lambda: policy), name
    here = CheckpointSubject(role=role, stated=inspect_checkpoint(path), **how)
    require_loadable(path)
    # one copy in memory, however many files the log has
    return PolicyRef(identity=here.identity, load=cache(here.open)), here.identity


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
