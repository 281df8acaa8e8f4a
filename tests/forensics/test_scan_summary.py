"""What a scan says on stdout of what it read and found, against counts that were planted."""

import json
from pathlib import Path

from forensics.cli.case_output import summary
from forensics.investigation import scan_run
from forensics.records.tables import write_trajectories
from tests.forensics.test_scan import episode, fake_scanner


def told(case: Path) -> list[str]:
    """The lines of a case that says nothing of what could be looked at."""
    (case / "looks.jsonl").unlink()
    return list(summary(case))


def scanned(folder: Path, **sides: int) -> list[str]:
    """Scan logs with ten runs a side, of which so many peek; unscored runs peek, too."""
    for side, peeks in sides.items():
        runs = [episode(side, f"t{n}", 0, won=True, cheats=n < peeks) for n in range(10)]
        write_trajectories(folder / f"{side}.parquet", runs)
    before = folder / "before.parquet" if "before" in sides else None
    scan_run.scan(
        folder / "after.parquet", before, out=folder / "case", scanner=fake_scanner, formats=()
    )
    return told(folder / "case")


def test_two_sets_are_told_apart_and_nothing_is_said_of_the_clean_one(tmp_path: Path) -> None:
    assert scanned(tmp_path, before=0, after=3) == [
        "Read 10 runs before training.",
        "Read 10 runs after training.",
        "peek after training: tried in 3 of 10 runs, used in 3, credited in 3.",
    ]


def test_unscored_runs_and_unreadable_files_are_told(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    runs = [episode("a", f"t{n}", 0, won=True, outcome=None) for n in range(3)]
    write_trajectories(logs / "a.parquet", runs)
    (logs / "broken.parquet").write_bytes(b"PAR1")

    def undecided(trajectory: object) -> list[dict[str, object]]:
        return [
            {
                "family": "f",
                "channel": "\x1b[31mred",
                "attempt_steps": [1],
                "obtained": True,
                "used": True,
            }
        ]

    scan_run.scan(logs, out=tmp_path / "case", scanner=undecided, formats=("md",))
    report = (tmp_path / "case" / "report.md").read_text()
    assert (
        "1 of the files or rows could not be read" in report
        and "Read from one set of logs" in report
    )
    read, found = told(tmp_path / "case")
    assert "No run has an outcome" in " ".join(report.split())
    assert read.startswith("Read 3 runs; 1 of the files or rows could not be read (")
    assert "used in 3; whether the win came from it is not known for" in found
    assert "\x1b" not in found


def test_what_the_log_does_not_tell_is_never_a_zero(tmp_path: Path) -> None:
    """Four runs that tried: one used it, one did not, of two nobody knows; and a
    channel of which nothing is known.
    """
    write_trajectories(
        tmp_path / "log.parquet", [episode("a", f"t{n}", 0, won=True) for n in range(4)]
    )
    used = iter([True, False, None, None])

    def unsure(trajectory: object) -> list[dict[str, object]]:
        row = {"family": "f", "attempt_steps": [1], "credited": None}
        return [
            row | {"channel": "seen", "obtained": True, "used": next(used)},
            row | {"channel": "unseen", "obtained": True, "used": None},
        ]

    scan_run.scan(tmp_path / "log.parquet", out=tmp_path / "case", scanner=unsure, formats=())
    _, seen, unseen = told(tmp_path / "case")
    said = "tried in 4 of 4 runs, used in at least 1; whether the win came from it is"
    assert seen == f"seen: {said} not known for 3."
    said = "unseen: tried in 4 of 4 runs; whether it was used is not known; whether the win came"
    assert unseen.startswith(said)


def test_files_that_are_no_logs_are_one_line_and_do_not_bury_a_broken_log(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    (logs / "deep").mkdir(parents=True)
    runs = [episode("a", f"t{n}", 0, won=True) for n in range(3)]
    write_trajectories(logs / "deep" / "a.parquet", runs)
    (logs / "zz.parquet").write_bytes(b"PAR1")
    for n in range(161):
        (logs / f"{n}.{'csv' if n else 'png'}").write_text("a,b\n1,2\n")
    case = tmp_path / "case"
    scan_run.scan(logs, out=case, scanner=fake_scanner, formats=())
    broken, others = map(json.loads, (case / "unreadable.jsonl").read_text().splitlines())
    assert broken["file"] == "zz.parquet"
    assert others["where"] == "161 files: 160 .csv (1.csv, ...), 1 .png (0.png)"
    read = next(summary(case))
    assert "; 1 of the files or rows could not be read (" in read
    assert read.endswith("; 161 other files no reader knows.")
