"""The chance that one of k runs of a task wins: 1 - C(n - c, k) / C(n, k) of n runs
with c wins, without bias (2107.03374), the mean over tasks.

Where the policy before training overtakes the one after it at a larger k,
training sharpened what was there (2504.13837): `crossing`, the smallest such k.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import comb

import numpy as np

from forensics.instruments import AnswerMaker
from forensics.phrases import percent, plural
from forensics.records import Evidence, Table, Trajectory
from forensics.records.verdict import Estimate as Cell
from forensics.statistics import Estimate, mean
from resampling.sources.extraction import won

PASS = "elicitation.pass_at_k"
Curve = Mapping[int, Estimate]


@dataclass(frozen=True, kw_only=True)
class PassAtK:
    """Runs by side (`before`, `after`) and training seed."""

    sides: Mapping[str, Sequence[Sequence[Trajectory]]]
    level: float

    @cached_property
    def most(self) -> int:
        """The largest k: the fewest runs of a task."""
        return min(
            (
                len(one)
                for seeds in self.sides.values()
                for runs in seeds
                for one in _wins(runs).values()
            ),
            default=0,
        )

    @cached_property
    def curves(self) -> dict[str, Curve]:
        return {
            side: {k: self._at(seeds, k) for k in range(1, self.most + 1)}
            for side, seeds in self.sides.items()
        }

    @property
    def crossing(self) -> int | None:
        """The smallest k above 1 at which *before* wins as often as *after*."""
        before, after = self.curves["before"], self.curves["after"]
        overtaken = (k for k in before if k > 1 and before[k].estimate >= after[k].estimate)
        return next(overtaken, None)

    def _at(self, seeds: Sequence[Sequence[Trajectory]], k: int) -> Estimate:
        found = [_wins(runs) for runs in seeds]
        tasks = sorted(set.intersection(*(set(one) for one in found)))
        rates = np.array([[_chance(one[task], k) for task in tasks] for one in found])
        return mean(rates.mean(axis=0), reach=1.0, bounds=(0.0, 1.0), level=self.level)

    def answers(self, make: AnswerMaker) -> Iterator[Evidence]:
        """One of each side, at the largest k; the table stands beside the second."""
        for side, curve in self.curves.items():
            last = curve[self.most]
            yield make.evidence(
                PASS,
                last,
                about=side,
                unit="share",
                n=sum(map(len, self.sides[side])),
                method="unbiased estimator of 2107.03374, mean over tasks",
                diagnostics={
                    "k": self.most,
                    "crossing": self.crossing,
                    **{f"pass_at_{k}": one.estimate for k, one in curve.items()},
                },
                artifacts=(self._table,) if side == "after" else (),
                summary=(
                    f"{side.capitalize()} training, one of {plural(self.most, 'run')} of a task"
                    f" wins in {percent(last.estimate)} of the tasks; one run in"
                    f" {percent(curve[1].estimate)}."
                ),
            )

    @property
    def _table(self) -> Table:
        return Table(
            title="Chance that one of k runs wins (pass@k)",
            columns=("k", *self.curves),
            rows=tuple(
                (k, *(_cell(curve[k]) for curve in self.curves.values()))
                for k in range(1, self.most + 1)
            ),
            units=dict.fromkeys(self.curves, "share"),
        )


def _wins(runs: Sequence[Trajectory]) -> dict[str, list[bool]]:
    """Of each task, which of its runs won."""
    found: dict[str, list[bool]] = {}
    for run in runs:
        found.setdefault(run.task, []).append(won(run))
    return found


def _chance(won: Sequence[bool], k: int) -> float:
    return 1 - comb(len(won) - sum(won), k) / comb(len(won), k)


def _cell(one: Estimate) -> Cell:
    return Cell(estimate=one.estimate, low=one.low, high=one.high)
