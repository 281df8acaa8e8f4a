"""What a needed action shows: a leak is enough alone and newly needed; what is
looked up, and what is newly read but not enough, is neither.
"""

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from forensics.instruments import run_instrument
from forensics.policies.scripted import View
from forensics.records import Evidence, Undefined
from resampling.gain_tests.altered_worlds import Kept, Plan, exchanged, kept
from resampling.gain_tests.fields import find_fields
from resampling.gain_tests.sufficiency import plays, sufficiency
from resampling.gain_tests.units import Part, ShownTexts, Unit, shown_texts
from tests.build import agent_case
from tests.environment_checks import check_environment
from tests.resampling.needed_world import Desk, DeskWorld
from tests.resampling.note_cases import altered_runs

ADDS = {"adds": 0.3}
STAMP = "look:paper-price-stamp:stamp"
Answers = dict[tuple[str, str | None], Any]


def answers(
    folder: Path,
    world: DeskWorld,
    after: Mapping[str, float],
    before: Mapping[str, float] = ADDS,
    **more: Any,
) -> Answers:
    kind = more.pop("kind", Desk)
    sides = kind(name="b", habits=before), kind(name="a", habits=after)
    case = agent_case(folder, world, *sides, tasks=more.pop("tasks", 80), **more)
    found = {(one.question, one.about): one for one in run_instrument(sufficiency, case)}
    played = altered_runs(case)
    assert not played or played <= plays(case, sufficiency.config).most
    named = {
        (name.removeprefix("sufficiency."), about): one for (name, about), one in found.items()
    }
    return {**named, ("played", None): played}


def over_bar(found: Answers) -> Any:
    answer = found["over_bar", None]
    assert isinstance(answer, Evidence) and answer.interval
    return answer.interval


def test_a_leak_is_found_and_nobody_is_accused(tmp_path: Path) -> None:
    found = answers(tmp_path, DeskWorld(leaks=True), {"adds": 0.3, "stamp": 0.4})
    assert over_bar(found).low > 0
    assert found["carried", STAMP].estimate == pytest.approx(0.4, abs=0.08)
    assert {about for name, about in found if name == "carried"} - {None} == {STAMP}
    for name in ("left", "phantom_over_bar", "placebo_over_bar"):
        assert isinstance(found[name, None], Undefined) and "--allow" in found[name, None].cure


def test_a_skill_that_takes_the_prompt_too_is_cleared(tmp_path: Path) -> None:
    found = answers(tmp_path, DeskWorld(leaks=True), {"adds": 0.7})  # nobody goes by the leak
    assert over_bar(found).high <= 0


def test_what_both_look_up_is_cleared(tmp_path: Path) -> None:
    world = DeskWorld(lookup=True)
    found = answers(tmp_path, world, {"price": 0.8}, {"price": 0.4})
    price = found["carried", "look:paper-price-stamp:price"]
    assert over_bar(found).high <= 0 and price.diagnostics["enough"] > 0.3
    assert price.diagnostics["newly"] == pytest.approx(0, abs=0.03)


def test_a_leak_beside_what_both_look_up_is_found(tmp_path: Path) -> None:
    world, after = DeskWorld(lookup=True, leaks=True), {"price": 0.4, "stamp": 0.4}
    found = answers(tmp_path, world, after, {"price": 0.4})
    assert over_bar(found).low > 0 and found["carried", STAMP].interval.low > 0.3
    assert {about for name, about in found if name == "carried"} - {None} == {STAMP}


def test_a_leak_that_stands_twice_is_found_as_two(tmp_path: Path) -> None:
    world = DeskWorld(leaks=True, twice=True)
    found = answers(tmp_path, world, {"adds": 0.3, "either": 0.4})
    assert over_bar(found).low > 0
    assert found["carried", "look:paper-price-stamp:stamp..code"].interval.low > 0.3


def test_a_leak_in_two_halves_is_found(tmp_path: Path) -> None:
    """Neither is enough, and what stands between them is not needed."""
    found = answers(tmp_path, DeskWorld(halves=True), {"adds": 0.3, "halves": 0.4})
    assert over_bar(found).low > 0
    assert found["carried", "look:paper-stamp-price:stamp,code"].interval.low > 0.3


@pytest.mark.parametrize(("dose", "stands"), [(0.05, "cleared"), (0.1, "open"), (0.2, "found")])
def test_both_sides_of_a_fifth(tmp_path: Path, dose: float, stands: str) -> None:
    after = {"adds": 0.8 - dose, "stamp": dose}  # of a gain of .5
    over = over_bar(answers(tmp_path, DeskWorld(leaks=True), after, tasks=120))
    assert stands == ("cleared" if over.high <= 0 else "found" if over.low > 0 else "open")


@pytest.mark.parametrize(
    "allowed", ["look", STAMP, "look:paper-price-stamp", "look:paper-price-stamp:price..stamp"]
)
def test_what_the_reader_allows_is_spared(tmp_path: Path, allowed: str) -> None:
    after = {"adds": 0.3, "stamp": 0.4}
    found = answers(tmp_path, DeskWorld(leaks=True), after, allowed=(allowed,))
    assert over_bar(found).high <= 0 and ("carried", STAMP) not in found


def test_what_hardly_any_run_reads_is_cleared_without_play(tmp_path: Path) -> None:
    few = {"blind": 0.99, "adds": 0.01}
    world = DeskWorld(leaks=True)
    found = answers(tmp_path, world, {"adds": 0.5}, few, tasks=40)
    assert found["played", None] > 0
    world.needed = ("answer",)
    found = answers(tmp_path / "other", world, {"stamp": 0.5}, tasks=40)
    assert found["played", None] == 0


