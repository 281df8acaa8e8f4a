"""Whole commands by the clock: from the start of the first to the end of the last."""

import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class Took(NamedTuple):
    """Seconds by the clock, and of the processors (of all that was started)."""

    wall: float
    processor: float


def timed(
    commands: Sequence[Sequence[str]],
    cwd: Path,
    outputs: Sequence[Path] = (),
    allowed: Sequence[int] = (0,),
) -> Took:
    """Run the commands at once. `outputs`: where each one's standard output goes. Raises
    `SystemExit` with what a command said, where its exit status is none of `allowed`.
    """
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        errors = [Path(place) / f"errors{number}" for number in range(len(commands))]
        started = [
            _start(command, cwd, outputs[number] if outputs else Path(os.devnull), errors[number])
            for number, command in enumerate(commands)
        ]
        processor = 0.0
        for process, command, said in zip(started, commands, errors, strict=True):
            _, status, usage = os.wait4(process.pid, 0)  # with all that the process waited for
            process.returncode = os.waitstatus_to_exitcode(status)
            processor += usage.ru_utime + usage.ru_stime
            if process.returncode not in allowed:
                text = said.read_text(encoding="utf-8", errors="replace")[-2000:]
                raise SystemExit(f"{' '.join(command[:4])} failed: {text}")
    return Took(time.perf_counter() - start, processor)


def _start(
    command: Sequence[str], cwd: Path, output: Path, errors: Path
) -> "subprocess.Popen[bytes]":
    with output.open("wb") as told, errors.open("wb") as said:
        return subprocess.Popen(command, cwd=cwd, stdout=told, stderr=said)
