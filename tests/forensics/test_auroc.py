"""AUROC against counting pairs by hand, within folds, of many columns, sparse
against dense, and intervals with tasks as the unit.
"""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from forensics.errors import MissingInput
from forensics.statistics import auroc
from forensics.statistics.rank_statistics import auroc_columns, auroc_sparse

SMALL = st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=3, max_size=14)


def pairwise_auroc(scores: np.ndarray, success: np.ndarray) -> float:
    pairs = product(scores[success], scores[~success])
    return float(
        np.mean([1.0 if won > lost else 0.5 if won == lost else 0.0 for won, lost in pairs])
    )


@given(SMALL)
def test_auroc_is_the_share_of_pairs_in_order_ties_half(rows: list[tuple[int, bool]]) -> None:
    scores, success = np.array([s for s, _ in rows], float), np.array([w for _, w in rows])
    tasks = [str(i) for i in range(len(rows))]
    if success.all() or not success.any():
        with pytest.raises(MissingInput):
            auroc(scores, success, tasks)
        return
    found = auroc(scores, success, tasks)
    assert found.estimate == pytest.approx(pairwise_auroc(scores, success))
    assert 0 <= found.low <= found.estimate <= found.high <= 1 and found.high - found.low > 0.05
    assert auroc(-scores, success, tasks).estimate == pytest.approx(1 - found.estimate)


def clustered(
    generator: np.random.Generator, tasks: int, shift: float
) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Four runs a task, which share half of their score's spread and half of their luck."""
    common = np.repeat(generator.normal(size=tasks), 4)
    success = np.repeat(generator.random(tasks), 4) > generator.random(4 * tasks)
    scores = (
        shift * success + np.sqrt(0.5) * common + np.sqrt(0.5) * generator.normal(size=4 * tasks)
    )
    return scores, success, [str(i) for i in np.repeat(np.arange(tasks), 4)]


def test_intervals_by_task_cover_and_those_by_run_would_not() -> None:
    generator = np.random.default_rng(3)
    # scores differ by N(shift, variance 2), so the truth is the normal probability of
    # shift / sqrt 2; a pair inside a task shares its common part, but is one of 4 * 40
    # opposite runs
    from scipy.stats import norm

    truth = norm.cdf(0.8 / np.sqrt(2))
    hits = single = 0
    for _ in range(300):
        scores, success, tasks = clustered(generator, 40, 0.8)
        found = auroc(scores, success, tasks)
        hits += found.low <= truth <= found.high
        alone = auroc(scores, success, [str(i) for i in range(len(tasks))])
        single += alone.low <= truth <= alone.high
    assert 0.92 <= hits / 300 <= 1.0
    assert single < hits  # treating runs as independent covers less


def test_a_small_tie_and_two_folds_by_hand() -> None:
    """Fold 0: 2 beats 1 and 2, tie half: 1.5 of 2. Fold 1: 0 beats neither -1
    (it does) nor 5: 1 of 2. 2.5 of 4. A fold of one label takes no part.
    """
    scores = np.array([2.0, 1.0, 2.0, 0.0, -1.0, 5.0, 9.0])
    labels = np.array([True, False, False, True, False, False, False])
    tasks, folds = list("abbccde"), np.array([0, 0, 0, 1, 1, 1, 2])
    assert auroc(scores, labels, tasks, folds=folds).estimate == 2.5 / 4
    assert auroc_columns(scores[:, None], labels, folds=folds).tolist() == [2.5 / 4]
    assert auroc(scores[:3], labels[:3], tasks[:3], folds=folds[:3]).clusters == 2


ACTIVE = st.lists(
    st.tuples(st.sampled_from([0.0, 0.0, 0.5, 1.0, 2.5]), st.booleans()), min_size=2, max_size=40
)


@settings(max_examples=100, deadline=None)
@given(st.lists(ACTIVE, min_size=1, max_size=4))
def test_dense_and_sparse_columns_count_pairs(columns: list[list[tuple[float, bool]]]) -> None:
    rows = min(map(len, columns))
    positive = np.array([flag for _, flag in columns[0][:rows]])
    scores = np.array([[value for value, _ in column[:rows]] for column in columns]).T
    row, column = np.nonzero(scores)
    dense = auroc_columns(scores, positive)
    sparse = auroc_sparse(row, column, scores[row, column], positive, len(columns))
    np.testing.assert_allclose(sparse, dense, atol=1e-12)
    for one, area in zip(scores.T, dense, strict=True):
        if positive.all() or not positive.any():
            assert np.isnan(area)
        else:
            assert area == pytest.approx(pairwise_auroc(one, positive), abs=1e-12)
