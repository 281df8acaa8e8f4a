"""A long run goes on where it was killed, with the same code alone, one at a time."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from experiments import resumable
from experiments.resumable import code_key, kept, run
from forensics import UserError

TODO = {f"case {number}": number for number in range(6)}


def square(number: int) -> dict[str, Any]:
    return {"square": number**2, "process": os.getpid()}


def again(number: int) -> dict[str, Any]:
    raise AssertionError(f"{number} is done twice")


def slow(number: int) -> dict[str, Any]:
    time.sleep(0.2)
    return square(number)


def test_two_processes_do_every_case_once_and_in_order(tmp_path: Path) -> None:
    found = run(TODO, square, tmp_path, code="one", processes=2)
    assert list(found) == list(TODO)
    assert [row["square"] for row in found.values()] == [0, 1, 4, 9, 16, 25]
    assert run(TODO, again, tmp_path, code="one") == found


def test_a_line_that_was_cut_off_is_done_again(tmp_path: Path) -> None:
    run(dict(list(TODO.items())[:2]), square, tmp_path, code="one")
    file = tmp_path / "cases.jsonl"
    whole = file.read_text()
    file.write_text(whole + '["case 2",{"squ')
    assert sorted(kept(file)) == ["case 0", "case 1"] and file.read_text() == whole
    assert len(run(TODO, square, tmp_path, code="one")) == 6


def test_no_time_no_case(tmp_path: Path) -> None:
    assert run(TODO, again, tmp_path, code="one", minutes=0) == {}


def test_other_code_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(TODO, square, tmp_path, code="one")
    with pytest.raises(UserError, match="other code"):
        run(TODO, square, tmp_path, code="two")
    monkeypatch.setattr(resumable, "ROOT", tmp_path)
    source = tmp_path / "forensics" / "rule.py"
    source.parent.mkdir()
    source.write_text("BAR = 0.2\n")
    before = code_key()
    assert before == code_key()
    source.write_text("BAR = 0.3\n")
    assert code_key() != before
    (tmp_path / "beside.py").write_text("")
    assert code_key("beside.py") != code_key()


def test_one_run_at_a_time(tmp_path: Path) -> None:
    with open(tmp_path / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="another run"):
            run(TODO, square, tmp_path, code="one")


def test_a_killed_run_leaves_whole_lines_and_no_process(tmp_path: Path) -> None:
    """`kill -9`, then the rest."""
    program = (
        "from pathlib import Path; from tests.experiments.test_resumable import *;"
        f"run({{str(n): n for n in range(99)}}, slow, Path({str(tmp_path)!r}), code='one',"
        " processes=2)"
    )
    child = subprocess.Popen([sys.executable, "-c", program], cwd=resumable.ROOT)
    file = tmp_path / "cases.jsonl"
    deadline = time.monotonic() + 60
    while not (file.exists() and file.read_text().count("\n") >= 2):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    child.send_signal(signal.SIGKILL)
    child.wait()
    workers = {row["process"] for row in kept(file).values()}
    while any(Path(f"/proc/{one}").exists() for one in workers):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    done = kept(file)
    assert len(done) < 99
    assert run(dict.fromkeys(sorted(done), 0), again, tmp_path, code="one") == done
