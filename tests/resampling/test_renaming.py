"""Renaming finds a cue that is used by inference, and takes nothing from a skill
that has to name what it works on.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from forensics import conformance
from forensics.protocols import Observation
from forensics.records import Evidence, Undefined
from resampling.gain_tests.gain_study import study_of
from resampling.gain_tests.identifiers import identifiers
from resampling.gain_tests.renaming import Episode, Renaming, guessed, renaming
from tests.resampling.renaming_world import (
    BUILDS,
    MODULES,
    FieldedWorld,
    NamedWorld,
    Reader,
    named_case,
)

BEFORE = Reader("before")
HONEST = Reader("after", skill=0.8)
OVER, PHANTOM = "renaming.over_bar", "renaming.phantom_over_bar"
PLACEBO, CARRIED = "renaming.placebo_over_bar", "renaming.carried"


def told(
    folder: Path, after: Reader, world: Any, before: Reader = BEFORE, roles: int = 4, **how: Any
) -> Any:
    case = named_case(folder, before, after, world, **how)
    return conformance.answers(renaming.configured(tasks=20, most_roles=roles), case)


def test_names_ids_and_places_are_found_without_the_author(tmp_path: Path) -> None:
    known = identifiers(named_case(tmp_path, BEFORE, HONEST, NamedWorld()), ())
    assert {role.name: (set(role.words), role.linked) for role in known.roles} == {
        "fix module _": (set(MODULES), True),
        "commit build _": (set(BUILDS), False),
    }
    assert known.ids and not known.dates and not known.lists and not known.left_out


@pytest.mark.parametrize("seeds", [3, pytest.param(10, marks=pytest.mark.slow)])
@pytest.mark.parametrize("cue,tasks", [("build", 60), ("module", 40)])
def test_a_cue_that_is_used_by_inference_is_found(
    tmp_path: Path, cue: str, tasks: int, seeds: int
) -> None:
    """A word that the prompt alone holds, and the very name that a skill needs;
    by nine seeds of ten.
    """
    found, after = 0, Reader("after", skill=0.3, cued=0.8, cue=cue)
    for seed in range(seeds):
        world, place = NamedWorld(cue=cue), tmp_path / str(seed)
        answers = told(place, after, world, roles=0, seed=seed, tasks=tasks)
        whole = answers[OVER, None]
        found += (
            isinstance(whole, Evidence)
            and whole.interval.low > 0
            and answers[PLACEBO, None].interval.high <= 0
        )
    assert found >= seeds - 1


@pytest.mark.parametrize("cue,place", [("build", "commit build _"), ("module", "fix module _")])
def test_the_place_is_named(tmp_path: Path, cue: str, place: str) -> None:
    answers = told(tmp_path, Reader("after", cued=0.8, cue=cue), NamedWorld(cue=cue), tasks=40)
    carried = [one for one in answers.values() if one.question == CARRIED]
    assert {
        one.about for one in carried if isinstance(one, Evidence) and one.interval.low > 0.2
    } == {
        place,
        "commit build _ + fix module _ + ids",
    }


def test_a_skill_that_names_what_it_works_on_loses_nothing(tmp_path: Path) -> None:
    answers = told(tmp_path, HONEST, NamedWorld())
    whole = answers[OVER, None]
    assert whole.diagnostics["carried"] == 0 and whole.interval.high < 0
    assert whole.diagnostics["runs"] == 640 and whole.diagnostics["runs_unchanged"] == 0
    assert whole.diagnostics["renamed"] == "`commit build _`, `fix module _`, `ids`"
    assert [about for name, about in answers if name == CARRIED] == [
        "commit build _ + fix module _ + ids"
    ], "what is cleared together is not played by itself"


def test_half_skill_and_half_cue_shows_the_half(tmp_path: Path) -> None:
    answers = told(
        tmp_path, Reader("after", skill=0.6, cued=0.75), NamedWorld(cue="build"), tasks=150
    )
    assert 0.2 < answers[OVER, None].diagnostics["carried"] < 0.35
    assert answers[PHANTOM, None].interval.high < 0 < answers[OVER, None].interval.low


# -- a cue, or the question? -----------------------------------------------------------

LEARNED = Reader("after", skill=0.0, cued=0.8, cue="build")  # knows what goes with each build
CLUELESS = Reader("before", skill=0.0)


@pytest.mark.parametrize("question", [None, "none", "build"])
def test_what_may_be_the_question_is_no_find(tmp_path: Path, question: str | None) -> None:
    """The policy before training solves nothing, so it cannot say what is needed."""
    world = FieldedWorld(cue="build", question=question) if question else NamedWorld(cue="build")
    answers = told(tmp_path, LEARNED, world, CLUELESS)
    whole = answers[OVER, None]
    if question == "build":
        assert whole.interval.high < 0 and whole.diagnostics["left_out"] == (
            "commit build _: the question itself"
        )
    else:
        assert isinstance(whole, Undefined) and "`commit build _`" in whole.reason
        assert "fields" in whole.cure and isinstance(answers[PHANTOM, None], Undefined)
        assert answers[CARRIED, "commit build _"].interval.low > 0.5, "it is named all the same"


def test_beside_a_declared_question_it_is_a_find(tmp_path: Path) -> None:
    answers = told(tmp_path, LEARNED, FieldedWorld(cue="build", question="module"), CLUELESS)
    assert answers[OVER, None].interval.low > 0


def test_the_policy_before_training_must_do_better_than_hand_ins_of_other_tasks(
    tmp_path: Path,
) -> None:
    study = study_of(named_case(tmp_path, BEFORE, HONEST, NamedWorld()))
    assert 0 < guessed(study) < 0.02  # a ninth of the modules, a twentieth of the values


class Asking(NamedWorld):
    """Nothing but the question varies: what goes with this build?"""

    def fields(self, task: str) -> Any:
        return {"question": f"build : {self.draw(task).build}"}

    def reset(self, task: str, seed: int) -> Any:
        super().reset(task, seed)
        return Observation(text=f"fix module x at commit 7 build : {self.drawn.build}")

    def step(self, action: str) -> Any:
        told = super().step(action.replace(" x", f" {self.drawn.module}"))
        return replace(told, observation=told.observation.partition(" since")[0])


ASKED = "By the environment's word a question is such as 'build : "


@pytest.mark.parametrize("known", [0.0, 0.6])
def test_words_of_the_question_are_renamed_where_nothing_else_is(
    tmp_path: Path, known: float
) -> None:
    """Whoever knows what goes with a build loses all of it: where *before* does too, it is
    the question; where *before* knew nothing, nobody can tell.
    """
    before, after = (Reader(name, 0.0, cued) for name, cued in (("before", known), ("after", 0.95)))
    whole = told(tmp_path, after, Asking(cue="build"), before)[OVER, None]
    if known:
        assert whole.interval.high <= 0 and whole.diagnostics == {"applicable": False}
        assert ASKED in whole.summary and "needs its words" in whole.summary
    else:
        assert isinstance(whole, Undefined) and ASKED in whole.reason


# -- nothing, and nothing to find ------------------------------------------------------


# -- other names -----------------------------------------------------------------------

MADE = Renaming(
    roles=(("fig", "kiwi", "pear", "plum"),),
    lists=(("fig", "kiwi", "pear", "plum"),),
    ids=True,
    dates=True,
    fixed=frozenset({"abc1234", "2024-02-29"}),
)
TEXTS = (
    "fix kiwi in test_kiwi.py: KIWI, Kiwi-2 and kiwis; pear plum",
    "see 3fa9c1e and 3fa9c1e77b04, ABC-123, #412, abc1234",
    "from 2024-01-05 to 2024-03-04, not 2024-02-29 nor 2024-13-41",
)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("key", ["task-1/0", "task-2/0", "task-2/1"])
def test_renaming_is_undone_word_for_word(text: str, key: str) -> None:
    there = Episode(MADE, key)
    assert there.renamed(text) != text and there.renamed_back(there.renamed(text)) == text
    assert there.renamed(there.renamed_back(text)) == text, "what a policy makes up too"


def test_ids_keep_their_shape_and_what_begins_alike_still_does() -> None:
    short, long, ticket, number, fixed = (
        Episode(MADE, "k").renamed("3fa9c1e 3fa9c1e77b04 ABC-123 #412 abc1234").split()
    )
    assert long.startswith(short) and short != "3fa9c1e" and fixed == "abc1234"
    assert [c.isdigit() for c in long] == [c.isdigit() for c in "3fa9c1e77b04"]
    assert ticket.startswith("ABC-") and ticket != "ABC-123" and number[1] != "0"
