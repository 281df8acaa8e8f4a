"""A trajectory as one text of token ids, with the places of what the policy drew.

1. The tokens of all steps stand one behind the other. An assistant step without a mask counts as drawn whole.
2. A text longer than `most_tokens` loses its beginning, so that what is read is read in the context that is left.
   The first token of what is left has nothing before it, so nothing can be said about it either.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from forensics.errors import UserError
from forensics.records import Step, Trajectory
from probes.scored import Scored


@dataclass(frozen=True, kw_only=True)
class Layout:
    """`ids [length]`: the text that is read. Of each sampled token `[sampled]`: `step`, `place`, `token` and `at`.

    `at`: its position in `ids`; below 1 where it cannot be read. `starts`: where actions start in `ids`.
    `retokenised`: the log had no token ids.
    """

    trajectory: Trajectory
    ids: np.ndarray
    step: np.ndarray
    place: np.ndarray
    token: np.ndarray
    at: np.ndarray
    starts: tuple[int, ...]
    retokenised: bool = False

    @property
    def read(self) -> np.ndarray:
        """Which sampled tokens can be read `[sampled]`."""
        found: np.ndarray = self.at >= 1
        return found

    def scored(self, values: dict[str, np.ndarray]) -> Scored:
        """`values`: columns over the tokens that were read, in order."""
        read = self.read
        columns = {}
        for name, column in values.items():
            columns[name] = np.full(len(read), np.nan)
            columns[name][read] = column
        return Scored(
            trajectory=self.trajectory, step=self.step, place=self.place, token=self.token, columns=columns,
            unread=frozenset(self.step[~read].tolist()), retokenised=self.retokenised,
        )


def lay_out(trajectory: Trajectory, most_tokens: int | None = None, retokenised: bool = False) -> Layout:
    """The text of a trajectory whose steps all have token ids. `most_tokens`: what fits, `None` for anything."""
    masks = [_drawn(step) for step in trajectory.steps]
    whole = np.fromiter(chain.from_iterable(step.token_ids or () for step in trajectory.steps), np.int64)
    drawn = np.flatnonzero(np.fromiter(chain.from_iterable(masks), bool))
    dropped = 0 if most_tokens is None else max(0, len(whole) - most_tokens)
    counts = [sum(mask) for mask in masks]
    firsts = np.cumsum([0, *counts])[:-1]
    starts = [int(drawn[first]) - dropped for first, count in zip(firsts, counts, strict=True) if count]
    return Layout(
        trajectory=trajectory, ids=whole[dropped:], token=whole[drawn], at=drawn - dropped,
        step=np.repeat(np.arange(len(counts)), counts),
        place=np.arange(len(drawn)) - np.repeat(firsts, counts),
        starts=tuple(max(0, start) for start in starts), retokenised=retokenised,
    )


def _drawn(step: Step) -> Sequence[bool]:
    """Which tokens of a step the policy drew."""
    if step.sampled is not None:
        return step.sampled
    return (step.role == "assistant",) * len(step.token_ids or ())


def require_known(layout: Layout, vocabulary: int) -> None:
    """Refuse token ids that the model does not have. Raises `UserError`."""
    if len(layout.ids) and (layout.ids.max() >= vocabulary or layout.ids.min() < 0):
        raise UserError(
            f"trajectory {layout.trajectory.id} has the token id {layout.ids.max()} and the model knows {vocabulary} "
            "tokens, so another tokenizer wrote the log; give the checkpoint that made it"
        )
