"""What counts as a name, on both sides of each bar; and the bars of renaming."""

from types import SimpleNamespace
from typing import Any

import pytest

from forensics.layers.decomposition import BEFORE
from forensics.statistics import Estimate
from resampling.gain_tests import identifiers as names, renaming as renames
from resampling.gain_tests.gain_study import ALTERED
from resampling.gain_tests.identifiers import Told

TINY = 1e-9


# -- the bars of what is a name ----------------------------------------------------------


def tasks_with(number: int, **what: set[str]) -> dict[str, Told]:
    """Twenty tasks, `number` of them with this."""
    return {
        f"t{n}": Told(prompts={"an amber one"}, **(what if n < number else {})) for n in range(20)
    }


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
