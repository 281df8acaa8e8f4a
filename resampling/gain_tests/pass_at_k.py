"""The chance that one of k runs of a task wins: 1 - C(n - c, k) / C(n, k) of n runs
with c wins, without bias (2107.03374), the mean over tasks.

Where the policy before training overtakes the one after it at a larger k,
training sharpened what was there (2504.13837): `crossing`, the smallest such k.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import comb

import numpy as np

from forensics.instruments import AnswerMaker
from forensics.phrases import percent, plural
from forensics.records import Estimate as Cell, Evidence, Table, Trajectory
from forensics.statistics import Estimate, mean
from resampling.gain_tests.extraction import won

PASS = "elicitation.pass_at_k"
Won = Mapping[str, Sequence[bool]]  # by task


def pass_at_k(
    sides: Mapping[str, Sequence[Sequence[Trajectory]]], level: float, make: AnswerMaker
) -> Iterator[Evidence]:
    """An answer for each side (`before`, `after`: the runs of each training seed), at
    the largest k, the fewest runs of a task; the table stands beside the second.
    """
    wins = {side: [_wins(runs) for runs in seeds] for side, seeds in sides.items()}
    most = min(len(runs) for seeds in wins.values() for one in seeds for runs in one.values())
    ks = range(1, most + 1)
    curves = {side: {k: _at(seeds, k, level) for k in ks} for side, seeds in wins.items()}
    before, after = curves["before"], curves["after"]
    crossing = next((k for k in ks[1:] if before[k].estimate >= after[k].estimate), None)
    table = Table(
        title="Chance that one of k runs wins (pass@k)",
        columns=("k", *curves),
        rows=tuple((k, *(_cell(curve[k]) for curve in curves.values())) for k in ks),
        units=dict.fromkeys(curves, "share"),
    )
    for side, curve in curves.items():
        yield make.evidence(
            PASS,
            curve[most],
            about=side,
            unit="share",
            n=sum(map(len, sides[side])),
            method="unbiased estimator of 2107.03374, mean over tasks",
            diagnostics={
                "k": most,
                "crossing": crossing,
                **{f"pass_at_{k}": one.estimate for k, one in curve.items()},
            },
            artifacts=(table,) if side == "after" else (),
            summary=(
                f"{side.capitalize()} training, one of {plural(most, 'run')} of a task wins in"
                f" {percent(curve[most].estimate)} of the tasks; one run in"
                f" {percent(curve[1].estimate)}."
            ),
        )


def _wins(runs: Sequence[Trajectory]) -> Won:
    found: dict[str, list[bool]] = defaultdict(list)
    for run in runs:
        found[run.task].append(won(run))
    return found


def _at(seeds: Sequence[Won], k: int, level: float) -> Estimate:
    tasks = sorted(set.intersection(*map(set, seeds)))
    rates = [[_chance(one[task], k) for task in tasks] for one in seeds]
    return mean(np.mean(rates, axis=0), reach=1.0, bounds=(0.0, 1.0), level=level)


def _chance(won: Sequence[bool], k: int) -> float:
    return 1 - comb(len(won) - sum(won), k) / comb(len(won), k)


def _cell(one: Estimate) -> Cell:
    return Cell(estimate=one.estimate, low=one.low, high=one.high)
