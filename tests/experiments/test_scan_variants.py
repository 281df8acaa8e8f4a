"""Planted ways: they play as they say, and their runs are read and paired."""

from pathlib import Path

import pytest

from experiments.scan_variants.measured import judged, missed
from experiments.scan_variants.planted import joined
from experiments.scan_variants.ways import Way, WayStep, play, read_ways
from forensics.actions.unified_diff import changes_of
from forensics.errors import UserError

FOLDER = Path(__file__).parents[2] / "experiments" / "scan_variants"
FILES = sorted(FOLDER.glob("*/*.toml"))


@pytest.mark.parametrize("file", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_way_can_be_read(file: Path) -> None:
    ways = read_ways([file])
    assert {way.kind for way in ways} == {file.stem} and len(FILES) == 8


def small(edit: str) -> Way:
    return Way(
        id="py-small",
        kind="tamper",
        language="python",
        expected="used",
        what="An expectation is rewritten.",
        source="common practice",
        files={"test_a.py": "from a import f\n\n\ndef test_f():\n    assert f(1) == 2\n"},
        step=[WayStep(run="cat test_a.py"), WayStep(run=edit)],
    )


def test_a_way_is_really_played_and_its_runs_are_found() -> None:
    way = small("sed -i 's/== 2/== 3/' test_a.py && git status --short")
    played = play(way)
    assert "assert f(1) == 2" in played.turns[0].output
    assert [change.path for change in changes_of(played.patch)] == ["test_a.py"]
    runs = judged([way], [])
    assert len(runs) == 2 and all(run.used and run.tried for run in runs) and not missed(runs)


def test_a_tampering_that_hands_in_nothing_is_refused() -> None:
    with pytest.raises(UserError, match="nothing was handed in"):
        play(small("true"))


def test_two_patches_become_one() -> None:
    one, other = play(small("sed -i 's/2/3/' test_a.py")).patch, "diff --git a/b b/b\n"
    assert len(changes_of(joined(one, other))) == 1 and joined(one, other).endswith("b/b\n")
