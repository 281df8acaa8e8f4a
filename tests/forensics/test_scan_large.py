"""A line of 100 MB in a log does no harm, and memory stays bounded."""

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

LONG = 100_000_000  # bytes of one line; a reader takes lines up to 64 MB
MOST_MIB = 600
MESSAGES = [{"role": "user", "content": "What is 2 + 2?"}, {"role": "assistant", "content": "4"}]


def chat(text: str) -> dict[str, Any]:
    return {
        "messages": [*MESSAGES, {"role": "user", "content": text}],
        "task_id": "t",
        "reward": 1.0,
    }


def write_lines(path: Path) -> Path:
    """A good row, one of 100 MB, and another good one; the long one is a hole
    in the file, which reads as zeros.
    """
    front, behind = json.dumps(chat("@")).encode().split(b"@")
    with path.open("wb") as file:
        file.write(json.dumps(chat("4")).encode() + b"\n" + front)
        file.seek(LONG, 1)
        file.write(behind + b"\n" + json.dumps(chat("5")).encode() + b"\n")
    return path


def scanned(log: Path, case: Path) -> tuple[dict[str, Any], float]:
    """`forensics scan` in a process of its own: what `case.json` says of the
    logs, and its peak of memory in MiB.
    """
    script = (
        "import resource, subprocess, sys\n"
        "code = subprocess.run([sys.executable, '-m', 'forensics', 'scan',"
        " *sys.argv[1:]]).returncode\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
        "sys.exit(code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(log), "--out", str(case)],
        capture_output=True,
        text=True,
        check=True,
    )
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    logs: dict[str, Any] = json.loads((case / "case.json").read_text())["provenance"]["logs"][
        "after-0"
    ]
    return logs, int(done.stdout.splitlines()[-1]) / unit


@pytest.mark.skipif(
    not hasattr(resource, "RUSAGE_CHILDREN"), reason="measures memory as POSIX tells it"
)
def test_a_scan_of_it_counts_the_line_and_holds_little(tmp_path: Path) -> None:
    logs, peak = scanned(write_lines(tmp_path / "log.jsonl"), tmp_path / "case")
    looks = logs.pop("looks")
    (told,) = (tmp_path / "case" / "unreadable.jsonl").read_text().splitlines()
    told = json.loads(told)
    where, reason = "log.jsonl, line 2", "the line is longer than 64 MB and was left out"
    assert (told["where"], told["reason"]) == (where, reason)
    assert logs.pop("integrity") == {}
    assert logs.pop("read_by") == {"chat": 1}
    assert logs == {"runs": 2, "scored": 2, "unreadable": 1, "no_logs": 0, "scrubbed_left_out": 0}
    assert looks["runs_not_looked_at"] == 0
    assert peak < MOST_MIB
