"""Whatever a test opens it closes, and the one that did not is the one that fails."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = {
    "test_a.py": """
import json, socket, subprocess, sys, threading
import pytest

def knotted(what):  # only the collector frees it
    knot = [what]
    knot.append(knot)

@pytest.fixture(scope="module")
def served():
    knot = [socket.socket()]
    knot.append(knot)
    yield

def test_socket_closed():
    with socket.socket() as one:
        knotted(one)

def test_socket():
    socket.socket()

def test_socket_in_a_knot():
    knotted(socket.socket())

def test_end_of_the_recursion():
    with pytest.raises(RecursionError):
        json.loads("[" * 100_000)

@pytest.mark.filterwarnings("ignore")
def test_file_where_warnings_are_ignored():
    knotted(open(__file__))

def test_child():
    knotted(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))

def test_thread_that_failed():
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()

def test_before_the_last(served):
    pass

def test_last_of_the_file(served):
    pass
""",
    "test_b.py": """
import threading, time
import tests.conftest

tests.conftest.SOON = 0.1

def test_thread_that_stays():
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
""",
    "test_c.py": "def test_last_file(): pass\n",
}
LEFT = {
    "test_socket", "test_socket_in_a_knot", "test_file_where_warnings_are_ignored", "test_child",
    "test_thread_that_failed", "test_last_of_the_file", "test_thread_that_stays",
}  # fmt: skip


def test_the_test_that_leaves_something_open_fails_and_no_other(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    words = ["-c", str(ROOT / "pyproject.toml"), "-p", "tests.conftest", "-p", "no:cacheprovider"]
    words += [
        "-rA",
        "--tb=no",
        "--basetemp",
        str(tmp_path / "kept"),
        *sorted(map(str, tmp_path.glob("*.py"))),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words], cwd=ROOT, capture_output=True, text=True
    )
    told = re.findall(r"^(PASSED|FAILED|ERROR) .*::(test_\w+)", done.stdout, re.MULTILINE)
    assert {name for state, name in told if state != "PASSED"} == LEFT, done.stdout
    assert len({name for _, name in told}) == 11
