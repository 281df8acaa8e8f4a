"""Unlocked or learned: policies that know, write or can be asked, with known
probabilities, so that what each way of asking adds is arithmetic.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from forensics import conformance
from forensics.errors import MissingInput
from forensics.records import Evidence, Undefined
from resampling.gain_tests.elicitation import elicitation
from resampling.gain_tests.extraction import form_of, of_another
from tests.resampling.answer_world import AnswerWorld, GradingAnswers, Speaker, answer_case

LEARNED = Speaker(skill=0.9)
WORLDS = (AnswerWorld(), GradingAnswers())
WAYS = ("lenient extraction", "template", "few examples", "temperature 0.3")


def unlocked(
    folder: Path, before: Speaker, *afters: Speaker, **case: object
) -> dict[str | None, Evidence | Undefined]:
    made = answer_case(folder, before, *(afters or (LEARNED,)), **case)  # type: ignore[arg-type]
    found = conformance.answers(elicitation, made)
    return {about: one for (question, about), one in found.items() if "unlocked" in question}


def share(answer: Evidence | Undefined) -> float:
    assert isinstance(answer, Evidence), answer
    return float(answer.diagnostics["share"])  # type: ignore[arg-type]


@pytest.mark.parametrize("world", WORLDS, ids=["replayed", "regraded"])
def test_a_skill_without_its_form_is_unlocked(tmp_path: Path, world: AnswerWorld) -> None:
    """Before knows 85 % and writes one answer in twenty as it counts."""
    found = unlocked(tmp_path, Speaker(skill=0.85, form=0.05), world=world)
    for about in ("lenient extraction", None):
        assert 0.8 < share(found[about]) < 1.2
        assert found[about].interval.low > 0.5  # type: ignore[union-attr]
    assert all(share(found[way]) == 0 for way in WAYS[1:])  # it does not listen


def test_what_was_learned_is_not_unlocked(tmp_path: Path) -> None:
    found = unlocked(tmp_path, Speaker(skill=0.3, form=0.95), world=GradingAnswers())
    assert abs(share(found[None])) < 0.1
    assert all(abs(share(found[way])) < 0.1 for way in WAYS)


@pytest.mark.parametrize(("base", "world"), [
    (Speaker(form=0.0), AnswerWorld(answers=2)),
    (Speaker(form=0.0, usual=1.0), AnswerWorld(usual=0.7)),
], ids=["a coin", "the most frequent answer"])  # fmt: skip
def test_right_by_chance_is_not_unlocked(tmp_path: Path, base: Speaker, world: AnswerWorld) -> None:
    """Half (two thirds) of the candidates are right, as many as on other tasks."""
    found = unlocked(tmp_path, base, world=world)
    one = found["lenient extraction"]
    assert isinstance(one, Evidence) and one.diagnostics["guessed"] > 0.4  # type: ignore[operator]
    assert abs(share(one)) < 0.15


def test_what_lenience_adds_to_after_is_subtracted(tmp_path: Path) -> None:
    """Half of the answers of both are not in form: 0.45 more for either."""
    found = unlocked(
        tmp_path, Speaker(skill=0.3, form=0.5), Speaker(skill=0.9, form=0.5), tasks=300
    )
    one = found["lenient extraction"]
    assert isinstance(one, Evidence) and one.estimate == pytest.approx(0.15 - 0.45, abs=0.06)
    assert one.diagnostics["after"] == pytest.approx(0.45, abs=0.05)


@pytest.mark.parametrize(("base", "way", "most"), [
    (Speaker(skill=0.85, form=0.05, says="well", listens="answer ..."), "template", None),
    (Speaker(skill=0.85, form=0.05, says="well", listens="$ answer"), "few examples", None),
    (Speaker(skill=0.1, cold=0.85), "temperature 0.3", "other temperatures"),
], ids=WAYS[1:])  # fmt: skip
def test_each_way_is_found(tmp_path: Path, base: Speaker, way: str, most: str | None) -> None:
    found = unlocked(tmp_path, base)
    assert share(found[way]) > 0.8 and share(found[most]) > 0.75
    others = [share(found[one]) for one in (*WAYS, None) if one not in (way, most)]
    assert all(abs(one) < 0.1 for one in others)  # drawing colder is not asking


def test_the_best_of_several_ways_is_not_chosen_by_luck(tmp_path: Path) -> None:
    """Five ways that add nothing but noise: the most of them is as often below 0."""
    noisy = Speaker(skill=0.3, cold=0.3)
    found = [
        unlocked(tmp_path / str(seed), noisy, Speaker(skill=0.5), tasks=40, seed=seed)[None]
        for seed in range(6)
    ]
    known = [one for one in found if isinstance(one, Evidence)]
    assert known and all(one.interval.contains(0) for one in known)  # type: ignore[union-attr]


def test_pass_at_k(tmp_path: Path) -> None:
    """Of runs that are alike on every task, 1 - (1 - p)^k."""
    case = answer_case(tmp_path, Speaker(skill=0.3), Speaker(skill=0.8), tasks=400)
    found = conformance.answers(elicitation, case)
    for side, p in (("before", 0.3), ("after", 0.8)):
        one = found["elicitation.pass_at_k", side]
        assert isinstance(one, Evidence) and one.diagnostics["k"] == 4
        for k in range(1, 5):
            assert one.diagnostics[f"pass_at_{k}"] == pytest.approx(1 - (1 - p) ** k, abs=0.05)
        assert one.diagnostics["crossing"] is None


def test_guesses_are_answers_of_other_tasks() -> None:
    found: list[Any] = [
        (SimpleNamespace(task=task), text) for task, text in zip("aaab", "1234", strict=True)
    ]
    assert [of_another(found, place) for place in range(4)] == ["4", "4", "4", "2"]
    with pytest.raises(MissingInput, match="are of one task"):
        of_another(found[:3], 0)


def test_the_form_of_a_hand_in() -> None:
    bare = form_of([str(n) for n in (3, 41, 17, -5, 12)])
    assert (bare.prefix, bare.shape) == ("", "number") and bare.had_by("8")
    assert bare.candidate("I think 1,042 of them.") == "1042"
    assert not bare.had_by("I think 8")
    named = form_of([f"submit : x * {n} + {n + 1}" for n in range(10, 30)])
    assert (named.told, named.shape) == ("submit : x * ...", "line")
    boxed = form_of([rf"So \boxed{{{n}}}" for n in range(10, 40)])
    assert boxed.put("7") == r"So \boxed{7}"
    last = form_of([f"Let me see. {'so ' * n}\nAnswer: {n * n}" for n in range(3, 20)])
    assert last.told == "Answer: ..." and last.candidate("thus\nthe answer is **12**") == "12"
    inside = form_of([f"{n} times {n} is therefore {n * n}" for n in range(3, 20)])
    assert inside.shape == "number" and inside.put("4") == "is therefore 4"
    word = form_of([f"city: {name}" for name in ("Rome", "Bonn", "Oslo", "Lima")])
    assert word.candidate("It must be Paris.") == "Paris"
    assert not form_of(["submit"] * 9).varies
    most = form_of([*(f"answer: {n}" for n in range(18)), "I give up", "no answer"])
    assert (most.prefix, most.shape) == ("answer: ", "number")  # nine tenths are enough
    thought = r"<think>So \boxed{4}?</think>"  # counts where nothing follows it
    assert most.candidate(f"{thought} It is 5.") == "5" and most.candidate(thought) == "4"
