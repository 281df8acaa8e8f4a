"""What grades are good for: AUROC, best of N, the fitted model, the selected
aggregation, failure attribution.
"""

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from forensics.errors import MissingInput
from probes.grades.comparison import (
    ADVANTAGE,
    CHANCE,
    LOGISTIC,
    PREDICTORS,
    best_of,
    calibration,
    compare_scores,
    contrast,
    failure_attribution,
    fit_logistic,
    predicted,
    select,
)
from probes.grades.step_grades import DEFAULT, Aggregation, GradedRun, grade
from tests.probes.scored_runs import scored

SMALL = st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=3, max_size=14)


def test_calibration_keeps_equal_scores_together_and_counts_every_run() -> None:
    scores = np.array([0.0] * 30 + [1.0] * 10 + [2.0] * 20)
    success = np.array([0.0] * 30 + [1.0] * 5 + [0.0] * 5 + [1.0] * 20) > 0
    found = calibration(scores, success, [str(i % 7) for i in range(60)], bins=6)
    assert [(one.least, one.most) for one in found] == [(0.0, 0.0), (1.0, 1.0), (2.0, 2.0)]
    assert [one.rate for one in found] == [0.0, 0.5, 1.0] and [one.runs for one in found] == [
        30,
        10,
        20,
    ]
    assert all(one.low <= one.rate <= one.high for one in found)
    assert calibration(scores, success, ["one"] * 60)[0].low is None


def brute_best(scores: np.ndarray, success: np.ndarray, n: int) -> tuple[float, float]:
    chosen, oracle = [], []
    for subset in combinations(range(len(scores)), n):
        at = [i for i in subset if scores[i] == max(scores[j] for j in subset)]
        chosen.append(np.mean(success[at]))
        oracle.append(max(success[list(subset)]))
    return float(np.mean(chosen)), float(np.mean(oracle))


@given(SMALL, st.integers(1, 5))
@settings(deadline=None, max_examples=60)
def test_best_of_n_is_the_mean_over_all_subsets(rows: list[tuple[int, bool]], n: int) -> None:
    scores, success = np.array([s for s, _ in rows], float), np.array([w for _, w in rows], float)
    if n > len(rows):
        return
    twice = [np.concatenate([values, values]) for values in (scores, success)]
    tasks = ["a"] * len(rows) + ["b"] * len(rows)
    found = best_of(*twice, tasks, n)
    chosen, oracle = brute_best(scores, success, n)
    assert found.chosen.estimate == pytest.approx(
        chosen
    ) and found.oracle.estimate == pytest.approx(oracle)
    assert found.mean.estimate == pytest.approx(success.mean())
    assert found.gain.estimate == pytest.approx(chosen - success.mean())


def test_the_logistic_model_finds_the_weights_that_made_the_world() -> None:
    generator = np.random.default_rng(1)
    features = generator.normal(size=(20000, 2)) * [1.0, 5.0] + [3.0, -2.0]
    odds = 2.0 * (features[:, 0] - 3) - 0.3 * (features[:, 1] + 2) + 0.5
    success = generator.random(20000) < 1 / (1 + np.exp(-odds))
    model = fit_logistic(features, success)
    assert model.weights[:, 0, 0] == pytest.approx([2.0, -0.3], abs=0.08)
    assert np.corrcoef(model.scores(features)[:, 0, 0], odds)[0, 1] > 0.999
    parted = fit_logistic(
        np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([False, False, True, True])
    )
    assert np.isfinite(parted.weights).all()
    with pytest.raises(MissingInput):
        fit_logistic(features, np.ones(20000, bool))


def graded_world(seed: int, tasks: int = 60) -> list[GradedRun]:
    """The advantage tells success; the reference's log-probability alone is noise around it."""
    generator = np.random.default_rng(seed)
    found = []
    for task, _ in product(range(tasks), range(4)):
        won = bool(generator.random() < 0.5)
        reference = generator.normal(-3, 2, size=(3, 2)).clip(max=0)
        policy = (reference + generator.normal(0.5 if won else -0.5, 0.6, size=(3, 2))).clip(max=0)
        found.append(
            grade(
                scored(
                    policy.tolist(),
                    reference.tolist(),
                    name=f"{task}-{len(found)}",
                    task=str(task),
                    outcome=float(won),
                )
            )
        )
    return found


def test_the_table_has_every_baseline_and_sees_the_planted_truth() -> None:
    found = compare_scores(graded_world(0), seed=1)
    rows = {row.score: row for row in found.rows}
    assert found.rows[0].score == ADVANTAGE and set(rows) >= {
        "log-probability, policy",
        "log-probability, reference",
        "entropy",
        "self-certainty",
        "lowest-group confidence",
        "length",
        LOGISTIC,
    }
    assert rows[ADVANTAGE].auroc.low > 0.8 and rows[ADVANTAGE].best.gain.low > 0.2 and found.n == 4
    reference = rows["log-probability, reference"]
    assert reference.auroc.low < 0.5 < reference.auroc.high and reference.advantage_auroc.low > 0.2
    assert rows["length"].auroc.estimate == 0.5  # all runs are as long
    assert rows["entropy"].auroc is None and "has this score" in rows["entropy"].missing
    assert (
        rows[LOGISTIC].runs == 120 and rows[LOGISTIC].auroc.low > 0.75
    )  # the reporting half: 30 tasks of 4


