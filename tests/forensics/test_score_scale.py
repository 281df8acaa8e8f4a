"""Scores of other scales: a rate of success is that of the wins, or not told."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from forensics import scan
from forensics.case import Case
from forensics.instruments import run_instrument
from forensics.layers.score_scale import score_scale
from forensics.layers.signal import signal
from forensics.records import Evidence, Undefined
from forensics.records.files import read_json
from forensics.records.tables import read_rows
from forensics.report.data import load_case

NONE = None


def runs(values: Sequence[float | None], name: str = "score", **more: Any) -> list[dict[str, Any]]:
    """Rows as a reader leaves them: an outcome where the score lies inside 0 to 1."""
    inside = [value if value is not None and 0 <= value <= 1 else None for value in values]
    return [
        {"outcome": outcome, "rewards": {name: value, **more}, "end": "terminated"}
        for value, outcome in zip(values, inside, strict=True)
    ]


@pytest.mark.parametrize(
    ("values", "outcomes"),
    [
        ((-1, 1, 1, NONE), (0, 1, 1, NONE)),
        ((0.1, 1.1, 0.1 + 1.0), (0, 1, 1)),
        ((0, 100, 100), (0, 1, 1)),
        ((-2, 3), (0, 1)),  # both outside, and the only score
        ((-1, -1), (NONE, NONE)),
        ((0.1, 0.1), (NONE, NONE)),  # of .1 and 1.1, and nothing else is known
        ((-1, 0, 1), (NONE, NONE, NONE)),
        ((0.2, 0.4, 1.7), (NONE, NONE, NONE)),
    ],
)
def test_a_scale_is_read_from_the_whole_set(values: Any, outcomes: Any) -> None:
    rows = runs(values, length=7.0) if NONE in values else runs(values)
    scale = score_scale(rows)
    assert scale is not None and tuple(map(scale.outcome, rows)) == outcomes
    assert ("is read as success" in scale.reading) == (len(set(outcomes) - {NONE}) == 2)


@pytest.mark.parametrize("values", [(0, 1), (1, 1), (0, 0), (0.25, 0.5, 1), (0.1, 0.9), ()])
def test_outcomes_inside_the_scale_stand_as_they_are(values: Any) -> None:
    assert score_scale(runs(values)) is None


def test_a_score_that_is_called_a_success_or_is_not_the_outcome_is_left_alone() -> None:
    assert score_scale(runs((0.1, 0.1), "accuracy_reward")) is None
    beside = [{**row, "rewards": {"won": row["outcome"], "x": -3.0}} for row in runs((0, 1))]
    assert score_scale(beside) is None
    errored = {"outcome": None, "rewards": {"score": 0.3}, "end": "errored"}
    scale = score_scale([*runs((-1, 1)), errored])
    assert scale is not None and len(scale.values) == 2 and scale.outcome(errored) is None
    constant = runs((-1, 1), form=1.0)  # equals every outcome that a reader could take
    assert score_scale(constant) is not None


def dump(folder: Path, lost: float, won: float, more: Sequence[float] = ()) -> Path:
    """A verl run of four steps: half of the samples win, in the second half three of four."""
    folder.mkdir()
    for step in range(1, 5):
        rows = [
            {
                "input": f"user\nWhat is {task} + {task}?\nassistant\n",
                "output": str(task + sample),
                "gts": str(2 * task),
                "score": won if sample < 2 + (step > 2) else lost,
                "step": step,
            }
            for task in range(6)
            for sample in range(4)
        ]
        for row, score in zip(rows, more, strict=False):
            row["score"] = score
        (folder / f"{step}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def success(folder: Path) -> Evidence | Undefined:
    case = Case(folder=folder.parent / "case", training=folder)
    return {one.question: one for one in run_instrument(signal, case)}["signal.success"]


@pytest.mark.parametrize(("lost", "won"), [(0, 1), (-1, 1), (0.1, 1.1)])
def test_scan_and_the_record_tell_the_rate_of_the_wins(
    lost: float, won: float, tmp_path: Path
) -> None:
    logs = dump(tmp_path / "verl", lost, won)
    scan(logs, out=tmp_path / "scan", formats=("md",))
    rows = [
        row for path in (tmp_path / "scan" / "trajectories").iterdir() for row in read_rows(path)
    ]
    assert sum(row["outcome"] for row in rows) == 2 * 6 * (2 + 3) and len(rows) == 4 * 24
    reading = read_json(tmp_path / "scan" / "case.json")["provenance"].get("scores", "")
    found = success(logs)
    assert isinstance(found, Evidence) and found.diagnostics["first"] == pytest.approx(1 / 2)
    assert found.estimate == pytest.approx(1 / 4)
    assert ("read as success" in reading) == ("read as success" in found.summary) == (lost != 0)
    assert reading in found.summary and reading in (tmp_path / "scan" / "report.md").read_text()


@pytest.mark.parametrize(("lost", "won", "more"), [(-1, -1, ()), (0.1, 0.1, ()), (-1, 1, (0.4, 2))])
def test_where_no_scale_can_be_read_success_is_not_told(
    lost: float, won: float, more: Sequence[float], tmp_path: Path
) -> None:
    logs = dump(tmp_path / "verl", lost, won, more)
    scan(logs, out=tmp_path / "scan", formats=())
    case = load_case(tmp_path / "scan")
    assert case.opening is not None and any("success is not told" in s for s in case.opening.told)
    assert case.provenance["logs"]["after-0"]["scored"] == 0
    found = success(logs)
    assert isinstance(found, Undefined) and "success is not told" in found.reason


def test_the_base_may_have_lost_every_run_and_a_killed_scan_reads_the_same(tmp_path: Path) -> None:
    """Before training all scores are -1, which alone tells nothing; the set of both does."""
    before, after = dump(tmp_path / "a", -1, -1), dump(tmp_path / "b", -1, 1)
    verdict = scan(after, before, out=tmp_path / "case", formats=())
    assert verdict.gain is not None and verdict.gain.estimate == pytest.approx(5 / 8)

    def killed(what: str, done: int, of: int) -> None:
        if what == "measuring":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scan(after, before, out=tmp_path / "again", formats=(), progress=killed)
    again = scan(after, before, out=tmp_path / "again", formats=(), resume=True)
    assert again.gain == verdict.gain
