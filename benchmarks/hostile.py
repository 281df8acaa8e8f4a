"""What must take no time, whatever it is given: texts made to be slow, and the
help of the command line.

Tests count the work of these (`tests/work.py`), which a busy machine does not
change; here it is timed, in processor seconds, each against the limit that a
user would notice.
"""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

LIMITS = {
    "command lines": 1.0,
    "scan": 5.0,
    "turns": 5.0,
    "sessions": 10.0,
    "help": 0.7,
}


def run(device: str = "cpu") -> dict[str, Any]:
    """The slowest of each kind (the help: the fastest of three), and its share of the limit."""
    slowest = {
        "command lines": max(map(_command_line, _junk())),
        "scan": max(_scans()),
        "turns": max(_turns()),
        "sessions": _sessions(),
        "help": _help(),
    }
    return {
        "benchmark": "processor seconds for hostile texts",
        "limits": LIMITS,
        "ratio": round(max(slowest[kind] / LIMITS[kind] for kind in LIMITS), 3),
        "seconds": {kind: round(seconds, 4) for kind, seconds in slowest.items()},
        "device": device,
    }


def timed(action: Callable[[], Any]) -> float:
    start = time.process_time()
    action()
    return time.process_time() - start


def _junk() -> list[str]:
    from tests.forensics.test_actions_bash import JUNK

    return [piece * (100_000 // len(piece)) for piece in JUNK]


def _command_line(line: str) -> float:
    from tests.forensics.test_actions_bash import actions

    return timed(lambda: actions(line))


def _scans() -> list[float]:
    from forensics.actions import actions_of
    from forensics.shortcuts import scan_trajectory
    from tests.forensics.test_scanning import LONG, hostile

    runs = [(each, actions_of(each)) for each in map(hostile, LONG)]
    return [
        timed(lambda each=each, actions=actions: scan_trajectory(each, actions))
        for each, actions in runs
    ]


def _turns() -> list[float]:
    from forensics.readers import completion_steps, prompt_steps
    from tests.forensics.test_readers_trl import HOSTILE

    return [
        timed(lambda text=text: (completion_steps(text), prompt_steps(text))) for text in HOSTILE
    ]


def _sessions() -> float:
    from tests.forensics.test_readers_atif import nested_runs, parts_of_one_message, runs

    with TemporaryDirectory() as folder:
        session = parts_of_one_message(Path(folder) / "s.jsonl", 20_000)
        nested = nested_runs(Path(folder) / "a.json", 3000)
        return timed(lambda: (runs(session), runs(nested)))


def _help() -> float:
    program = (
        "import time; from forensics.cli import run; run(['--help']); print(time.process_time())"
    )
    told = [
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        ).stdout
        for _ in range(3)
    ]
    return min(float(text.splitlines()[-1]) for text in told)
