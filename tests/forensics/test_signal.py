"""The signal layer on records with a planted course, and through the checks
that every instrument passes.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forensics import conformance
from forensics.case import Case
from forensics.conformance import Expected
from forensics.errors import UserError
from forensics.instruments import run_instrument
from forensics.layers.signal import LINES, group_numbers, signal
from forensics.records import Evidence, Figure, Table, Undefined
from forensics.records.train_tables import TrainingRecord, write_shard
from forensics.report.charts import draw
from forensics.statistics import unpaired
from tests.forensics.planted_run import HEALTHY, HURT, case_of, write_run

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


@pytest.mark.parametrize("runs", [6])
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


def _run(
    reward: float | None, outcome: float | None = None, dropped: str | None = None
) -> dict[str, Any]:
    told = {"reward": reward, "outcome": outcome, "dropped": dropped}
    return {**told, "advantage": None, "drawn": None}


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


def test_a_broken_record_is_bad_input(tmp_path: Path) -> None:
    folder = write_run(tmp_path, HEALTHY, HEALTHY, steps=3, groups=4)
    (folder / "record" / "step-000001.parquet").write_bytes(b"PAR1")
    with pytest.raises(UserError, match=r"step-000001\.parquet"):
        list(run_instrument(signal, case_of(folder)))


def test_without_a_record_every_question_is_undefined(tmp_path: Path) -> None:
    answers = list(run_instrument(signal, Case(folder=tmp_path)))
    assert {a.question for a in answers} == set(signal.questions)
    assert all(isinstance(a, Undefined) and "forensics train" in a.cure for a in answers)
