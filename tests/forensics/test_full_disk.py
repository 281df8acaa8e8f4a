"""A disk that fills up while a command writes: the command says so, and goes on to the same bytes
once there is room. The limit on the size of a file stands for the disk.
"""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from forensics.cli.main import run
from training.organisms.organism import BUNDLED

LEAK, BASE = str(BUNDLED / "leak"), str(BUNDLED / "capped-base")
PAIR = ["--before", BASE, "--after", LEAK, "--tasks", "6", "--samples", "2", "--device", "cpu"]
CASE = ["investigate", *PAIR, "--instruments", "grades,kl,score"]


@contextmanager
def largest_file(most: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


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
        for most in (sizes[len(sizes) // 3] - 1, sizes[len(sizes) // 2] - 1, sizes[-1] - 1):
            capfd.readouterr()
            again = [*line, "--out", str(tmp_path / f"{name}-{most}")]
            with largest_file(most):
                assert run(again) == 2
            assert "larger than a file may be" in capfd.readouterr().err
            assert run([*again, "--resume"]) == 0
            assert files(tmp_path / f"{name}-{most}") == whole
