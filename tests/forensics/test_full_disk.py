"""A disk that fills up while a command writes: the command says so, and goes on to the same bytes
once there is room. The limit on the size of a file stands for the disk.
"""

import gc
import resource
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from forensics.cli.main import run
from forensics.errors import OutsideFailure
from forensics.records.tables import write_table
from training.organisms.base_model import build_model, build_tokenizer
from training.organisms.organism import BUNDLED
from training.run_state import save_checkpoint

LEAK, BASE = str(BUNDLED / "leak"), str(BUNDLED / "capped-base")
PAIR = ["--before", BASE, "--after", LEAK, "--tasks", "6", "--samples", "2", "--device", "cpu"]
CASE = ["investigate", *PAIR, "--instruments", "grades,kl,score"]


@contextmanager
def largest_file(most: int) -> Iterator[None]:
    """Python writes no bytecode meanwhile: it does not notice that the file was cut off, and every
    later process would fail at it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    written, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        sys.dont_write_bytecode = written


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.slow
def test_what_a_full_disk_stopped_ends_in_the_same_bytes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run([*CASE, "--out", str(tmp_path / "whole")]) == 0
    grade = ["grade", str(tmp_path / "whole"), "--policy", LEAK, "--reference", BASE]
    assert run([*grade, "--out", str(tmp_path / "grades")]) == 0
    for name, line in (("whole", CASE), ("grades", grade)):
        whole = files(tmp_path / name)
        sizes = sorted(map(len, whole.values()))
        for most in (sizes[len(sizes) // 2] - 1, sizes[-1] - 1):
            capfd.readouterr()
            again = [*line, "--out", str(tmp_path / f"{name}-{most}")]
            with largest_file(most):
                assert run(again) == 2
            assert "larger than a file may be" in capfd.readouterr().err
            assert run([*again, "--resume"]) == 0
            assert files(tmp_path / f"{name}-{most}") == whole


def test_half_a_base_is_none(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An organism's base that was copied in part was gone on with: also one whose smallest file
    was cut, by an organism that differed without a word.
    """

    def same(base: Path, after: Path, *given: object) -> dict[str, str]:
        shutil.copytree(base, after)
        return {}

    monkeypatch.setattr("training.organisms.organism.resolve_name", lambda name: same)
    build = ["organism", "build", "planted", "--device", "cpu", "--out", str(tmp_path / "made")]
    for most in (300, 100_000):
        with largest_file(most):
            assert run([*build, "--resume"]) == 2
        assert "larger than a file may be" in capfd.readouterr().err
        assert not (tmp_path / "made" / "base" / "config.json").exists()
    assert run([*build, "--resume"]) == 0
    assert files(tmp_path / "made" / "base") == files(BUNDLED / "capped-base")


def test_a_checkpoint_is_whole_or_as_it_was(tmp_path: Path) -> None:
    tokenizer = build_tokenizer()
    first, second = (build_model(len(tokenizer), seed) for seed in (0, 1))
    for place in ("new", "old"):
        if place == "old":
            save_checkpoint(tmp_path / place, first, tokenizer, {"name": "first"})
            (tmp_path / place / "mine.txt").write_text("mine")
        before = files(tmp_path / place)
        with largest_file(100_000), pytest.raises(OutsideFailure, match="larger than a file"):
            save_checkpoint(tmp_path / place, second, tokenizer, {"name": "second"})
        assert files(tmp_path / place) == before and (tmp_path / place).exists() == bool(before)
        save_checkpoint(tmp_path / place, second, tokenizer, {"name": "second"})
    whole = files(tmp_path / "new")
    assert files(tmp_path / "old") == {**whole, "mine.txt": b"mine"}


def test_a_table_that_could_not_be_closed_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pyarrow closes it again when it is collected, and prints a traceback."""
    printed: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", printed.append)

    with largest_file(100):
        with pytest.raises((OSError, OutsideFailure)):
            write_table(
                tmp_path / "a.parquet", pa.schema([("x", pa.int8())]), [{"x": 1}], at_once=9
            )
        gc.collect()
    assert not printed
