"""The policy before training, asked with more before and after its prompts:
winning runs of other tasks, and a note.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from forensics.protocols import Environment, Observation
from forensics.records import Trajectory
from resampling.sources.altered_world import AlteredWorld
from resampling.sources.extraction import won


class Asked(AlteredWorld):
    """The inner world with examples before its prompts (`shots` of other tasks)
    and a note after them.
    """

    def __init__(
        self,
        inner: Environment,
        alteration: str,
        *,
        note: str = "",
        examples: Mapping[str, str] | None = None,
        shots: int = 0,
    ) -> None:
        super().__init__(inner, alteration)
        self._note, self._examples, self._shots = note, dict(examples or {}), shots

    def reset(self, task: str, seed: int) -> Observation:
        start = super().reset(task, seed)
        others = [text for other, text in self._examples.items() if other != task]
        parts = [*others[: self._shots], f"{start.text}{self._note}"]
        return replace(start, text="\n\n".join(parts))


def length(run: Trajectory) -> int:
    """In tokens; where they are not recorded, by letters, rather too many."""
    return sum(
        len(step.text) // 2 + 1 if step.token_ids is None else len(step.token_ids)
        for step in run.steps
    )


def total(runs: Sequence[Trajectory]) -> int:
    return sum(map(length, runs)) + 2 * len(runs)


def shortest_wins(runs: Sequence[Trajectory], most: int) -> list[Trajectory]:
    """One of each task, the shortest first."""
    wins = sorted((run for run in runs if won(run) and run.turns), key=lambda r: (length(r), r.id))
    first = {run.task: run for run in reversed(wins)}
    return sorted(first.values(), key=lambda run: (length(run), run.id))[:most]


def as_text(run: Trajectory, bare: bool) -> str:
    """A run as a transcript, but for its system text and its last observation."""
    last = run.actions[-1][0]
    return "\n".join(
        step.text if bare or step.role != "assistant" else f"$ {step.text}"
        for step in run.steps[: last + 1]
        if step.role != "system"
    )
