"""The training record on against off: what a step costs more.

`ratio` is measured inside a recorded run, so that a busy machine slows both
parts alike: the time that building and handing over the rows takes of the
training thread, plus all processor time of the writing thread (as if it stood
in the way of the training, which on a second core it does not), over the rest
of the run. Beside it the whole of runs with the record over runs without: the
same recipe and seed do the very same work on both sides, each repeat is a pair
in alternating order, and on a busy machine their spread is far wider than what
they are to show. The clock runs from the end of the first step (which warms up)
to the end of the run with everything written.
"""

import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from forensics import load_policy
from forensics.records.train_tables import write_shard
from training import MiniRepo, Recipe, StepReport, checkpoint_path, grpo, parse_recipe

LIMIT = 1.02  # of a step without the record


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Seconds of the measured steps: all, of the processor, on the record in
    the training thread and in the other.

    `tokens`: what was sampled, to see that both sides did the same.
    """

    wall: float
    processor: float
    in_step: float
    writer: float
    tokens: int

    @property
    def ratio(self) -> float:
        return 1 + (self.in_step + self.writer) / (self.wall - self.in_step)


@contextmanager
def timed_writer() -> Iterator[list[float]]:
    """Processor seconds of each shard that is written, in the writing thread."""
    seconds: list[float] = []

    def timed(*arguments: Any) -> None:
        began = time.thread_time()
        write_shard(*arguments)
        seconds.append(time.thread_time() - began)

    with patch("training.recorder.write_shard", timed):
        yield seconds


def recipe(record: bool, steps: int) -> Recipe:
    """The capped world, 16 groups of 8; nothing is saved in between."""
    return parse_recipe(
        {
            "policy": {"checkpoint": "bundled:capped-base"},
            "environment": {"name": "mini-repo", "options": {"world": "capped"}},
            "grpo": {"steps": steps, "save_every": steps},
            "record": {"rollouts": record},
        },
        "benchmark",
    )


def one_run(record: bool, steps: int, device: str, folder: Path) -> Cost:
    """Train from the start; what all steps but the first cost."""
    policy = load_policy(checkpoint_path("bundled:capped-base"), device=device, dtype="float32")
    reports: list[StepReport] = []
    began: list[tuple[float, float]] = []

    def report(step: StepReport) -> None:
        reports.append(step)
        if not began:
            began.append((time.perf_counter(), time.process_time()))

    with timed_writer() as writer:
        grpo(policy, MiniRepo(world="capped"), recipe(record, steps), 0, folder, report)
    wall, processor = time.perf_counter() - began[0][0], time.process_time() - began[0][1]
    return Cost(
        wall=wall,
        processor=processor,
        in_step=sum(step.seconds["record"] for step in reports[1:]),
        writer=sum(writer[1:]),
        tokens=sum(step.tokens for step in reports[1:]),
    )


def run(device: str = "cpu", repeats: int = 5, steps: int = 8) -> dict[str, Any]:
    """Ratios on / off of each pair: smallest, median, largest."""
    pairs: list[dict[bool, Cost]] = []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "run"
        for repeat in range(repeats):
            pair = {}
            for record in (True, False) if repeat % 2 else (False, True):
                shutil.rmtree(place, ignore_errors=True)
                pair[record] = one_run(record, steps, device, place)
            pairs.append(pair)
    return {
        "benchmark": f"training step with the record / without, {steps - 1} steps of 16 groups x 8",
        "limit": LIMIT,
        "ratio": _spread([pair[True].ratio for pair in pairs]),
        "on_over_off": _spread([pair[True].wall / pair[False].wall for pair in pairs]),
        "on_over_off_processor_time": _spread(
            [pair[True].processor / pair[False].processor for pair in pairs]
        ),
        "same_work": all(pair[True].tokens == pair[False].tokens for pair in pairs),
        "device": device,
    }


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {
        "min": round(min(values), 4),
        "median": round(statistics.median(values), 4),
        "max": round(max(values), 4),
    }
