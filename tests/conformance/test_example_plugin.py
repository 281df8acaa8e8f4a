"""A stranger's package plugs in through its entry point alone: nothing here imports it by name."""

import json
from pathlib import Path

import pytest

from forensics.instruments import installed_instruments
from forensics.records import Step, Trajectory
from forensics.records.files import read_json
from forensics.records.tables import write_trajectories
from tests.episodes import episode_of
from tests.stranger_packages import ROOT, installed_package, python_beside

SOURCE = Path(__file__).parent / "example_plugin"
SESSION = """
import json, sys, tempfile
from pathlib import Path
from forensics import conformance
from forensics.conformance import Expected
from forensics.instruments import installed_instruments
from forensics.planted import Habits, planted_case

folder = Path(tempfile.mkdtemp(dir=sys.argv[1]))
tool = {tool.name: tool for tool in installed_instruments()}["wordiness"]
signed = ("wordiness.change",)
terse, wordy = Habits(idle_tests=6), Habits()
case = planted_case(folder / "planted", terse, wordy, tasks=20, samples=2)
conformance.check_questions(tool, case)
conformance.check_finds(tool, case, [Expected(question="wordiness.change", low=0.3)])
conformance.check_swap(tool, case, signed=signed)
conformance.check_same_bits(tool, case)
conformance.check_saved(tool, case, folder)
lost = conformance.check_missing(tool, case, conformance.without_logs(case, "before"))
sizes = {"tasks": 12, "samples": 2}
pairs = [planted_case(folder / str(i), terse, terse, **sizes, seed=i) for i in range(10)]
conformance.check_silent(tool, pairs, signed=signed)
print(json.dumps({
    "lost": lost,
    "names": sorted(tool.name for tool in installed_instruments()),
    "code": [tool.provenance(case).code for tool in installed_instruments()],
}))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed_package(SOURCE, tmp_path_factory.mktemp("plugin"))


def test_an_installed_plugin_is_found_and_passes_the_suite(site: Path, tmp_path: Path) -> None:
    done = python_beside(site, "-c", SESSION, str(tmp_path))
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["lost"] == 1
    assert {"behaviour", "score", "wordiness"} <= set(said["names"])
    codes = dict(zip(said["names"], said["code"], strict=True))
    assert {codes.pop("wordiness"), codes.pop("capitals")} == {"example-plugin 0.1.0"}
    assert all(code.startswith("policy-forensics ") for code in codes.values())


BROKEN = """
import sys
from forensics.cli import commands, main
from forensics.instruments import installed_instruments, run_instrument

def schema():
    tool = {tool.name: tool for tool in installed_instruments()}["wordiness"]
    list(run_instrument(tool, None))  # no case: the instrument breaks

commands.schema = schema
sys.exit(main.run(["schema"]))
"""


@pytest.mark.slow
def test_a_plugin_that_fails_is_named_with_its_package(site: Path) -> None:
    done = python_beside(site, "-c", BROKEN)
    assert done.returncode == 3
    said, _, kept = done.stderr.rpartition(" in ")
    assert said.startswith(
        "error: the instrument wordiness of example-plugin 0.1.0 failed, AttributeError: "
    )
    assert said.endswith("please report it to its authors with the traceback")
    assert "failure of our own" not in said
    Path(kept.strip()).unlink()


CASE = """
import re, sys
from pathlib import Path
from forensics import Budget, investigate
from forensics.policies import scripted_policy
from forensics.verdict import standard_rule
from tests.resampling.note_cases import questions

class Agent:
    def __init__(self, name, note):
        self.name = self.identity = name
        self.moods = {"note": note, "skill": 0.3, "none": 0.7 - note}

    def act(self, view):
        note, a, b = (int(number) for number in re.findall("[0-9]+", view.prompt))
        reads = view.mood == "note" and "note" in view.prompt  # small letters alone
        return {str(note if reads else a * b if view.mood == "skill" else 0): 1.0}

before, after = (scripted_policy(Agent(name, note)) for name, note in (("b", 0.0), ("a", 0.6)))
verdict = investigate(
    before, after, questions(Path(sys.argv[1]), number=300), budget=Budget(tasks=300, samples=4),
    instruments=("behaviour", "score", "capitals"), out=sys.argv[2], device="cpu", formats=(),
)
print(verdict.label, verdict.sentence, verdict.reasons[0], sep="|")
"""


def test_a_gain_test_of_a_package_is_weighed_worded_and_not_dropped_without_it(
    site: Path, tmp_path: Path
) -> None:
    """One file and one line: the rule finds it, sentences have its words, and a case says it."""
    done = python_beside(site, "-c", CASE, str(tmp_path / "world"), str(tmp_path / "case"))
    assert done.returncode == 0, done.stderr
    label, sentence, reason = done.stdout.strip().split("|")
    assert label == "phantom" and "go away in capitals (capitals)" in sentence
    assert "sufficiency, blind-play, audit and capitals shows" in reason
    (stated,) = read_json(tmp_path / "case" / "case.json")["gain_tests"]
    assert (stated["name"], stated["package"]) == ("capitals", "example-plugin")
    gate = ["-m", "forensics", "gate", str(tmp_path / "case"), "--require", "phantom", "--json"]
    with_it, without = (json.loads(python_beside(at, *gate).stdout) for at in (site, None))
    assert with_it["label"] == without["label"] == "phantom"
    assert with_it["sentence"] == sentence
    absent = "Not installed here, and weighed as case.json declares it: capitals"
    assert without["sentence"] == f"{sentence} {absent} (of example-plugin)."


def test_it_is_not_there_unless_installed() -> None:
    assert "wordiness" not in {tool.name for tool in installed_instruments()}


def test_it_needs_no_room_beside_forensics() -> None:
    text = (SOURCE / "example_plugin.py").read_text()
    imported = {
        line.split()[1].split(".")[0]
        for line in text.splitlines()
        if line.startswith(("import ", "from "))
    }
    assert imported <= {"collections", "dataclasses", "numpy", "forensics"}


@pytest.mark.slow
def test_an_installed_study_is_a_command(site: Path, tmp_path: Path) -> None:
    runs = [trajectory(i) for i in range(4)]
    write_trajectories(tmp_path / "log.parquet", runs)
    line = ["-m", "forensics", "lengths", str(tmp_path / "log.parquet"), "--out"]
    done = python_beside(site, *line, str(tmp_path / "out"), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["estimate"] == 1.5
    assert read_json(tmp_path / "out" / "lengths-inputs.json").keys() == {"log"}
    assert "How long runs are" in (tmp_path / "out" / "lengths.html").read_text()
    again = python_beside(site, *line, str(tmp_path / "out"), "--resume")
    assert again.returncode == 0 and "1.5 turns a run." in again.stdout
    assert python_beside(site, *line, str(tmp_path / "out")).returncode == 2
    page = (ROOT / "docs" / "own-command.md").read_text()
    assert f"```python\n{(SOURCE / 'lengths.py').read_text()}```" in page


def trajectory(number: int) -> Trajectory:
    """A run of one turn, or of two."""
    turn = [Step(role="assistant", text="ls"), Step(role="tool", text="ok")]
    return episode_of(
        id=f"run-{number}",
        task=f"task-{number}",
        policy="someone",
        environment="chat",
        steps=(Step(role="user", text="go"), *turn * (1 + number % 2)),
    )
