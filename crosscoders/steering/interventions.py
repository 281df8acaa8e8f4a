"""Changes as interventions of a policy: where they act, on whose activations,
through whatever runs the model.

An `Intervention` is handed activations `[rows, chunk, features]`; it changes
the chosen positions and leaves the rest as they are, to the bit. The other
model's activations come from `Seen`: live from `Alongside`, or set by hand.
"""

import torch
from torch import Tensor

from crosscoders.steering.alongside import Seen
from crosscoders.steering.edits import Change
from crosscoders.steering.positions import Position, Steps, chosen_positions
from forensics.protocols import ActivationContext, Intervention


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
