"""Unlocked or learned: policies that know, write or can be asked, with known
probabilities, so that what each way of asking adds is arithmetic.
"""

from pathlib import Path

import pytest

from forensics import conformance
from forensics.records import Evidence, Undefined
from resampling.gain_tests.elicitation import elicitation, form_of
from tests.resampling.answer_world import Speaker, answer_case

LEARNED = Speaker(skill=0.9)
WAYS = ("template", "few examples", "temperature 0.3")


def unlocked(
    folder: Path, before: Speaker, *afters: Speaker, **case: object
) -> dict[str | None, Evidence | Undefined]:
    made = answer_case(folder, before, *(afters or (LEARNED,)), **case)  # type: ignore[arg-type]
    found = conformance.answers(elicitation, made)
    return {about: one for (question, about), one in found.items() if "unlocked" in question}


def share(answer: Evidence | Undefined) -> float:
    assert isinstance(answer, Evidence), answer
    return float(answer.diagnostics["share"])  # type: ignore[arg-type]


def test_what_was_learned_is_not_unlocked(tmp_path: Path) -> None:
    found = unlocked(tmp_path, Speaker(skill=0.3, form=0.95))
    assert abs(share(found[None])) < 0.1
    assert all(abs(share(found[way])) < 0.1 for way in WAYS)


@pytest.mark.parametrize(("base", "way", "most"), [
    (Speaker(skill=0.85, form=0.05, says="well", listens="answer ..."), "template", None),
    (Speaker(skill=0.85, form=0.05, says="well", listens="$ answer"), "few examples", None),
    (Speaker(skill=0.1, cold=0.85), "temperature 0.3", "other temperatures"),
], ids=WAYS)  # fmt: skip
def test_each_way_is_found(tmp_path: Path, base: Speaker, way: str, most: str | None) -> None:
    found = unlocked(tmp_path, base)
    assert share(found[way]) > 0.8 and share(found[most]) > 0.75
    others = [share(found[one]) for one in (*WAYS, None) if one not in (way, most)]
    assert all(abs(one) < 0.1 for one in others)  # drawing colder is not asking


def test_the_best_of_several_ways_is_not_chosen_by_luck(tmp_path: Path) -> None:
    """Four ways that add nothing but noise: the most of them is as often below 0."""
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


def test_the_form_of_a_hand_in() -> None:
    bare = form_of([str(n) for n in (3, 41, 17, -5, 12)])
    assert (bare.prefix, bare.shape) == ("", "number")
    named = form_of([f"submit : x * {n} + {n + 1}" for n in range(10, 30)])
    assert (named.told, named.shape) == ("submit : x * ...", "line")
    assert form_of([rf"So \boxed{{{n}}}" for n in range(10, 40)]).told == r"So \boxed{...}"
    last = form_of([f"Let me see. {'so ' * n}\nAnswer: {n * n}" for n in range(3, 20)])
    assert last.told == "Answer: ..."
    inside = form_of([f"{n} times {n} is therefore {n * n}" for n in range(3, 20)])
    assert inside.shape == "number" and inside.told == "is therefore ..."
    word = form_of([f"city: {name}" for name in ("Rome", "Bonn", "Oslo", "Lima")])
    assert (word.told, word.shape) == ("city: ...", "word")
    assert not form_of(["submit"] * 9).varies
    most = form_of([*(f"answer: {n}" for n in range(18)), "I give up", "no answer"])
    assert (most.prefix, most.shape) == ("answer: ", "number")  # nine tenths are enough
