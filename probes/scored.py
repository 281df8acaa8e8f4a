"""Sampled tokens with what two checkpoints say about them: what every reading of this room is made from.

One `Scored` is one trajectory. Its columns have one entry for each token that the policy drew, in order, so nothing
of the size `[tokens, vocabulary]` is ever kept. What is computed at a position is named by *readouts*, functions of
the two distributions there; the scorer calls them on a few positions at a time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from forensics.records import Trajectory


@dataclass(frozen=True, kw_only=True)
class Scored:
    """One trajectory, scored.

    `step`: of each sampled token, the index of its step. `place`: its place among the sampled tokens of that step.
    `token`: its id. `columns`: `[sampled tokens]` each, float64; NaN where a token lies in a part that was not read.
    Always there: `policy` (log-probability, nats, under the settings that the scorer states); `reference` where there
    is one; `entropy` of the policy where the policy is a model on this machine (a server tells no distributions).
    `unread`: steps of which some token was not read (long texts lose their beginning). `retokenised`: the log had no
    token ids, so what the policy drew may have been other tokens of the same text.
    """

    trajectory: Trajectory
    step: np.ndarray
    place: np.ndarray
    token: np.ndarray
    columns: Mapping[str, np.ndarray]
    unread: frozenset[int] = frozenset()
    retokenised: bool = False

    @property
    def ratio(self) -> np.ndarray:
        """Log-ratio of the policy to the reference of each sampled token, nats."""
        difference: np.ndarray = self.columns["policy"] - self.columns["reference"]
        return difference


@dataclass(frozen=True, kw_only=True)
class Positions:
    """Some sampled positions of some trajectories, side by side: `token [n]` drawn there, and where each one stands.

    `trajectory [n]`: number of the trajectory in the log, `step [n]` and `place [n]` as in `Scored`.
    """

    token: Any
    trajectory: Any
    step: Any
    place: Any


class Readout(Protocol):
    """What is taken down at each position. `names`: the columns it gives."""

    @property
    def names(self) -> Sequence[str]: ...

    def __call__(self, policy: Any, reference: Any, at: Positions) -> Any:
        """`policy` and `reference` are log-probabilities `[n, vocabulary]` (float32 tensors); gives `[n, names]`."""
        ...
