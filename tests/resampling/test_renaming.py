"""Renaming finds a cue that is used by inference, and takes nothing from a skill
that has to name what it works on.
"""

from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from forensics import conformance
from forensics.protocols import Observation
from forensics.records import Evidence, Undefined, content_hash
from resampling.sources.identifiers import identifiers
from resampling.sources.renamed_world import Episode, Renaming
from resampling.sources.renames import RenamingConfig, guessed, plays, renaming
from resampling.sources.source_study import study_of
from tests.environment_checks import check_environment
from tests.resampling.renaming_world import (
    BUILDS,
    MODULES,
    FieldedWorld,
    NamedWorld,
    Reader,
    named_case,
)
from training import MiniRepo
from training.environments.mini_repo_tasks import NAMES as FRUITS

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


def test_with_more_tasks_such_a_gain_is_phantom(tmp_path: Path) -> None:
    after = Reader("after", skill=0.3, cued=0.8, cue="module")
    answers = told(tmp_path, after, NamedWorld(cue="module"), tasks=150)
    assert answers[PHANTOM, None].interval.low > 0
    assert abs(answers["renaming.left", None].estimate) < 0.05


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


def test_what_is_surely_a_name_is_a_find_beside_what_is_not(tmp_path: Path) -> None:
    after = Reader("after", skill=0.0, cued=0.9, cue="module")
    answers = told(tmp_path, after, NamedWorld(cue="module"), CLUELESS)
    assert answers[OVER, None].interval.low > 0
    assert answers[OVER, None].diagnostics["renamed"] == "`fix module _`, `ids`"


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


@pytest.mark.parametrize(("skill", "nearly_all"), [(0.0, True), (0.3, False)])
def test_before_needs_the_words_for_nearly_all_that_it_wins(
    tmp_path: Path, skill: float, nearly_all: bool
) -> None:
    """A fifth of it may be won without them."""
    sides = Reader("before", skill, 0.6), Reader("after", skill, 0.95)
    whole = told(tmp_path, sides[1], Asking(cue="build"), sides[0])[OVER, None]
    said = whole.summary if isinstance(whole, Evidence) else whole.reason
    assert ("for nearly all that it wins" in said) == nearly_all


class Listing(Asking):
    """And the question lists some of its names."""

    def fields(self, task: str) -> Any:
        some = sorted(BUILDS, key=lambda word: content_hash([task, word]))[:3]
        return {"question": f"build : {self.draw(task).build} of {', '.join(some)}"}

    def reset(self, task: str, seed: int) -> Any:
        super().reset(task, seed)
        return Observation(text=f"fix module x at commit 7 {self.fields(task)['question']}")


def test_a_list_in_the_question_is_no_other_thing_to_rename(tmp_path: Path) -> None:
    """Nothing would be renamed then, and that would clear the family."""
    known = identifiers(named_case(tmp_path / "0", BEFORE, HONEST, Listing(cue="build")), ())
    assert known.question and not known.roles and not known.lists
    before, after = Reader("before", 0.0), Reader("after", 0.0, 0.95)
    whole = told(tmp_path / "1", after, Listing(cue="build"), before)[OVER, None]
    assert isinstance(whole, Undefined) and ASKED in whole.reason


def test_a_skill_that_does_not_hang_on_them_is_cleared(tmp_path: Path) -> None:
    whole = told(tmp_path, HONEST, Asking())[OVER, None]
    assert whole.interval.high < 0 == whole.diagnostics["carried"]
    assert whole.diagnostics["renamed"] == "`commit build _`"


# -- nothing, and nothing to find ------------------------------------------------------


class Plain(NamedWorld):
    """A world that names nothing."""

    def reset(self, task: str, seed: int) -> Any:
        super().reset(task, seed)
        return Observation(text="fix module x at commit 7 build : x")

    def step(self, action: str) -> Any:
        told = super().step(action.replace(" x", f" {self.drawn.module}"))
        return replace(told, observation=told.observation.partition(" since")[0])


class Everyday(NamedWorld):
    """The words of its prompts are its commands."""

    def draw(self, task: str) -> Any:
        drawn = super().draw(task)
        verb = "submit" if drawn.value % 2 else "read"
        return replace(drawn, build=verb, module="core", commit="7")


