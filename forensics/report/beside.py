"""Runs of the same task as a finding's, side by side with it: what others did who did not do it.

1. Of every task with a shown finding the runs, of either set, in which nothing was found; the
   first few in the order of a hash, those of the finding's own set first.
2. Of each, what it changed in the files that the finding names, else what it handed in.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from forensics.records import Trajectory
from forensics.records.finding import Finding
from forensics.records.page import TextSpans
from forensics.report.case_logs import Log
from forensics.report.chains import Key
from forensics.report.hunks import hunks_of
from forensics.report.shown_runs import Allowance

BESIDE: Final = 2  # runs beside one finding
MOST_TASKS: Final = 60


@dataclass(frozen=True, kw_only=True)
class Beside:
    """A run of the same task in which nothing was found, and how many such runs there are."""

    side: str
    run: Trajectory
    of: int


def beside(
    logs: Sequence[Log], rows: Sequence[Finding], found: Collection[Key]
) -> Mapping[tuple[str, str], tuple[Beside, ...]]:
    """By side and task of the findings. `found`: the runs with a finding."""
    tasks = [*dict.fromkeys((row.side, row.task) for row in rows)][:MOST_TASKS]
    named = {task for _, task in tasks}
    clean: dict[str, list[Key]] = {}
    for log in logs:
        for row in log.rows("id", "task"):
            if row["task"] in named and (log.side, row["id"]) not in found:
                clean.setdefault(row["task"], []).append((log.side, row["id"]))
    picked = {
        (side, task): sorted(clean.get(task, ()), key=lambda key: (key[0] != side, _hash(key)))
        for side, task in tasks
    }
    wanted = {key for keys in picked.values() for key in keys[:BESIDE]}
    runs = {
        (log.side, run.id): run
        for log in logs
        for run in log.fetch({name for side, name in wanted if side == log.side})
    }
    return {
        place: tuple(Beside(side=key[0], run=runs[key], of=len(keys)) for key in keys[:BESIDE])
        for place, keys in picked.items()
    }


def _hash(key: Key) -> str:
    return blake2b(" ".join(key).encode(errors="replace"), digest_size=8).hexdigest()


def handed_in(row: Finding, run: Trajectory, allowance: Allowance) -> Iterator[TextSpans]:
    """What a run beside a finding changed in the finding's files, else what it handed in."""
    hunks = list(hunks_of(row, run, allowance)) if run.patch else []
    yield from hunks
    if not hunks:
        text, left_out = allowance.take(run.patch or run.submission or "")
        who = "left these files alone; handed in" if run.patch else "handed in"
        yield TextSpans(text=text or "Nothing was handed in.", who=who, left_out=left_out)