def test_no_outcomes_no_figures() -> None:
    from dataclasses import replace

    found = compare_scores([replace(run, outcome=None) for run in graded_world(0, 3)])
    assert all(row.auroc is None and row.best is None and row.missing for row in found.rows)
    same = compare_scores([replace(run, outcome=1.0) for run in graded_world(0, 3)])
    assert same.rows[0].auroc is None and "succeeded" in same.rows[0].missing
    assert same.rows[0].best.gain.estimate == 0


def test_selection_reports_on_the_half_that_did_not_select() -> None:
    generator = np.random.default_rng(4)
    ways = [
        DEFAULT,
        *(Aggregation(tokens="max", steps=way) for way in ("sum", "mean", "min", "last", "max")),
    ]
    leads, luck = [], []
    for seed in range(
        30
    ):  # all aggregations are noise: what selects looks good only where it selected
        grades = [
            {way: float(v) for way, v in zip(ways, generator.normal(size=6), strict=True)}
            for _ in range(120)
        ]
        outcomes = (generator.random(120) < 0.5).astype(float).tolist()
        found = select(grades, outcomes, [str(i // 3) for i in range(120)], seed)
        luck.append(found.selecting.estimate)
        leads.append(found.reported.estimate)
    assert np.mean(luck) > 0.55 and abs(np.mean(leads) - 0.5) < 0.03


def run_with(grades: list[float], number: int, truth: int) -> tuple[GradedRun, dict[str, int]]:
    one = grade(
        scored(
            [[g - 5] for g in grades], [[-5.0]] * len(grades), name=str(number), task=str(number)
        )
    )
    return one, {str(number): one.steps[truth].step}


def test_predictors_by_hand() -> None:
    grades = [0.2, -0.3, -0.4, 0.9, -0.1]
    # sums .2 -.1 -.5 .4 .3; changes .2 -.5 -.1 1.3 -1.0
    assert predicted(grades, "lowest sum") == (2,)
    assert predicted(grades, "sharpest drop") == (4,)
    assert predicted(grades, "sharpest change") == (3,)
    assert predicted([-1.0], "sharpest drop") == (0,)
    assert predicted([None, 0.5, None, -0.5], "lowest sum") == (3,)
    assert predicted([None, None], "lowest sum") == () and predicted([], "lowest sum") == ()


def test_attribution_finds_a_planted_step_and_within_one() -> None:
    generator = np.random.default_rng(0)
    runs, truth = [], {}
    for number in range(60):
        grades = generator.normal(0.3, 0.05, size=5)
        lost = int(generator.integers(1, 5))
        grades[lost] = -4.0
        one, where = run_with(grades.tolist(), number, lost)
        runs.append(one)
        truth |= where
    found = {row.predictor: row for row in failure_attribution(runs, truth)}
    assert set(found) == {*PREDICTORS, CHANCE}
    assert found["sharpest drop"].at.estimate == 1.0 and found["lowest sum"].at.estimate == 1.0
    assert found["sharpest change"].near.estimate == 1.0
    assert found[CHANCE].at.estimate == pytest.approx(0.2) and found[CHANCE].runs == 60
    shifted = {name: step - 2 for name, step in truth.items()}  # the action before
    near = {row.predictor: row for row in failure_attribution(runs, shifted)}
    assert near["sharpest drop"].at.estimate == 0 and near["sharpest drop"].near.estimate == 1.0


def steps_of(number: int, grades: list[float], inside: list[bool], task: str) -> GradedRun:
    return grade(
        scored(
            [[g - 5] for g in grades],
            [[-5.0]] * len(grades),
            name=str(number),
            task=task,
            kinds=[("history", "test") if one else ("edit",) for one in inside],
        )
    )


def test_the_contrast_of_shortcut_steps_by_hand_paired_by_task() -> None:
    runs = [
        steps_of(0, [1.0, 0.0], [True, False], "a"),
        steps_of(1, [3.0, 0.5, 1.0], [True, False, False], "a"),
        steps_of(2, [2.0, 1.0], [True, False], "b"),
        steps_of(3, [9.0, 9.0], [False, False], "c"),
    ]
    # a: inside (1 + 3)/2 = 2, outside (0 + .5 + 1)/3 = .5; b: 2 against 1; c has no such step
    found = contrast(runs, ["history"])
    assert found.estimate == pytest.approx((1.5 + 1.0) / 2)
    assert (found.inside, found.outside) == pytest.approx((2.0, 0.75)) and (
        found.clusters,
        found.n,
    ) == (2, 3)
    assert contrast(runs, ["edit"]).estimate == pytest.approx(-found.estimate)
    with pytest.raises(MissingInput, match="0 of the tasks"):
        contrast(runs, ["nothing"])
