"""Shares of wins and attempts by channel, from rows of findings alone: no
environment has to name its shortcuts.

The unit is the task; training seeds are pooled. Wins for which a chain cannot
be told widen the interval upwards. An answer about nothing in particular covers
all channels together, because one win may be credited to two.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from forensics.errors import MissingInput
from forensics.instruments import AnswerMaker
from forensics.layers.bounds import ScoredRun, ScoredSide
from forensics.layers.channels import ATTEMPTS, WINS, beside, control_of
from forensics.phrases import capital, percent, printable
from forensics.records import Evidence, Provenance, Undefined
from forensics.records.evidence import Scalar
from forensics.statistics import Estimate, share_by_task

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
        make = AnswerMaker(layer="behaviour", method="findings", provenance=self.provenance)
        sides = self.afters if self.before is None else (self.before, *self.afters)
        for channel in (None, *sorted(set().union(*(marks for _, marks in sides)))):
            yield make.answer(WINS, partial(self._wins, make, channel), channel)
            if channel is not None:
                yield make.answer(ATTEMPTS, partial(self._attempts, make, channel), channel)

    def _wins(self, make: AnswerMaker, channel: str | None) -> Evidence:
        after, most = (
            self._share(self.afters, channel, *links, wins_only=True)
            for links in (["credited"], ["credited", "untold"])
        )
        before = self._before(channel, "credited", wins_only=True)
        what = "any shortcut" if channel is None else printable(channel)
        least = "at least " if most.estimate > after.estimate > 0 else ""
        open_ones = max(most.estimate - after.estimate, 0.0)
        untold = f"; for {percent(open_ones)} of them the log cannot tell" if open_ones else ""
        return make.evidence(
            WINS,
            replace(after, high=max(after.high, most.high)),
            about=channel,
            unit="share of wins",
            control=control_of(before),
            diagnostics={} if channel is None else self._diagnostics(channel),
            summary=capital(
                f"{least}{percent(after.estimate)} of the wins{self._when} run through {what}"
            )
            + f"{beside(before)}{untold}.",
        )

    def _attempts(self, make: AnswerMaker, channel: str) -> Evidence:
        after = self._share(self.afters, channel, "attempted", wins_only=False)
        before = self._before(channel, "attempted", wins_only=False)
        return make.evidence(
            ATTEMPTS,
            after,
            about=channel,
            unit="share of runs",
            control=control_of(before),
            diagnostics=self._diagnostics(channel),
            summary=capital(
                f"{percent(after.estimate)} of the runs{self._when} try"
                f" {printable(channel)}{beside(before)}."
            ),
        )

    def _diagnostics(self, channel: str) -> dict[str, Scalar]:
        marks = [side[channel] for _, side in self.afters if channel in side]
        example = next((mark.example for mark in marks if mark.example), None)
        return {
            "family": next((mark.family for mark in marks), None),
            **{
                name: sum(len(getattr(mark, name)) for mark in marks)
                for name in ("attempted", "credited", "untold")
            },
            "example_trajectory": example[0] if example else None,
            "example_step": example[1] if example else None,
        }

    def _before(self, channel: str | None, link: str, *, wins_only: bool) -> Estimate | None:
        try:
            if self.before is not None:
                return self._share([self.before], channel, link, wins_only=wins_only)
        except MissingInput:
            pass
        return None

    def _share(
        self,
        sides: Sequence[tuple[ScoredSide, SideMarks]],
        channel: str | None,
        *links: str,
        wins_only: bool,
    ) -> Estimate:
        """Runs, or wins, that are marked with one of these links."""
        rows = []
        for side, marks in sides:
            chosen = [mark for name, mark in marks.items() if channel in (None, name)]
            hits = set().union(*(getattr(mark, link) for mark in chosen for link in links))
            rows += [
                (task, run.id in hits, 1)
                for task, runs in side.runs.items()
                for run in runs
                if is_win(run) or not wins_only
            ]
        if not rows:
            raise MissingInput("There is no scored win.", "Give logs with outcomes, or more runs.")
        return share_by_task(rows, level=self.level)


def is_win(run: ScoredRun) -> bool:
    """Whether a run's score counts as a win."""
    return run.outcome >= WIN
