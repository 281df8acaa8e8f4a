"""Samplers that die or refuse in a worker, and the way to find out that they did."""

import os
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from resampling.trace_rollouts import Request, Rollout, Sampler
from tests.resampling.table_sampler import TableSampler

POTENTIALS = {"a": [0.5] * 9, "b": [0.3] * 9, "c": [0.8] * 9}


@dataclass(frozen=True)
class Table:
    """Builds a table sampler whose process is killed at a rollout of trace `b`
    (`once`, or whenever it meets it).
    """

    folder: str = ""
    kill_at: int = -1
    once: bool = True

    def __call__(self) -> Sampler:
        return Fragile(self)


class Fragile:
    identity = "table"

    def __init__(self, how: Table) -> None:
        self._how = how

    def draw(self, requests: Iterable[Request]) -> Iterator[Rollout]:
        for rollout in TableSampler(POTENTIALS, 5).draw(requests):
            if self._how.folder:
                (Path(self._how.folder) / f"pid-{os.getpid()}").touch()
            if (rollout.trace, rollout.number) == ("b", self._how.kill_at):
                self._die()
            yield rollout

    def _die(self) -> None:
        mark = Path(self._how.folder) / "died"
        if not (self._how.once and mark.exists()):
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
