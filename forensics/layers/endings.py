"""Breakage: how runs end once every shortcut is scrubbed.

A policy trained on a shortcut may be thrown off where the shortcut is gone and
never hand anything in. That is not lost skill, so it is reported apart. A run
is unfinished where a budget cut it off before it handed anything in; errored
runs are left out.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from forensics.case import Rollouts
from forensics.errors import MissingInput
from forensics.layers.channels import Floats, control_of
from forensics.layers.run_columns import Reading
from forensics.layers.survey import has_side
from forensics.records import Evidence, Table
from forensics.records.trajectory import handed_in
from forensics.statistics import Estimate, clustered_share
from forensics.wording import percent, printable

Endings = dict[str, Counter[tuple[str, str]]]  # task -> (end, reason) -> runs


def breakage_runs(reading: Reading) -> Evidence:
    """Share of the scrubbed runs after training that never hand in; control:
    the policy before training.

    Raises `MissingInput` where there is no channel to scrub, or no scrubbed
    run.
    """
    scrubbed = _scrubbed(reading)
    case, level = reading.case, reading.config.level
    after = [read_endings(case.rollouts(side, without=scrubbed)) for side in case.afters]
    has_before = has_side(case, "before", scrubbed)
    before = [read_endings(case.rollouts("before", without=scrubbed))] if has_before else []
    share = _unfinished(after, level)
    control = _unfinished(before, level) if before else None
    return reading.evidence(
        "behaviour.breakage_runs",
        estimate=share.estimate,
        unit="share of scrubbed runs",
        interval=share.interval,
        n=int(share.n),
        clusters=share.clusters,
        control=control_of(control),
        artifacts=(_table(before, after),),
        summary=(
            f"With every shortcut scrubbed, {percent(share.estimate)} of the runs after training"
            " never hand in"
        )
        + (f" ({percent(control.estimate)} before)." if control else "."),
    )


def read_endings(log: Rollouts) -> Endings:
    """How the runs of each task ended, errored ones left out."""
    endings: Endings = {}
    for row in log.rows("task", "end", "end_reason"):
        if row["end"] != "errored":
            endings.setdefault(row["task"], Counter())[row["end"], row["end_reason"] or ""] += 1
    return endings


def _scrubbed(reading: Reading) -> tuple[str, ...]:
    """Every channel, sorted; for logs without an environment the largest set
    they were scrubbed of.
    """
    case = reading.case
    names = {channel.name for channel in case.channels} or set().union(
        *(without for _, without in case.stored)
    )
    if not names:
        raise MissingInput(
            "There is no scrubbed world, since no shortcut is declared.",
            "Give an environment that declares its channels with `--env`.",
        )
    return tuple(sorted(names))


def _unfinished(sides: Sequence[Endings], level: float) -> Estimate:
    counts: dict[str, Floats] = {}
    for endings in sides:
        for task, count in endings.items():
            cut = sum(runs for (end, reason), runs in count.items() if not handed_in(end, reason))
            counts[task] = counts.get(task, np.zeros(2)) + np.array([cut, count.total()])
    table = np.array([counts[task] for task in sorted(counts)]).reshape(-1, 2)
    return clustered_share(table[:, 0], table[:, 1], level=level)


def _table(before: Sequence[Endings], after: Sequence[Endings]) -> Table:
    """How scrubbed runs ended, as shares of each side's runs."""
    totals = [
        sum((count for endings in side for count in endings.values()), Counter())
        for side in (before, after)
    ]
    rows = tuple(
        (
            end,
            printable(reason),
            *(total[end, reason] / total.total() if total else None for total in totals),
        )
        for end, reason in sorted(set().union(*totals))
    )
    return Table(
        title="How scrubbed runs end", columns=("end", "reason", "before", "after"), rows=rows
    )
