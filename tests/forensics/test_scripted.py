"""A scripted policy has exactly the probabilities of its agent, and plays as any policy does."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forensics import Budget, investigate
from forensics.policies import View, load_policy, scripted_policy
from forensics.protocols import Constraint, Policy, SamplingSettings
from forensics.records import Trajectory
from resampling.gain_tests.altered_worlds import AlteredWorld
from tests.resampling.ablation_world import GradingWorld, RepairWorld, body_of

SETTINGS = SamplingSettings()
TASKS = tuple(f"task-{i}" for i in range(400))


@dataclass(frozen=True)
class Repairer:
    """Looks somewhere with these probabilities; hands in what it was shown, else
    is right with the probability `skill`, by a draw of its mood.
    """

    looks: Mapping[str, float]
    skill: float = 0.3
    name: str = "repairer"

    @property
    def identity(self) -> str:
        return f"{self.name} {dict(self.looks)} {self.skill}"

    @property
    def moods(self) -> dict[str, float]:
        return {"able": self.skill, "lost": 1 - self.skill}

    def act(self, view: View) -> dict[str, float]:
        if not view.turns:
            return {**self.looks, "ls": 1 - sum(self.looks.values())}
        if view.read.startswith("answer : "):
            return {f"submit : {view.read.removeprefix('answer : ')}": 1.0}
        task = view.prompt.removeprefix("repair ")
        return {f"submit : {body_of(task) if view.mood == 'able' else 'x'}": 1.0}


AGENT = Repairer({"git log": 0.25, "cat notes": 0.25, "man page": 0.3})


def refuse(*kinds: str, redraws: int = 64) -> Constraint:
    return Constraint(
        name=f"refuse {kinds}",
        allows=lambda text, named: not set(named) & set(kinds),
        max_redraws=redraws,
    )


def played(
    agent: Any = AGENT, constraint: Constraint | None = None, seed: int = 0, world: Any = None
) -> list[Trajectory]:
    policy = scripted_policy(agent)
    return list(policy.play(world or RepairWorld(), TASKS, 4, SETTINGS, seed, constraint))


def mean(runs: list[Trajectory]) -> float:
    return float(np.mean([run.outcome for run in runs]))


def test_scores_are_the_arithmetic_of_the_agent() -> None:
    runs = played()
    assert [run.task for run in runs[::4]] == list(TASKS)
    assert mean(runs) == pytest.approx(0.5 + 0.5 * 0.3, abs=0.04)
    first = [run.steps[1].text for run in runs]
    for look, chance in {**AGENT.looks, "ls": 0.2}.items():
        assert first.count(look) / len(first) == pytest.approx(chance, abs=0.04)
    (run,) = {(r.end, r.submission is None, r.steps[1].kinds[0] in r.steps[1].text) for r in runs}
    assert run == ("terminated", False, True)


def test_what_is_refused_is_drawn_again_from_what_is_left() -> None:
    plain, without = played(), played(constraint=refuse("git log"))
    first = [run.steps[1].text for run in without]
    assert first.count("cat notes") / len(first) == pytest.approx(1 / 3, abs=0.04)
    assert mean(without) == pytest.approx(1 / 3 + 2 / 3 * 0.3, abs=0.04)
    assert sum(run.redraws for run in without) == sum(r.steps[1].text == "git log" for r in plain)
    for old, new in zip(plain, without, strict=True):  # coupled, under another name
        assert old.steps == new.steps or old.steps[1].text == "git log"
        assert old.id != new.id


@pytest.mark.parametrize("redraws", [64, 0])
def test_a_run_that_insists_is_errored_and_has_no_score(redraws: int) -> None:
    looks = {"git log": 1.0} if redraws else AGENT.looks
    runs = played(Repairer(looks), refuse("git log", "cat notes", "ls", redraws=redraws))
    stuck = [run for run in runs if run.end == "errored"]
    assert (len(stuck) == len(runs)) if redraws else 0.6 < len(stuck) / len(runs) < 0.8
    assert {(run.outcome, run.end_reason) for run in stuck} == {
        (None, "every draw was refused by refuse ('git log', 'cat notes', 'ls')")
    }


def test_bad_rollouts_are_data() -> None:
    class Broken(RepairWorld):
        def step(self, action: str) -> Any:
            if action.startswith("submit"):
                raise RuntimeError("no grader")
            return super().step(action)

        def spawn(self) -> "Broken":
            return Broken()

    ends = {(run.end, run.end_reason, run.outcome) for run in played(world=Broken())}
    assert ends == {("errored", "the environment raised RuntimeError: no grader", None)}

    class Speechless(RepairWorld):
        def kinds(self, action: str) -> tuple[str, ...]:
            raise ValueError("no kinds")

        def spawn(self) -> "Speechless":
            return Speechless()

    assert {run.end_reason for run in played(world=Speechless())} == {
        "the environment raised ValueError: no kinds"
    }

    class Lost(Repairer):
        def act(self, view: View) -> Any:
            raise KeyError("an agent's own mistake is loud")

    with pytest.raises(KeyError):
        played(Lost({"git log": 1.0}))
    altered = AlteredWorld(
        RepairWorld(), "nothing changed"
    )  # where texts are nobody's that it knows
    ends = {(run.end, run.end_reason, run.outcome) for run in played(Lost({}), world=altered)}
    told = 'the agent raised KeyError: "an agent\'s own mistake is loud"'
    assert ends == {("truncated", told, 0.0)}

    class Endless(Repairer):
        def act(self, view: View) -> dict[str, float]:
            return {"ls": 1.0}

    ends = {(run.end, run.end_reason, run.outcome) for run in played(Endless({}))}
    assert ends == {("truncated", "token limit", 0.0)}


NAMED: Policy = scripted_policy(AGENT)


def test_investigate_takes_it(tmp_path: Path) -> None:
    before = load_policy(f"{__name__}:NAMED", backend="constructed")
    after = scripted_policy(Repairer(AGENT.looks, skill=0.9))
    found = [
        investigate(
            before,
            after,
            GradingWorld(needed=("submit", "ls", *AGENT.looks)),
            budget=Budget(tasks=60, samples=4),
            accept=("scrubbing",),
            instruments=("score", "behaviour", "ablation", "kl"),
            out=tmp_path / name,
            formats=(),
        )
        for name in ("once", "again")
    ]
    assert found[0] == found[1]
    assert found[0].gain is not None
    assert found[0].gain.estimate == pytest.approx(0.5 * 0.6, abs=0.1)
    once, again = ((tmp_path / name / "evidence.jsonl").read_bytes() for name in ("once", "again"))
    assert once == again
