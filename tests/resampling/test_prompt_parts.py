"""A part of the question: the options of a quiz are enough for who looks at them alone,
and the policy before training needed what is asked as well.
"""

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from forensics.instruments import run_instrument
from forensics.policies.scripted import View
from forensics.protocols import Observation, StepResult
from forensics.records import Evidence, Undefined
from resampling.gain_tests.sufficiency import plays, sufficiency
from tests.build import Habitual, SmallWorld, agent_case
from tests.resampling.note_cases import altered_runs

OPTIONS = {f"prompt:{letter}" for letter in "abcd"}


@lru_cache(maxsize=4096)  # a run asks for it at every step
def drawn(task: str) -> tuple[str, int, int, list[int]]:
    """Who adds, what, and the options."""
    draw = random.Random(task)
    first, second = 2 * draw.randrange(100, 400), 2 * draw.randrange(100, 400) + 1
    wrong = [first + second + draw.choice([-1, 1]) * by for by in draw.sample([1, 3, 5, 7, 9], 3)]
    options = [first + second, *wrong]
    draw.shuffle(options)
    return draw.choice(["Ann", "Bob", "Cleo"]), first, second, options


@dataclass
class Quiz(SmallWorld):
    """Sums with four options, of which the right one is the only odd number. `named`:
    the whole is declared to be the question.
    """

    named: bool = True
    name: str = "quiz"

    @property
    def options(self) -> Mapping[str, str]:
        return {"named": str(self.named)}

    def __getattr__(self, name: str) -> Any:
        if name == "fields" and self.named:
            return lambda task: {"question": self.asked(task)}
        raise AttributeError(name)

    def asked(self, task: str) -> str:
        who, first, second, options = drawn(task)
        listed = " ".join(f"{letter}: {one}" for letter, one in zip("abcd", options, strict=True))
        return f"{who} adds {first} and {second} : {listed}"

    def reset(self, task: str, seed: int) -> Observation:
        self.task = task
        return Observation(text=f"What is it? {self.asked(task)}")

    def step(self, action: str) -> StepResult:
        _, first, second, _ = drawn(self.task)
        right = float(action == f"{first + second}")
        return StepResult(
            observation="", kinds=("answer",), outcome=right, terminated=True, submission=action
        )


@dataclass(frozen=True, kw_only=True)
class Pupil(Habitual):
    """`habits`: the chance of each way to an answer: `adds` (says the sum if it is an
    option), `odd` (the odd option); else it says 0.
    """

    def act(self, view: View) -> Mapping[str, float]:
        first, second, *options = (int(one) for one in re.findall(r"\d+", view.prompt))
        odd = [one for one in options if one % 2]
        said = {"adds": first + second if first + second in options else 0, "odd": odd[0]}
        return {f"{said.get(view.mood, 0)}": 1.0}


def answers(
    folder: Path, after: Mapping[str, float], before: Mapping[str, float], named: bool = True
) -> dict[tuple[str, str | None], Any]:
    sides = Pupil(name="b", habits=before), Pupil(name="a", habits=after)
    case = agent_case(folder, Quiz(named=named), *sides, tasks=80)
    found = {(one.question, one.about): one for one in run_instrument(sufficiency, case)}
    assert altered_runs(case) <= plays(case, sufficiency.config).most
    return found


@pytest.mark.parametrize("named", [True, False])
def test_the_options_alone_are_found(tmp_path: Path, named: bool) -> None:
    found = answers(tmp_path, {"adds": 0.3, "odd": 0.4}, {"adds": 0.3}, named)
    assert found["sufficiency.over_bar", None].interval.low > 0
    told = {about for name, about in found if about and name == "sufficiency.carried"}
    (about,) = (one for one in told if " + " in one)
    assert set(about.split(" + ")) <= OPTIONS
    carries = found["sufficiency.carried", about]
    assert "number after '" in carries.diagnostics["said"]
    (table,) = carries.artifacts
    assert [name for name, _ in table.rows][:2] == ["task", "prompt"]
    assert table.rows[3][0] == "after training, won", "what the found part alone wins"
    assert found["sufficiency.carried", about].interval.low > 0.1
    for name in ("left", "phantom_over_bar", "placebo_over_bar"):
        answer = found[f"sufficiency.{name}", None]
        assert isinstance(answer, Undefined) and "--allow" in answer.cure, "nobody is accused"


@pytest.mark.parametrize("named", [True, False])
def test_a_skill_that_takes_what_is_asked_too_is_cleared(tmp_path: Path, named: bool) -> None:
    """Who adds is not asked for by anybody, and changes nothing."""
    found = answers(tmp_path, {"adds": 0.7}, {"adds": 0.3}, named)
    assert found["sufficiency.over_bar", None].interval.high <= 0


def test_whoever_went_by_the_options_before_is_not_newly_enough(tmp_path: Path) -> None:
    over = answers(tmp_path, {"odd": 0.7}, {"odd": 0.3})["sufficiency.over_bar", None]
    assert over.interval.high <= 0


def test_without_wins_before_nothing_is_said_of_the_question(tmp_path: Path) -> None:
    over = answers(tmp_path, {"odd": 0.4}, {})["sufficiency.over_bar", None]
    assert isinstance(over, Evidence) and over.diagnostics == {"applicable": False}