def test_without_names_there_is_nothing_to_rename(tmp_path: Path) -> None:
    answers = told(tmp_path, HONEST, Plain())
    assert answers[OVER, None].interval.high < 0 == answers[OVER, None].n
    assert answers[OVER, None].diagnostics == {"applicable": False}


def test_what_has_names_that_cannot_be_renamed_is_not_tested(tmp_path: Path) -> None:
    answers = told(tmp_path, HONEST, Everyday())
    assert isinstance(answers[OVER, None], Undefined)
    assert "commit build _: its words are used elsewhere too" in answers[OVER, None].reason


def test_a_policy_against_itself_is_not_asked_about(tmp_path: Path) -> None:
    for seed in range(5):
        answers = told(tmp_path / str(seed), Reader("after"), NamedWorld(), seed=seed, tasks=30)
        assert all(isinstance(one, Undefined) for one in answers.values())


def test_the_same_seed_gives_the_same_answers(tmp_path: Path) -> None:
    world, after = NamedWorld(cue="build"), Reader("after", cued=0.8)
    one, other = (told(tmp_path / name, after, world, tasks=30) for name in "ab")
    assert {key: answer.id for key, answer in one.items()} == {
        key: answer.id for key, answer in other.items()
    }


@pytest.mark.slow
def test_it_plays_no_more_than_it_says(tmp_path: Path) -> None:
    case = named_case(tmp_path, CLUELESS, LEARNED, NamedWorld(cue="build"))
    conformance.answers(renaming, case)
    played = sum(
        pq.read_metadata(path).num_rows for path in (tmp_path / "trajectories").glob("*-altered-*")
    )
    assert played == 2 * 4 * (80 + 80 + 3 * 80) <= plays(case, RenamingConfig()).most


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


def test_every_name_gets_another_and_keeps_its_letter_case() -> None:
    for number in range(20):
        there = Episode(MADE, f"{number}")
        words = there.renamed("fig kiwi pear plum").split()
        assert sorted(words) == ["fig", "kiwi", "pear", "plum"]
        assert all(new != old for new, old in zip(words, MADE.roles[0], strict=True))
        kiwi = words[1]
        assert there.renamed("KIWI Kiwi test_kiwi kiwis") == (
            f"{kiwi.upper()} {kiwi.capitalize()} test_{kiwi} kiwis"
        )


def test_ids_keep_their_shape_and_what_begins_alike_still_does() -> None:
    short, long, ticket, number, fixed = (
        Episode(MADE, "k").renamed("3fa9c1e 3fa9c1e77b04 ABC-123 #412 abc1234").split()
    )
    assert long.startswith(short) and short != "3fa9c1e" and fixed == "abc1234"
    assert [c.isdigit() for c in long] == [c.isdigit() for c in "3fa9c1e77b04"]
    assert ticket.startswith("ABC-") and ticket != "ABC-123" and number[1] != "0"


def test_dates_move_by_whole_weeks_together() -> None:
    one, other = Episode(MADE, "k").renamed("2024-01-05 2024-03-04").split()
    moved = date.fromisoformat(one) - date(2024, 1, 5)
    assert date.fromisoformat(other) - date(2024, 3, 4) == moved
    assert moved.days % 7 == 0 and 8 <= abs(moved.days) // 7 <= 260


@pytest.mark.parametrize("text", ["of: kiwi, plum, fig", "of:\n- kiwi\n- plum\n- fig"])
def test_lists_of_names_are_shuffled_and_nothing_else(text: str) -> None:
    orders = {Episode(MADE, str(key)).shuffled(text) for key in range(30)}
    assert len(orders) == 6 and {len(one) for one in orders} == {len(text)}
    for other in ("kiwi, plum", "kiwi, house, fig", "1. kiwi\n2. plum\n3. fig", "kiwi plum fig"):
        assert Episode(MADE, "1").shuffled(other) == other


def test_it_is_an_environment() -> None:
    world: Any = Renaming(roles=(FRUITS,)).alteration.of(MiniRepo())
    check_environment(world, ["list", "open 1 ; history", "nonsense", "submit"])
    assert world.needed == MiniRepo.needed and "renamed:" in world.options["altered"]


def test_other_renamings_have_other_names() -> None:
    changes = ({"roles": ()}, {"lists": ()}, {"ids": False}, {"dates": False}, {"fixed": set()})
    names = {replace(MADE, **change).alteration.name for change in changes}
    assert len(names | {MADE.alteration.name}) == 6
