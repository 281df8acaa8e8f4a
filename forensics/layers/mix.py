"""The mix of actions: how far apart the two sides' action kinds are, against task-wise chance."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from forensics.errors import MissingInput
from forensics.layers.run_columns import Reading
from forensics.layers.tally import Log
from forensics.records import Control, Evidence, Table
from forensics.statistics import jensen_shannon, permutation_test
from forensics.wording import printable

Floats = NDArray[np.float64]


class Mix(NamedTuple):
    """Actions a run on each task: `before`, `after [tasks, kinds]`."""

    before: Floats
    after: Floats
    kinds: tuple[str, ...]


def action_mix(reading: Reading) -> Evidence:
    """Jensen-Shannon divergence of the action kinds of both sides, bits, with a
    permutation p-value by task.
    """
    mix = _mix(reading)
    nulls: list[float] = []

    def statistic(first: Floats, second: Floats) -> float:
        nulls.append(_divergence(first, second))
        return nulls[-1]

    p_value = permutation_test(
        mix.before,
        mix.after,
        statistic,
        reading.generator("action mix"),
        repeats=reading.config.repeats,
    )
    found = nulls[0]
    chance = float(np.mean(nulls[1:])) if len(nulls) > 1 else None
    return reading.evidence(
        "behaviour.action_mix",
        estimate=found,
        unit="bits",
        n=reading.runs,
        clusters=len(mix.before),
        control=Control(
            name="sides swapped at random, task by task (mean)", estimate=chance, p_value=p_value
        ),
        artifacts=(_table(mix),),
        summary=f"The mix of actions moved by {found:.3f} bits (p = {p_value:.2g}).",
    )


def _divergence(first: Floats, second: Floats) -> float:
    """The divergence of two sides' totals; a permuted side without actions is as far as can be."""
    found = jensen_shannon(first.sum(axis=0), second.sum(axis=0))
    return 1.0 if found is None else found


def _mix(reading: Reading) -> Mix:
    before = reading.compared()
    logs = (before, *reading.afters)
    tasks = sorted(set(before.kinds).intersection(*(log.kinds for log in reading.afters)))
    kinds = tuple(sorted({kind for log in logs for count in log.kinds.values() for kind in count}))
    if len(tasks) < 2:
        raise MissingInput(
            "Fewer than two tasks are common to both sides.", "Give logs of the same tasks."
        )
    mix = Mix(_rates([before], tasks, kinds), _rates(reading.afters, tasks, kinds), kinds)
    if not (mix.before.sum() and mix.after.sum()):
        raise MissingInput(
            "One side took no action of a named kind.", "Give logs whose actions have kinds."
        )
    return mix


def _rates(logs: Sequence[Log], tasks: Sequence[str], kinds: Sequence[str]) -> Floats:
    """Actions a run `[tasks, kinds]`, training seeds pooled."""
    totals = [sum((log.kinds[task] for log in logs), Counter[str]()) for task in tasks]
    runs = np.array([sum(log.runs_per_task[task] for log in logs) for task in tasks], float)
    rates: Floats = (
        np.array([[count[kind] for kind in kinds] for count in totals], float) / runs[:, None]
    )
    return rates


def _table(mix: Mix) -> Table:
    rates = zip(mix.kinds, mix.before.mean(axis=0), mix.after.mean(axis=0), strict=True)
    rows = sorted(rates, key=lambda row: (-row[2], row[0]))
    return Table(
        title="Actions a run, by kind",
        columns=("kind", "before", "after", "change"),
        rows=tuple(
            (printable(kind), float(old), float(new), float(new - old)) for kind, old, new in rows
        ),
    )
