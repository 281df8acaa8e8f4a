"""The signal layer on records with a planted course, and through the checks
that every instrument passes.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from forensics import conformance
from forensics.case import Case
from forensics.conformance import Expected
from forensics.errors import MissingInput, UserError
from forensics.instruments import run_instrument
from forensics.layers.signal import QUESTIONS, signal
from forensics.layers.signal_changes import LINES, parse_line
from forensics.layers.train_columns import group_numbers
from forensics.records import Evidence, Figure, Table, TrainingRow, Undefined
from forensics.records.train_tables import TrainingRecord, write_shard
from forensics.report.charts import draw
from forensics.statistics import unpaired
from tests.forensics.planted_run import HEALTHY, HURT, Course, case_of, write_run

Answers = dict[str, Evidence | Undefined]


@pytest.fixture(scope="module")
def hurt(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return case_of(write_run(tmp_path_factory.mktemp("hurt"), HEALTHY, HURT))


@pytest.fixture(scope="module")
def found(hurt: Case) -> Answers:
    return {answer.question: answer for answer in run_instrument(signal, hurt)}


def test_the_planted_course_is_found(hurt: Case) -> None:
    """Group of 8 at p = 1/2: dead with probability 2/256. Hurt: .5 solid, .3
    hopeless, else as before; KL .3; entropy down .8; log-probability up .96.
    One text of six equal tokens: 1 of 8 different, before 8 draws of 64.
    """
    chance = 2 / 256
    different = 64 * (1 - (63 / 64) ** 8) / 8
    conformance.check_finds(
        signal,
        hurt,
        [
            Expected(question="signal.dead_share", truth=0.8 * (1 - chance), alarm=True),
            Expected(question="signal.dead_successes", truth=0.5 - 0.8 * chance / 2, alarm=True),
            Expected(question="signal.dead_failures", truth=0.3 - 0.8 * chance / 2, alarm=True),
            Expected(question="signal.kept", truth=-0.8 * (1 - chance), alarm=True),
            Expected(question="signal.entropy", low=-0.82, high=-0.78, truth=-0.8, alarm=True),
            Expected(question="signal.logprob", low=0.94, high=0.98, truth=0.96, alarm=True),
            Expected(question="signal.kl_to_start", low=0.299, high=0.301, truth=0.3, alarm=True),
            Expected(question="signal.diversity", truth=1 / 8 - different, alarm=True),
            Expected(question="signal.length", low=0, high=0, truth=0, alarm=False),
            Expected(question="signal.truncated", low=0, high=0, truth=0, alarm=False),
        ],
    )


def test_the_conformance_checks(hurt: Case, tmp_path: Path) -> None:
    conformance.check_questions(signal, hurt)
    conformance.check_same_bits(signal, hurt)
    conformance.check_saved(signal, hurt, tmp_path)


@pytest.mark.parametrize("runs", [6, pytest.param(16, marks=pytest.mark.slow)])
def test_a_healthy_run_raises_no_alarm(tmp_path: Path, runs: int) -> None:
    """Steady runs: each question at its stated rate, and no line of the
    field that a healthy run crosses.
    """
    cases = [
        case_of(
            write_run(tmp_path / str(i), HEALTHY, HEALTHY, steps=10, groups=8, samples=4, seed=i),
            seed=i,
        )
        for i in range(runs)
    ]
    conformance.check_silent(signal.configured(repeats=199), cases)


def test_the_order_of_rows_changes_no_bit(tmp_path: Path) -> None:
    cases = []
    for name, order in (("straight", 1), ("reversed", -1)):
        folder = write_run(tmp_path / name, HEALTHY, HURT, steps=4, groups=4)
        record = TrainingRecord(folder)
        for step in record.steps():
            write_shard(folder, step, list(record.rows(step))[::order], {}, "test")
        cases.append({a.question: a for a in run_instrument(signal, case_of(folder))})
    for question, answer in cases[0].items():
        other = cases[1][question]
        assert isinstance(answer, Evidence) and isinstance(other, Evidence)
        assert (answer.estimate, answer.interval, answer.control) == (
            other.estimate,
            other.interval,
            other.control,
        )


def test_without_a_record_every_question_is_undefined(tmp_path: Path) -> None:
    answers = list(run_instrument(signal, Case(folder=tmp_path)))
    assert {a.question for a in answers} == set(signal.questions)
    assert all(isinstance(a, Undefined) and "forensics train" in a.cure for a in answers)


@pytest.mark.parametrize(
    ("forgotten", "lost"),
    [
        ({"reference_logprobs": None}, {"signal.kl_to_start"}),
        ({"entropies": None}, {"signal.entropy"}),
        ({"outcome": None}, {"signal.success", "signal.dead_successes", "signal.dead_failures"}),
        (
            {"reward": None},
            {
                "signal.reward",
                "signal.reward_spread",
                "signal.dead_share",
                "signal.dead_successes",
                "signal.dead_failures",
            },
        ),
        (
            {
                "token_ids": None,
                "sampled": None,
                "sampler_logprobs": None,
                "reference_logprobs": None,
                "entropies": None,
            },
            {
                "signal.length",
                "signal.diversity",
                "signal.entropy",
                "signal.logprob",
                "signal.kl_to_start",
            },
        ),
    ],
)
def test_what_no_row_tells_is_undefined(
    tmp_path: Path, forgotten: dict[str, Any], lost: set[str]
) -> None:
    folder = write_run(tmp_path, HEALTHY, HURT, steps=4, groups=6, **forgotten)
    answers = {answer.question: answer for answer in run_instrument(signal, case_of(folder))}
    assert {q for q, answer in answers.items() if isinstance(answer, Undefined)} == lost
    for question in lost:
        answer = answers[question]
        assert (
            isinstance(answer, Undefined)
            and answer.reason
            and answer.cure == QUESTIONS[question][2]
        )


def test_one_step_gives_no_change(tmp_path: Path) -> None:
    answers = list(run_instrument(signal, case_of(write_run(tmp_path, HEALTHY, HURT, steps=1))))
    assert all(isinstance(a, Undefined) and "1 complete step" in a.reason for a in answers)


def test_missing_steps_are_told(tmp_path: Path) -> None:
    folder = write_run(tmp_path, HEALTHY, HURT, steps=8, only=[0, 1, 4, 7])
    answer = next(iter(run_instrument(signal, case_of(folder))))
    assert isinstance(answer, Evidence) and answer.diagnostics["missing_steps"] == 4


def test_alert_lines_are_shown_with_their_source(found: Answers) -> None:
    alerts, dead = found["signal.alerts"], found["signal.dead_share"]
    assert isinstance(alerts, Evidence) and isinstance(dead, Evidence)
    table = next(artifact for artifact in alerts.artifacts if isinstance(artifact, Table))
    crossed = {row[0]: row for row in table.rows if row[4]}
    assert set(crossed) == {
        "dead share",
        "mean log-probability",
        "kept share",
        "turns of failed runs: ratio",
    }
    # dead share .8 and log-probability -.04 lie beyond two lines each, kept .2 and
    # ratio 2 beyond one; the collapse
    assert alerts.estimate == 7 and alerts.diagnostics["exploration collapse"] is True
    assert all(row[5] for row in table.rows) and len(table.rows) == len(LINES)
    assert "critical above 0.5 (2606.03108)" in str(dead.diagnostics["alerts"])
    figure = next(artifact for artifact in dead.artifacts if isinstance(artifact, Figure))
    assert {series.name for series in figure.series} >= {
        "dead share",
        "warning above 0.3 (2606.03108)",
    }
    assert len(figure.series[0].x) == 20 and "<svg" in draw(figure, prefix="x")


def test_lines_are_configurable_and_stated(hurt: Case) -> None:
    strict = signal.configured(alerts=("length > 5 critical, house rule",))
    answers = {answer.question: answer for answer in run_instrument(strict, hurt)}
    alerts = answers["signal.alerts"]
    assert isinstance(alerts, Evidence) and alerts.diagnostics["critical"] == 1
    assert alerts.provenance.config["alerts"] == ["length > 5 critical, house rule"]
    with pytest.raises(UserError, match="is not an alert line"):
        list(run_instrument(signal.configured(alerts=("length is too large",)), hurt))


def test_every_line_of_the_field_names_a_measure_that_exists(found: Answers) -> None:
    measures = {measure for measure, _, _ in QUESTIONS.values()} | {"turns of failed runs: ratio"}
    assert {parse_line(text).measure for text in LINES} <= measures


@pytest.mark.parametrize(
    ("end", "alone"),
    [
        (Course(bonus=0.5), True),
        (Course(bonus=0.5, success=0.95), False),
        (Course(), False),
    ],
)
def test_reward_up_while_the_success_rate_is_flat(tmp_path: Path, end: Course, alone: bool) -> None:
    folder = write_run(tmp_path, HEALTHY, end, steps=20, groups=32, seed=3)
    lenient = signal.configured(flat=0.15)  # far above what chance does to a flat success rate here
    alerts = {answer.question: answer for answer in run_instrument(lenient, case_of(folder))}[
        "signal.alerts"
    ]
    assert isinstance(alerts, Evidence) and alerts.diagnostics["reward up, success flat"] is alone


def _run(
    reward: float | None, outcome: float | None = None, dropped: str | None = None
) -> dict[str, Any]:
    return {"reward": reward, "outcome": outcome, "dropped": dropped, "drawn": None}


@pytest.mark.parametrize(
    ("rewards", "dead"),
    [
        ([0.37] * 4, 1.0),  # constant and continuous
        ([1.0, 0.0, 0.0, 0.0], 0.0),  # one success
        ([0.0, 0.0, 0.0, 0.0], 1.0),
        ([0.5, 0.5 + 1e-12], 0.0),  # exact equality by default
        ([1.0, None, 1.0], 1.0),  # an errored run takes no part
        ([1.0, None], None),  # a group of one cannot be told
        ([None], None),
    ],
)
def test_dead_groups(rewards: list[float | None], dead: float | None) -> None:
    assert group_numbers([_run(reward) for reward in rewards], 0.0, 0.5).get("dead share") == dead


def test_a_tolerance_is_one_of_the_whole_group() -> None:
    """Neighbours are within the tolerance, the ends are not."""
    ladder = [_run(value) for value in (0.0, 0.09, 0.18)]
    assert group_numbers(ladder, 0.1, 0.5)["dead share"] == 0
    assert group_numbers(ladder, 0.18, 0.5)["dead share"] == 1


def test_the_tolerance_of_the_run_is_used(tmp_path: Path) -> None:
    folder = write_run(tmp_path, HEALTHY, HEALTHY, steps=4, groups=6)
    path = folder / "record" / "run.json"
    path.write_text(path.read_text().replace('"dead_tolerance": 0.0', '"dead_tolerance": 1.0'))
    dead = {a.question: a for a in run_instrument(signal, case_of(folder))}["signal.dead_share"]
    assert isinstance(dead, Evidence) and dead.diagnostics["last"] == 1


values = st.lists(st.floats(-5, 5), min_size=2, max_size=12)


@given(values, values, st.floats(-3, 3))
@example([0.0, 0.0], [0.0, 2.1e-306], 0.0)  # a range whose square is 0
def test_a_difference_of_means_turns_with_its_sides(
    first: list[float], last: list[float], shift: float
) -> None:
    there = unpaired(np.array(first), np.array(last))
    back = unpaired(np.array(last), np.array(first))
    assert there.estimate == -back.estimate and there.low == pytest.approx(-back.high, abs=1e-9)
    assert there.low <= there.estimate <= there.high and there.low < there.high
    assert there.estimate == pytest.approx(np.mean(last) - np.mean(first), abs=1e-9)


def test_intervals_cover_at_their_level() -> None:
    """Unequal sizes and variances, where the pooled t test fails: at least 95 %
    within simulation error.
    """
    generator = np.random.default_rng(0)
    hits = 0
    for _ in range(1000):
        sides = generator.normal(0, 0.3, 6), generator.normal(0.2, 1.0, 30)
        found = unpaired(*sides)
        hits += found.low <= 0.2 <= found.high
    assert hits >= 935


def test_a_single_task_gives_no_spread() -> None:
    with pytest.raises(MissingInput, match="1 task,"):
        unpaired(np.zeros(1), np.zeros(5))


def test_rows_reach_the_report_without_a_method_by_name(found: Answers) -> None:
    """Every answer with a figure draws, whatever the measure."""
    for answer in found.values():
        assert isinstance(answer, Evidence) and answer.summary
        for artifact in answer.artifacts:
            if isinstance(artifact, Figure):
                assert "<svg" in draw(artifact, prefix="x")


def test_a_broken_record_is_bad_input(tmp_path: Path) -> None:
    folder = write_run(tmp_path, HEALTHY, HEALTHY, steps=3, groups=4)
    (folder / "record" / "step-000001.parquet").write_bytes(b"PAR1")
    with pytest.raises(UserError, match=r"step-000001\.parquet"):
        list(run_instrument(signal, case_of(folder)))


def test_planted_rows_are_ordinary_rows(hurt: Case) -> None:
    assert all(isinstance(row, TrainingRow) for row in hurt.training_record.rows(0))
