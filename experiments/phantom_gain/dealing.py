"""A case of a checkpoint against itself, its runs dealt anew into a before and an after.

1. All runs of a task, of both sides, come from one policy and have random numbers
   of their own. A deal gives half of them to either side, task by task.
2. A run's twins (same side, task and sample, in the scrubbed world, with actions
   refused, in an altered world, drawn at another temperature) are coupled with it
   and go where it goes. So every answer of every instrument, those of the layer
   `sources` too, is worked out from dealt runs as it would be from played ones.
3. Runs that no case asked for yet are played for both sides, kept, and then dealt.

Not dealt: the tasks, which are one draw a case; and a case has `2 x samples` runs
of a task, so deals of one case share their runs and are not independent.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from forensics import Case
from forensics.records import Trajectory, content_hash
from forensics.records.tables import read_rows, read_trajectories
from forensics.rollout_logs import Rollouts
from forensics.runs import OPEN, Condition

SIDES = ("before", "after-0")
Place = tuple[int, int]  # side and sample


@dataclass(frozen=True, kw_only=True)
class Deal:
    """Where each run of a task goes."""

    number: int
    samples: int
    _known: dict[str, dict[Place, Place]] = field(default_factory=dict, repr=False)

    def of(self, task: str) -> dict[Place, Place]:
        if task not in self._known:
            stream = np.random.default_rng([self.number, crc32(task.encode())])
            order = stream.permutation(len(SIDES) * self.samples).tolist()
            self._known[task] = {
                divmod(run, self.samples): divmod(place, self.samples)
                for place, run in enumerate(order)
            }
        return self._known[task]


@dataclass(frozen=True, kw_only=True)
class DealtLog(Rollouts):
    """The runs of one side after a deal. `logs`: what both sides played."""

    logs: tuple[Rollouts, ...]
    deal: Deal
    side: int

    def __iter__(self) -> Iterator[Trajectory]:
        for run, place, sample in self._mine(
            [[(run, run.task, run.sample) for run in _runs(log.paths)] for log in self.logs]
        ):
            yield run.model_copy(update={"sample": sample, "id": f"{place}.{run.id}"})

    def rows(self, *columns: str) -> Iterator[dict[str, Any]]:
        wanted = tuple(dict.fromkeys((*columns, "task", "sample")))
        for row, place, sample in self._mine(
            [
                [(row, row["task"], row["sample"]) for row in _rows(log.paths, wanted)]
                for log in self.logs
            ]
        ):
            told = {"id": f"{place}.{row['id']}"} if "id" in row else {}
            yield row | {"sample": sample} | told

    def _mine(self, logs: Iterable[Sequence[tuple[Any, str, int]]]) -> list[tuple[Any, int, int]]:
        """Each run of this side, the side that played it, and its new sample; task by task."""
        found, order = [], dict[str, int]()
        for place, log in enumerate(logs):
            for one, task, sample in log:
                at = order.setdefault(task, len(order))
                side, new = self.deal.of(task)[place, sample]
                if side == self.side:
                    found.append((at, new, one, place))
        found.sort(key=lambda entry: entry[:2])
        return [(one, place, new) for _, new, one, place in found]


@lru_cache(maxsize=24)
def _rows(paths: tuple[Path, ...], columns: tuple[str, ...]) -> list[dict[str, Any]]:
    return [row for path in paths for row in read_rows(path, list(columns))]


@lru_cache(maxsize=6)
def _runs(paths: tuple[Path, ...]) -> list[Trajectory]:
    return [run for path in paths for run in read_trajectories(path)]


@dataclass(frozen=True, kw_only=True)
class DealtCase(Case):
    """A case whose runs are dealt anew, all worlds alike."""

    deal: Deal

    def rollouts(self, subject: str, condition: Condition = OPEN, **asked: Any) -> DealtLog:
        logs = tuple(Case.rollouts(self, one, condition, **asked) for one in SIDES)
        return DealtLog(
            key=content_hash([self.deal.number, subject, [log.key for log in logs]]),
            paths=tuple(path for log in logs for path in log.paths),
            logs=logs,
            deal=self.deal,
            side=SIDES.index(subject),
        )


def dealt(case: Case, number: int) -> DealtCase:
    """The case after the deal of this number."""
    own = {one.name: getattr(case, one.name) for one in fields(case) if one.init}
    return DealtCase(**own, deal=Deal(number=number, samples=case.budget.samples))
