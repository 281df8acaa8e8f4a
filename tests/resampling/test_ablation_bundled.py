"""Action ablation on the bundled checkpoints: with its channel declared,
undeclared, and from the command line.
"""

import json
from pathlib import Path

import pytest

from forensics import Budget, UserError, investigate
from forensics.cli.main import main
from forensics.records import Evidence
from forensics.records.files import read_findings
from resampling import ablate_actions
from tests.resampling.undeclared import Undeclared
from training.environments.mini_repo import MiniRepo
from training.organisms.organism import BUNDLED

LEAK = BUNDLED / "capped-base", BUNDLED / "leak"
SMALL = ("--tasks", "60", "--device", "cpu")


def shortcuts(folder: Path) -> set[str | None]:
    found = read_findings(folder / "evidence.jsonl")
    return {
        one.about
        for one in found
        if isinstance(one, Evidence) and one.question == "ablation.shortcut" and one.estimate == 1
    }


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


@pytest.fixture(scope="module")
def ablated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The leak pair by the command line."""
    out = tmp_path_factory.mktemp("ablation") / "case"
    pair = ("--before", str(LEAK[0]), "--after", str(LEAK[1]))
    assert run("ablate", *pair, *SMALL, "--leave-open", "--out", str(out)) == 0
    return out


@pytest.mark.slow
def test_the_command_writes_the_rows(ablated: Path) -> None:
    rows = [json.loads(line) for line in (ablated / "ablation.jsonl").read_text().splitlines()]
    through = [row["kind"] for row in rows if row["runs_through"]]
    assert through == ["history"] and shortcuts(ablated) == {"history"}
    row = next(row for row in rows if row["kind"] == "history")
    assert (
        row["contains_answer"] is True
        and row["q_value"] < 0.01
        and row["gain_without"]["high"] < row["gain"]["low"]
    )


@pytest.mark.slow
def test_it_resumes_without_playing_again_and_writes_over_nothing(
    ablated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = (
        "ablate",
        "--before",
        str(LEAK[0]),
        "--after",
        str(LEAK[1]),
        *SMALL,
        "--leave-open",
        "--out",
        str(ablated),
    )
    written = {path: path.stat().st_mtime_ns for path in ablated.rglob("*.parquet")}
    rows = (ablated / "ablation.jsonl").read_bytes()
    assert run(*pair) == 2
    capsys.readouterr()
    assert run(*pair, "--resume", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["shortcuts"] == ["history"]
    assert [row["kind"] for row in told["rows"] if row["runs_through"]] == ["history"]
    assert {path: path.stat().st_mtime_ns for path in ablated.rglob("*.parquet")} == written
    assert (ablated / "ablation.jsonl").read_bytes() == rows


@pytest.mark.slow
def test_undeclared_it_is_not_genuine_and_the_kind_is_named(tmp_path: Path) -> None:
    world = Undeclared(MiniRepo(world="capped"), "git-history")
    assert world.channels == () and world.without("git-history").scrubbed == ()
    verdict = investigate(
        *LEAK, world, budget=Budget(tasks=60), out=tmp_path / "case", device="cpu"
    )
    assert verdict.label == "undetermined" and shortcuts(tmp_path / "case") == {"history"}
    assert "history" in verdict.gaps[0].text and "history" in verdict.sentence


def test_a_pair_needs_a_folder() -> None:
    with pytest.raises(UserError, match="case folder"):
        ablate_actions(*LEAK)


def test_the_wrapper_hides_what_it_should_and_nothing_else() -> None:
    world = Undeclared(MiniRepo(world="capped", channels="answer-file,git-history"), "git-history")
    assert [channel.name for channel in world.channels] == ["answer-file"]
    scrubbed = world.without("answer-file", "git-history")
    name = world.tasks("held-out", 1, 0)[0]
    for one, notes in ((world, ("answer-file",)), (scrubbed, ())):
        one.reset(name, 0)
        shown = one.step("history")
        assert shown.channels == () and "fix" in shown.observation and shown.kinds == ("history",)
        assert one.step("open notes").channels == notes
    assert scrubbed.scrubbed == ("answer-file",)
