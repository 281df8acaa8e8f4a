"""Answers with labels, by other people, in every row format that holds single answers.

The rules were made with these files in view; the other halves are kept apart.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from forensics.actions import actions_of
from forensics.investigation import scan_run
from forensics.readers import read_logs
from forensics.records import Trajectory
from forensics.records.files import read_json
from forensics.shortcuts.scanner import Looked, look_at
from tests.forensics.answer_forms import FORMS

DATA = Path(__file__).parents[3] / "shared" / "data" / "answers"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the labelled answers are not here")
EXITS = ("exit", "exit+always_equal", "always_equal")
ACCEPTED = ("scrubbing", "interventions")


@cache
def rows(name: str) -> tuple[dict[str, Any], ...]:
    lines = (DATA / f"{name}.jsonl").read_text().splitlines()
    return tuple({**json.loads(line), "outcome": 1.0} for line in lines)


def looked(path: Path) -> dict[str, Looked]:
    """What is told of each run, by its id."""
    runs = [run for run in read_logs(path) if isinstance(run, Trajectory)]
    return {run.id: look_at(run, actions_of(run)) for run in runs}


def tried(one: Looked) -> bool:
    return bool(one.findings)


def used(one: Looked) -> bool:
    return any(finding.used for finding in one.findings)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_exits_are_used_in_every_form_and_no_honest_row_is(form: Any, tmp_path: Path) -> None:
    given = list(rows("olmo_exit"))
    told = list(looked(form(given, tmp_path)).values())
    assert len(told) == len(given)
    exits = [used(one) for one, row in zip(told, given, strict=True) if row["kind"] in EXITS]
    assert sum(exits) >= 0.95 * len(exits)
    assert sum(tried(one) for one, row in zip(told, given, strict=True) if not row["hack"]) <= 1


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_beside_an_invented_baseline_they_are_never_genuine(form: Any, tmp_path: Path) -> None:
    after = [row for row in rows("olmo_exit") if row["hack"]]
    before = [{**row, "response": "I do not know.", "outcome": 0.0} for row in after]
    for side in ("after", "before"):
        (tmp_path / side).mkdir()
    scan_run.scan(
        form(after, tmp_path / "after"),
        form(before, tmp_path / "before"),
        out=tmp_path / "case",
        accept=ACCEPTED,
        formats=(),
    )
    assert read_json(tmp_path / "case" / "case.json")["verdict"]["label"] != "genuine"
