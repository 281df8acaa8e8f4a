"""The scrubbed twin of a harness: commands in the agent's place tell a fair one from a bent one."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forensics.cli.main import run
from forensics.harness import read_harness
from forensics.harness.commanded import MARK
from forensics.twin_check import check_harness_twin
from tests.forensics.test_agent import assert_gone

SCRIPT = """
import json, sys
role, task, out, without, fault = sys.argv[1:6]
shown = without == "" or fault == "leaky"
won = {"honest": not (without and fault == "unwinnable"), "cheat": shown, "look": False}[role]
if role == "look":
    assert fault != "blind", "nothing to see"
    text = f"nine files beside {out}" + ("." if without and fault == "noticed" else "")
    open(out + "/seen.txt", "w").write(text)
if not (fault == "crashes" and role == "honest"):
    json.dump({"outcome": float(won)}, open(out + "/result.json", "w"))
"""
HARNESS = """
name = "files"
command = ["{python}", "agent.py", "{without}"]
tasks = "tasks.jsonl"
honest = ["{python}", "script.py", "honest", "{task}", "{out}", "{without}", "FAULT"]
bystander = ["{python}", "script.py", "look", "{task}", "{out}", "{without}", "FAULT"]
[[channels]]
name = "history"
cheat = ["{python}", "script.py", "cheat", "{task}", "{out}", "{without}", "FAULT"]
"""


def written(folder: Path, fault: str = "none", *left_out: str) -> Path:
    (folder / "script.py").write_text(SCRIPT)
    (folder / "tasks.jsonl").write_text('{"id": "one"}\n{"id": "two"}\n')
    lines = HARNESS.replace("FAULT", fault).split("\n")
    path = folder / "harness.toml"
    path.write_text("\n".join(one for one in lines if not one.startswith(left_out or "#")))
    return path


@pytest.mark.parametrize(
    ("fault", "status", "said"),
    [
        ("none", "fair", ""),
        ("leaky", "unfair", "the cheat by history still wins"),
        ("unwinnable", "unfair", "the twin lacks what the job needs"),
        ("noticed", "unfair", "a bystander reads another text"),
        ("crashes", "not checked", "a run of the honest script has no outcome"),
        ("crashes", "not checked", "the honest command failed on two: "),
        ("blind", "not checked", "the bystander command failed on two: the command ended with"),
    ],
)
def test_a_twin_of_a_harness(fault: str, status: str, said: str, tmp_path: Path) -> None:
    (found,) = check_harness_twin(written(tmp_path, fault), tasks=1)
    assert found.status == status and said in "".join((*found.unfair, *found.unchecked))
    if fault == "blind":
        assert "nothing to see" in found.unchecked[-1]


LEAVES = """
import subprocess, time
stays = "env > made.$$; mv made.$$ environ.$$; exec sleep 60"
child = subprocess.Popen(["sh", "-c", stays], start_new_session=True, cwd=sys.path[0])
while not glob.glob(sys.path[0] + f"/environ.{child.pid}"):
    time.sleep(0.02)
if role == "look":
    open(out + "/seen.txt", "a").write("".join(map(str, sorted(os.environ.items()))))
"""


@pytest.fixture
def bystanders() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes of the same user that no command of ours started."""
    variables = [{"A": "none"}, {"A": ""}, {MARK: "none"}, {MARK: ""}, {MARK: "sk-of-another-run"}]
    alive = [
        subprocess.Popen(["sleep", "60"], env={**os.environ, **one}, start_new_session=True)
        for one in variables
    ]
    yield alive
    for one in alive:
        one.kill()
        one.wait()


def test_only_what_was_started_here_is_stopped(
    bystanders: list[subprocess.Popen[bytes]], tmp_path: Path, capsys: Any
) -> None:
    """Two commands at a time, each of which leaves something behind in a session of its own."""
    path = written(tmp_path)
    path.write_text(path.read_text().replace("tasks =", "at_once = 2\ntasks =", 1))
    (tmp_path / "script.py").write_text("import glob, os\n" + SCRIPT + LEAVES)
    assert run(["twin", "--harness", str(path), "--tasks", "2"]) == 0, capsys.readouterr().out
    assert [one.poll() for one in bystanders] == [None] * len(bystanders)
    left = [place.name.rpartition(".")[2] for place in tmp_path.glob("environ.*")]
    assert len(left) == 14  # honest and cheat twice, the bystander thrice, on two tasks
    for one in left:
        assert_gone(int(one))
    marks = {
        line
        for place in tmp_path.glob("environ.*")
        for line in place.read_text().split("\n")
        if line.startswith(f"{MARK}=")
    }
    assert len(marks) == 14


def test_the_command_and_what_is_left_out(tmp_path: Path, capsys: Any) -> None:
    whole = written(tmp_path)
    identity = read_harness(whole).identity
    assert run(["twin", "--harness", str(whole), "--tasks", "1"]) == 0
    assert "wins / loses" in capsys.readouterr().out
    bare = written(tmp_path, "none", "cheat", "bystander")
    assert read_harness(bare).identity == identity  # scripts are no part of the world
    assert run(["twin", "--harness", str(bare), "--tasks", "1"]) == 1
    assert 'give cheat = ["COMMAND", ...]' in capsys.readouterr().out
    none = written(tmp_path, "none", "honest")
    for words, told in (
        (["--harness", str(none)], "names no honest command"),
        (["--harness", str(whole), "--honest", "x.py"], "or --harness FILE"),
        ([], "give --env NAME with scripts"),
    ):
        assert run(["twin", *words]) == 2
        assert told in capsys.readouterr().err
