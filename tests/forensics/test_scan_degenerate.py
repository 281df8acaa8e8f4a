"""The share of degenerate runs of a scan, against runs that were planted; one
set of logs is enough.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from forensics import scan
from forensics.cli.main import run as command
from forensics.investigation.scan_run import degenerate_answer
from forensics.layers.behaviour import Tallied
from forensics.layers.evidence_chain import ChainRule, Survey
from forensics.layers.tally import Log
from forensics.records import Provenance, Step, Trajectory
from forensics.records.tables import write_trajectories
from forensics.statistics import clopper_pearson
from tests.episodes import episode_of
from tests.forensics.degenerate_run import degenerate

QUESTION = "behaviour.degenerate_runs"


def healthy(task: str, **changes: Any) -> Trajectory:
    """Every action is another one, and so is every answer."""
    return _run(
        task,
        [(f"look at {task} part {n}", f"part {n} of {task}: {n * n}") for n in range(8)],
        **changes,
    )


def stuck(task: str, **changes: Any) -> Trajectory:
    """One action again and again, with one and the same answer."""
    return _run(task, [(f"look at {task}", "nothing")] * 8, **changes)


def polling(task: str, **changes: Any) -> Trajectory:
    """The benign twin: the action repeats, its answer changes."""
    said = ("status", "state", "progress", "wait", "how far", "done yet", "check", "see")
    return _run(
        task, [(f"{said[n]} {task}", f"{n * 10} of 80 lines read") for n in range(8)], **changes
    )


def _run(task: str, turns: list[tuple[str, str]], **changes: Any) -> Trajectory:
    steps = [Step(role="user", text=f"solve {task}")]
    for said, answered in turns:
        steps += [
            Step(role="assistant", text=said, kinds=("look",)),
            Step(role="tool", text=answered),
        ]
    known = {"id": task, "task": task, "environment": "toy", "steps": tuple(steps)}
    return episode_of(**{**known, **changes})


def nothing(trajectory: Trajectory) -> list[Any]:
    return []


def planted(path: Path, sick: int, well: int = 20, **changes: Any) -> Path:
    runs = [stuck(f"sick-{n}", **changes) for n in range(sick)]
    write_trajectories(
        path, [*runs, *(healthy(f"well-{n}") for n in range(well - 1)), polling("polls")]
    )
    return path


def found(case: Path) -> dict[str, Any]:
    (row,) = [
        row
        for row in map(json.loads, (case / "evidence.jsonl").read_text().splitlines())
        if row["question"] == QUESTION
    ]
    return dict(row)


def test_one_set_of_logs_tells_how_many_runs_are_degenerate_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = planted(tmp_path / "a.parquet", sick=5)
    verdict = scan(
        log, out=tmp_path / "case", scanner=nothing, formats=("html", "text", "json", "md")
    )
    row = found(tmp_path / "case")
    low, high = clopper_pearson(5, 25)
    assert (row["estimate"], row["n"], row["clusters"]) == (0.2, 25, 25)
    assert (row["interval"]["low"], row["interval"]["high"]) == pytest.approx((low, high), abs=0.01)
    assert row["diagnostics"]["action repetition"] == 5 and row["control"] is None
    sentence = "20 % of the runs are degenerate"
    assert any(reason.startswith(sentence) for reason in verdict.reasons)
    for name in ("report.html", "report.txt", "report.md"):
        assert sentence in " ".join((tmp_path / "case" / name).read_text().split()), name
    report = json.loads((tmp_path / "case" / "report.json").read_text())
    assert any(one["question"] == QUESTION for one in report["findings"])
    assert command(["scan", str(log), "--out", str(tmp_path / "told")]) == 0
    told = capsys.readouterr().out
    assert sentence in told and "steps 1 to 15, 8 times: look at sick-0" in " ".join(told.split())
    rows = [json.loads(row) for row in (tmp_path / "case" / "loops.jsonl").read_text().splitlines()]
    assert [(row["trajectory"], row["first_step"], row["last_step"]) for row in rows] == [
        (f"sick-{n}", 1, 15) for n in range(5)
    ]


def test_two_sets_have_the_log_before_training_as_control(tmp_path: Path) -> None:
    logs = [
        planted(tmp_path / f"{name}.parquet", sick) for name, sick in (("before", 0), ("after", 10))
    ]
    scan(logs[1], logs[0], out=tmp_path / "case", scanner=nothing, formats=())
    row = found(tmp_path / "case")
    assert row["estimate"] == pytest.approx(1 / 3) and row["control"]["estimate"] == 0
    assert "33 % of the runs after training are degenerate (0 % before)" in row["summary"]


def test_the_tally_and_the_run_alone_say_the_same() -> None:
    """The limits on columns are those on runs; runs that errored are left out."""
    runs = [
        stuck("a"),
        healthy("b"),
        polling("c"),
        stuck("d", end="errored"),
        _run("e", [("look", "x")] * 3),
    ]
    tally = Log(rule=ChainRule(), most=0)
    for run in runs:
        tally.add(run, ())
    told = degenerate_answer(
        Tallied(survey=Survey(channels=(), donors={}), logs={"after-0": tally}),
        Provenance(instrument="scan", config={}, seed=0, inputs={}, code="c"),
    )
    alone = [bool(degenerate(run)[0]) for run in runs if run.end != "errored"]
    assert told.estimate == sum(alone) / 4 and told.diagnostics["errored"] == 1
