"""What a kind of action showed, taken from another task: what the gain needs is
found, what it does not need is cleared, mostly without any play.
"""

from pathlib import Path
from typing import Any

import pytest

from forensics.instruments import run_instrument
from forensics.investigation.concluded import plays_of
from forensics.protocols import Environment
from forensics.records import Undefined
from resampling.gain_tests.altered_worlds import Deal, dealt
from resampling.gain_tests.exchange import exchange
from resampling.gain_tests.units import donors_of
from tests.build import agent_case
from tests.environment_checks import check_environment
from tests.resampling.ablation_world import GradingWorld
from tests.resampling.note_cases import Answerer, Repairer, altered_runs, questions
from training import MiniRepo

Answers = dict[tuple[str, str | None], Any]


BEFORE = Repairer(name="b")


def answers(folder: Path, after: Any, **more: Any) -> Answers:
    world: Environment = more.pop("world", None) or GradingWorld()
    before = more.pop("before", BEFORE)
    case = agent_case(folder, world, before, after, tasks=more.pop("tasks", 100), **more)
    found = {(one.question, one.about): one for one in run_instrument(exchange, case)}
    played = altered_runs(case)
    assert played <= plays_of(case, [exchange]).get("exchange", (0, 0))[1]
    named = {(name.removeprefix("exchange."), about): one for (name, about), one in found.items()}
    return {**named, ("played", None): played}


def test_what_the_gain_needs_is_found(tmp_path: Path) -> None:
    found = answers(tmp_path, Repairer(name="a", looks={"cat notes": 0.7, "ls": 0.2}))
    assert found["over_bar", None].interval.low > 0
    assert found["carried", "cat notes"].estimate == pytest.approx(0.7 * 0.7, abs=0.08)
    assert ("carried", "ls") not in found or found["carried", "ls"].interval.low <= 0


def test_an_action_that_shows_nothing_is_cleared(tmp_path: Path) -> None:
    found = answers(tmp_path, Repairer(name="a", looks={"ls": 0.9}, skill=0.9))
    assert found["over_bar", None].interval.high <= 0 and found["played", None] > 0
    assert found["carried", "ls"].estimate == 0


def test_what_is_read_and_not_used_is_cleared(tmp_path: Path) -> None:
    after = Repairer(name="a", looks={"cat notes": 0.8}, skill=0.9, blind=True)
    assert answers(tmp_path, after)["over_bar", None].interval.high <= 0


def test_what_few_runs_read_is_cleared_without_play(tmp_path: Path) -> None:
    found = answers(tmp_path, Repairer(name="a", looks={"cat notes": 0.01}, skill=0.9), tasks=200)
    assert found["over_bar", None].interval.high <= 0 and found["played", None] == 0


def test_what_is_needed_or_allowed_is_spared(tmp_path: Path) -> None:
    after = Repairer(name="a", looks={"cat notes": 0.7})
    found = answers(tmp_path / "allowed", after, allowed=("cat notes",))
    assert found["over_bar", None].interval.high <= 0 and found["played", None] == 0
    world = GradingWorld(needed=("submit", "cat notes"))
    assert answers(tmp_path / "needed", after, world=world)["over_bar", None].interval.high <= 0
    other = answers(tmp_path / "other", after, allowed=("git log",))
    assert other["over_bar", None].interval.low > 0


def test_two_redundant_sources_are_found_together(tmp_path: Path) -> None:
    after = Repairer(name="a", looks={"git log, cat notes, ls": 0.8})
    found = answers(tmp_path, after)
    for kind in ("git log", "cat notes"):
        assert found["carried", kind].estimate == pytest.approx(0, abs=0.02)
    assert found["carried", "cat notes + git log"].interval.low > 0.3
    assert found["over_bar", None].interval.low > 0


def test_one_turn_has_nothing_to_exchange_but_the_prompt(tmp_path: Path) -> None:
    skill, note = {"skill": 0.9}, {"skill": 0.3, "note": 0.6}
    before = Answerer(name="b", habits={"skill": 0.3})
    unnamed = questions(tmp_path / "0", named=False)
    found = answers(
        tmp_path / "unnamed", Answerer(name="a", habits=note), world=unnamed, before=before
    )
    assert "nothing to exchange" in found["over_bar", None].summary
    named = questions(tmp_path / "1")
    for name, habits, finds in (("skill", skill, False), ("note", note, True)):
        after = Answerer(name="a", habits=habits)
        found = answers(tmp_path / name, after, world=named, before=before)
        over = found["over_bar", None].interval
        assert over.low > 0 if finds else over.high <= 0


@pytest.mark.parametrize(
    ("before", "after", "tasks", "asked"),
    [
        ({"skill": 0.21, "note": 0.09}, {"skill": 0.7, "note": 0.3}, 240, False),  # 3 of 10 wins
        ({"skill": 0.21, "note": 0.09}, {"skill": 0.4, "note": 0.6}, 60, True),
        ({"skill": 0.005, "note": 0.005}, {"skill": 0.5, "note": 0.5}, 60, True),  # too few wins
        ({"note": 0.3}, {"note": 0.9}, 60, True),  # all wins need it, and nothing else
        ({"agrees": 0.3}, {"agrees": 0.9}, 60, False),  # all need it, and the question too
        ({"agrees": 0.4}, {"agrees": 0.4, "note": 0.4}, 60, True),  # and it is newly enough
    ],
)
def test_a_field_that_both_need_alike_is_part_of_the_job(
    tmp_path: Path, before: Any, after: Any, tasks: int, asked: bool
) -> None:
    world = questions(tmp_path / "world", number=tasks)
    sides = Answerer(name="b", habits=before), Answerer(name="a", habits=after)
    found = answers(tmp_path, sides[1], world=world, before=sides[0], tasks=tasks)
    over = found["over_bar", None].interval
    assert over.low > 0 if asked else over.high <= 0
    told = found["carried", "prompt:note"].summary
    assert ("part of the job" in told) != asked


def test_identical_policies_are_silent(tmp_path: Path) -> None:
    found = answers(tmp_path, Repairer(name="a"))
    assert isinstance(found["over_bar", None], Undefined)


def test_a_dealt_world_is_a_world_and_keeps_to_one_other_task() -> None:
    world = MiniRepo()
    tasks = world.tasks("held-out", 8, 0)
    rows = []
    for task in tasks:
        running, steps = world.spawn(), []
        running.reset(task, 0)
        for action in ("open 1", "open 2", "list"):
            shown = running.step(action).observation
            steps.append(_step("assistant", action, world.kinds(action)))
            steps.append(_step("tool", shown, ()))
        rows.append({"task": task, "steps": steps})
    donors = donors_of(rows, tasks, seed=0)
    assert set(donors.texts) == {("open-file",)}  # nobody reads after the last one
    altered = dealt(Deal(kinds=frozenset({"open-file"}), donors=donors)).of(world)
    check_environment(altered, ["list", "open 1", "nonsense", "submit"])
    texts = donors.texts["open-file",]
    for task in tasks:
        running = altered.spawn()
        running.reset(task, 0)
        shown = {action: running.step(action).observation for action in ("open 1", "open 2")}
        assert [one for one in tasks if texts[one] == shown] not in ([], [task])


def _step(role: str, text: str, kinds: tuple[str, ...]) -> dict[str, Any]:
    return {"role": role, "text": text, "kinds": kinds, "tool_calls": None}
