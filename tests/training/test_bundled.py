"""The bundled pairs, end to end: real checkpoints, real repositories, real
rollouts, the whole verdict.
"""

import json
import shutil
from pathlib import Path

import pytest

from forensics.case import Budget
from forensics.cli.main import main
from forensics.investigation import investigate
from forensics.policies.checkpoints import inspect_checkpoint
from forensics.report import words
from forensics.report.data import load_case
from forensics.report.markdown import render_markdown
from tests.plain_words import said_plainly
from tests.stored_cases import PAIRS, STORED, investigation, played, unfold
from training.organisms.organism import BUNDLED, checkpoint_path


def run(*arguments: str) -> int:
    """The command line in this process; its exit code."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One case for each pair, by the command line, on what was played before;
    made when a test asks for it.
    """

    class Cases(dict[str, Path]):
        def __missing__(self, label: str) -> Path:
            folder = self[label] = tmp_path_factory.mktemp("cases") / label
            unfold(label, folder)
            assert run(*investigation(label, folder), "--resume") == 0
            changed = "something else is asked of the policies: run `python -m tests.stored_cases`"
            assert played(folder) == played(STORED / label), changed
            return folder

    return Cases()


@pytest.mark.slow
@pytest.mark.parametrize("label", PAIRS)
def test_played_anew_the_cause_is_named(tmp_path: Path, label: str) -> None:
    assert run(*investigation(label, tmp_path / label)) == 0
    assert verdict(tmp_path / label)["label"] == label
    assert played(tmp_path / label) == played(STORED / label)


def verdict(folder: Path) -> dict:
    return json.loads((folder / "case.json").read_text())["verdict"]


@pytest.mark.slow
@pytest.mark.parametrize("label", PAIRS)
def test_the_planted_cause_is_named(cases: dict[str, Path], label: str) -> None:
    assert verdict(cases[label])["label"] == label


def test_the_parts_add_up_and_the_chain_cites_its_steps(cases: dict[str, Path]) -> None:
    found = verdict(cases["phantom"])
    parts = [found[name]["estimate"] for name in ("genuine_gain", "phantom_gain")]
    assert sum(parts) == pytest.approx(found["gain"]["estimate"], abs=1e-9)
    assert found["share_of_wins_via_channel"]["git-history"]["low"] > 0.9
    rows = [
        json.loads(line) for line in (cases["phantom"] / "findings.jsonl").read_text().splitlines()
    ]
    credited = [row for row in rows if row["credited"]]
    assert credited and all(row["attempt_steps"] and row["obtained_steps"] for row in credited)


def test_first_screens_say_it_in_words(
    cases: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No hash and no name of our own: of the case, of its page, and of its runs as logs."""
    data = load_case(cases["phantom"])
    page = render_markdown(data).split("## Possible sources")[0]
    capsys.readouterr()
    assert run("scan", str(cases["phantom"]), "--out", str(tmp_path / "scanned")) == 0
    scanned = capsys.readouterr().out
    assert "forensics investigate" in page and "Runs: " not in page and "Report:" in scanned
    assert words.next_measurement(data.verdict).startswith("Close `git-history` in the world that ")
    for told in (page, words.next_measurement(data.verdict), scanned):
        said_plainly(told, cases["phantom"], tmp_path, BUNDLED)


@pytest.mark.slow
def test_names_and_manifests_say_nothing(tmp_path: Path) -> None:
    """The same bytes of evidence when both are copied to random names, without
    a word about the world.
    """
    shown = [BUNDLED / source for source in PAIRS["phantom"]]
    copies = [tmp_path / name for name in ("q1", "zz")]
    for copy, source in zip(copies, shown, strict=True):
        shutil.copytree(source, copy)
        (copy / "environment.json").unlink()
    for out, (before, after) in (("shown", shown), ("hidden", copies)):
        investigate(
            before,
            after,
            "mini-repo",
            environment_options={"world": "capped"},
            budget=Budget(tasks=60),
            seed=7,
            out=tmp_path / out,
        )
    ours, theirs = ((tmp_path / out / "evidence.jsonl").read_bytes() for out in ("shown", "hidden"))
    assert ours == theirs


def test_the_manifest_is_true_and_the_bundle_small() -> None:
    manifest = json.loads((BUNDLED / "manifest.json").read_text())
    assert (
        set(manifest)
        == {path.name for path in BUNDLED.iterdir() if path.is_dir()}
        >= {"leak", "honest"}
    )
    for name, entry in manifest.items():
        checkpoint = inspect_checkpoint(checkpoint_path(f"bundled:{name}"))
        assert checkpoint.weights == entry["weights"] and checkpoint.dtype == "bfloat16"
    assert sum(path.stat().st_size for path in BUNDLED.rglob("*") if path.is_file()) < 12e6


def test_nothing_in_a_checkpoint_names_its_cause() -> None:
    """Base and after directories hold the same files, and their texts differ in nothing."""
    for before, after in (("capped-base", "leak"), ("open-base", "honest")):
        names = [
            sorted(path.name for path in (BUNDLED / name).iterdir()) for name in (before, after)
        ]
        assert names[0] == names[1]
        for name in names[0]:
            if not name.endswith(".safetensors"):
                assert (BUNDLED / before / name).read_bytes() == (
                    BUNDLED / after / name
                ).read_bytes()


# -- the conformance suite on what the bundled checkpoints really did ------------------
