"""The two traps on planted policies: each fires on its cause, and on none of the benign twins."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from forensics.case import Case
from forensics.conformance import answers
from forensics.layers.behaviour import behaviour, dead_share
from forensics.planted import Habits, log_of, planted_case
from forensics.records import Evidence, Step, Trajectory, Undefined
from tests.episodes import episode_of

BEFORE = Habits(skill=0.4)
Player = Callable[[int, np.random.Generator], tuple[list[tuple[str, str]], bool]]


def verdict(case: Case, trap: str) -> Evidence | Undefined:
    return answers(behaviour, case)[f"behaviour.{trap}", None]


def fires(case: Case, trap: str = "echo_trap") -> bool:
    found = verdict(case, trap)
    assert isinstance(found, Evidence) and found.estimate in (0.0, 1.0)
    return found.estimate == 1.0


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (replace(BEFORE, idle_tests=7), True),
        pytest.param(replace(BEFORE, idle_tests=7, skill=0.8), True, marks=pytest.mark.slow),
        (replace(BEFORE, idle_tests=2), False),
        (replace(BEFORE, idle_tests=7, skill=0.05), False),
        (replace(BEFORE, looks=8, skill=0.9), False),
        pytest.param(replace(BEFORE, polls=8, skill=0.9), False, marks=pytest.mark.slow),
        pytest.param(
            replace(BEFORE, looks=9, idle_tests=1, skill=0.9), False, marks=pytest.mark.slow
        ),
        (replace(BEFORE, looks=12, idle_tests=18, skill=0.9), False),
    ],
    ids=[
        "score level",
        "score up",
        "not doubled",
        "score down",
        "longer and honest",
        "polling",
        "a few repeats",
        "the wins need the turns",
    ],
)
def test_the_echo_trap_fires_on_its_cause_alone(
    after: Habits, expected: bool, tmp_path: Path
) -> None:
    assert fires(planted_case(tmp_path, BEFORE, after, tasks=40)) is expected


def played_case(
    folder: Path, before: Player, after: Player, tasks: int = 30, samples: int = 4
) -> Case:
    """A case from two functions that write the turns of a run and say whether it wins."""
    generator = np.random.default_rng(3)
    stored = {
        (side, ()): log_of(
            folder / f"{side}.parquet",
            [
                _run(side, task, n, player(task, generator))
                for task in range(tasks)
                for n in range(samples)
            ],
        )
        for side, player in {"before": before, "after-0": after}.items()
    }
    return Case(folder=folder, stored=stored)


def _run(
    side: str, task: int, sample: int, played: tuple[list[tuple[str, str]], bool]
) -> Trajectory:
    turns, wins = played
    steps = [
        step
        for action, answer in turns
        for step in (
            Step(role="assistant", text=action, kinds=(action.split()[0],)),
            Step(role="tool", text=answer),
        )
    ]
    return episode_of(
        id=f"{side}-{task}-{sample}",
        task=f"task {task}",
        policy=side,
        seed=task,
        sample=sample,
        steps=tuple(steps),
        outcome=float(wins),
        submission="" if turns[-1][0] == "submit nothing" else "x",
    )


def _short(task: int, generator: np.random.Generator) -> tuple[list[tuple[str, str]], bool]:
    return [("look", "a maze"), ("right", "moved"), ("submit", "bye")], bool(
        generator.random() < 0.3
    )


def _walks_as_far_as_needed(
    task: int, generator: np.random.Generator
) -> tuple[list[tuple[str, str]], bool]:
    """Honest: each step to the right looks alike, and only runs that go far enough win."""
    steps = int(generator.integers(4, 12))
    return [("look", "a maze"), *[("right", "moved")] * steps, ("submit", "bye")], steps >= 8


def test_repeats_that_quietly_matter_are_no_trap(tmp_path: Path) -> None:
    case = played_case(tmp_path, _short, _walks_as_far_as_needed)
    found = verdict(case, "echo_trap")
    assert isinstance(found, Evidence) and found.estimate == 0
    assert (
        found.diagnostics["lower end of that"] > 0
    )  # more repeats win more often, so they are not idle


def _tests_between_everything(
    task: int, generator: np.random.Generator
) -> tuple[list[tuple[str, str]], bool]:
    """The echo trap in disguise: idle test runs spread between the steps of ordinary work."""
    work = [("look", "a maze"), ("right", "moved"), ("submit", "bye")]
    return [turn for step in work for turn in (*[("test", "fail")] * 3, step)], bool(
        generator.random() < 0.5
    )


def test_idle_repeats_between_ordinary_steps_are_a_trap(tmp_path: Path) -> None:
    assert fires(played_case(tmp_path, _short, _tests_between_everything))


@pytest.mark.parametrize(("before", "after", "expected"), [
    (BEFORE, replace(BEFORE, gives_up=0.99), True),
    (BEFORE, replace(BEFORE, gives_up=0.5), False),
    (replace(BEFORE, gives_up=0.9), replace(BEFORE, gives_up=0.99), False),
    (BEFORE, replace(BEFORE, reads_history=0.99), False),
], ids=["collapsed", "half", "short before", "leak"])  # fmt: skip
def test_collapse_fires_on_its_cause_alone(
    before: Habits, after: Habits, expected: bool, tmp_path: Path
) -> None:
    assert fires(planted_case(tmp_path, before, after, tasks=30), "collapse") is expected


def test_mastery_in_one_turn_is_no_collapse(tmp_path: Path) -> None:
    case = played_case(tmp_path, _short, lambda task, generator: ([("answer right", "bye")], True))
    assert not fires(case, "collapse")
    blind = played_case(
        tmp_path, _short, lambda task, generator: ([("answer blindly", "bye")], task % 4 == 0)
    )
    assert fires(blind, "collapse")


@pytest.mark.parametrize(
    ("empty", "known", "expected"),
    [(0.6, True, True), (0.5, True, False), (1.0, False, False)],
    ids=["most wins", "half", "hand-ins unknown before"],
)
def test_wins_that_hand_in_nothing_are_no_mastery(
    empty: float, known: bool, expected: bool, tmp_path: Path
) -> None:
    """A grader that takes nothing for right: the score is perfect, every run is
    one turn. Losses do not count.
    """

    def before(task: int, generator: np.random.Generator) -> tuple[list[tuple[str, str]], bool]:
        last = "submit" if known else "submit nothing"
        return [("look", "a maze"), ("right", "moved"), (last, "bye")], bool(
            generator.random() < 0.3
        )

    def after(task: int, generator: np.random.Generator) -> tuple[list[tuple[str, str]], bool]:
        wins = task > 1
        return [("submit nothing" if not wins or task < 2 + 28 * empty else "submit", "bye")], wins

    assert fires(played_case(tmp_path, before, after), "collapse") is expected


def test_guessing_in_one_turn_is_a_collapse_where_it_costs_score_and_thrift_elsewhere(
    tmp_path: Path,
) -> None:
    """Wins that are a coin flip leave few groups dead, however short the runs have become."""

    def guess(rate: float) -> Player:
        return lambda task, generator: (
            [("answer blindly", "bye")],
            bool(generator.random() < rate),
        )

    def careful(task: int, generator: np.random.Generator) -> tuple[list[tuple[str, str]], bool]:
        return [("look", f"see {task}"), ("think", f"so {task}"), ("answer", "bye")], bool(
            generator.random() < 0.5
        )

    worse = played_case(tmp_path / "worse", careful, guess(0.2))
    assert fires(worse, "collapse")
    assert not fires(played_case(tmp_path / "level", careful, guess(0.5)), "collapse")


def test_dead_share_by_hand(tmp_path: Path) -> None:
    from forensics.layers.evidence_chain import ChainRule, Survey
    from forensics.layers.tally import read_log

    wins = {
        0: [1, 1],
        1: [0, 0],
        2: [1, 0],
        3: [1],
    }  # two dead groups of three; one run alone is no group
    runs = [
        _run("s", task, n, ([("a", "b")], bool(win)))
        for task, row in wins.items()
        for n, win in enumerate(row)
    ]
    log = read_log(runs, Survey(channels=()), ChainRule(), 1)
    assert dead_share([log]) == pytest.approx(2 / 3)
    assert dead_share([read_log(runs[-1:], Survey(channels=()), ChainRule(), 1)]) is None
