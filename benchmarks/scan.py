"""`forensics scan` against `inspect_scout`'s `grep_scanner` over the same
`.eval` files, whole processes side by side.

Ours does the whole chain: reading, the chain of evidence of the families,
behaviour, verdict and report, on two processes. The peer greps, with two sets of
patterns: *ordinary* ones, the words of the labelled example in its own
documentation (`scan_peer`), and *ours*, each attempt pattern of our families as one
regular expression, labelled by family. The speed is told against the ordinary ones; the
ratio for ours stands beside it. Each side starts anew for every repeat, in turn; time
runs from start to exit. On a busy machine the seconds of the processors (of all of a
side's processes) say more. `--peer-processes 1 2` tries both, and the faster one counts.

The peer needs a virtual environment of its own (`PEER`). `--logs FOLDER` takes
real logs, copied up to `--samples`.
"""

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.scan_logs import write_logs
from benchmarks.spread import spread
from forensics.shortcuts import Pattern, families

LIMIT = 5.0  # times the speed of the peer with ordinary patterns; 10 is the aim
MOST_MIB = 1024
PEER = "FORENSICS_SCOUT_PYTHON"
MISSING = (
    f"The peer is missing: `python -m venv scout && scout/bin/pip install inspect_scout`, then set "
    f"{PEER}=scout/bin/python."
)
KINDS = ("ordinary patterns", "our patterns")
GAP = r"[^\n]{0,200}?"


class Took(NamedTuple):
    """One process with all that it started. `peak_mib`: of the largest one of them."""

    wall: float
    processor: float
    peak_mib: float


def run(
    device: str = "cpu",
    repeats: int = 3,
    samples: int = 500,
    logs: Path | None = None,
    processes: Sequence[int] = (2,),
) -> dict[str, Any]:
    """Ratios, repeat by repeat, of wall time and of processor time."""
    peer = os.environ.get(PEER)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        size = write_logs(place / "logs", samples, logs)
        (place / "patterns.json").write_text(json.dumps(patterns()), encoding="utf-8")
        found = [_sides(place, peer, samples, number, processes) for number in range(repeats)]
    ours = [sides["ours"] for sides in found]
    row: dict[str, Any] = {
        "benchmark": f"the whole scan of {samples} samples in .eval files, {size / 1e6:.1f} MB",
        "limits": {"speed": LIMIT, "peak_mib": MOST_MIB},
        "trajectories_per_second": {
            side: spread([samples / sides[side].wall for sides in found]) for side in found[0]
        },
        "megabytes_per_second": {
            side: spread([size / 1e6 / sides[side].wall for sides in found]) for side in found[0]
        },
        "processor_seconds": {
            side: spread([sides[side].processor for sides in found]) for side in found[0]
        },
        "peak_mib_of_one_process": spread([took.peak_mib for took in ours]),
        "device": device,
    }
    if peer is None:
        return {**row, "missing": MISSING}
    for kind in KINDS:
        name = "speed" if kind == KINDS[0] else f"speed, {kind}"
        row[name] = spread([_ratio(sides, kind, "wall") for sides in found])
        row[f"{name}, by processor time"] = spread(
            [_ratio(sides, kind, "processor") for sides in found]
        )
    return row


def patterns() -> dict[str, list[str]]:
    """Each attempt pattern as one regular expression, by family; those of our
    small worlds left out.

    So are those that no text tells (an action of a kind): as an expression they
    would match everywhere.
    """
    made = {
        family.id: [text for pattern in family.attempt if (text := _expression(pattern))]
        for family in families()
    }
    return {name: listed for name, listed in made.items() if listed}


def _expression(pattern: Pattern) -> str:
    """The program as a word, then on the same line what its arguments, files and text must hold."""
    wanted = (
        pattern.first,
        *pattern.arguments,
        pattern.reads,
        pattern.writes,
        pattern.wrote,
        pattern.text,
    )
    parts = [rf"\b(?:{pattern.program})\b"] if pattern.program else []
    return GAP.join([*parts, *(_group(text) for text in wanted if text)])


def _group(text: str) -> str:
    """What must be found; the ends of a path or a word of ours are ends of words in a text."""
    text = text.replace("(?:^|/)", r"(?:^|[\s/])").replace("$", r"\b")
    flags = re.match(r"\(\?([a-z]+)\)(?:\\A)?", text)  # of the whole pattern
    return f"(?{flags[1]}:{text[flags.end() :]})" if flags else f"(?:{text})"


def _sides(
    place: Path, peer: str | None, samples: int, number: int, peer_processes: Sequence[int]
) -> dict[str, Took]:
    case = place / f"case{number}"
    command = [
        sys.executable,
        "-m",
        "forensics",
        "scan",
        str(place / "logs"),
        "--out",
        str(case),
        "--json",
    ]
    sides = {"ours": _timed(command)}
    told = json.loads((case / "case.json").read_text(encoding="utf-8"))["provenance"]["logs"][
        "after-0"
    ]
    assert (told["runs"], told["unreadable"]) == (samples, 0), told
    for processes in peer_processes if peer is not None else ():
        script = Path(__file__).with_name("scan_peer.py")
        for kind in KINDS:
            patterns = "ordinary" if kind == KINDS[0] else str(place / "patterns.json")
            results = place / f"peer{number}-{processes}-{kind.split()[0]}"
            command = [str(peer), str(script), str(place / "logs"), patterns]
            sides[f"grep_scanner, {kind}, {processes} processes"] = _timed(
                [*command, str(results), str(processes)]
            )
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
    return Took(wall, usage.ru_utime + usage.ru_stime, _mib(usage))


def _mib(usage: resource.struct_rusage) -> float:
    return usage.ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def _ratio(sides: dict[str, Took], kind: str, clock: str) -> float:
    """How many times the time of ours the peer takes with patterns of a kind."""
    return float(
        min(getattr(took, clock) for side, took in sides.items() if kind in side)
        / getattr(sides["ours"], clock)
    )


def main() -> None:
    """`python -m benchmarks.scan [--logs FOLDER] [--samples N] [--repeats N]
    [--peer-processes N]`.
    """
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--logs", type=Path, help="real logs of any known format")
    parser.add_argument("--samples", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peer-processes", type=int, nargs="+", default=[2])
    asked = parser.parse_args()
    found = run(
        repeats=asked.repeats,
        samples=asked.samples,
        logs=asked.logs,
        processes=asked.peer_processes,
    )
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
