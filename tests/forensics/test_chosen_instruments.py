"""Which instruments measure: all, those that are named, all but some, or one's own."""

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from forensics import instruments
from forensics.case import Case
from forensics.errors import UserError
from forensics.instruments import (
    QUICK,
    GainTest,
    Instrument,
    chosen_instruments,
    installed_instruments,
    instrument,
    run_instrument,
)
from forensics.records import Undefined

USUAL = [tool.name for tool in installed_instruments() if tool.name != "cliffs"]
SCORE = next(tool for tool in installed_instruments() if tool.name == "score")


def names(*chosen: str | Instrument) -> list[str]:
    return [tool.name for tool in chosen_instruments(chosen)]


def test_nothing_chosen_takes_every_usual_one_in_the_order_of_names() -> None:
    assert names() == USUAL == sorted(USUAL)
    assert [tool.name for tool in chosen_instruments(None)] == USUAL


def test_names_take_these_only_a_minus_leaves_one_out_and_a_plus_adds_one() -> None:
    assert names("score", "behaviour") == ["behaviour", "score"]
    assert names("-kl") == [name for name in USUAL if name != "kl"]
    assert names("score", "kl", "-kl") == ["score"]
    assert names("+cliffs") == sorted([*USUAL, "cliffs"])
    assert names("score", "+cliffs") == ["cliffs", "score"]


def test_what_is_not_usual_decides_no_label() -> None:
    assert all(tool.usual for tool in installed_instruments() if tool.gain_tests)
    assert names(*QUICK) == sorted(QUICK)


def test_an_instrument_of_ones_own_is_measured_with_too() -> None:
    mine = replace(SCORE, name="mine")
    assert chosen_instruments([mine]) == (mine,)
    assert names(mine, "behaviour") == ["behaviour", "mine"]


@pytest.mark.parametrize(
    "chosen,says", [(["nix"], "known: ablation"), (["-nix"], "-nix"), (["score", "-score"], "left")]
)
def test_what_is_not_there_or_leaves_nothing_is_refused(chosen: list[str], says: str) -> None:
    with pytest.raises(UserError, match=says):
        chosen_instruments(chosen)


def bring(monkeypatch: pytest.MonkeyPatch, *tools: Any) -> None:
    """Only these are installed as instruments, and no gain test is."""
    points = {str(number): tool for number, tool in enumerate(tools)}
    group = instruments.GROUPS[0]
    monkeypatch.setattr(instruments, "plugin_points", lambda of: points if of == group else ())
    monkeypatch.setattr(instruments, "load_point", lambda of, name: points[name])
    monkeypatch.setattr(instruments, "package_of", lambda name: "")


def test_two_installed_instruments_never_answer_one_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stranger's `gain.total` in another unit would decide a label."""
    own = replace(SCORE, name="turns", questions=("turns.change", "gain.total"), gain_tests=())
    bring(monkeypatch, SCORE, own)
    with pytest.raises(UserError, match=r"score and turns both answer gain.total; begin"):
        chosen_instruments(None)
    fine = replace(own, questions=("turns.change",))
    bring(monkeypatch, SCORE, fine)
    assert names() == ["score", "turns"]


def test_an_answer_to_a_question_that_was_not_declared_is_refused() -> None:
    def measure(case: Case, config: Any) -> Iterator[Any]:
        yield SimpleNamespace(question="gain.total")

    tool = replace(SCORE, name="turns", questions=("turns.change",), measure=measure, gain_tests=())
    with pytest.raises(UserError, match=r"turns answers gain.total, which is not among"):
        list(run_instrument(tool, cast(Case, None)))


def test_an_instrument_that_is_silent_is_not_reported_to_anybody_in_particular() -> None:
    """Nor is it silent where it answered something else."""
    case = SimpleNamespace(seed=1, input_hashes=dict, code_version="")
    tool = replace(
        SCORE, questions=("a", "b"), measure=lambda case, config: iter(()), gain_tests=()
    )
    for one in run_instrument(tool, cast(Case, case)):
        assert isinstance(one, Undefined) and "author" not in one.cure
        assert one.reason == "`score` gave no answer to this question, and no reason."


@pytest.mark.parametrize("name,questions", [("my test", ()), ("mine", ("mine.carried",))])
def test_a_gain_test_that_could_never_be_cleared_is_refused(
    name: str, questions: tuple[str, ...]
) -> None:
    declared = GainTest(name=name, kind="needed", excludes="anything")
    with pytest.raises(UserError, match=r"the gain test '.*' needs"):
        instrument(
            name="mine", layer="sources", questions=questions, config=None, gain_tests=(declared,)
        )(lambda case, config: iter(()))
