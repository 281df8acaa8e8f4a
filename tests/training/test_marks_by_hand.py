"""What a watch wrote and somebody changed is one sentence, and never a mark."""

from pathlib import Path

import pytest

from forensics.errors import UserError
from training.live import promotable, read_reports
from training.live.audit_report import LINES
from training.live.marks import MARKS, read_marks
from training.live.watcher import SavedFolder, load_model


@pytest.mark.parametrize(
    "told", ["[]", '{"checkpoints": null}', '{"checkpoints": ["a"]}', '{"checkpoints": 5}']
)
def test_marks_changed_by_hand_are_one_sentence(tmp_path: Path, told: str) -> None:
    (tmp_path / MARKS).write_text(told)
    for read in (read_marks, promotable):
        with pytest.raises(UserError, match=r"not as it was written .* move it away"):
            read(tmp_path)


@pytest.mark.parametrize("told", ["no json", "{}", "[1]"])
def test_audits_changed_by_hand_are_one_sentence(tmp_path: Path, told: str) -> None:
    (tmp_path / LINES).write_text(told + "\n")
    with pytest.raises(UserError, match=r"not as it was written .* move it away"):
        read_reports(tmp_path)


def test_a_refusal_names_the_checkpoint(tmp_path: Path) -> None:
    """Not the passing folder that it was opened in."""
    (tmp_path / "step-1").mkdir()
    (tmp_path / "base").mkdir()
    (tmp_path / "step-1" / "config.json").write_text('{"model_type": "nonesuch"}')
    folder = SavedFolder(place=tmp_path / "step-1", name="step-1", kind="model")
    with pytest.raises(UserError, match=str(tmp_path / "step-1")):
        load_model(folder, tmp_path / "base", "cpu", "float32")
