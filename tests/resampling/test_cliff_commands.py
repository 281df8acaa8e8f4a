"""`forensics cliffs` and `forensics resample` on real runs of a bundled policy."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from forensics import load_policy
from forensics.cli.main import run
from forensics.protocols import SamplingSettings
from forensics.records.tables import read_trajectories, write_trajectories
from forensics.records.train_rows import read_pairs
from training.environments.mini_repo import MiniRepo
from training.organisms.organism import checkpoint_path

BASE = checkpoint_path("bundled:capped-base")
WORLD = ("--env", "mini-repo", "--env-option", "world=capped")
FIELDS = {
    "trajectory",
    "token",
    "text",
    "drop",
    "contrast",
    "low",
    "high",
    "e_value",
    "kind",
    "probability",
}


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


def resampled(
    log: Path, found: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> list[Mapping[str, Any]]:
    places = [part for row in found for part in ("--at", f"{row['trajectory']}:{row['token']}")]
    capsys.readouterr()
    line = [
        "resample",
        str(log),
        *places,
        "--policy",
        str(BASE),
        *WORLD,
        "--seed",
        "99",
        "-n",
        "48",
        "--json",
    ]
    assert run(line) == 0
    tokens: list[Mapping[str, Any]] = json.loads(capsys.readouterr().out)["tokens"]
    return tokens


@pytest.mark.slow
def test_every_reported_token_is_done_again_by_a_reader(
    study: Path, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = rows(study)
    assert found and set(found[0]) >= FIELDS
    again = resampled(log, found, capsys)
    assert [(row["trajectory"], row["token"]) for row in again] == [
        (row["trajectory"], row["token"]) for row in found
    ]
    for row in again:
        assert (
            row["restored"] > 0.05 and row["low"] > -0.15
        )  # 48 draws an arm have a standard error of 0.1 at most
        assert row["others"]["estimate"] > row["kept"]["estimate"]
    assert sum(row["restored"] for row in again) / len(again) > 0.15


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


def test_a_folder_holds_one_study(
    study: Path, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command(log, study, "--resume", "--delta", "0.3")) == 2
    assert "delta 0.2, not 0.3" in capsys.readouterr().err


@pytest.mark.slow
def test_rises_are_what_wins_a_run(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "rises"
    assert run(command(log, out, "--rises", "--delete-keep", "0", most=3)) == 0
    found = rows(out)
    assert found and all(
        row["drop"] < 0 and row["low"] <= row["drop"] <= row["high"] for row in found
    )
    again = resampled(log, found, capsys)
    assert sum(row["restored"] for row in again) / len(again) < -0.15


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


def test_a_run_of_another_tokenizer_is_refused(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign = next(read_trajectories(log / "runs.parquet"))
    first = foreign.steps[0].model_copy(
        update={"token_ids": (5000, *foreign.steps[0].token_ids[1:])}
    )
    moved = foreign.model_copy(update={"steps": (first, *foreign.steps[1:])})
    write_trajectories(tmp_path / "log" / "runs.parquet", [moved])
    assert run([*command(tmp_path / "log", tmp_path / "out"), "--runs", "all"]) == 2
    assert "holds the token id 5000" in capsys.readouterr().err


def test_the_command_on_the_page_has_the_settings_of_the_study(log: Path, tmp_path: Path) -> None:
    line = command(log, tmp_path / "out", "--top-k", "5", "--delete-keep", "0", most=2)
    assert run(line) == 0
    page = (tmp_path / "out" / "cliffs.html").read_text()
    assert rows(tmp_path / "out")
    assert "--temperature 1.0 --top-k 5" in page and "--max-tokens 2048 --seed 1<" in page


def test_a_run_of_another_world_is_refused(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = [
        part if part != "world=capped" else "world=open" for part in command(log, tmp_path / "out")
    ]
    assert run(line) == 2
    assert "does not replay" in capsys.readouterr().err
