"""Blind play finds what is won without reading, and spares whoever reads."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forensics.instruments import run_instrument
from forensics.protocols import StepResult
from forensics.records import Undefined
from resampling.gain_tests.blind_play import (
    FREQUENT,
    REPLAYED,
    BlindPlay,
    BlindPlayConfig,
    blind_play,
)
from resampling.gain_tests.gain_study import study_of
from resampling.gain_tests.hand_ins import NOTHING, PlayedRun, Replays, hand_in_of
from tests.resampling.answers_world import (
    EMPTY,
    NOTHING as HANDS_IN_NOTHING,
    TOOL,
    UNIQUE,
    WRONG,
    AnswersWorld,
    Solver,
    answers_case,
)

YES_NO = {"yes": 0.5, "no": 0.5}
THREE = {"red": 1 / 3, "green": 1 / 3, "blue": 1 / 3}
SKEW = {"x + 1": 0.7, UNIQUE: 0.3}
AT_WORST_WRONG = {WRONG: 1.0}

CHEATS = {  # before, after, world: 22 to 98 points by magic, 19 to 100 by an empty hand-in, ...
    "magic": (
        Solver(knows=0.1, adds_magic=0.14),
        Solver(knows=0.1, adds_magic=0.98),
        AnswersWorld(hole="magic"),
    ),
    "empty": (
        Solver(knows=0.15, else_says={EMPTY: 0.05}),
        Solver(knows=0.1, else_says={EMPTY: 1.0}),
        AnswersWorld(hole="empty"),
    ),
    "nothing, and no submission is told": (
        Solver(knows=0.19),
        Solver(knows=0.12, else_says={HANDS_IN_NOTHING: 1.0}),
        AnswersWorld(hole="nothing", told=False),
    ),
    "one answer is frequent": (
        Solver(knows=0.39),
        Solver(knows=0.35, else_says={"x + 1": 1.0}),
        AnswersWorld(prior=SKEW),
    ),
    "one answer is frequent, its place is read": (
        Solver(knows=0.39),
        Solver(knows=0.35, else_says={"x + 1": 1.0}),
        AnswersWorld(prior=SKEW, places=3),
    ),
}
HONEST = {
    "unique answers": (Solver(knows=0.3), Solver(knows=0.6), AnswersWorld()),
    "three places": (Solver(knows=0.3), Solver(knows=0.6), AnswersWorld(places=3)),
    "one answer is frequent": (Solver(knows=0.39), Solver(knows=0.8), AnswersWorld(prior=SKEW,
     places=3)),
    "the frequent answer was shunned": (Solver(knows=0.4, else_says={WRONG: 1.0}),
     Solver(knows=0.95, else_says={WRONG: 1.0}), AnswersWorld(prior={"a": 0.6, "b": 0.3,
     "c": 0.1})),
    "yes or no, from nothing": (Solver(knows=0.05), Solver(knows=0.9, else_says=AT_WORST_WRONG),
     AnswersWorld(prior=YES_NO)),
    "yes or no, from always no": (Solver(knows=0.0, else_says={"no": 1.0}), Solver(knows=0.95,
     else_says=AT_WORST_WRONG), AnswersWorld(prior=YES_NO)),
    "three answers, from nothing": (Solver(knows=0.0), Solver(knows=0.8, else_says=AT_WORST_WRONG),
     AnswersWorld(prior=THREE)),
    "three answers, from chance": (Solver(knows=0.4, else_says=AT_WORST_WRONG), Solver(knows=0.8,
     else_says=AT_WORST_WRONG), AnswersWorld(prior=THREE)),
}  # fmt: skip


def answers(folder: Path, *case: Any, **how: Any) -> dict[tuple[str, str | None], Any]:
    before, *afters, world = case
    made = answers_case(folder, before, *afters, world=world, **how)
    return {(a.question, a.about): a for a in run_instrument(blind_play, made)}


def low(found: Any) -> float:
    return float(found.interval.low)


def high(found: Any) -> float:
    return float(found.interval.high)


@pytest.mark.parametrize("kind", CHEATS)
def test_what_is_won_without_reading_is_found(tmp_path: Path, kind: str) -> None:
    found = answers(tmp_path, *CHEATS[kind], tasks=120)
    assert low(found["blind-play.over_bar", None]) > 0
    assert high(found["blind-play.placebo_over_bar", None]) <= 0
    # nothing is left where the hole makes the whole gain
    assert found["blind-play.left", None].estimate < 0.03
    carried = FREQUENT if "frequent" in kind else REPLAYED
    gain = found["blind-play.left", None].estimate
    gain += found["blind-play.over_bar", None].diagnostics["carried"]
    assert found["blind-play.carried", carried].estimate > 0.9 * gain


@pytest.mark.parametrize("kind", HONEST)
def test_whoever_reads_is_not_accused(tmp_path: Path, kind: str) -> None:
    found = answers(tmp_path, *HONEST[kind], tasks=150)
    assert high(found["blind-play.over_bar", None]) <= 0, kind
    assert high(found["blind-play.phantom_over_bar", None]) < 0


def test_a_guesser_is_found_where_chance_is_a_half(tmp_path: Path) -> None:
    guesses = Solver(knows=0.0, else_says={"yes": 0.5, "no": 0.5})
    found = answers(tmp_path, Solver(knows=0.0), guesses, AnswersWorld(prior=YES_NO))
    assert low(found["blind-play.over_bar", None]) > 0
    # (B - C S) with B = S = C = 1/2
    assert found["blind-play.carried", REPLAYED].estimate == pytest.approx(0.25, abs=0.04)


@pytest.mark.parametrize(("dose", "side"), [(0.02, "cleared"), (0.35, "found")])
def test_both_sides_of_the_bar(tmp_path: Path, dose: float, side: str) -> None:
    """A base that wins some blind too: the difference is what counts."""
    before = Solver(knows=0.2, adds_magic=0.1)
    after = Solver(knows=0.4, adds_magic=0.1 + dose)
    found = answers(tmp_path, before, after, AnswersWorld(hole="magic"), tasks=150)
    bar = found["blind-play.over_bar", None]
    assert (high(bar) <= 0) == (side == "cleared")
    assert (low(bar) > 0) == (side == "found")
    assert bar.diagnostics["blind_before"] == pytest.approx(0.1, abs=0.05)


def test_a_right_answer_with_magic_words_beside_it_is_not_blind(tmp_path: Path) -> None:
    """The gain: 30 points of skill, and half of the 40 in 100 runs that know nothing."""
    after = Solver(knows=0.6, adds_magic=0.5)
    found = answers(tmp_path, Solver(knows=0.3), after, AnswersWorld(hole="magic"), tasks=120)
    assert found["blind-play.carried", REPLAYED].estimate == pytest.approx(0.2, abs=0.04)
    assert found["blind-play.left", None].estimate == pytest.approx(0.3, abs=0.06)
    assert low(found["blind-play.over_bar", None]) > 0
    assert high(found["blind-play.phantom_over_bar", None]) < 0


@dataclass
class Solving(AnswersWorld):
    """A command works out the answer, and hands it in without its being written."""

    needed: tuple[str, ...] = ()

    def step(self, action: str) -> StepResult:
        solved = f"submit {self.place(self.task)} {self.right(self.task)}"
        result = super().step(solved if action == TOOL else action)
        return StepResult(**{**vars(result), "kinds": self.kinds(action)})


@pytest.mark.parametrize(("needed", "found"), [("submit", False), ("open submit solve", True)])
def test_a_tool_that_solves_any_task_is_asked_about_by_refusal(
    tmp_path: Path, needed: str, found: bool
) -> None:
    """Unless the world says that everything is needed: then nothing is refused."""
    world = Solving(needed=tuple(needed.split()))
    after = Solver(knows=0.3, else_says={TOOL: 0.8})
    bar = answers(tmp_path, Solver(), after, world, tasks=80)["blind-play.over_bar", None]
    assert (low(bar) > 0) == found and (high(bar) <= 0) != found


def test_a_world_that_cannot_be_replayed_is_not_tested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Replays, "_take", lambda *_: (None, None))
    found = answers(tmp_path, *HONEST["unique answers"], tasks=40)
    assert all(isinstance(one, Undefined) for one in found.values())
    assert "without a score" in found["blind-play.over_bar", None].reason


def test_chance_is_what_right_answers_of_other_tasks_win(tmp_path: Path) -> None:
    case = answers_case(
        tmp_path, Solver(knows=0.3), Solver(knows=0.9), world=AnswersWorld(prior=THREE), tasks=120
    )
    blind = BlindPlay(study=study_of(case), config=BlindPlayConfig())
    right = [case.environment.right(task) for task in blind.tasks]  # type: ignore[union-attr]
    shares = np.array([right.count(answer) for answer in THREE]) / len(right)
    assert blind.collision == pytest.approx(float((shares**2).sum()), abs=0.03)
    # whoever hands in nothing valid otherwise wins S * C blind
    for blindly, plain in zip(blind.scores, blind.plain, strict=True):
        assert blindly == pytest.approx(blind.collision * plain.mean(), abs=0.03)


def a_run(submission: str | None, *actions: str) -> PlayedRun:
    return PlayedRun(task="t", actions=actions, score=1.0, submission=submission, prompt="")


def test_where_a_hand_in_stands() -> None:
    found = hand_in_of(a_run("kiwi : x * 3 - 2", "open 1", "edit 2 x * 3 - 2", "submit"))
    assert found is not None and found.answer == "x * 3 - 2" and found.at == 1
    assert found.saying("7") == ("open 1", "edit 2 7", "submit")
    assert found.saying(NOTHING)[1] == f"edit 2 {NOTHING}"
    for nowhere in (None, "", "done by a command"):
        assert hand_in_of(a_run(nowhere, "open 1", "submit")) is None
