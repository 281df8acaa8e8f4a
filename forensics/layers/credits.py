"""Shares of wins and attempts by channel, from rows of findings alone: no
environment has to name its shortcuts.

The unit is the task; training seeds are pooled. Wins for which a chain cannot
be told widen the interval upwards. An answer about nothing in particular covers
all channels together, because one win may be credited to two.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from forensics.errors import MissingInput
from forensics.layers.bounds import ScoredRun, ScoredSide
from forensics.layers.channels import ATTEMPTS, WINS, control_of
from forensics.records import Evidence, Interval, Provenance, Undefined
from forensics.records.evidence import Scalar
from forensics.statistics import Estimate, clustered_share
from forensics.wording import capital, percent, printable

WIN = 0.5  # outcome from which a run is a win


@dataclass
class Marks:
    """What the findings on one channel say about the runs of one side: sets of run ids."""

    family: str = ""
    attempted: set[str] = field(default_factory=set)
    credited: set[str] = field(default_factory=set)
    untold: set[str] = field(default_factory=set)
    example: tuple[str, int] | None = None  # the first credited run by id, and its first attempt


SideMarks = Mapping[str, Marks]  # channel -> marks


@dataclass(frozen=True, kw_only=True)
class Credits:
    """Scored runs and marks of every side; `before` is `None` where there is no such log."""

    before: tuple[ScoredSide, SideMarks] | None
    afters: tuple[tuple[ScoredSide, SideMarks], ...]
    provenance: Provenance
    level: float = 0.95

    @property
    def _when(self) -> str:
        """Of one set of logs nobody says when it was made."""
        return "" if self.before is None else " after training"

    def answers(self) -> Iterator[Evidence | Undefined]:
        """Wins and attempts for every channel that any side tried, and for all together."""
        sides = self.afters if self.before is None else (self.before, *self.afters)
        for channel in (None, *sorted(set().union(*(marks for _, marks in sides)))):
            for question, measure in ((WINS, self._wins), (ATTEMPTS, self._attempts)):
                if channel is not None or question == WINS:
                    yield self._answer(question, channel, measure)

    def _answer(
        self, question: str, channel: str | None, measure: Callable[[str | None], Evidence]
    ) -> Evidence | Undefined:
        try:
            return measure(channel)
        except MissingInput as missing:
            return Undefined(
                question=question,
                about=channel,
                layer="behaviour",
                method="findings",
                provenance=self.provenance,
                reason=missing.reason,
                cure=missing.cure,
            )

    def _wins(self, channel: str | None) -> Evidence:
        after = self._share(self.afters, channel, ("credited",), wins_only=True)
        most = self._share(self.afters, channel, ("credited", "untold"), wins_only=True)
        before = self._before(channel, ("credited",), wins_only=True)
        interval = Interval(low=after.low, high=max(after.high, most.high), level=self.level)
        what = "any shortcut" if channel is None else printable(channel)
        least = "at least " if most.estimate > after.estimate > 0 else ""
        open_ones = max(most.estimate - after.estimate, 0.0)
        untold = f"; for {percent(open_ones)} of them the log cannot tell" if open_ones else ""
        return self._evidence(
            WINS,
            channel,
            after,
            before,
            interval,
            "share of wins",
            capital(f"{least}{percent(after.estimate)} of the wins{self._when} run through {what}")
            + f"{_beside(before)}{untold}.",
        )

    def _attempts(self, channel: str | None) -> Evidence:
        after = self._share(self.afters, channel, ("attempted",), wins_only=False)
        before = self._before(channel, ("attempted",), wins_only=False)
        text = (
            f"{percent(after.estimate)} of the runs{self._when} try"
            f" {printable(channel or '')}{_beside(before)}."
        )
        return self._evidence(
            ATTEMPTS, channel, after, before, after.interval, "share of runs", capital(text)
        )

    def _evidence(
        self,
        question: str,
        channel: str | None,
        after: Estimate,
        before: Estimate | None,
        interval: Interval,
        unit: str,
        summary: str,
    ) -> Evidence:
        return Evidence(
            question=question,
            about=channel,
            layer="behaviour",
            method="findings",
            provenance=self.provenance,
            estimate=after.estimate,
            unit=unit,
            interval=interval,
            n=int(after.n),
            clusters=after.clusters,
            control=control_of(before),
            diagnostics=self._diagnostics(channel),
            summary=summary,
        )

    def _diagnostics(self, channel: str | None) -> dict[str, Scalar]:
        marks = (
            [side[channel] for _, side in self.afters if channel in side]
            if channel is not None
            else []
        )
        example = next((mark.example for mark in marks if mark.example), None)
        return (
            {}
            if channel is None
            else {
                "family": next((mark.family for mark in marks), None),
                **{
                    name: sum(len(getattr(m, name)) for m in marks)
                    for name in ("attempted", "credited", "untold")
                },
                "example_trajectory": example[0] if example else None,
                "example_step": example[1] if example else None,
            }
        )

    def _before(
        self, channel: str | None, links: tuple[str, ...], *, wins_only: bool
    ) -> Estimate | None:
        try:
            return (
                None
                if self.before is None
                else self._share([self.before], channel, links, wins_only=wins_only)
            )
        except MissingInput:
            return None

    def _share(
        self,
        sides: Sequence[tuple[ScoredSide, SideMarks]],
        channel: str | None,
        links: tuple[str, ...],
        *,
        wins_only: bool,
    ) -> Estimate:
        counts: dict[str, list[int]] = {}
        for side, marks in sides:
            hits = _hits(marks, channel, links)
            for task, runs in side.runs.items():
                among = [run for run in runs if not wins_only or is_win(run)]
                count = counts.setdefault(task, [0, 0])
                count[0] += sum(run.id in hits for run in among)
                count[1] += len(among)
        if not any(total for _, total in counts.values()):
            raise MissingInput("There is no scored win.", "Give logs with outcomes, or more runs.")
        table = np.array([counts[task] for task in sorted(counts)], dtype=float)
        return clustered_share(table[:, 0], table[:, 1], level=self.level)


def is_win(run: ScoredRun) -> bool:
    """Whether a run's score counts as a win."""
    return run.outcome >= WIN


def _hits(marks: SideMarks, channel: str | None, links: tuple[str, ...]) -> set[str]:
    chosen = marks.values() if channel is None else [marks[channel]] if channel in marks else []
    return set().union(*(getattr(mark, link) for mark in chosen for link in links))


def _beside(before: Estimate | None) -> str:
    return f" ({percent(before.estimate)} before)" if before else ""
