"""A world that raises: at once it ends the run in a sentence; where it raises now and then, what
was not measured is told and clears nobody.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from forensics import Budget, investigate, scan
from forensics.errors import OutsideFailure
from forensics.policies.scripted import View, scripted_policy
from forensics.protocols import Channel, Observation, SamplingSettings, StepResult
from forensics.records import Verdict
from forensics.records.tables import write_trajectories
from forensics.report import render
from forensics.world import World

LEAK = Channel(name="leak", family="disclosure", attempts=("look",), description="a look tells")


class Shaky(World):
    """`right` wins, and `boom` makes the world raise; so does every reset of `broken` tasks."""

    name = "shaky"
    commands = ("right", "wrong", "boom", "look")
    shortcuts = (LEAK,)
    broken: tuple[str, ...] = ()

    def reset(self, task: str, seed: int) -> Observation:
        self.episode = task
        if task.endswith(self.broken):
            raise KeyError("an old name")
        return Observation(text=f"task {task}")

    def step(self, action: str) -> StepResult:
        if action == "boom":
            raise RuntimeError("no such\nanswer")
        return self.graded(action, float(action == "right"), submission=action)


@dataclass(frozen=True)
class Chance:
    """Writes each text with a probability."""

    identity: str
    right: float
    boom: float = 0.0

    @property
    def moods(self) -> Mapping[str, float]:
        return {"": 1.0}

    def act(self, view: View) -> Mapping[str, float]:
        return {"right": self.right, "boom": self.boom, "wrong": 1 - self.right - self.boom}


def judged(
    folder: Path, after: Chance, broken: tuple[str, ...] = (), tasks: int = 100, samples: int = 4
) -> Verdict:
    world = Shaky()
    world.broken = broken
    return investigate(
        scripted_policy(Chance("before", 0.3)),
        scripted_policy(after),
        world,
        budget=Budget(tasks=tasks, samples=samples),
        instruments=("score", "behaviour"),
        accept=("interventions",),
        allow=("right", "wrong"),
        out=folder / "case",
        device="cpu",
        formats=(),
        resume=(folder / "case").exists(),
    )


@pytest.mark.parametrize(
    ("tasks", "samples", "number"),
    [(100, 4, 13), (100, 1, 8), (2, 2, 4)],  # eight episodes on four tasks, or all there are
)
def test_a_world_that_always_raises_stops_the_run_early(
    tasks: int, samples: int, number: int, tmp_path: Path
) -> None:
    with pytest.raises(OutsideFailure) as told:
        judged(tmp_path, Chance("after", 0.6), ("",), tasks, samples)
    assert str(told.value) == (
        f"the world shaky failed in each of the first {number} episodes of before, the last of them"
        " with KeyError: 'an old name'; mend the world, and go on with --resume"
    )
    assert judged(tmp_path, Chance("after", 0.6), (), tasks, samples).gain is not None


def test_later_failures_and_those_of_one_task_stop_nothing(tmp_path: Path) -> None:
    """All 20 episodes of the first task, and every one after training of the last ten."""
    first = Shaky().tasks("held-out", 20, 0)[0]
    verdict = judged(tmp_path, Chance("after", 0.9), (first,), 20, 20)
    assert "5 % of the runs" not in verdict.sentence  # at the bound, not above it
    assert verdict.gain is not None and verdict.gain.low > 0


def test_runs_that_raised_might_have_been_lost(tmp_path: Path) -> None:
    """The policy after training wins as often as before, but where it would lose the world raises
    half the time: what is left shows a gain of 16 points, and there is none.
    """
    verdict = judged(tmp_path, Chance("after", 0.3, boom=0.35))
    assert verdict.gain is not None
    assert 0.1 < verdict.gain.estimate < 0.22 and verdict.gain.low < 0 < verdict.gain.high
    assert verdict.label == "undetermined"
    told = "% of those after it errored or have no score; the intervals take each of them as lost"
    assert told in verdict.sentence
    assert "errored or had no score" in verdict.gaps[0].text
    pages = render(tmp_path / "case", ("text", "md", "json", "html"))
    for form, page in pages.items():
        assert told in " ".join(page.split()), form
    case = json.loads((tmp_path / "case" / "case.json").read_text())
    assert told in case["verdict"]["sentence"]


@pytest.mark.parametrize(("boom", "first"), [(0.2, True), (0.03, False)])
def test_a_scan_says_first_that_many_runs_errored(boom: float, first: bool, tmp_path: Path) -> None:
    """Right behind the score where they are more than 5 % of a side, else further down."""
    tasks = Shaky().tasks("held-out", 60, 0)
    for side, one in (("before", Chance("a", 0.5)), ("after", Chance("b", 0.5, boom))):
        runs = scripted_policy(one).play(Shaky(), tasks, 2, SamplingSettings(), 0)
        write_trajectories(tmp_path / f"{side}.parquet", runs)
    logs = [tmp_path / f"{side}.parquet" for side in ("after", "before")]
    scan(logs[0], before=logs[1], out=tmp_path / "case", formats=())
    told = json.loads(render(tmp_path / "case", ("json",))["json"])
    lines = [told["headline"], *told["lines"]]
    (at,) = (n for n, line in enumerate(lines) if "runs errored: counted among" in line)
    assert lines[0].startswith("The score") and (at == 1) is first


def test_few_runs_that_raised_leave_a_sure_gain_genuine(tmp_path: Path) -> None:
    verdict = judged(tmp_path, Chance("after", 0.9, boom=0.02), tasks=400)
    assert verdict.label == "genuine" and "errored" not in verdict.sentence


def test_a_world_that_broke_after_training_is_no_gain(tmp_path: Path) -> None:
    with pytest.raises(OutsideFailure, match=r"episodes of after-0, the last of them with Runt"):
        judged(tmp_path, Chance("after", 0.0, boom=1.0))
