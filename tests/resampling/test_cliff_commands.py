"""`forensics cliffs` and `forensics resample` on real runs of a bundled policy."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from forensics import load_policy
from forensics.cli.main import run
from forensics.protocols import SamplingSettings
from forensics.records.tables import write_trajectories
from forensics.records.train_rows import read_pairs
from training.environments.mini_repo import MiniRepo
from training.organisms.organism import checkpoint_path

BASE = checkpoint_path("bundled:capped-base")
WORLD = ("--env", "mini-repo", "--env-option", "world=capped")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("log")
    world = MiniRepo(world="capped")
    runs = load_policy(BASE, device="cpu").play(
        world, world.tasks("held-out", 30, 3), 2, SamplingSettings(), 3
    )
    write_trajectories(folder / "runs.parquet", runs)
    return folder


def command(log: Path, out: Path, *more: str, most: int = 6) -> list[str]:
    return [
        "cliffs",
        str(log),
        "--policy",
        str(BASE),
        *WORLD,
        "--most",
        str(most),
        "--out",
        str(out),
        *more,
    ]


@pytest.fixture(scope="module")
def study(log: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("study") / "out"
    assert run(command(log, out)) == 0
    return out


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "cliffs.jsonl").read_text().splitlines()]


def test_the_study_leaves_what_it_promises(study: Path) -> None:
    summary = json.loads((study / "cliffs.json").read_text())
    assert summary["cliffs"] == len(rows(study)) and summary["runs"] == 6
    restored = {row["what"]: row["estimate"] for row in summary["restored"] if row["kind"] == "all"}
    assert restored["cliff"] > 0.15 > restored["control"]
    potentials = pq.read_table(study / "potentials.parquet").to_pylist()
    assert {row["trajectory"] for row in potentials} == set(summary["inputs"]["runs"])
    assert all(row["low"] <= row["potential"] <= row["high"] for row in potentials)
    page = (study / "cliffs.html").read_text()
    assert (
        page.count('<details class="stretch">') == len(rows(study)) and "forensics resample" in page
    )
    pairs = read_pairs(study / "pairs.jsonl")
    assert pairs and all(len(pair.chosen) == len(pair.rejected) == 1 for pair in pairs)


def test_a_finished_study_goes_on_without_drawing_and_says_the_same(study: Path, log: Path) -> None:
    before = {path: path.read_bytes() for path in sorted(study.rglob("*")) if path.is_file()}
    assert run(command(log, study)) == 2
    assert run(command(log, study, "--resume")) == 0
    after = {path: path.read_bytes() for path in sorted(study.rglob("*")) if path.is_file()}
    assert after == before


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--runs", "drawn"), "none of lost, won, all"),
        (("--delta", "1.5"), "delta must lie between 0 and 1"),
        (("--fdr", "0"), "fdr must lie between 0 and 1"),
        (("--trajectory", "zebra"), "begins with zebra"),
        (("--without", "answer-file"), "without answer-file"),
        (("--env-option", "world=open"), "given twice"),
        (("--temperature", "-1"), "temperature is -1.0"),
        (("--top-p", "0"), "top-p is 0.0"),
        (("--repetition-penalty", "0"), "repetition-penalty is 0.0"),
        (("--seed", "-1"), "seed is -1"),
        (("--server-model", "m"), "give --server too"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(
    more: tuple[str, ...], says: str, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command(log, tmp_path / "out", *more)) == 2
    told = capsys.readouterr().err
    assert says in told and told.count("\n") == 1
    assert not (tmp_path / "out").exists()
