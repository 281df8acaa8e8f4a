"""The reward-dimension backtest: terms whose worth is known exactly."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from forensics.errors import UserError
from forensics.layers.backtest import (
    CORRELATION,
    REVIVED,
    BacktestConfig,
    CachedGroup,
    Term,
    backtest,
    cached_groups,
    outcome_correlation,
    shuffled,
    tie_breaker,
)
from forensics.records import Evidence, TrainingRow, Undefined
from forensics.records.train_tables import TrainingRecord, write_shard
from tests.forensics.planted_run import HEALTHY, HURT, write_run

CONFIG = BacktestConfig(draws=5)


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> TrainingRecord:
    """The second half has 8 of 10 groups dead."""
    return TrainingRecord(write_run(tmp_path_factory.mktemp("run"), HEALTHY, HURT, steps=8))


def ask(record: TrainingRecord, term: Term, seed: int = 0) -> dict[str, Evidence | Undefined]:
    return {answer.question: answer for answer in backtest(record, term, "term", CONFIG, seed)}


def measured(answer: Evidence | Undefined) -> Evidence:
    assert isinstance(answer, Evidence), answer
    return answer


def dead_groups(record: TrainingRecord) -> int:
    return sum(group.dead(0.0) for group in cached_groups(record, lambda row: 0.0))


def test_the_outcome_itself_revives_nothing_and_points_exactly_right(
    record: TrainingRecord,
) -> None:
    found = ask(record, lambda row: row.outcome)
    revived, correlation = measured(found[REVIVED]), measured(found[CORRELATION])
    assert revived.estimate == 0 and revived.n == dead_groups(record) > 20
    assert correlation.estimate == pytest.approx(1) and correlation.interval is not None
    assert correlation.interval.low == pytest.approx(1)


def test_noise_revives_everything_and_points_nowhere(record: TrainingRecord) -> None:
    generator = np.random.default_rng(1)
    found = ask(record, lambda row: float(generator.standard_normal()))
    revived, correlation = measured(found[REVIVED]), measured(found[CORRELATION])
    assert revived.estimate == 1 and revived.control is not None and revived.control.estimate == 1
    assert correlation.interval is not None and correlation.interval.contains(0)


def test_a_term_that_tells_apart_some_groups_revives_exactly_those(record: TrainingRecord) -> None:
    """One run of every group with an even number gets a bonus: it revives the
    dead ones among them, and only those.
    """

    def bonus(row: TrainingRow) -> float:
        return float(row.sample == 0 and int(row.group.split("-")[1]) % 2 == 0)

    dead = [group for group in cached_groups(record, bonus) if group.dead(0.0)]
    expected = sum(np.ptp(group.term) > 0 for group in dead) / len(dead)
    assert (
        measured(ask(record, bonus)[REVIVED]).estimate == pytest.approx(expected)
        and 0 < expected < 1
    )


def test_a_constant_term_has_no_direction(record: TrainingRecord) -> None:
    found = ask(record, lambda row: 3.0)
    assert measured(found[REVIVED]).estimate == 0
    correlation = found[CORRELATION]
    assert isinstance(correlation, Undefined) and "never differs" in correlation.reason


def test_a_term_nobody_recorded_is_undefined(record: TrainingRecord) -> None:
    found = ask(record, lambda row: row.rewards.get("unheard of"))
    assert all(isinstance(answer, Undefined) and answer.cure for answer in found.values())


def test_the_sign_of_a_term_turns_its_correlation_and_nothing_else(record: TrainingRecord) -> None:
    generator = np.random.default_rng(2)
    noise = {
        row.trajectory: generator.standard_normal()
        for step in record.steps()
        for row in record.rows(step)
    }
    up = ask(record, lambda row: (row.outcome or 0) + noise[row.trajectory])
    down = ask(record, lambda row: -(row.outcome or 0) - noise[row.trajectory])
    assert measured(up[CORRELATION]).estimate == pytest.approx(
        -measured(down[CORRELATION]).estimate
    )
    assert measured(up[REVIVED]).estimate == measured(down[REVIVED]).estimate


def test_the_same_seed_gives_the_same_bits_in_any_order(
    record: TrainingRecord, tmp_path: Path
) -> None:
    folder = write_run(tmp_path, HEALTHY, HURT, steps=8)
    for step in record.steps():
        write_shard(folder, step, list(record.rows(step))[::-1], {}, "test")
    one, other = (
        ask(r, lambda row: float(row.turns) + row.sample) for r in (record, TrainingRecord(folder))
    )
    for question, answer in one.items():
        first, second = measured(answer), measured(other[question])
        assert (first.estimate, first.interval, first.control) == (
            second.estimate,
            second.interval,
            second.control,
        )


def test_the_tie_breaker_has_the_terms_variance_within_groups() -> None:
    generator = np.random.default_rng(3)
    groups = [
        CachedGroup(
            task=str(i),
            rewards=np.zeros(8),
            term=10.0 * i + 0.3 * generator.standard_normal(8),
            outcomes=np.zeros(8),
        )
        for i in range(2000)
    ]
    noise = np.concatenate(tie_breaker(groups, generator))
    assert noise.std() == pytest.approx(0.3, rel=0.03)
    assert sorted(np.concatenate(shuffled(groups, generator))) == sorted(
        np.concatenate([g.term for g in groups])
    )


numbers = st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=8)


@given(st.lists(numbers, min_size=2, max_size=6))
def test_the_correlation_is_that_of_centred_groups(content: list[list[tuple[int, bool]]]) -> None:
    """Independent computation: numpy's coefficient over all runs of mixed
    groups, each centred by its group.
    """
    groups = [
        CachedGroup(
            task=str(i),
            rewards=np.zeros(len(g)),
            term=np.array([float(x) for x, _ in g]),
            outcomes=np.array([float(y) for _, y in g]),
        )
        for i, g in enumerate(content)
    ]
    mixed = [g for g in groups if np.ptp(g.outcomes) > 0]
    if len(mixed) < 2 or sum(np.ptp(g.term) for g in mixed) == 0:
        return
    found = outcome_correlation(groups, [g.term for g in groups])
    x = np.concatenate([g.term - g.term.mean() for g in mixed])
    y = np.concatenate([g.outcomes - g.outcomes.mean() for g in mixed])
    assert found.estimate == pytest.approx(np.corrcoef(x, y)[0, 1], abs=1e-9)
    assert found.low <= found.estimate <= found.high
    assert (found.n, found.clusters) == (len(x), len(mixed))


def test_the_interval_of_the_correlation_covers() -> None:
    """Groups of 8; term = outcome + noise of deviation 1: the true within-group
    correlation is 0.5 / sqrt(1.25).
    """
    generator, hits, truth = np.random.default_rng(4), 0, 0.5 / np.sqrt(1.25)
    for _ in range(400):
        groups = []
        for i in range(40):
            outcomes = (generator.random(8) < 0.5).astype(float)
            groups.append(
                CachedGroup(
                    task=str(i),
                    rewards=outcomes,
                    term=outcomes + generator.standard_normal(8),
                    outcomes=outcomes,
                )
            )
        found = outcome_correlation(groups, [g.term for g in groups])
        hits += found.low <= truth <= found.high
    assert 0.91 <= hits / 400 <= 0.99


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "0.5", [0.5]])
def test_a_term_that_is_no_finite_number_is_refused(record: TrainingRecord, value: object) -> None:
    with pytest.raises(UserError, match="one finite number, or None") as caught:
        ask(record, lambda row: value if row.sample == 1 else 0.0)  # type: ignore[arg-type, return-value]
    assert "\n" not in str(caught.value) and repr(value) in str(caught.value)


def test_a_numpy_number_is_a_term(record: TrainingRecord) -> None:
    plain, numpy = (
        ask(record, lambda row, as_=as_: as_(row.sample == 0)) for as_ in (float, np.bool_)
    )
    assert measured(plain[REVIVED]).estimate == measured(numpy[REVIVED]).estimate
