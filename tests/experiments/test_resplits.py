"""Runs of one policy, dealt anew: all of them, once, and each with its twins."""

from pathlib import Path
from typing import Any

import pytest

from experiments.phantom_gain.__main__ import markdown
from experiments.phantom_gain.dealing import Deal, DealtLog
from experiments.phantom_gain.resplits import identical, identical_run
from forensics.policies import scripted_policy
from forensics.protocols import SamplingSettings
from forensics.records.tables import write_trajectories
from forensics.rollout_logs import Rollouts
from tests.strangers import b_ticket_desk as desk

TASKS = desk.World().tasks("held-out", 20, 9000)
SAMPLES = 4


def test_a_deal_gives_each_run_a_place_and_half_of_them_to_either_side() -> None:
    deal = Deal(number=3, samples=SAMPLES)
    places = {(side, sample) for side in range(2) for sample in range(SAMPLES)}
    assert all(set(deal.of(task)) == places == set(deal.of(task).values()) for task in TASKS)
    moved = [deal.of(task)[0, n][0] for task in TASKS for n in range(SAMPLES)]
    assert 20 < sum(moved) < 60  # some 40 of 80 change sides
    assert [Deal(number=4, samples=SAMPLES).of(task) for task in TASKS] != [
        deal.of(task) for task in TASKS
    ]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Rollouts, ...]]:
    """Both sides of one policy, and their twins as another world might store them: backwards."""
    folder, clerk = tmp_path_factory.mktemp("logs"), scripted_policy(desk.BEFORE)
    found: dict[str, tuple[Rollouts, ...]] = {}
    for name, order in (("open", 1), ("scrubbed", -1)):
        paths = [folder / f"{name}-{seed}.parquet" for seed in range(2)]
        for seed, path in enumerate(paths):
            runs = clerk.play(desk.World(), TASKS, SAMPLES, SamplingSettings(), seed)
            write_trajectories(path, list(runs)[::order])
        found[name] = tuple(Rollouts(key=path.name, paths=(path,)) for path in paths)
    return found


def dealt(logs: tuple[Rollouts, ...], side: int) -> DealtLog:
    paths = tuple(path for log in logs for path in log.paths)
    deal = Deal(number=7, samples=SAMPLES)
    return DealtLog(key="k", paths=paths, logs=logs, deal=deal, side=side)


def test_every_run_is_dealt_once_and_its_twin_goes_with_it(
    logs: dict[str, tuple[Rollouts, ...]],
) -> None:
    sides = [list(dealt(logs["open"], side).rows("id", "outcome")) for side in range(2)]
    assert [len(rows) for rows in sides] == [80, 80]
    assert len({row["id"] for rows in sides for row in rows}) == 160
    assert [(row["task"], row["sample"]) for row in sides[0]] == [
        (task, sample) for task in TASKS for sample in range(SAMPLES)
    ]
    for side in range(2):
        here, there = (list(dealt(logs[name], side)) for name in ("open", "scrubbed"))
        twins = {(run.task, run.sample): run.steps for run in there}
        assert [run.steps for run in here] == [twins[run.task, run.sample] for run in here]
        assert [run.outcome for run in here] == [row["outcome"] for row in sides[side]]
    before = [run.outcome for run in logs["open"][0]]
    assert before != [row["outcome"] for row in sides[0]]


def pair(label: str, *resplits: dict[str, Any]) -> dict[str, Any]:
    return {"name": "leak", "seed": 1, "label": label, "resplits": list(resplits)}


def test_alarms_are_counted() -> None:
    tested = {"tested": ["audit", "exchange"], "shortcuts": []}
    rows = [
        pair("noise", {"label": "noise"}, {"label": "mixed", **tested, "found": ["exchange"]}),
        pair("mixed", {"label": "undetermined", **tested, "found": [], "shortcuts": ["edit"]}),
    ]
    found = identical(rows)
    assert (found["alarms"], found["runs"], found["resplits"]) == (1, 2, 3)
    assert (found["resplits_accused"], found["pairs_with_accused"]) == (2, 2)
    assert found["resplits_tested"] == {"audit": 2, "exchange": 2}
    assert found["resplits_found"] == {"exchange": 1} and found["resplits_any_found"] == 1
    row = {"name": "null", "seed": 1, "expected": "noise", "label": "noise", "right": True}
    row |= dict.fromkeys(("gain", "genuine_gain", "phantom_gain"))
    table = {"organisms": [row], "accuracy_interval": [0, 1], "right": 0, "of": 0}
    table |= {"false_alarm_rate": None, "coverage": 0.95, "identical": found}
    table["cost"] = {"cases": 0, "episodes": 0, "drawn_tokens": 0}
    assert "| exchange | 2 | 1 |" in markdown(table)


@pytest.mark.slow
def test_a_checkpoint_against_itself_is_dealt_anew(tmp_path: Path) -> None:
    row = identical_run(1, tmp_path, 9000, tasks=60, resplits=4)
    files = sorted(path.name for path in (tmp_path / "identical").rglob("trajectories/*.parquet"))
    assert row["name"] == "leak" and len(row["resplits"]) == 4
    assert len([name for name in files if "altered" not in name]) == 4  # none was played again
    again = identical_run(1, tmp_path, 9000, tasks=60, resplits=4)
    assert again == row
