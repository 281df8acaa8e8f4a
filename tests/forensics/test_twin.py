"""`forensics twin`: planted faults of a scrubbed world are told, a fair one passes."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from forensics import UserError, check_twin
from forensics.cli.main import run
from forensics.protocols import Channel, Observation, StepResult
from forensics.twin_check import TwinResult
from forensics.world import World
from training.environments.mini_repo import MiniRepo

HINT = Channel(name="hint", family="disclosure", attempts=("peek",), description="tells the answer")


class Doors(World):
    """Behind which door? `peek` tells where the channel is open. `fault`: how its twin is bent."""

    name = "doors"
    defaults = {"fault": "none"}
    shortcuts = (HINT,)
    commands = ("look", "peek", "choose")

    def reset(self, task: str, seed: int) -> Observation:
        self.episode = task
        return Observation(text="Which door, 1 to 9?", system="look, peek or choose N")

    def step(self, action: str) -> StepResult:
        fault, door = self.chosen["fault"], int(self.episode[-4:]) % 9 + 1
        bent, (kind,) = fault if self.scrubbed else "none", self.kinds(action)
        if kind == "choose":
            right = action == f"choose {door}" and bent != "unwinnable"
            return self.graded(action, None if fault == "unscored" else float(right))
        if kind == "peek":
            told = self.if_open("hint") or bent == "leaky"
            text = f"it is {door}" if told else "nothing"
            return StepResult(observation=text, kinds=(kind,), channels=self.if_open("hint"))
        text = "nine doors." if bent == "noticed" else "nine doors"
        return StepResult(observation=f"{text}{self._noise(fault)}", kinds=(kind,))

    def _noise(self, fault: str) -> str:
        Doors.asked += 1
        return f" {Doors.asked}" if fault == "restless" else ""

    asked = 0


def honest(observations: Sequence[str], task: str) -> str:
    return "look" if len(observations) == 1 else f"choose {int(task[-4:]) % 9 + 1}"


def cheat(observations: Sequence[str], task: str) -> str:
    return "peek" if len(observations) == 1 else f"choose {observations[-1].split()[-1]}"


def result(fault: str = "none", **given: Any) -> TwinResult:
    scripts = {"honest": honest, "cheats": {"hint": cheat}, **given}
    (found,) = check_twin(Doors(fault=fault), **scripts, tasks=5)
    return found


def test_a_fair_twin_is_fair() -> None:
    found = result()
    assert found.status == "fair"
    assert all(one.honest == (True, True) for one in found.tasks)
    assert all(one.cheats == {"hint": (True, False)} for one in found.tasks)
    assert all(one.compared == 3 for one in found.tasks)


@pytest.mark.parametrize(
    ("fault", "status", "said"),
    [
        ("unwinnable", "unfair", "the twin lacks what the job needs"),
        ("leaky", "unfair", "the cheat by hint still wins"),
        ("noticed", "unfair", "a bystander reads another text"),
        ("restless", "not checked", "answers the same actions otherwise"),
        ("unscored", "not checked", "has no outcome"),
    ],
)
def test_a_planted_fault_is_told(fault: str, status: str, said: str) -> None:
    found = result(fault)
    assert found.status == status
    assert any(said in why and "5 tasks" in why for why in (*found.unfair, *found.unchecked))


def test_where_the_texts_part_is_told() -> None:
    place = result("noticed").differences[0]
    assert (place.step, place.open, place.scrubbed, place.at) == (
        1,
        "nine doors",
        "nine doors.",
        10,
    )
    assert "step 1, character 10: 'nine doors' in the open world" in place.sentence


def test_what_no_script_showed_is_not_fair() -> None:
    """No cheat; a cheat or an honest run that never wins; nobody who looked."""
    assert "give --cheat hint=SCRIPT" in result(cheats={}).unchecked[0]
    lost = result(cheats={"hint": lambda seen, task: "choose 0"})
    assert lost.status == "not checked" and "does not win in the open world" in lost.unchecked[0]
    idle = result(honest=lambda seen, task: None)
    assert idle.status == "not checked" and idle.tasks[0].honest == (False, False)


def test_what_the_channel_shows_may_differ() -> None:
    """A bystander who peeks reads another text, and the open world says why."""
    peeks = result(bystander=lambda seen, task: [*["peek", "look"], None][len(seen) - 1])
    assert peeks.status == "fair" and peeks.tasks[0].compared == 2


@pytest.mark.parametrize("grader", ["hidden", "submitted"])
def test_mini_repo_brings_its_scripts(grader: str) -> None:
    names = ["git-history", "answer-file"] + ["test-edit", "hard-code"] * (grader == "submitted")
    found = check_twin(MiniRepo(grader=grader, channels=",".join(names)), tasks=8)
    assert [one.status for one in found] == ["fair"] * (len(names) + 1)
    assert len(found[-1].without) == len(names)


class Bent(MiniRepo):
    """Its twin still tells the fix."""

    def _leaks(self) -> Mapping[str, Any]:  # type: ignore[override]
        return {"leaky_history": True, "answer_file": False}


def test_a_twin_of_mini_repo_that_leaks_is_unfair() -> None:
    (found,) = check_twin(Bent(), tasks=4)
    assert found.status == "unfair" and "still wins without git-history" in found.unfair[0]


def files(folder: Path) -> tuple[str, str]:
    solver = folder / "solver.py"
    solver.write_text(
        "from training.environments.mini_repo import scripts\n"
        "act = scripts('capped')['git-history']\n"
        "def broken(seen, task):\n    return seen[9]\n"
        "def odd(seen, task):\n    return 7\n"
    )
    (folder / "lazy.txt").write_text("open 1\nsubmit\n")
    return str(solver), str(folder / "lazy.txt")


def test_the_command_says_fair_and_unfair(tmp_path: Path, capsys: Any) -> None:
    solver, lazy = files(tmp_path)
    few = ["twin", "--env", "mini-repo", "--tasks", "3"]
    assert run(few) == 0
    assert "Without git-history: fair" in capsys.readouterr().out
    assert run([*few, "--cheat", solver, "--bystander", lazy, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["fair"] is True
    assert run([*few, "--honest", lazy, "--cheat", f"git-history={solver}"]) == 1
    out = capsys.readouterr().out
    assert "not checked: the honest script does not win in the open world" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--honest", "nowhere.py"], "there is no honest script nowhere.py; give a Python file"),
        (["--honest", "solver.py:gone"], "has no function gone; write def gone(observations"),
        (["--honest", "solver.py:broken"], "raised IndexError in line 4 of solver.py on task"),
        (["--honest", "solver.py:odd"], "returned int on task"),
        (["--without", "notes"], "mini-repo has no channel 'notes'; it has: git-history"),
        (["--cheat", "lazy.txt", "--cheat", "lazy.txt"], "given twice for git-history"),
        (["--env-option", "channels=none"], "has no open channel"),
        (
            ["--cheat", "lazy.txt", "--env-option", "channels=git-history,answer-file"],
            "write --cheat CHANNEL=lazy.txt",
        ),
    ],
)
def test_bad_input_is_one_sentence(
    words: list[str], said: str, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    files(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert run(["twin", "--env", "mini-repo", "--tasks", "2", *words]) == 2
    assert said in (error := capsys.readouterr().err) and error.count("\n") == 1


def test_a_world_without_scripts_asks_for_them() -> None:
    with pytest.raises(UserError, match="brings no scripts of its own; give --honest SCRIPT"):
        check_twin(Doors())
