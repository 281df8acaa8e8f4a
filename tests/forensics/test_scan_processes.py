"""Scanning on several processes: the same bytes, nothing left running, and one
process where it must be.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest

from forensics.investigation import scan_findings
from forensics.investigation.scan_run import scan
from forensics.study import Folder, hold, let_go

FILES = ("findings.jsonl", "evidence.jsonl", "report.md", "unreadable.jsonl")
COPY = "git show origin/main:a.py"
PARTS = 5


def write_log(path: Path, runs: int, shown: str = "def f():\n    return 41 + 1") -> Path:
    """Runs of a shell agent; every third one reads a later commit and hands it in."""
    lines = []
    for number in range(runs):
        command = COPY if number % 3 == 0 else f"cat file{number}.py"
        texts = (
            f"Fix task {number % 40}. Reply with one ```bash block.",
            f"Look.\n```bash\n{command}\n```",
            f"<returncode>0</returncode>\n{shown} # {number}",
            f"Done.\n```bash\necho {number}\n```",
        )
        roles = ("user", "assistant") * 2
        messages = [{"role": r, "content": t} for r, t in zip(roles, texts, strict=True)]
        row = {"messages": messages, "task_id": f"t{number % 40}", "reward": float(number % 2)}
        lines.append(json.dumps(row))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def many_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small parts, so that a small log has several."""
    monkeypatch.setattr("forensics.investigation.stored_logs.RUNS_AT_ONCE", 12)


@pytest.fixture(params=["copied", "started anew"])
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """How processes are started: beside a second thread, anew (under a test
    runner with threads of its own, always).
    """
    done = Event()
    other = Thread(target=done.wait, daemon=True)
    if request.param == "started anew":
        other.start()
        assert not scan_findings.copies()
    yield request.param
    done.set()
    if request.param == "started anew":
        other.join()


@pytest.mark.usefixtures("many_parts", "way")
def test_every_number_of_processes_gives_the_same_bytes(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.jsonl", 12 * PARTS)
    contents = []
    for processes in (1, 2):
        out = tmp_path / str(processes)
        scan(log, out=out, processes=processes)
        contents.append({name: (out / name).read_bytes() for name in FILES})
    assert contents[0]["findings.jsonl"].count(b"\n") == 20  # each run that read the commit
    assert contents[0] == contents[1]


@pytest.mark.usefixtures("many_parts")
def test_a_process_that_dies_costs_nothing_but_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = write_log(tmp_path / "log.jsonl", 12 * PARTS)
    scan(log, out=tmp_path / "one")
    monkeypatch.setattr(scan_findings, "_started", _dies)
    scan(log, out=tmp_path / "two", processes=2)
    for name in FILES:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


@pytest.mark.skipif(sys.platform != "linux", reason="processes are copied on Linux only")
def test_a_copied_process_does_not_hold_the_case(tmp_path: Path) -> None:
    place = tmp_path / "case"
    ends = os.pipe()
    with hold(Folder(place, "case")):
        copied = os.fork()
        if copied == 0:
            let_go()
            os.write(ends[1], b".")
            time.sleep(3600)
            os._exit(0)
        os.read(ends[0], 1)
    try:
        with hold(Folder(place, "case")):  # the copy, still there, would be "another run"
            pass
    finally:
        os.kill(copied, signal.SIGKILL)
        os.waitpid(copied, 0)
        os.close(ends[0])
        os.close(ends[1])


def _dies(found: object) -> None:
    os._exit(9)


@pytest.mark.skipif(
    sys.platform != "linux" or os.cpu_count() == 1, reason="looks into /proc for two processes"
)
def test_a_killed_scan_leaves_no_process_behind(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.jsonl", 256 * 6, shown="word " * 2000)
    command = [sys.executable, "-m", "forensics", "scan", str(log), "--out", str(tmp_path / "case")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as started:
        workers = _wait_for(lambda: _scanners_below(started.pid))
        started.send_signal(signal.SIGKILL)
    assert workers and _wait_for(lambda: not any(_runs(worker) for worker in workers))


def _scanners_below(parent: int) -> list[tuple[int, str]]:
    """The two processes, each with the moment at which it began: its number may be given anew."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            fields, command = _fields(place), (place / "cmdline").read_bytes()
        except OSError:
            continue
        if int(fields[1]) == parent and b"resource_tracker" not in command:
            found.append((int(place.name), fields[19]))
    return found if len(found) == 2 else []


def _runs(process: tuple[int, str]) -> bool:
    """Whether it still runs: where nobody asks how it ended, what is left of it (Z) stays."""
    try:
        fields = _fields(Path(f"/proc/{process[0]}"))
    except OSError:
        return False
    return fields[19] == process[1] and fields[0] not in "ZX"


def _fields(place: Path) -> list[str]:
    """What the system tells of a process, from its state on."""
    return (place / "stat").read_text().rsplit(")", 1)[1].split()


def _wait_for(look, seconds: float = 600.0):  # type: ignore[no-untyped-def]
    end = time.monotonic() + seconds
    while not (found := look()) and time.monotonic() < end:
        time.sleep(0.05)
    return found
