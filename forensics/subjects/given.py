"""What a user gives as the subjects of a comparison: checkpoint directories and policies in
memory, checked for whether they can be loaded and compared.
"""

import copy
from collections.abc import Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from forensics.errors import UserError
from forensics.policies import Given, require
from forensics.policies.checkpoints import (
    IN_MEMORY,
    inspect_checkpoint,
    model_checkpoint,
    tokenizer_identity,
    tokenizer_parts,
)
from forensics.policies.compatibility import require_loadable
from forensics.progress import Progress
from forensics.protocols import Capability, Policy
from forensics.records.case_file import Checkpoint, StatedPolicy
from forensics.subjects.subject import CheckpointSubject, HeldPolicy, Role

IN_PROCESS: tuple[Capability, ...] = ("weights", "tokens")  # what only a model here can


def inspect_subjects(
    before: Given,
    after: Sequence[Given],
    progress: Progress,
    needs: Sequence[Capability] = IN_PROCESS,
    *,
    backend: str = "huggingface",
    device: str = "auto",
) -> tuple[CheckpointSubject | HeldPolicy, ...]:
    """The subject before training, then those after it. Policies in memory go under the
    identity of their weights as they are now. Raises `UserError` where they cannot be loaded
    or compared. `needs`: what a policy in memory must be able to do.
    """
    if not after:
        raise UserError("there is no checkpoint after training; give one with --after")
    roles = (Role(), *map(Role, range(len(after))))
    found = [
        CheckpointSubject(
            role=role,
            stated=inspect_checkpoint(fspath(given), progress=progress),
            backend=backend,
            device=device,
        )
        if isinstance(given, str | PathLike)
        else _in_memory(given, role, needs)
        for role, given in zip(roles, (before, *after), strict=True)
    ]
    first, *others = found
    seen: dict[str, str] = {}
    for other in others:
        _require_one_tokenizer(first, other)
        if twin := seen.get(other.identity):
            raise UserError(
                f"{twin} and {_place(other)} hold the same weights; give each after checkpoint once"
            )
        seen[other.identity] = _place(other)
    for path in dict.fromkeys(
        one.stated.path for one in found if isinstance(one, CheckpointSubject)
    ):
        require_loadable(path)
    return tuple(found)


def _in_memory(given: Policy, role: Role, needs: Sequence[Capability]) -> HeldPolicy:
    """A policy in memory. Without weights here, its own identity names it."""
    require(given, *needs, task="a model in memory")
    has = given.capabilities
    tokenizer = tokenizer_identity(given.tokenizer) if "tokens" in has else None
    stated: Checkpoint | StatedPolicy
    if "weights" in has:
        stated = model_checkpoint(given.model, tokenizer or "none")
    else:
        stated = StatedPolicy(policy=given.identity, tokenizer=tokenizer)
    policy: Any = copy.copy(given)
    policy.identity = stated.identity
    return HeldPolicy(role=role, policy=policy, stated=stated)


def _place(subject: CheckpointSubject | HeldPolicy) -> str:
    """Where it lies, for a sentence."""
    return subject.stated.path if isinstance(subject.stated, Checkpoint) else IN_MEMORY


def _require_one_tokenizer(
    before: CheckpointSubject | HeldPolicy, after: CheckpointSubject | HeldPolicy
) -> None:
    if before.stated is None or after.stated is None:
        return
    if before.stated.tokenizer == after.stated.tokenizer:
        return
    places = _place(before), _place(after)
    if IN_MEMORY in places:
        raise UserError(
            f"the tokenizers of the models {places[0]} and {places[1]} differ, so their tokens"
            " cannot be compared; give both policies the tokenizer that they were trained with"
        )
    parts = [tokenizer_parts(Path(place).expanduser()) for place in places]
    different = [name for name in parts[0] if parts[0][name] != parts[1][name]]
    cure = (
        "copy one template over the other"
        if different == ["chat template"]
        else "compare one model's checkpoints"
    )
    raise UserError(
        f"the tokenizers of {places[0]} and {places[1]} differ in the"
        f" {' and the '.join(different)}, so their tokens cannot be compared; {cure}"
    )
