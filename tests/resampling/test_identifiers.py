"""What counts as a name, on both sides of each bar; and the bars of renaming."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from forensics.layers.decomposition import BEFORE
from forensics.protocols import Observation
from forensics.statistics import Estimate
from resampling.sources import identifiers as names, renames
from resampling.sources.identifiers import Told, identifiers
from resampling.sources.source_study import ALTERED, Comparison
from tests.resampling.renaming_world import MODULES, NamedWorld, Reader, named_case

TINY = 1e-9


class Crowded(NamedWorld):
    """What is read speaks of nearly every module. `capital`: they are proper names."""

    capital = False

    def draw(self, task: str) -> Any:
        drawn = super().draw(task)
        return replace(drawn, module=drawn.module.title()) if self.capital else drawn

    def step(self, action: str) -> Any:
        told = super().step(action)
        others = [one.title() if self.capital else one for one in MODULES]
        left = others[self.drawn.value % 9]
        crowd = " ".join(one for one in others if one != left or one == self.drawn.module)
        return replace(told, observation=f"{told.observation} beside {crowd}")


class Proper(Crowded):
    capital = True


class Plural(NamedWorld):
    """The prompt also has the module with an ending."""

    def reset(self, task: str, seed: int) -> Any:
        start = super().reset(task, seed)
        return Observation(text=f"{start.text}\nmind all {self.drawn.module}s of it")


def known(folder: Path, world: Any) -> tuple[Mapping[str, Any], str]:
    case = named_case(folder, Reader("before"), Reader("after", skill=0.8), world)
    found = identifiers(case, ())
    return {role.name: role for role in found.roles}, " ".join(found.left_out)


def test_a_proper_name_is_no_vocabulary_however_often_it_is_shown(tmp_path: Path) -> None:
    roles, left_out = known(tmp_path / "small", Crowded())
    assert "fix module _" not in roles and "fix module _: its words are used" in left_out
    roles, left_out = known(tmp_path / "proper", Proper())
    assert len(roles["fix module _"].words) == len(MODULES) and not left_out
    assert roles["fix module _"].linked, (
        "its own name stands there more often than it could by chance"
    )


def test_words_that_are_inflected_stay(tmp_path: Path) -> None:
    roles, left_out = known(tmp_path, Plural())
    assert list(roles) == ["commit build _"] and "fix module _: 9 of its words are inf" in left_out
    assert "mind all _: 9 of its words are inf" in left_out


# -- the bars of what is a name ----------------------------------------------------------


def tasks_with(number: int, **what: set[str]) -> dict[str, Told]:
    """Twenty tasks, `number` of them with this."""
    return {
        f"t{n}": Told(prompts={"an amber one"}, **(what if n < number else {})) for n in range(20)
    }


@pytest.mark.parametrize(("tasks", "ordinary"), [(10, False), (11, True)])
def test_what_half_of_the_other_tasks_show_is_no_vocabulary_yet(tasks: int, ordinary: bool) -> None:
    assert names._ordinary("amber", {}, tasks_with(tasks, shown={"amber"})) == ordinary
    assert not names._ordinary("Amber", {}, tasks_with(tasks, shown={"Amber"}))


@pytest.mark.parametrize(("tasks", "ordinary"), [(1, False), (2, True)])
def test_what_runs_write_by_themselves_is_vocabulary(tasks: int, ordinary: bool) -> None:
    for word in ("amber", "Amber"):
        assert names._ordinary(word, {}, tasks_with(tasks, written={word})) == ordinary


@pytest.mark.parametrize(("tasks", "inflected"), [(1, set()), (2, {"amber"})])
def test_a_word_is_inflected_where_several_tasks_show_it(tasks: int, inflected: set[str]) -> None:
    told = tasks_with(tasks, written={"ambers"})
    assert names._inflected({"amber"}, {task: {"amber"} for task in told}, told) == inflected
    longer = tasks_with(tasks, written={"ambergris"})
    assert names._inflected({"amber"}, {task: {"amber"} for task in longer}, longer) == set()


@pytest.mark.parametrize(
    ("own", "other", "linked"),
    [(4, 0, True), (3, 0, False), (20, 17, True), (18, 17, False), (20, 20, False)],
)
def test_names_are_linked_where_their_own_are_shown_more(
    own: int, other: int, linked: bool
) -> None:
    """Of twenty tasks with `fig` in the prompt, so many show it, and so many `kiwi`."""
    places = {"fig": own, "kiwi": other}
    told = {
        f"t{n}": Told(shown={word for word, number in places.items() if n < number})
        for n in range(20)
    }
    assert names._linked(("fig", "kiwi"), {task: {"fig"} for task in told}, told) == linked


@pytest.mark.parametrize(("number", "several"), [(4, False), (5, True)])
def test_ids_are_several(number: int, several: bool) -> None:
    told = {f"t{n}": Told(ids={f"#{n}1"} if n < number else set()) for n in range(20)}
    assert (names._several(told, lambda one: one.ids) is not None) == several


# -- the bars of renaming ----------------------------------------------------------------


def estimate(low: float, high: float) -> Estimate:
    return Estimate(estimate=(low + high) / 2, low=low, high=high, level=0.95)


@pytest.mark.parametrize(
    ("low", "high", "found", "cleared"),
    [
        (0.0, 1.0, False, False),
        (TINY, 1.0, True, False),
        (-1.0, 0.0, False, True),
        (-1.0, TINY, False, False),
    ],
)
def test_a_fifth_itself_is_cleared_and_no_find(
    monkeypatch: Any, low: float, high: float, found: bool, cleared: bool
) -> None:
    monkeypatch.setattr(Comparison, "over_bar", property(lambda _: estimate(low, high)))
    one = Comparison(panel=None, level=0.95)  # type: ignore[arg-type]
    assert (one.found, one.cleared) == (found, cleared)


@pytest.mark.parametrize(
    ("kept", "wins", "solved"),
    [(0.0, 0.2 + TINY, True), (-TINY, 0.3, False), (0.1, 0.2, False)],
)
def test_the_policy_before_training_shows_that_names_are_no_question(
    monkeypatch: Any, kept: float, wins: float, solved: bool
) -> None:
    """It keeps four fifths, exactly those do; and wins more than twice what others hand in."""
    monkeypatch.setattr(renames, "guessed", lambda study: 0.1)
    asked = []

    def told(weights: Any) -> Estimate:
        asked.append(weights)
        return estimate(kept if (BEFORE, ALTERED) in weights else wins, 1.0)

    one: Any = SimpleNamespace(estimate=told)
    study: Any = SimpleNamespace(config=renames.RenamingConfig(), study=None)
    assert renames.RenamingStudy._solved_without(study, one) == solved
    assert min(asked[0].values()) == -0.8
