"""Changes as interventions of a policy: where in a text they act, and on whose
activations.

1. `deciding`: the last token before an action's first one, where the next
   action is decided. `kind:NAME`: the tokens of a step whose action has that
   kind, from the first token by which the action's text says so to the decision
   that follows its observation. `everywhere`.
2. A text is seen here as its tokens and, for each, whether the next one was an
   action's first; steps follow from these.
3. An `Intervention` is handed activations `[rows, chunk, features]`; it changes
   the chosen positions and leaves the rest as they are, to the bit. The other
   model's activations come from `Seen`: live from `Alongside`, or set by hand.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from crosscoders.steering.alongside import Seen
from crosscoders.steering.edits import Change
from forensics.errors import UserError
from forensics.protocols import ActivationContext, Intervention

Where = Literal["deciding", "everywhere", "kind"]
Kinds = Callable[[tuple[int, ...]], tuple[str, ...]]  # the kinds of the actions in these tokens


@dataclass(frozen=True, kw_only=True)
class Position:
    """`kind` belongs to `where="kind"`."""

    where: Where
    kind: str | None = None

    @property
    def name(self) -> str:
        return self.where if self.kind is None else f"kind:{self.kind}"


def parse_position(text: str) -> Position:
    """`deciding`, `everywhere` or `kind:NAME`. Raises `UserError` for anything else."""
    if text in ("deciding", "everywhere"):
        return Position(where="deciding" if text == "deciding" else "everywhere")
    head, colon, kind = text.partition(":")
    if head == "kind" and colon and kind:
        return Position(where="kind", kind=kind)
    raise UserError(f"there is no position '{text}'; use deciding, everywhere or kind:NAME")


@dataclass(frozen=True, kw_only=True)
class Steps:
    """How tokens are read as actions: their kinds, the tokens that end one, and
    how many one may have.
    """

    kinds: Kinds
    stops: frozenset[int]
    most: int


def chosen_positions(
    position: Position, steps: Steps | None, ids: Tensor, decided: Tensor, chunk: int
) -> Tensor:
    """A mask `[rows, chunk]` over the last `chunk` of the tokens `ids [rows,
    length]`.

    `decided [rows, length]`: the tokens behind which an action starts.
    """
    rows, length = ids.shape
    if position.where == "everywhere":
        return torch.ones((rows, chunk), dtype=torch.bool, device=ids.device)
    if position.where == "deciding":
        return decided[:, length - chunk :]
    assert steps is not None and position.kind is not None, "a kind needs to be read from the text"
    masks = [
        in_kind(position.kind, steps, row, flags, chunk)
        for row, flags in zip(ids.tolist(), decided.tolist(), strict=True)
    ]
    return torch.tensor(masks, dtype=torch.bool, device=ids.device).view(rows, chunk)


def in_kind(
    kind: str, steps: Steps, ids: Sequence[int], decided: Sequence[bool], chunk: int
) -> list[bool]:
    """For the last `chunk` tokens of one text, whether they lie in a step of a kind."""
    found = []
    for at in range(len(ids) - chunk, len(ids)):
        start = next((i + 1 for i in range(at - 1, -1, -1) if decided[i]), None)
        if start is None:
            found.append(False)
            continue
        last = min(at, start + steps.most - 1)  # what of the action is written by this token
        end = next((i for i in range(start, last + 1) if ids[i] in steps.stops), last)
        found.append(kind in steps.kinds(tuple(ids[start : end + 1])))
    return found


def intervention(
    change: Change,
    *,
    site: str,
    name: str,
    position: Position,
    seen: Seen,
    steps: Steps | None = None,
) -> Intervention:
    """A change at a site, at a position. `steps`: how actions are read, for `kind:NAME`."""

    def apply(activations: Tensor, context: ActivationContext) -> Tensor:
        ids, decided = seen.text()
        decided[:, -1] |= context.deciding
        mask = chosen_positions(position, steps, ids, decided, activations.shape[1])
        return changed(change, activations, seen.other, mask)

    return Intervention(site=site, name=name, apply=apply)


def changed(change: Change, activations: Tensor, other: Tensor | None, mask: Tensor) -> Tensor:
    """Activations `[rows, chunk, width]` with those under `mask [rows, chunk]`
    changed; a copy where any is.
    """
    if not bool(mask.any()):
        return activations
    theirs = None if other is None or not change.needs_other else other[mask].float()
    result = activations.clone()
    with torch.no_grad():
        result[mask] = change.apply(activations[mask].float(), theirs).to(activations.dtype)
    return result
