"""Logs of many files are scanned as they are read: the same bytes as one after
the other, whatever is in them.
"""

import json
import multiprocessing
from pathlib import Path
from typing import Any

import pytest

from forensics.investigation import scan_ahead as ahead, scan_parts
from forensics.investigation.scan_run import scan
from forensics.records import Step, Trajectory
from forensics.records.tables import read_trajectories, write_trajectories
from tests.forensics.test_scan_processes import FILES, _dies, way, write_log

__all__ = ["way"]

LOGS = 4


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece for each file."""
    monkeypatch.setattr(ahead, "BYTES", 1)


@pytest.fixture
def gathered(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    return watch(monkeypatch)


def watch(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each scan, whether what was found ahead counted."""
    told: list[bool] = []
    plain = ahead.scan_ahead

    def watched(*given: Any) -> Any:
        found = plain(*given)
        told.append(found is not None)
        return found

    monkeypatch.setattr("forensics.investigation.scan_run.scan_ahead", watched)
    return told


def write_folder(folder: Path, same: bool = False) -> Path:
    folder.mkdir()
    for number in range(LOGS):
        log = write_log(folder / f"{number}.jsonl", 10)
        rows = [json.loads(line) for line in log.read_text().splitlines()]
        named = [{**row, "id": f"{0 if same else number}-{at}"} for at, row in enumerate(rows)]
        log.write_text("".join(json.dumps(row) + "\n" for row in named) + "no JSON\n")
    return folder


def both_ways(log: Path, place: Path, **given: Any) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """The files of a case, and its runs, on one process and on two."""
    found = []
    for processes in (1, 2):
        out = place / f"case-{processes}"
        scan(log, out=out, processes=processes, **given)
        runs = [
            run.model_dump_json()
            for path in sorted((out / "trajectories").glob("*.parquet"))
            for run in read_trajectories(path)
        ]
        case = json.loads((out / "case.json").read_text())
        found.append(
            {name: (out / name).read_bytes() for name in FILES}
            | {
                "runs": "\n".join(runs).encode(),
                "counts": json.dumps(case["provenance"]["logs"]).encode(),
                "left": (
                    str(sorted(out.glob(".*")) + sorted((out / "trajectories").glob(".*"))).encode()
                ),
            }
        )
    return found[0], found[1]


@pytest.mark.parametrize(
    "way", ["copied", pytest.param("started anew", marks=pytest.mark.slow)], indirect=True
)
@pytest.mark.usefixtures("small_pieces", "way")
def test_reading_and_scanning_at_once_changes_no_byte(tmp_path: Path, gathered: list[bool]) -> None:
    log = write_folder(tmp_path / "log")
    (log / "gone.jsonl").symlink_to(tmp_path / "nowhere")
    one, two = both_ways(log, tmp_path)
    assert gathered == [False, True]
    assert (
        one["findings.jsonl"].count(b"\n") == 4 * LOGS
        and one["unreadable.jsonl"].count(b"\n") == LOGS + 1
    )
    assert one == two


def one_file(path: Path, marked: int = -1) -> Path:
    """Runs of one file; the one of that number is marked."""
    write_trajectories(
        path,
        [
            Trajectory(
                id=f"r{number}",
                task=f"t{number % 7}",
                policy="p",
                environment="e",
                seed=0,
                outcome=1.0,
                end="terminated",
                submission=f"the fix is {number} + {number}",
                steps=(
                    Step(role="user", text="go, with one ```bash block"),
                    Step(role="assistant", text="```bash\ngit show origin/main:a.py\n```"),
                    Step(
                        role="tool",
                        text=f"<returncode>0</returncode>\nthe fix is {number} + {number}",
                        channels=("notes",) if number == marked else (),
                    ),
                    Step(role="assistant", text=f"the fix is {number} + {number}"),
                ),
            )
            for number in range(60)
        ],
    )
    return path


