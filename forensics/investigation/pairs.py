"""The two sides of a comparison: what they are, whether they can be compared, and
how their policies are loaded.
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
from forensics.records import Checkpoint, content_hash
from forensics.records.case_file import CheckpointPair

IN_PROCESS: tuple[Capability, ...] = ("weights", "tokens")  # what only a model here can


def inspect_pair(
    before: Given,
    after: Sequence[Given],
    progress: Progress,
    needs: Sequence[Capability] = IN_PROCESS,
) -> tuple[CheckpointPair, dict[str, Policy]]:
    """The two sides of the comparison, and which of them are in memory, under the
    identity of their weights as they are now. Raises `UserError` where they cannot
    be loaded or compared. `needs`: what a policy in memory must be able to do.
    """
    if not after:
        raise UserError("there is no checkpoint after training; give one with --after")
    held: dict[str, Policy] = {}
    found: list[Checkpoint] = []
    for side, given in sides_of(before, after).items():
        if isinstance(given, str | PathLike):
            checkpoint = inspect_checkpoint(fspath(given), progress=progress)
        else:
            require(given, *needs, task="a model in memory")
            checkpoint = _in_memory(given)
            policy: Any = copy.copy(given)
            policy.identity = checkpoint.identity
            held[side] = policy
        found.append(checkpoint)
    first, *others = found
    seen: dict[str, Checkpoint] = {}
    for other in others:
        _require_one_tokenizer(first, other)
        if twin := seen.get(other.weights):
            raise UserError(
                f"{twin.path} and {other.path} hold the same weights; give each after checkpoint"
                " once"
            )
        seen[other.weights] = other
    for path in dict.fromkeys(
        checkpoint.path for side, checkpoint in sides_of(first, others).items() if side not in held
    ):
        require_loadable(path)
    return CheckpointPair(before=first, after=tuple(others)), held


def _in_memory(policy: Policy) -> Checkpoint:
    """What a policy in memory is. Without weights here, its own identity names it."""
    has = policy.capabilities
    tokenizer = tokenizer_identity(policy.tokenizer) if "tokens" in has else "none"
    if "weights" in has:
        return model_checkpoint(policy.model, tokenizer)
    weights = content_hash(["a policy without weights", policy.identity], 64)
    return Checkpoint(
        path=IN_MEMORY, weights=weights, tokenizer=tokenizer, dtype="none", parameters=0
    )


def _require_one_tokenizer(before: Checkpoint, after: Checkpoint) -> None:
    if before.tokenizer == after.tokenizer:
        return
    if IN_MEMORY in (before.path, after.path):
        raise UserError(
            f"the tokenizers of the models {before.path} and {after.path} differ, so their tokens"
            " cannot be compared; give both policies the tokenizer that they were trained with"
        )
    parts = [tokenizer_parts(Path(checkpoint.path).expanduser()) for checkpoint in (before, after)]
    different = [name for name in parts[0] if parts[0][name] != parts[1][name]]
    cure = (
        "copy one template over the other"
        if different == ["chat template"]
        else "compare one model's checkpoints"
    )
    raise UserError(
        f"the tokenizers of {before.path} and {after.path} differ in the"
        f" {' and the '.join(different)}, so their tokens cannot be compared; {cure}"
    )


def sides_of(before: Any, afters: Sequence[Any]) -> dict[str, Any]:
    """What belongs to each side, by its name."""
    return {"before": before} | {f"after-{i}": after for i, after in enumerate(afters)}
