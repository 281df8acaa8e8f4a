"""Groups of rows by what is known of them (role, step kind, channel, outcome,
source), and tasks as the independent units.

A *deciding* row comes before the action that it decides, so in a group of
deciding rows `kinds` means the kinds of that action: the step that the row
stands in where it is the policy's own and the row was not sampled (the head of
a message), otherwise the next step of the policy. In any other group it means
the kinds of the row's own step.

Tasks come in bounded numbers, the same whatever the order of the texts.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from crosscoders.activations.streams import PLAIN_TEXT, Rows, TextNote
from forensics.errors import UserError

WIN = 0.5
ACTING = "assistant"


@dataclass(frozen=True, kw_only=True)
class RowGroup:
    """The rows that meet every condition given; of several names in one
    condition, any will do.

    `outcome`: of the row's text (`WIN` is the least score that counts as won).
    `other_kinds`: kinds that the step must not have. `deciding`, `sampled`:
    `None` is both.
    """

    roles: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    other_kinds: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    outcome: Literal["won", "lost"] | None = None
    sampled: bool | None = None
    deciding: bool | None = None

    def mask(self, rows: Rows, texts: Sequence[TextNote]) -> np.ndarray:
        """`[rows]`, bool. A row of which a condition is not known does not meet it."""
        found = np.ones(len(rows), dtype=bool)
        for flag, column in ((self.sampled, rows.sampled), (self.deciding, rows.deciding)):
            if flag is not None:
                found &= column == flag
        if self.outcome or self.sources:
            fits = np.array([self._fits_text(text) for text in texts])
            found &= fits[rows.text]
        if self.roles or self.kinds or self.other_kinds or self.channels:
            found &= self._fits_steps(rows, texts)
        return found

    def _fits_text(self, text: TextNote) -> bool:
        if self.sources and text.source not in self.sources:
            return False
        if self.outcome is None:
            return True
        return text.outcome is not None and (text.outcome >= WIN) == (self.outcome == "won")

    def _fits_steps(self, rows: Rows, texts: Sequence[TextNote]) -> np.ndarray:
        """Each different (text, step, sampled) is judged once."""
        keys = np.stack([rows.text, rows.step, rows.sampled], axis=1).astype(np.int64)
        different, place = np.unique(keys, axis=0, return_inverse=True)
        fits = np.array(
            [
                self._fits_step(texts[text], int(step), bool(sampled))
                for text, step, sampled in different
            ],
            dtype=bool,
        )
        return fits[place.reshape(-1)]

    def _fits_step(self, text: TextNote, step: int, sampled: bool) -> bool:
        if step == PLAIN_TEXT:
            return False
        note = text.steps[step]
        if self.roles and note.role not in self.roles:
            return False
        if self.channels and not set(self.channels) & set(note.channels):
            return False
        if not (self.kinds or self.other_kinds):
            return True
        kinds = decided_kinds(text, step, sampled) if self.deciding else note.kinds
        wanted = not self.kinds or bool(set(self.kinds) & set(kinds))
        return wanted and bool(kinds) and not set(self.other_kinds) & set(kinds)


def decided_kinds(text: TextNote, step: int, sampled: bool) -> tuple[str, ...]:
    """Kinds of the action that a deciding row at this step decides; none where
    no action follows.
    """
    following = text.steps[step + 1 :] if sampled else text.steps[step:]
    return next((note.kinds for note in following if note.role == ACTING), ())


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """Two groups of rows to be told apart, by task."""

    name: str
    first: RowGroup
    second: RowGroup


def decision_contrast(kinds: Sequence[str], name: str = "attempts") -> Contrast:
    """Decisions for an action of these kinds (a channel's attempts) against
    decisions for any other.
    """
    if not kinds:
        raise UserError(
            "a contrast of decisions needs at least one kind of action; name a channel's attempts"
        )
    return Contrast(
        name=name,
        first=RowGroup(kinds=tuple(kinds), deciding=True),
        second=RowGroup(other_kinds=tuple(kinds), deciding=True),
    )


def outcome_contrast() -> Contrast:
    """Rows of won against rows of lost texts."""
    return Contrast(name="won", first=RowGroup(outcome="won"), second=RowGroup(outcome="lost"))


def known_groups(texts: Sequence[TextNote]) -> dict[str, RowGroup]:
    """A group for every role, kind, channel and source in the texts, and for
    won, lost, deciding and sampled rows.
    """
    steps = [step for text in texts for step in text.steps]
    found = {
        f"role:{role}": RowGroup(roles=(role,)) for role in sorted({step.role for step in steps})
    }
    kinds = {kind for step in steps for kind in step.kinds}
    channels = {channel for step in steps for channel in step.channels}
    found |= {f"kind:{kind}": RowGroup(kinds=(kind,)) for kind in sorted(kinds)}
    found |= {f"channel:{channel}": RowGroup(channels=(channel,)) for channel in sorted(channels)}
    found |= {
        f"source:{source}": RowGroup(sources=(source,))
        for source in sorted({text.source for text in texts})
    }
    if any(text.outcome is not None for text in texts):
        found |= {"won": RowGroup(outcome="won"), "lost": RowGroup(outcome="lost")}
    return found | {"deciding": RowGroup(deciding=True), "sampled": RowGroup(sampled=True)}


def ranked_tasks(texts: Sequence[TextNote]) -> dict[str, int]:
    """A place for every task, by the hash of its name: which tasks come first
    says nothing about them.
    """

    def key(name: str) -> tuple[str, str]:
        return hashlib.blake2b(name.encode(), digest_size=8).hexdigest(), name

    return {
        name: place for place, name in enumerate(sorted({text.task for text in texts}, key=key))
    }


def task_groups(texts: Sequence[TextNote], groups: int) -> np.ndarray:
    """The group `[texts]` of each text's task: one a task up to `groups` of
    them, dealt out evenly beyond.
    """
    places = ranked_tasks(texts)
    return np.array([places[text.task] % groups for text in texts], dtype=np.int64)


def chosen_tasks(texts: Sequence[TextNote], most: int) -> np.ndarray:
    """A number `[texts]` for each text of the first `most` tasks, -1 for the texts of others."""
    places = ranked_tasks(texts)
    return np.array(
        [place if (place := places[text.task]) < most else -1 for text in texts], dtype=np.int64
    )
