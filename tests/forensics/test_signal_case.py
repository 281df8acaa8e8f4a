"""A training record beside an investigation: given, stated, reported, refused
where it belongs to another run.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from forensics.errors import UserError
from forensics.report.words import replay_command
from tests.forensics.planted_run import HEALTHY, HURT, RUN, write_run
from tests.forensics.scripted import Desk


def findings(desk: Desk) -> list[dict[str, Any]]:
    return [json.loads(line) for line in desk.evidence().decode().splitlines()]


def recorded(folder: Path, start: str) -> Path:
    write_run(folder, HEALTHY, HURT, steps=4, groups=4)
    run = RUN.model_copy(update={"start": start})
    (folder / "record" / "run.json").write_text(run.model_dump_json())
    return folder


def test_the_signal_layer_reads_the_record_that_was_given(desk: Desk, tmp_path: Path) -> None:
    plain = desk.investigate()
    silent = [answer for answer in findings(desk) if answer["layer"] == "signal"]
    assert silent and all(answer["kind"] == "undefined" for answer in silent)
    folder = recorded(tmp_path / "run", desk.case()["inputs"]["before"]["weights"][:16])
    told = desk.investigate(training=folder, force=True, formats=("html",))
    answers = {
        answer["question"]: answer for answer in findings(desk) if answer["layer"] == "signal"
    }
    assert answers["signal.entropy"]["estimate"] == pytest.approx(-0.8, abs=0.05)
    assert told.label == plain.label and told.gain == plain.gain
    assert "training" in answers["signal.entropy"]["provenance"]["inputs"]
    assert str(tmp_path) not in json.dumps(list(answers.values()))
    assert "token entropy by training step" in (desk.out / "report.html").read_text().lower()
    assert f"--training {folder}" in (replay_command(desk.case()["inputs"]) or "")


def test_the_record_of_another_run_is_refused(desk: Desk, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="started from other weights"):
        desk.investigate(training=recorded(tmp_path / "run", "0" * 16))
    with pytest.raises(UserError, match="holds no training record"):
        desk.investigate(training=tmp_path)
