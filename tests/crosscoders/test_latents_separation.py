"""AUROC against counting pairs by hand, sparse against dense, and intervals
that cover with tasks as the unit.
"""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from crosscoders.dictionaries.dictionary import Codes
from crosscoders.latents.separation import auroc, auroc_of_latents, separation


def by_pairs(scores, first):
    """Every pair of a row of the first group and one of the other."""
    gap = scores[first][:, None] - scores[~first][None]
    return float(((gap > 0) + 0.5 * (gap == 0)).mean())


values = st.lists(
    st.tuples(st.sampled_from([0.0, 0.0, 0.5, 1.0, 2.5]), st.booleans()), min_size=2, max_size=40
)


@settings(max_examples=100, deadline=None)
@given(st.lists(values, min_size=1, max_size=4))
def test_all_three_count_pairs(columns):
    rows = min(map(len, columns))
    first = np.array([flag for _, flag in columns[0][:rows]])
    scores = np.array([[value for value, _ in column[:rows]] for column in columns]).T
    row, latent = np.nonzero(scores)
    codes = Codes(rows, *map(torch.from_numpy, (row, latent, scores[row, latent])))
    dense, sparse = auroc(scores, first), auroc_of_latents(codes, first, len(columns))
    np.testing.assert_allclose(sparse, dense, atol=1e-12)
    for column, area in enumerate(dense):
        found = separation(scores[:, column], first, np.arange(rows) % 3)
        if first.all() or not first.any():
            assert np.isnan(area) and found is None
        else:
            assert area == pytest.approx(by_pairs(scores[:, column], first), abs=1e-12)
            assert found.estimate == pytest.approx(area, abs=1e-12)
            assert separation(
                -scores[:, column], first, np.arange(rows) % 3
            ).estimate == pytest.approx(1 - area)


def test_a_perfect_score_on_few_tasks_claims_little():
    first = np.arange(40) % 2 == 0
    few, many = (separation(first.astype(float), first, np.arange(40) % tasks) for tasks in (4, 40))
    assert few.estimate == many.estimate == 1 == few.high
    assert few.low == pytest.approx(0.025 ** (1 / 4)) and many.low == pytest.approx(
        0.025 ** (1 / 40)
    )
    alone = separation(first.astype(float), first, np.zeros(40))
    assert (alone.low, alone.high) == (None, None)


def test_intervals_cover_where_tasks_differ():
    """Rows of a task share a shift, so rows are not independent: 400 draws of
    30 tasks, the truth from a large draw.
    """
    generator = np.random.default_rng(5)

    def drawn(tasks):
        first = np.tile([True, True, False, False], tasks)
        task = np.repeat(np.arange(tasks), 4)
        shift = generator.normal(size=(tasks, 2))  # of the task's first group, and of its other one
        scores = 0.8 * first + generator.normal(size=4 * tasks) + shift[task, first.astype(int)]
        return scores, first, task

    truth = separation(*drawn(20_000)).estimate
    found = [separation(*drawn(30)) for _ in range(400)]
    covered = sum(one.low <= truth <= one.high for one in found)
    assert covered >= 0.92 * 400
    assert np.mean([one.high - one.low for one in found]) < 0.4