@pytest.mark.parametrize("marked", [-1, 30])
def test_one_file_is_read_first(tmp_path: Path, gathered: list[bool], marked: int) -> None:
    one, two = both_ways(one_file(tmp_path / "log.parquet", marked), tmp_path)
    assert gathered == [False, False] and one == two
    assert one["findings.jsonl"].count(b"\n") >= 60
    assert (b'"channel":"notes"' in one["findings.jsonl"]) == (marked >= 0)


@pytest.mark.parametrize("processes", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_parts_of_a_reading_that_was_killed_do_not_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    log, out = one_file(tmp_path / "log.parquet"), tmp_path / "case"

    def killed(*given: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("forensics.investigation.stored_logs.ReadSide.keep", killed)
        scan(log, out=out, processes=2)
    scan(log, out=out, processes=processes, resume=True)
    scan(log, out=tmp_path / "whole")
    assert all(
        (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes() for name in FILES
    )
    assert (
        sum(1 for path in out.glob("trajectories/*.parquet") for _ in read_trajectories(path)) == 60
    )


@pytest.mark.slow
@pytest.mark.usefixtures("small_pieces")
def test_two_logs_are_scanned_at_once_too(tmp_path: Path, gathered: list[bool]) -> None:
    before = write_folder(tmp_path / "before")
    one, two = both_ways(write_folder(tmp_path / "log"), tmp_path, before=before)
    assert gathered == [False, True]
    assert one == two


@pytest.mark.slow
@pytest.mark.usefixtures("small_pieces")
def test_ids_that_come_again_are_told_apart_in_order(tmp_path: Path, gathered: list[bool]) -> None:
    one, two = both_ways(write_folder(tmp_path / "log", same=True), tmp_path)
    assert gathered == [False, False]
    assert f"0-3~{LOGS}".encode() in one["findings.jsonl"]
    assert one == two


@pytest.mark.slow
@pytest.mark.usefixtures("small_pieces")
def test_marks_of_channels_have_their_control_in_other_tasks(
    tmp_path: Path, gathered: list[bool]
) -> None:
    (tmp_path / "log").mkdir()
    for number in range(LOGS):
        shown = (
            Step(role="user", text="go"),
            Step(role="assistant", text="look"),
            Step(
                role="tool",
                text=f"the fix is {number} + {number}",
                channels=("notes",) if number > 1 else (),
            ),
            Step(role="assistant", text=f"the fix is {number} + {number}"),
        )
        write_trajectories(
            tmp_path / "log" / f"{number}.parquet",
            [
                Trajectory(
                    id=f"r{number}",
                    task=f"t{number}",
                    policy="p",
                    environment="e",
                    seed=0,
                    steps=shown,
                    outcome=1.0,
                    submission=f"the fix is {number} + {number}",
                    end="terminated",
                )
            ],
        )
    one, two = both_ways(tmp_path / "log", tmp_path)
    assert gathered == [False, False]
    assert one["findings.jsonl"].count(b'"channel":"notes"') == LOGS - 2
    assert one == two


@pytest.mark.usefixtures("small_pieces")
def test_a_process_that_dies_leaves_the_usual_way(
    tmp_path: Path, gathered: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_parts, "_started", _dies)
    before = set(multiprocessing.active_children())
    one, two = both_ways(write_folder(tmp_path / "log"), tmp_path)
    assert gathered == [False, False]
    assert one == two and not set(multiprocessing.active_children()) - before


@pytest.mark.usefixtures("small_pieces")
def test_what_was_read_before_a_kill_is_not_read_again(
    tmp_path: Path, gathered: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, out = write_folder(tmp_path / "log"), tmp_path / "case"

    def killed(*given: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("forensics.investigation.scan_run.write_findings", killed)
        scan(log, out=out, processes=2)
    scan(log, out=out, processes=2, resume=True)
    scan(log, out=tmp_path / "whole")
    assert gathered == [True, False, False]
    assert all(
        (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes() for name in FILES
    )
