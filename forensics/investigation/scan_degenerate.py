"""How many runs of a log are degenerate: the limits of `shortcuts.scanner` on
what the behaviour layer tallied.

The measures of each run are there already, so nothing is read again. The unit
is the task; training seeds are pooled, runs that errored are left out.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from forensics.errors import MissingInput
from forensics.layers.behaviour import Tallied
from forensics.layers.channels import control_of
from forensics.layers.degeneracy import MEASURES
from forensics.layers.tally import Log
from forensics.phrases import capital, percent
from forensics.records import Evidence, Provenance, Undefined
from forensics.records.evidence import Scalar
from forensics.shortcuts.scanner import above
from forensics.statistics import Estimate, share
from forensics.verdict.sentences import DEGENERATE

METHOD = "limits on each run's measures of degeneracy"


def degenerate_answer(tallied: Tallied, provenance: Provenance) -> Evidence | Undefined:
    """The share of degenerate runs after training, with the log before
    training, where there is one, as control.
    """
    before = tallied.logs.get("before")
    afters = [log for side, log in sorted(tallied.logs.items()) if side != "before"]
    try:
        found = _share(afters)
    except MissingInput as missing:
        return Undefined(
            question=DEGENERATE,
            layer="behaviour",
            method=METHOD,
            provenance=provenance,
            reason=missing.reason,
            cure=missing.cure,
        )
    control = None if before is None else _share_or_none(before)
    counts = Counter(name for log in afters for names in _above(log) for name in names)
    named = ", ".join(f"{name} in {count:,}" for name, count in counts.most_common())
    counted: dict[str, Scalar] = {name: counts[name] for name in MEASURES}
    counted["errored"] = sum(log.errored for log in afters)
    return Evidence(
        question=DEGENERATE,
        layer="behaviour",
        method=METHOD,
        provenance=provenance,
        estimate=found.estimate,
        unit="share of runs",
        interval=found.interval,
        n=int(found.n),
        clusters=found.clusters,
        control=control_of(control),
        diagnostics=counted,
        summary=capital(percent(found.estimate))
        + f" of the runs{'' if before is None else ' after training'} are degenerate"
        + (f" ({percent(control.estimate)} before)" if control else "")
        + (f": {named}." if named else "."),
    )


def _share_or_none(log: Log) -> Estimate | None:
    try:
        return _share([log])
    except MissingInput:
        return None


def _share(logs: Sequence[Log]) -> Estimate:
    """Of degenerate runs, clustered by task. Raises `MissingInput` for fewer than two tasks."""
    counts: dict[str, list[int]] = {}
    for log in logs:
        for task, names in zip(log.tasks, _above(log), strict=True):
            count = counts.setdefault(task, [0, 0])
            count[0] += bool(names)
            count[1] += 1
    if not counts:
        raise MissingInput("Every run errored.", "Give logs of runs that ended.")
    hits, runs = np.array([counts[task] for task in sorted(counts)], float).T
    return share(hits, runs)


def _above(log: Log) -> Iterator[tuple[str, ...]]:
    """Of each run, the measures above their limit."""
    if not log.tasks:
        return
    for turns, *values in zip(*(log.columns[name] for name in ("turns", *MEASURES)), strict=True):
        measures = {
            name: None if math.isnan(value) else value
            for name, value in zip(MEASURES, values, strict=True)
        }
        yield above(measures, turns)
