"""Where in a text an intervention acts: at decisions, in the steps of one kind
of action, or everywhere.

1. `deciding`: the last token before an action's first one, where the next
   action is decided.
2. `kind:NAME`: the tokens of a step whose action has that kind, from the first
   token by which the action's text says so to the decision that follows its
   observation.
3. `everywhere`.

A text is seen here as its tokens and, for each, whether the next one was an
action's first; steps follow from these.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from forensics.errors import UserError

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
