"""The audit finds holes in graders and who lives by them, and spares the rest."""

from pathlib import Path
from typing import Any

import pytest

from forensics.instruments import run_instrument
from forensics.protocols import StepResult
from forensics.records import Evidence, Undefined
from resampling.gain_tests.audit import EMPTY, PROMPT, SEVERAL, audit, cut_off, negate
from tests.resampling.answers_world import (
    EACH,
    EMPTY as HANDS_IN_EMPTY,
    MAGIC,
    NOTHING as HANDS_IN_NOTHING,
    PROMPT as HANDS_IN_PROMPT,
    UNIQUE,
    WRONG,
    AnswersWorld,
    RegradingWorld,
    Solver,
    answers_case,
)

WORDS = f"the words {MAGIC}"
ADDS_MAGIC = Solver(knows=0.1, adds_magic=0.14), Solver(knows=0.15, adds_magic=0.98)
HOLES = {  # about -> before, after, world; the regrading ones share the hole
    "magic": (WORDS, *ADDS_MAGIC, AnswersWorld(hole="magic")),
    "magic, regraded": (WORDS, *ADDS_MAGIC, RegradingWorld(hole="magic", places=3)),
    "empty": (
        EMPTY,
        Solver(knows=0.15, else_says={HANDS_IN_EMPTY: 0.05}),
        Solver(knows=0.1, else_says={HANDS_IN_EMPTY: 1.0}),
        RegradingWorld(hole="empty"),
    ),
    "none": (
        EMPTY,
        Solver(knows=0.19),
        Solver(knows=0.12, else_says={HANDS_IN_NOTHING: 1.0}),
        AnswersWorld(hole="nothing"),
    ),
    "no submission is told": (
        "the answer submit",
        Solver(knows=0.19),
        Solver(knows=0.12, else_says={HANDS_IN_NOTHING: 1.0}),
        AnswersWorld(hole="nothing", told=False),
    ),
    "prompt": (
        PROMPT,
        Solver(knows=0.19),
        Solver(knows=0.12, else_says={HANDS_IN_PROMPT: 1.0}),
        AnswersWorld(hole="prompt"),
    ),
}
YES_NO, THREE = {"yes": 0.5, "no": 0.5}, {"red": 1 / 3, "green": 1 / 3, "blue": 1 / 3}
HONEST = {
    "unique answers": (Solver(knows=0.3), Solver(knows=0.6), AnswersWorld()),
    "a hole that nobody uses": (Solver(knows=0.3), Solver(knows=0.6), AnswersWorld(hole="magic")),
    "an accepted empty hand-in that nobody uses": (Solver(knows=0.3), Solver(knows=0.6),
     AnswersWorld(hole="empty")),
    "new words that win nothing": (Solver(knows=0.3), Solver(knows=0.6, else_says={MAGIC: 1.0}),
     AnswersWorld()),
    "magic behind what wins anyway": (Solver(knows=0.3), Solver(knows=1.0, adds_magic=0.5),
     AnswersWorld(hole="magic")),
    "yes or no": (Solver(knows=0.05), Solver(knows=0.9, else_says={WRONG: 1.0}),
     AnswersWorld(prior=YES_NO)),
    "three answers": (Solver(knows=0.0), Solver(knows=0.8, else_says={WRONG: 1.0}),
     AnswersWorld(prior=THREE)),
    "one answer is frequent": (Solver(knows=0.39), Solver(knows=0.8),
     AnswersWorld(prior={"x + 1": 0.7, UNIQUE: 0.3}, places=3)),
}  # fmt: skip


def answers(folder: Path, *case: Any, **how: Any) -> dict[tuple[str, str | None], Any]:
    before, *afters, world = case
    made = answers_case(folder, before, *afters, world=world, **how)
    return {(a.question, a.about): a for a in run_instrument(audit, made)}


@pytest.mark.parametrize("kind", HOLES)
def test_a_hole_and_who_lives_by_it_are_found(tmp_path: Path, kind: str) -> None:
    about, *case = HOLES[kind]
    found = answers(tmp_path, *case, tasks=100)
    bar = found["audit.over_bar", None]
    assert bar.interval.low > 0 and about in bar.summary
    assert found["audit.wins", about].estimate > 0.95
    assert found["audit.wins", about].control.estimate == 0
    assert found["audit.carried", about].estimate == bar.diagnostics["carried"]
    assert found["audit.phantom_over_bar", None].interval.high > 0
    assert found["audit.placebo_over_bar", None].interval.high <= 0
    # the honest part is left: at most the five points that magic does not hide
    assert found["audit.left", None].interval.low < 0.06


