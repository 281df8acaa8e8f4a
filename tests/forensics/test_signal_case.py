"""A training record beside an investigation: given, stated, reported, refused
where it belongs to another run.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from forensics import load_policy
from forensics.errors import UserError
from forensics.investigation.inputs import require_same_start
from forensics.policies import identify_model
from forensics.progress import silent
from forensics.records.train_tables import TrainingRecord
from forensics.report.words import replay_command
from forensics.subjects import inspect_subjects
from tests.forensics.planted_run import HEALTHY, HURT, RUN, write_run
from tests.forensics.scripted import Desk
from tests.tiny import tiny_qwen3, tiny_tokenizer


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


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_trainer_may_open_the_base_in_float32(tmp_path: Path, dtype: str) -> None:
    """TRL does; other weights, of a last bit, are still refused."""
    base = tmp_path / "base"
    tiny_qwen3(0).to(getattr(torch, dtype)).save_pretrained(base)
    tiny_tokenizer().save_pretrained(base)
    (before, *_) = inspect_subjects(base, [base], silent, needs=())
    model = load_policy(base, device="cpu", dtype="float32").model
    record = TrainingRecord(recorded(tmp_path / "run", identify_model(model).sha256))
    require_same_start(record, before)
    with torch.no_grad():
        model.model.norm.weight[0] += 1e-6
    record = TrainingRecord(recorded(tmp_path / "other", identify_model(model).sha256))
    with pytest.raises(UserError, match="started from other weights"):
        require_same_start(record, before)


def test_the_record_of_another_run_is_refused(desk: Desk, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="started from other weights"):
        desk.investigate(training=recorded(tmp_path / "run", "0" * 16))
    with pytest.raises(UserError, match="holds no training record"):
        desk.investigate(training=tmp_path)
