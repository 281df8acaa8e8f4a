"""`forensics scan` against `inspect_scout`'s `grep_scanner` over the same
`.eval` files, whole processes side by side.

Ours does the whole chain: reading, the chain of evidence of the families,
behaviour, verdict and report, on two processes. The peer greps, on two, with ordinary
patterns: the words of the labelled example in its own documentation (`scan_peer`). Each
side starts anew for every repeat, in turn; time runs from start to exit. On a busy machine
the seconds of the processors (of all of a side's processes) say more.

The peer needs a virtual environment of its own (`PEER`).
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.apart import spread
from benchmarks.scan_logs import write_logs

LIMIT = 5.0  # times the speed of the peer with ordinary patterns; 10 is the aim
MOST_MIB = 1024
PEER = "FORENSICS_SCOUT_PYTHON"
MISSING = (
    f"The peer is missing: `python -m venv scout && scout/bin/pip install inspect_scout`, then set "
    f"{PEER}=scout/bin/python."
)


GREP = "grep_scanner"


class Took(NamedTuple):
    """One process with all that it started. `peak_mib`: of the largest one of them."""

    wall: float
    processor: float
    peak_mib: float


def run(device: str = "cpu", repeats: int = 3, samples: int = 500) -> dict[str, Any]:
    """Ratios, repeat by repeat, of wall time and of processor time."""
    peer = os.environ.get(PEER)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        size = write_logs(place / "logs", samples)
        found = [_sides(place, peer, samples, number) for number in range(repeats)]
    row: dict[str, Any] = {
        "benchmark": f"the whole scan of {samples} samples in .eval files, {size / 1e6:.1f} MB",
        "limits": {"speed": LIMIT, "peak_mib": MOST_MIB},
        "trajectories_per_second": {
            side: spread([samples / sides[side].wall for sides in found]) for side in found[0]
        },
        "processor_seconds": {
            side: spread([sides[side].processor for sides in found]) for side in found[0]
        },
        "peak_mib_of_one_process": spread([sides["ours"].peak_mib for sides in found]),
        "device": device,
    }
    if peer is None:
        return {**row, "missing": MISSING}
    return {
        **row,
        "speed": spread([sides[GREP].wall / sides["ours"].wall for sides in found]),
        "speed, by processor time": spread(
            [sides[GREP].processor / sides["ours"].processor for sides in found]
        ),
    }


def _sides(place: Path, peer: str | None, samples: int, number: int) -> dict[str, Took]:
    case, logs = place / f"case{number}", str(place / "logs")
    scan = [sys.executable, "-m", "forensics", "scan", logs, "--out", str(case), "--json"]
    sides = {"ours": _timed(scan)}
    content = json.loads((case / "case.json").read_text(encoding="utf-8"))
    told = content["provenance"]["logs"]["after-0"]
    assert (told["runs"], told["unreadable"]) == (samples, 0), told
    if peer is not None:
        script = str(Path(__file__).with_name("scan_peer.py"))
        sides[GREP] = _timed([peer, script, logs, str(place / f"peer{number}"), "2"])
    return sides


def _timed(command: list[str]) -> Took:
    """Raises `SystemExit` with what the process said, where it fails."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=output, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)  # with all that the process waited for
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        if process.returncode != 0:
            raise SystemExit(
                f"{command[0]} failed: {errors.read().decode(errors='replace')[-2000:]}"
            )
    return Took(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
