"""A study in a folder: refused, begun, killed, gone on with, started over."""

import errno
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer

from crosscoders.study.diff_files import read_summary
from forensics.cli.options import Run, study_command
from forensics.errors import RunInterrupted, UserError
from forensics.investigation.folder import case_identities
from forensics.records.files import write_json
from forensics.records.page import Page
from forensics.study import Folder, Result, run_study


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """Doubles numbers; draws nothing twice. `fails`: in which step it is refused or killed."""

    numbers: tuple[int, ...] = (1, 2)
    fails: str = ""
    name: ClassVar = "lengths"
    files: ClassVar = ("lengths.parquet", "kept")

    def _step(self, name: str) -> None:
        if self.fails == name:
            raise UserError("refused") if name == "check" else KeyboardInterrupt
        if self.fails == "nothing made":
            raise UserError("refused")
        if self.fails == f"interrupted {name}":
            raise KeyboardInterrupt

    def check(self, folder: Folder) -> list[int]:
        if self.fails != "nothing made":
            (folder.path / "copies").mkdir(exist_ok=True)
        self._step("check")
        return [*self.numbers]

    def inputs(self, ready: list[int]) -> dict[str, Any]:
        return {"numbers": {str(i): number for i, number in enumerate(ready)}, "unit": (1,)}

    def run(self, ready: list[int], folder: Folder) -> list[int]:
        (folder.path / "kept").mkdir(exist_ok=True)
        (folder.path / "kept" / ".half.1.draft").write_text("half")
        self._step("run")
        return [2 * number for number in ready]

    def write(self, found: list[int], folder: Folder) -> Result:
        schema = pa.schema([("n", pa.int64())])
        folder.table("lengths.parquet", ({"n": number} for number in found), schema)
        return Result(
            summary={"sum": sum(found)}, sentences=("So.",), page=Page(eyebrow="", title="So")
        )


@study_command
def lengths(*, run: Run) -> None:
    """Of numbers."""
    run.carry_out(Lengths())


def test_a_study_leaves_its_inputs_its_tables_its_summary_and_its_page(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run_study(Lengths(), out).summary == {"sum": 6}
    assert pq.read_table(out / "lengths.parquet").to_pylist() == [{"n": 2}, {"n": 4}]
    assert json.loads((out / "lengths.json").read_text()) == {"sum": 6}
    assert (out / "lengths.html").read_text().startswith("<!doctype html>")
    assert "not empty" in refusal(out)


def refusal(out: Path, study: Lengths | None = None, **how: bool) -> str:
    with pytest.raises(UserError) as refused:
        run_study(study or Lengths(), out, **how)
    return str(refused.value)


def test_what_is_refused_leaves_no_folder_and_what_was_there_whole(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert refusal(out, Lengths(fails="check")) == "refused"
    assert not out.exists()
    out.mkdir()  # one that was there stays: it may be where a disk is mounted
    assert refusal(out, Lengths(fails="check")) == "refused"
    assert out.is_dir() and not any(out.iterdir())
    run_study(Lengths(), out)
    assert refusal(out, Lengths(fails="check"), force=True) == "refused"
    assert (out / "lengths.json").exists()
    assert "exclude each other" in refusal(out, force=True, resume=True)


def test_a_place_that_cannot_go_changes_nothing_in_what_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A volume of a container is where a disk is mounted, and no folder that can be removed."""

    def busy(path: object, *given: object, **how: object) -> None:
        raise OSError(errno.EBUSY, "Device or resource busy")

    monkeypatch.setattr("os.rmdir", busy)
    study = Lengths(fails="nothing made")
    assert refusal(tmp_path / "out", study) == "refused"


def test_half_a_folder_of_a_killed_run_goes_as_its_files_do(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_study(Lengths(fails="run"), tmp_path)
    (tmp_path / "kept" / ".half.draft").mkdir()
    (tmp_path / "kept" / ".half.draft" / "config.json").write_text("{}")
    run_study(Lengths(), tmp_path, resume=True)
    assert not (tmp_path / "kept" / ".half.draft").exists()


def test_a_killed_study_goes_on_and_only_with_the_same(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_study(Lengths(fails="run"), tmp_path)
    told = refusal(tmp_path, Lengths(numbers=(1, 3)), resume=True)
    assert "numbers 1=2, not 1=3" in told and "--force" in told
    assert not (tmp_path / "kept" / ".half.1.draft").exists()  # it would take disk space
    run_study(Lengths(), tmp_path, resume=True)
    run_study(Lengths(), tmp_path, resume=True)


def test_starting_over_takes_away_what_the_study_wrote_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    (tmp_path / "lengths.html").write_text("mine")  # no study was begun here
    assert "nothing can be resumed" in refusal(tmp_path, resume=True)
    with pytest.raises(KeyboardInterrupt):
        run_study(Lengths(fails="run"), tmp_path, force=True)
    assert (tmp_path / "lengths.html").read_text() == "mine"
    (tmp_path / "kept" / "old").write_text("1")
    run_study(Lengths(numbers=(7,)), tmp_path, force=True)
    assert not (tmp_path / "kept" / "old").exists()
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


@pytest.mark.parametrize("how", [(), ("--json",)])
def test_a_command_is_options_and_one_call(
    how: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app = typer.Typer()
    app.command()(lengths)
    app(["--out", str(tmp_path / "out"), *how], standalone_mode=False)
    told = capsys.readouterr().out
    if how:
        assert json.loads(told) == {"case": str(tmp_path / "out"), "sum": 6}
    else:
        assert told == f"So.\n\nReport: {tmp_path / 'out' / 'lengths.html'}\n"


def test_folders_of_other_versions_are_refused_in_a_users_words(tmp_path: Path) -> None:
    """A steering folder of before says nothing of its inputs; a diff and a case
    say it in another way.
    """
    (tmp_path / "steering.json").write_text("{}")
    told = refusal(tmp_path, resume=True)
    assert "nothing in it says what was started there (it may be of another version)" in told
    write_json(tmp_path / "diff.json", {"schema_version": 0})
    with pytest.raises(UserError, match="made by another version of this program; make it again"):
        read_summary(tmp_path)
    with pytest.raises(UserError, match="started by another command or another version"):
        case_identities({"checkpoints": []})


@pytest.mark.parametrize(
    ("fails", "held", "how", "kept"),
    [
        ("interrupted check", False, {}, False),
        ("run", False, {}, True),  # the half-written folder `kept` is gone on with
        ("interrupted check", True, {"resume": True}, True),
        ("interrupted check", True, {"force": True}, False),  # it holds another run
        ("run", True, {"force": True}, True),
    ],
)
def test_an_interrupted_study_says_whether_it_can_be_gone_on_with(
    fails: str, held: bool, how: dict[str, bool], kept: bool, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    if held:
        run_study(Lengths(), out)
    with pytest.raises(RunInterrupted) as caught:
        run_study(Lengths(fails=fails), out, **how)
    assert caught.value.kept == kept
    if not held:
        assert out.exists() == kept
