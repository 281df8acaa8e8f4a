"""How runs were drawn is taken from the case or the training, unless an option says it."""

from pathlib import Path

import pytest

from forensics.cli.options import Sampling
from forensics.investigation.stated_settings import stated_sampling
from forensics.protocols import SamplingSettings
from forensics.records.files import write_json


def case_at(folder: Path, **settings: float) -> Path:
    folder.mkdir()
    write_json(folder / "case.json", {"inputs": {"budget": {"settings": settings}}})
    return folder


def checkpoint_at(folder: Path, **sampling: float) -> Path:
    folder.mkdir()
    write_json(folder / "environment.json", {"name": "prompts", "sampling": sampling})
    return folder


def test_options_come_before_the_case_and_the_case_before_the_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = case_at(tmp_path / "case", temperature=0.7, max_turn_tokens=14, top_k=0)
    trained = checkpoint_at(tmp_path / "trained", temperature=0.5, max_turn_tokens=9)
    given = {"logs": case, "policy": trained}
    assert Sampling().settings(given) == SamplingSettings(temperature=0.7, max_turn_tokens=14)
    said = capsys.readouterr().err
    assert "case.json says: max_turn_tokens 14, temperature 0.7" in said
    assert Sampling(temperature=1.0).settings(given) == SamplingSettings(max_turn_tokens=14)
    taken = Sampling().settings({"before": tmp_path, "after": [trained]})
    assert taken == SamplingSettings(temperature=0.5, max_turn_tokens=9)


def test_a_run_of_trl_says_it_in_its_record(tmp_path: Path) -> None:
    recipe = {"trainer": "trl.GRPOTrainer", "temperature": 0.9, "max_completion_length": 200}
    (tmp_path / "forensics" / "record").mkdir(parents=True)
    path = tmp_path / "forensics" / "record" / "run.json"
    write_json(path, {"recipe": recipe | {"top_k": None, "learning_rate": 1e-6}})
    given = {"before": tmp_path, "after": [tmp_path], "training": tmp_path}
    wanted = SamplingSettings(temperature=0.9, max_turn_tokens=200, max_tokens=1224)
    assert Sampling().settings(given) == wanted
    given["after"] = [checkpoint_at(tmp_path / "trained", temperature=0.5)]
    assert Sampling().settings(given) == SamplingSettings(temperature=0.5)
    write_json(path, {"recipe": recipe | {"trainer": "another"}})
    assert stated_sampling(tmp_path, ()) is None


def test_a_case_without_settings_says_nothing_and_strange_fields_are_left_out(
    tmp_path: Path,
) -> None:
    scanned = tmp_path / "scanned"
    scanned.mkdir()
    write_json(scanned / "case.json", {"inputs": {}})
    assert stated_sampling(scanned, ()) is None
    strange = case_at(tmp_path / "case", temperature=0.7, wings=2)
    told = stated_sampling(strange, ())
    assert told is not None and dict(told.values) == {"temperature": 0.7}