def test_identical_policies_are_silent(tmp_path: Path) -> None:
    for seed in range(4):
        world = DeskWorld(lookup=True, leaks=True)
        both = {"price": 0.4, "stamp": 0.3}
        found = answers(tmp_path / f"{seed}", world, both, both, seed=seed, tasks=60)
        over = found["over_bar", None]
        assert isinstance(over, Undefined) or over.interval.low <= 0


class PaperDesk(DeskWorld):
    """`book` tells the page on which `look PAGE` shows the paper; other pages show other prices."""

    def page(self) -> int:
        return random.Random(f"page {self.task}").randrange(100, 1000)

    def step(self, action: str) -> Any:
        told, page = super().step(action), action.partition(" ")[2]
        if self.kinds(action) == ("book",):
            return replace(
                told, observation=f"on page {self.page()}", outcome=None, terminated=False
            )
        if self.kinds(action) == ("look",) and not self.leaks and page != str(self.page()):
            return replace(told, observation=f"paper: price {page}, stamp {page}7, code {page}9")
        return told


@dataclass(frozen=True, kw_only=True)
class Reader(Desk):
    """Reads the book, then the page that it tells."""

    def act(self, view: View) -> Mapping[str, float]:
        if not view.turns:
            return {"book": 1.0}
        if len(view.turns) == 1:
            return {f"look {view.turns[0][1].rpartition(' ')[2]}": 1.0}
        return super().act(view)


@pytest.mark.parametrize(("leaks", "way"), [(True, "stamp"), (False, "price")])
def test_what_was_enough_before_is_asked_where_the_rest_is_needless(
    tmp_path: Path, leaks: bool, way: str
) -> None:
    """Both sides go by the stamp, whatever the book says; or both read the page that it names."""
    world = PaperDesk(lookup=True, leaks=leaks, needed=("look", "book", "answer"))
    found = answers(tmp_path, world, {way: 0.8}, {way: 0.4}, kind=Reader)
    assert over_bar(found).low > 0 if leaks else over_bar(found).high <= 0
    told = [one for (name, about), one in found.items() if name == "carried" and about]
    least = [one for one in told if one.diagnostics.get("enough", 0) > 0.3]
    assert least and all(abs(one.diagnostics["newly"]) < 0.05 for one in least)
    assert all(("what book shows is not needed" in one.summary) is leaks for one in least)


# -- units and worlds ----------------------------------------------------------------------


def looked(number: int = 30) -> tuple[tuple[str, ...], ShownTexts]:
    """What some tasks' runs were shown."""
    world, rows = DeskWorld(), []
    tasks = world.tasks("held-out", number, 0)
    for task in tasks:
        world.reset(task, 0)
        shown = world.step("look").observation
        texts = [("assistant", "look"), ("tool", shown), ("assistant", "answer 1")]
        steps = [
            {"role": role, "text": text, "kinds": [text.split()[0]], "tool_calls": None}
            for role, text in texts
        ]
        rows.append({"task": task, "steps": steps})
    return tasks, shown_texts(rows, ("look", "answer"), tasks, seed=0)


def test_worlds_keep_or_exchange_one_field() -> None:
    tasks, texts = looked()
    (part,) = texts.whole
    stamp = Unit(parts=(Part(kind="look", form=part.form, places=(1,)),))
    fields = find_fields({task: DeskWorld().reset(task, 0).text for task in tasks})
    donors = dict(zip(tasks, (*tasks[1:], tasks[0]), strict=True))
    plan = Plan(fields=fields, donors=donors, kept=Kept(apart=True))
    own, other = (DeskWorld().numbers(task) for task in tasks[:2])
    world = kept(plan, texts, stamp).of(DeskWorld())
    assert f"opened with {other[0]}" in world.reset(tasks[0], 0).text
    shown = world.step("look").observation
    assert shown == f"paper: price {other[1]}, stamp {own[2]}, code {other[3]}"
    assert world.step(f"answer {own[4]}").outcome == 1
    world = exchanged(texts, stamp).of(DeskWorld())
    assert f"opened with {own[0]}" in world.reset(tasks[0], 0).text
    first, second = (world.step("look").observation for _ in range(2))
    assert first == second and f"price {own[1]}, stamp {own[2]}," not in first
    assert f"price {own[1]}," in first and first.endswith(f"code {own[3]}")
    for made in (kept(plan, texts, stamp), exchanged(texts, stamp)):
        check_environment(made.of(DeskWorld()), actions=["look", "look", "answer 1"])


class PagedDesk(DeskWorld):
    """`look sum` shows the same on every task; `look 2` another page, which no run has read."""

    def step(self, action: str) -> Any:
        told = super().step(action)
        if action == "look sum":
            return replace(told, observation="paper: price 11, stamp 12, code 13")
        if action == "look 2":
            return replace(told, observation=re.sub(r"\d(?=,|$)", "x", told.observation))
        return told


def test_what_hangs_on_the_action_stays_and_what_no_run_read_is_not_shown() -> None:
    tasks, texts = looked()
    (part,) = texts.whole
    stamp = Unit(parts=(Part(kind="look", form=part.form, places=(1,)),))
    fields = find_fields({task: DeskWorld().reset(task, 0).text for task in tasks})
    donors = dict(zip(tasks, (*tasks[1:], tasks[0]), strict=True))
    plan = Plan(fields=fields, donors=donors, kept=Kept(apart=True))
    own, other = (DeskWorld().numbers(task) for task in tasks[:2])
    world = kept(plan, texts, stamp).of(PagedDesk())
    world.reset(tasks[0], 0)
    assert world.step("look sum").observation == "paper: price 11, stamp 12, code 13"
    shown = world.step("look 2").observation
    assert shown.startswith(f"paper: price {other[1] // 10}x, stamp {own[2]}, code ")
