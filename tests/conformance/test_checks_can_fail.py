"""Each check of the conformance suite refuses an instrument that breaks just
that rule, and passes its sound twin.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from forensics import conformance
from forensics.case import Case
from forensics.conformance import Expected, rewritten
from forensics.errors import MissingInput, UserError
from forensics.instruments import Instrument
from forensics.planted import Habits, planted_case
from forensics.records import Control, Evidence, Interval, Provenance, Undefined

QUESTION = "toy.change"
SIGNED = (QUESTION,)
COUNTER = count()


@dataclass(frozen=True, kw_only=True)
class ToyConfig:
    level: float = 0.95


def _means(case: Case) -> tuple[float, float]:
    """Mean outcome before and after. Raises `MissingInput` where no run has one."""
    sides = []
    for side in ("before", "after-0"):
        outcomes = [run.outcome for run in case.rollouts(side) if run.outcome is not None]
        if not outcomes:
            raise MissingInput("No run has an outcome.", "Give logs with outcomes.")
        sides.append(sum(outcomes) / len(outcomes))
    return sides[0], sides[1]


def _answer(estimate: float, **fields: object) -> Evidence:
    sound = Evidence(
        question=QUESTION,
        layer="behaviour",
        method="toy",
        provenance=Provenance(instrument="toy"),
        estimate=estimate,
        unit="score",
        interval=Interval(low=estimate - 0.15, high=estimate + 0.15),
        n=1,
        clusters=1,
    )
    return sound.model_copy(update=fields)


def _tool(measure: Callable[[Case], Evidence]) -> Instrument:
    def run(case: Case, config: ToyConfig) -> Iterator[Evidence | Undefined]:
        yield measure(case)

    return Instrument(
        name="toy", layer="behaviour", questions=(QUESTION,), config=ToyConfig(), measure=run
    )


def _sound(case: Case) -> Evidence:
    before, after = _means(case)
    return _answer(after - before)


def _absolute(case: Case) -> Evidence:
    before, after = _means(case)
    return _answer(abs(after - before))


def _zero_for_missing(case: Case) -> Evidence:
    try:
        return _sound(case)
    except MissingInput:
        return _answer(0.0)


def _first_run_decides(case: Case) -> Evidence:
    return _answer(
        float(next(iter(case.rollouts("after-0"))).outcome or 0)
        + next(iter(case.rollouts("before"))).seed
    )


SOUND = _tool(_sound)


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return planted_case(
        tmp_path_factory.mktemp("toy"), Habits(skill=0.2), Habits(skill=0.8), tasks=20, samples=2
    )


def test_a_sound_instrument_passes(case: Case, tmp_path: Path) -> None:
    conformance.check_questions(SOUND, case)
    conformance.check_finds(SOUND, case, [Expected(question=QUESTION, low=0.3, truth=0.54)])
    conformance.check_swap(SOUND, case, signed=SIGNED)
    conformance.check_same_bits(SOUND, case)
    conformance.check_order(SOUND, case, tmp_path, np.random.default_rng(1))
    conformance.check_saved(SOUND, case, tmp_path)
    assert conformance.check_missing(SOUND, case, _without_outcomes(case, tmp_path)) == 1


def test_unknown_and_missing_questions_are_refused(case: Case) -> None:
    with pytest.raises(UserError, match="not among its questions"):
        conformance.check_questions(_tool(lambda case: _answer(0.0, question="toy.other")), case)


def test_the_folder_in_an_answer_is_refused(case: Case) -> None:
    with pytest.raises(AssertionError, match="folder"):
        conformance.check_questions(
            _tool(lambda case: _answer(0.0, summary=str(case.folder))), case
        )


def test_a_missed_cause_is_refused(case: Case) -> None:
    with pytest.raises(AssertionError, match="outside"):
        conformance.check_finds(SOUND, case, [Expected(question=QUESTION, high=0.1)])
    with pytest.raises(AssertionError, match="misses the truth"):
        conformance.check_finds(SOUND, case, [Expected(question=QUESTION, truth=0.0)])
    with pytest.raises(AssertionError, match="raise an alarm"):
        conformance.check_finds(SOUND, case, [Expected(question=QUESTION, alarm=True)])
    with pytest.raises(AssertionError, match="should be measured"):
        conformance.check_finds(SOUND, case, [Expected(question="toy.other")])


@pytest.mark.parametrize("loud", [
    _answer(0.5),
    _answer(0.0, control=Control(name="null", p_value=0.01)),
    _answer(0.5, control=Control(name="before", interval=Interval(low=0.0, high=0.3))),
    _answer(1.0, unit=conformance.YES_OR_NO, interval=None),
], ids=["interval", "p-value", "apart from the control", "yes"])  # fmt: skip
def test_an_instrument_that_cries_wolf_is_refused(case: Case, loud: Evidence) -> None:
    signed = SIGNED if loud.control is None else ()
    with pytest.raises(AssertionError, match="identical pairs"):
        conformance.check_silent(_tool(lambda case: loud), [case] * 8, signed=signed)


def test_alarms_at_the_stated_rate_pass(case: Case) -> None:
    turn = count()
    rare = _tool(lambda case: _answer(0.5 if next(turn) == 7 else 0.0))
    assert conformance.check_silent(rare, [case] * 20, signed=SIGNED) == {(QUESTION, None): (1, 20)}


def test_an_unsigned_change_is_refused(case: Case) -> None:
    with pytest.raises(AssertionError, match="one way"):
        conformance.check_swap(_tool(_absolute), case, signed=SIGNED)


def test_chance_outside_the_seed_is_refused(case: Case) -> None:
    with pytest.raises(AssertionError, match="different things"):
        conformance.check_same_bits(_tool(lambda case: _answer(float(next(COUNTER)))), case)


def test_dependence_on_order_is_refused(case: Case, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="order"):
        conformance.check_order(_tool(_first_run_decides), case, tmp_path, np.random.default_rng(2))


def test_a_number_for_what_is_missing_is_refused(case: Case, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="input is missing"):
        conformance.check_missing(_tool(_zero_for_missing), case, _without_outcomes(case, tmp_path))


def _without_outcomes(case: Case, folder: Path) -> Case:
    return rewritten(
        case, folder, lambda runs: [run.model_copy(update={"outcome": None}) for run in runs]
    )
