"""What a scan says on stdout of what it read and found, against counts that were planted."""

import json
from pathlib import Path
from typing import Any

import pytest

from forensics.cli.case_output import summary
from forensics.cli.main import run as command
from forensics.investigation import scan_run
from forensics.records.tables import write_trajectories
from forensics.report.chains import ChainRow
from forensics.report.profile import done_told
from tests.forensics.test_scan import episode, fake_scanner


def told(case: Path) -> list[str]:
    """The lines of a case that says nothing of what could be checked."""
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


def test_one_set_of_logs_is_told_without_a_side(tmp_path: Path) -> None:
    assert scanned(tmp_path, after=4) == [
        "Read 10 runs.",
        "peek: tried in 4 of 10 runs, used in 4, credited in 4.",
    ]


def test_two_sets_are_told_apart_and_nothing_is_said_of_the_clean_one(tmp_path: Path) -> None:
    assert scanned(tmp_path, before=0, after=3) == [
        "Read 10 runs before training.",
        "Read 10 runs after training.",
        "peek after training: tried in 3 of 10 runs, used in 3, credited in 3.",
    ]


def test_no_finding_is_said(tmp_path: Path) -> None:
    assert scanned(tmp_path, after=0) == ["Read 10 runs."]


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
    assert "Unreadable: 1 of the files or rows" in report and "From one set of logs" in report
    read, found = told(tmp_path / "case")
    assert "No run has an outcome" in " ".join(report.split())
    assert read.startswith("Read 3 runs; unreadable: 1 of the files or rows (")
    assert "used in 3; unknown for" in found
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
    said = "tried in 4 of 4 runs, used in at least 1; unknown for 3"
    assert seen == f"seen: {said} whether the win came from it."
    said = "unseen: tried in 4 of 4 runs; use unknown; unknown for"
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
    assert "; unreadable: 1 of the files or rows (" in read
    assert read.endswith("; 161 files of unknown format.")


def test_findings_name_the_file_and_the_model(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    (logs / "deep").mkdir(parents=True)
    runs = [episode("a", f"t{n}", 0, won=True, cheats=True) for n in range(3)]
    write_trajectories(logs / "deep" / "a.parquet", runs)
    scan_run.scan(logs, out=tmp_path / "case", scanner=fake_scanner, formats=())
    rows = [*map(json.loads, (tmp_path / "case" / "findings.jsonl").read_text().splitlines())]
    assert [(row["file"], row["policy"]) for row in rows] == [("deep/a.parquet", "a")] * 3


def test_below_two_sets_few_lines_stand_the_surest_first(tmp_path: Path, capsys: Any) -> None:
    for side in "ab":
        runs = [episode(side, f"t{n}", 0, won=n % 2 == 0) for n in range(8)]
        write_trajectories(tmp_path / f"{side}.parquet", runs)
    paths = [str(tmp_path / f"{side}.parquet") for side in "ba"]
    out = tmp_path / "case"
    assert command(["scan", paths[0], "--before", paths[1], "--out", str(out)]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("- ")]
    assert len(lines) == 9 and lines[0].startswith("- certain: ")
    assert lines[-1].endswith(" more in report.md, evidence.jsonl and findings.jsonl")
    reasons = (out / "report.md").read_text().split("## Why this verdict")[1].split("\n\n")[1]
    assert len(reasons.splitlines()) == 9 and "more in evidence.jsonl" in reasons.replace("\\", "")


def test_lines_of_what_was_found_are_sentences(tmp_path: Path) -> None:
    """Of an empty hand-in that lost nobody asks whether it was used."""

    def empty(_: object) -> list[dict[str, object]]:
        row = {"family": "do-nothing", "channel": "do-nothing", "attempt_steps": [1]}
        return [{**row, "obtained": True, "used": None, "credited": False}]

    write_trajectories(tmp_path / "log.parquet", [episode("a", "t", 0, won=False)])
    scan_run.scan(tmp_path / "log.parquet", out=tmp_path / "case", scanner=empty, formats=())
    assert (
        told(tmp_path / "case")[1] == "do-nothing: tried in 1 of 1 run, used in 0, credited in 0."
    )


@pytest.mark.parametrize(
    ("patterns", "used", "told"),
    [
        (("equal to everything",), True, "Handed in an object that equals everything"),
        (("equality that always holds",), None, "Wrote an object that equals everything"),
        (("timer replaced",), True, "Replaced what grades or times them"),
        (("timer replaced",), None, "Replaced something that may grade or time them"),
        (
            ("timer replaced", "equal to everything"),
            True,
            "Replaced what grades or times them or handed in an object that equals everything",
        ),
    ],
)
def test_an_object_that_equals_everything_is_called_so(
    patterns: tuple[str, ...], used: bool | None, told: str
) -> None:
    row = ChainRow(
        trajectory="r",
        side="after-0",
        task="t",
        family="monkeypatching",
        channel="monkeypatching",
        attempt_steps=(1,),
        obtained_steps=(),
        obtained=True,
        used=used,
        credited=None,
        explanation="",
        patterns=patterns,
    )
    assert done_told(row) == told


def test_who_waits_is_told_what_is_read(tmp_path: Path) -> None:
    for side in "ab":
        write_trajectories(tmp_path / f"{side}.parquet", [episode(side, "t", 0, won=True)])
    said: list[str] = []
    a, b = (tmp_path / f"{side}.parquet" for side in "ab")
    progress = lambda what, done, of: said.append(what)  # noqa: E731
    scan_run.scan(a, b, out=tmp_path / "case", formats=(), progress=progress)
    reading = [what for what in dict.fromkeys(said) if what.startswith("reading")]
    assert reading == ["reading the logs before training, 1 run", "reading the logs, 1 run"]
