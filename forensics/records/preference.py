"""Preference pairs: two ways to go on from the same tokens, one wanted and one not, token by token.

What finds them (a confirmed cliff, a graded step) and what learns from them (DPO) are different rooms; this record
is all they share. Continuations are exactly the recorded tokens: nothing is appended, no end of text either.
"""

import json
from pathlib import Path
from typing import Self

from pydantic import ValidationError, model_validator

from forensics.errors import UserError
from forensics.records.base import VersionedRecord
from forensics.records.evidence import Provenance

Tokens = tuple[int, ...]
Weights = tuple[float, ...]


class PreferencePair(VersionedRecord):
    """A shared prefix and two continuations.

    `prefix`: token ids up to where the two part, at least one. `chosen`, `rejected`: token ids that follow.
    `chosen_weights`, `rejected_weights`: one weight a token (`None`: all 1; 0 keeps a token out of the loss).
    `task`: the task it came from. `policy`: content hash (or name) of the policy whose tokens these are.
    """

    id: str
    prefix: Tokens
    chosen: Tokens
    rejected: Tokens
    chosen_weights: Weights | None = None
    rejected_weights: Weights | None = None
    task: str | None = None
    policy: str
    provenance: Provenance

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if not self.prefix:
            raise ValueError("`prefix` needs at least one token, for the first of the continuation to follow")
        if self.chosen == self.rejected:
            raise ValueError("`chosen` and `rejected` are the same tokens, which prefers nothing")
        for name in ("chosen", "rejected"):
            tokens, weights = getattr(self, name), getattr(self, f"{name}_weights")
            if not tokens:
                raise ValueError(f"`{name}` has no tokens")
            if weights is not None and len(weights) != len(tokens):
                raise ValueError(f"`{name}_weights` needs one number for each of the {len(tokens)} tokens of `{name}`")
            if weights is not None and not any(weights):
                raise ValueError(f"all `{name}_weights` are 0, so no token of `{name}` would count")
        return self


def read_pairs(path: Path) -> list[PreferencePair]:
    """Pairs from a file of JSON lines. Raises `UserError` that names the first line which is not one."""
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; give a JSON lines file of preference pairs") from None
    pairs = []
    for number, line in enumerate(lines, start=1):
        try:
            pairs.append(PreferencePair.model_validate(json.loads(line)))
        except (json.JSONDecodeError, ValidationError) as error:
            raise UserError(f"line {number} of {path} is not a preference pair: {_reason(error)}") from None
    return pairs


def _reason(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return f"it is not valid JSON ({error})"
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where + ': ' if where else ''}{first['msg'].removeprefix('Value error, ')}"
