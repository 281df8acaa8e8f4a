"""Traces as a page shows them: the words of a run with the potential under each token, and the cliffs among them.

Plain data. Who samples fills it, `page` draws it, and neither knows the other.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from forensics.records import Trajectory
from resampling.study.alternatives import Alternative
from resampling.traces import Trace

LEVELS = 20  # shades of potential


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One token that could have stood at a cliff, in text, and what would have come of it."""

    text: str
    probability: float
    potential: float | None
    low: float | None
    high: float | None
    chosen: bool


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A confirmed cliff. `drop`, `contrast` and their ends are shares; `restored`: delete minus keep at pass@1."""

    drop: float
    low: float
    high: float
    contrast: float
    e_value: float
    kind: str | None
    probability: float
    choices: tuple[Choice, ...] = ()
    restored: float | None = None
    control: float | None = None


@dataclass(frozen=True, kw_only=True)
class Word:
    """One sampled token. `position` among the sampled tokens; `potential` after it (`None`: not estimated)."""

    text: str
    position: int
    potential: float | None
    mark: Mark | None = None

    @property
    def shade(self) -> int | None:
        """The potential as one of `LEVELS + 1` shades."""
        return None if self.potential is None else round(LEVELS * self.potential)


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One step: what the policy wrote, token by token (`words`), or what it was told (`text`)."""

    step: int
    role: str
    kinds: tuple[str, ...] = ()
    shortcut: bool = False
    text: str = ""
    words: tuple[Word, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TraceView:
    """One run. `potentials`, `low`, `high` `[N + 1]`, from the prompt on; `None`: not estimated."""

    id: str
    task: str
    outcome: float | None
    turns: tuple[Turn, ...]
    potentials: tuple[float | None, ...]
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]

    @property
    def marks(self) -> tuple[Word, ...]:
        """The tokens with a confirmed cliff."""
        return tuple(word for turn in self.turns for word in turn.words if word.mark is not None)


def trace_view(
    trajectory: Trajectory, trace: Trace, potentials: np.ndarray, marks: Mapping[int, Mark],
    token_text: Callable[[int], str], shortcuts: frozenset[str] = frozenset(), *,
    low: np.ndarray | None = None, high: np.ndarray | None = None,
) -> TraceView:
    """Words and potentials brought together. `potentials` `[N + 1]`; `marks` by position; `shortcuts`: kinds of
    steps that take a declared shortcut. Without `low` and `high` the interval is left out."""
    by_step: dict[int, list[int]] = {}
    for position, step in enumerate(trace.steps):
        by_step.setdefault(step, []).append(position)
    tokens = trace.tokens

    def word(position: int) -> Word:
        return Word(text=token_text(tokens[position]), position=position,
                    potential=_known(potentials[position + 1]), mark=marks.get(position))

    turns = [
        Turn(step=number, role=step.role, kinds=step.kinds, shortcut=bool(shortcuts & {*step.kinds}),
             text="" if number in by_step else step.text, words=tuple(map(word, by_step.get(number, ()))))
        for number, step in enumerate(trajectory.steps)
    ]
    ends = (potentials if end is None else end for end in (low, high))
    below, above = (tuple(map(_known, end)) for end in ends)
    return TraceView(id=trajectory.id, task=trajectory.task, outcome=trajectory.outcome, turns=tuple(turns),
                     potentials=tuple(map(_known, potentials)), low=below, high=above)


def _known(value: float) -> float | None:
    """NaN as what it is: not known."""
    return None if np.isnan(value) else float(value)


def _shown(text: str) -> str:
    """A token that leaves nothing to see, spelled out."""
    return text if text.strip() else repr(text)


def choices_of(
    alternatives: Sequence[Alternative], chosen: int, token_text: Callable[[int], str]
) -> tuple[Choice, ...]:
    """Alternatives in words, most probable first. `chosen`: the id of the trace's own token."""
    ordered = sorted(alternatives, key=lambda a: (-a.probability, a.token_id))
    return tuple(
        Choice(text=_shown(token_text(a.token_id)), probability=a.probability, potential=a.potential, low=a.low,
               high=a.high, chosen=a.token_id == chosen)
        for a in ordered
    )
