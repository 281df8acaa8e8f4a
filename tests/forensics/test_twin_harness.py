"""The scrubbed twin of a harness: commands in the agent's place tell a fair one from a bent one."""

from pathlib import Path
from typing import Any

import pytest

from forensics.cli.main import run
from forensics.harness import read_harness
from forensics.twin_harness import check_harness_twin

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