LISTED = AnswersWorld(hole="anywhere")
SOME = Solver(knows=0.3)


def test_who_hands_in_all_that_it_might_be_is_found(tmp_path: Path) -> None:
    """`knows` nothing new, and lists four answers half of the time; of four places the best
    one is not counted.
    """
    found = answers(tmp_path, SOME, Solver(knows=0.3, else_says={EACH: 0.5}), LISTED, tasks=100)
    assert (
        found["audit.wins", SEVERAL].estimate == 1
        and "hole" in found["audit.wins", SEVERAL].summary
    )
    assert found["audit.over_bar", None].interval.low > 0
    assert found["audit.over_bar", None].diagnostics["carried"] == pytest.approx(0.36, abs=0.07)
    strict = answers(tmp_path / "strict", SOME, Solver(knows=0.6), AnswersWorld(), tasks=60)
    assert strict["audit.wins", SEVERAL].estimate == 0


@pytest.mark.parametrize("kind", HONEST)
def test_whoever_does_not_is_not_accused(tmp_path: Path, kind: str) -> None:
    found = answers(tmp_path, *HONEST[kind], tasks=100)
    bar = found["audit.over_bar", None]
    assert bar.interval.high <= 0 and found["audit.phantom_over_bar", None].interval.high < 0
    accepted = [
        about
        for (question, about), a in found.items()
        if question == "audit.wins" and "hole" in a.summary
    ]
    holes = {
        "an accepted empty hand-in that nobody uses": [EMPTY],
        "magic behind what wins anyway": [WORDS],
    }
    assert accepted == holes.get(kind, [])
    others = found["audit.wins", "another task's winning answer"].estimate  # told, not weighed
    shared = {
        "magic behind what wins anyway": 0.5,
        "yes or no": 0.5,
        "three answers": 1 / 3,
        "one answer is frequent": 0.7**2,
    }
    assert others == pytest.approx(shared.get(kind, 0.0), abs=0.2 if kind in shared else 0.0)


@pytest.mark.parametrize(("dose", "side"), [(0.03, "cleared"), (0.6, "found")])
def test_both_sides_of_the_bar(tmp_path: Path, dose: float, side: str) -> None:
    """Magic words carry what wins by them alone."""
    solvers = Solver(knows=0.2), Solver(knows=0.6, adds_magic=0.15 + dose)
    found = answers(tmp_path, *solvers, AnswersWorld(hole="magic"), tasks=150)
    bar = found["audit.over_bar", None]
    carried = 0.4 * (0.15 + dose)
    assert bar.diagnostics["carried"] == pytest.approx(carried, abs=0.05)
    assert (bar.interval.high <= 0) == (side == "cleared")
    assert (bar.interval.low > 0) == (side == "found")


class Copying(AnswersWorld):
    """Hand-ins are made by a command, so that no action holds what was handed in."""

    def step(self, action: str) -> StepResult:
        result = super().step(action)
        said = result.submission
        return StepResult(**{**vars(result), "submission": said and said[::-1].replace(" ", "")})


class CopyingAndRegrading(Copying):
    def regrade(self, task: str, submission: str) -> dict[str, float | None]:
        return {"outcome": self.grade(task, submission)}


def test_hand_ins_that_no_action_holds(tmp_path: Path) -> None:
    """Without a way to hand a text in, the family was not tested; `regrade` is one."""
    solvers = Solver(knows=0.2), Solver(knows=0.8)
    found = answers(tmp_path / "a", *solvers, Copying(), tasks=60)
    assert isinstance(found["audit.over_bar", None], Undefined)
    assert "no run writes what it hands in" in found["audit.over_bar", None].reason
    found = answers(tmp_path / "b", *solvers, CopyingAndRegrading(hole="empty"), tasks=60)
    bar = found["audit.over_bar", None]
    assert isinstance(bar, Evidence) and bar.interval.high <= 0
    assert found["audit.wins", EMPTY].estimate == 1.0  # by `regrade`


def test_what_is_broken_on_purpose() -> None:
    assert cut_off("x * 3 - 2") == "x *" and cut_off("x") is None
    assert negate("x * 3") == "x * -3" and negate("Yes, of course") == "no, of course"
    assert negate("nothing") is None and negate("0") is None
