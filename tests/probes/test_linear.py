"""Linear probes on activations whose truth is known: a planted direction in
noise, labels that only tasks explain.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

from forensics.errors import MissingInput, UserError
from probes.linear.instrument import alignment
from probes.linear.probe_data import ProbeData
from probes.linear.probe_evaluation import ProbeConfig, evaluate_probe, train_probe

QUICK = ProbeConfig(shuffles=0)


def readings_of(activations: Mapping[str, Any], labels: Any, tasks: Sequence[str]) -> ProbeData:
    """Readings of activations that come from elsewhere: no text, each row a run of its own."""
    rows = len(tasks)
    return ProbeData(
        activations={site: np.asarray(x, np.float32) for site, x in activations.items()},
        labels=np.asarray(labels, bool),
        tasks=tuple(tasks),
        runs=tuple(map(str, range(rows))),
        steps=np.zeros(rows, np.int64),
        prefixes=(np.zeros(0, np.int64),) * rows,
        columns={},
    )


def normal_rows(
    seed: int, tasks: int = 200, runs: int = 5, width: int = 16, strength: float = 1.5
) -> tuple[ProbeData, np.ndarray]:
    """Rows `noise + label * strength * direction`: the best score there is has
    an AUROC of Phi(strength / sqrt 2).
    """
    generator = np.random.default_rng(seed)
    direction = generator.normal(size=width)
    direction /= np.linalg.norm(direction)
    labels = generator.random(tasks * runs) < 0.4
    x = generator.normal(size=(len(labels), width)) + strength * labels[:, None] * direction
    noise = generator.normal(size=x.shape)
    names = [f"t{i // runs}" for i in range(len(labels))]
    return readings_of({"noise": noise, "signal": x}, labels, names), direction


@pytest.mark.parametrize("method", ["difference", "logistic"])
def test_a_planted_direction_is_read_as_well_as_the_closed_form_allows(method: str) -> None:
    readings, direction = normal_rows(0)
    found = evaluate_probe(readings, config=replace(QUICK, method=method))
    best = float(ndtr(1.5 / np.sqrt(2)))
    assert found.auroc.low < best and best - 0.03 < found.auroc.estimate < best + 0.03
    assert {site for site, _ in found.chosen} == {"signal"}
    assert found.by_site["noise"].low < 0.5 < found.by_site["noise"].high
    probe = train_probe(readings.activations["signal"], readings.labels, method=method)
    assert alignment(probe.direction, direction).cosines[0] > 0.95


def test_labels_that_are_a_function_of_the_task_earn_nothing() -> None:
    """Activations tell the task perfectly, and the task tells the label: on
    other tasks that is worth nothing.
    """
    rates = []
    for seed in range(12):
        generator = np.random.default_rng(seed)
        task = np.repeat(np.arange(40), 5)
        x = 5 * generator.normal(size=(40, 24))[task] + 0.1 * generator.normal(size=(200, 24))
        readings = readings_of(
            {"a": x}, (generator.random(40) < 0.5)[task], [f"t{i}" for i in task]
        )
        probe = train_probe(x, readings.labels, ridge=1e-4)
        own = probe.scores(x)
        assert (
            own[readings.labels][:, None] > own[~readings.labels]
        ).mean() > 0.85  # it can be learnt by heart
        rates.append(evaluate_probe(readings, config=QUICK).auroc.estimate)
    assert abs(np.mean(rates) - 0.5) < 3.5 * np.std(rates) / np.sqrt(12)
    assert abs(np.mean(rates) - 0.5) < 0.08


def test_shuffled_labels_are_a_null_and_the_truth_stands_out() -> None:
    readings, _ = normal_rows(1, tasks=60, strength=1.0)
    found = evaluate_probe(readings, config=replace(QUICK, shuffles=39))
    assert len(found.shuffled) == 39 and abs(np.mean(found.shuffled) - 0.5) < 0.03
    assert found.p_value == pytest.approx(1 / 40)
    empty = replace(readings, activations={"noise": readings.activations["noise"]})
    values = [
        evaluate_probe(empty, config=replace(QUICK, shuffles=19, seed=seed)).p_value
        for seed in range(3)
    ]
    assert max(value or 0 for value in values) > 0.05


def test_choosing_among_many_empty_sites_is_not_rewarded() -> None:
    generator = np.random.default_rng(2)
    labels = generator.random(160) < 0.5
    sites = {f"site {i}": generator.normal(size=(160, 8)) for i in range(20)}
    found = evaluate_probe(
        readings_of(sites, labels, [f"t{i // 4}" for i in range(160)]), config=QUICK
    )
    assert (
        max(one.estimate for one in found.by_site.values()) > 0.55
    )  # the best of them, looked up afterwards
    assert found.auroc.low < 0.5 < found.auroc.high


def test_transfer_tells_a_shared_direction_from_another_one() -> None:
    before, direction = normal_rows(4, tasks=60, strength=2.0)
    same, _ = normal_rows(4, tasks=60, strength=2.0)
    other, away = normal_rows(5, tasks=60, strength=2.0)
    away -= (away @ direction) * direction
    x = np.random.default_rng(6).normal(size=(300, 16)) + 2 * other.labels[
        :, None
    ] * away / np.linalg.norm(away)
    other = readings_of({"noise": x, "signal": x}, other.labels, other.tasks)
    config = replace(QUICK, shuffles=19)
    shared = evaluate_probe(before, same, config)
    lost = evaluate_probe(before, other, config)
    assert shared.auroc.low > 0.85 and shared.p_value == 0.05
    assert lost.auroc.estimate < 0.65
    own = evaluate_probe(before, config=QUICK)
    assert shared.auroc.estimate == pytest.approx(
        own.auroc.estimate
    )  # a task never stands on both sides


def test_the_text_is_a_baseline_on_the_same_tasks() -> None:
    """Token 7 tells the label; the activations are noise. Then the other way round."""
    readings, _ = normal_rows(7, tasks=60, strength=2.0)
    telling = [np.array([1, 2, 7 if label else 8]) for label in readings.labels]
    columns = {"turn number": np.zeros(300), "length of the text": np.full(300, 3.0)}
    text = replace(
        readings,
        activations={"noise": readings.activations["noise"]},
        prefixes=tuple(telling),
        columns=columns,
    )
    found = evaluate_probe(text, config=QUICK)
    bag = found.baselines["bag of tokens"]
    assert bag.auroc.estimate == 1 and bag.auroc.low < 1 and bag.advantage.high < -0.3
    assert found.baselines["turn number"].auroc.estimate == 0.5
    plain = replace(readings, prefixes=(np.array([1, 2, 3]),) * 300, columns=columns)
    found = evaluate_probe(plain, config=QUICK)
    assert (
        all(one.advantage.low > 0.2 for one in found.baselines.values())
        and len(found.baselines) == 4
    )


def test_null_directions_judge_a_cosine() -> None:
    generator = np.random.default_rng(9)
    direction, others = generator.normal(size=32), generator.normal(size=(5, 32))
    others[3] = 2 * direction
    nulls = generator.normal(size=(19, 32))
    found = alignment(direction, others, nulls)
    assert found.cosines[3] == pytest.approx(1) and found.p_value == pytest.approx(1 / 20)
    assert alignment(-direction, others).cosines[3] == pytest.approx(-1)
    assert alignment(np.zeros(32), others).cosines.tolist() == [0] * 5
    with pytest.raises(UserError, match="width"):
        alignment(direction, others[:, :5])


def test_bad_input_is_one_sentence() -> None:
    readings, _ = normal_rows(11, tasks=12)
    x, labels = readings.activations["signal"], readings.labels
    with pytest.raises(UserError, match="unknown probe method 'svm'"):
        train_probe(x, labels, method="svm")
    with pytest.raises(UserError, match="labels are alike"):
        train_probe(x, labels | True)
    with pytest.raises(UserError, match="do not go with"):
        train_probe(x, labels[1:])
    with pytest.raises(UserError, match="above 0"):
        train_probe(x, labels, ridge=0)
    with pytest.raises(UserError, match="one entry a row"):
        readings_of({"a": x}, labels[1:], readings.tasks)
    with pytest.raises(UserError, match="at least 3"):
        evaluate_probe(readings, config=replace(QUICK, folds=2))
    with pytest.raises(UserError, match="same sites"):
        evaluate_probe(readings, readings_of({"signal": x[:, :3]}, labels, readings.tasks), QUICK)
    with pytest.raises(MissingInput, match="too few"):
        evaluate_probe(readings.where(np.arange(20)), config=QUICK)
    with pytest.raises(MissingInput, match="alike"):
        evaluate_probe(replace(readings, labels=labels | True), config=QUICK)
