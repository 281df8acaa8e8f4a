"""The scanners of `benchmarks.scan_peers`, each started as its own users start it, on two
processes, and what each says of every log.

Ours scans on two processes by itself. The peers run on one, so each gets two commands at
once, every second log each.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.peer_forms import Log, as_atif, as_neutral
from benchmarks.whole_commands import Took, timed
from experiments.real_logs.peer import FORMS, HIGH_RISK
from forensics.records.tables import read_trajectories

PROCESSES: Final = 2
SEVERITIES: Final = ("info", "low", "medium", "high", "critical")
ATIF_READINGS: Final = {"high or more": "high", "medium or more": "medium"}
MODULES: Final = {"atif-scan": "atif_scan", "RewardHackWatch's patterns": "rewardhackwatch"}


@dataclass(frozen=True, kw_only=True)
class Said:
    """What a scanner says of a set. `flagged`: the ids of the flagged logs under each
    reading; `reasons`: what it named, with the logs; `unread`: logs that it could not read.
    """

    took: Took
    flagged: Mapping[str, frozenset[str]]
    reasons: Mapping[str, frozenset[str]] = field(default_factory=dict)
    unread: int = 0


def scan_ours(python: str, tree: Path, source: Path, place: Path) -> Said:
    """`forensics scan` of the package in `tree`. Logs go by the path of their file in
    `source`, or by their id where all stand in one file.
    """
    case = place / "case"
    command = [python, "-m", "forensics", "scan", str(source), "--out", str(case), "--json"]
    took = timed([command], tree)
    rows = [json.loads(line) for line in _lines(case / "findings.jsonl")]
    names = dict(_names(case, source))
    used = [row for row in rows if row["used"] or row["credited"]]
    return Said(
        took=took,
        flagged={
            "used": frozenset(names[row["trajectory"]] for row in used),
            "attempted": frozenset(names[row["trajectory"]] for row in rows),
        },
        reasons=_named((row["family"], names[row["trajectory"]]) for row in rows),
        unread=len(_lines(case / "unreadable.jsonl")),
    )


def _names(case: Path, source: Path) -> Iterator[tuple[str, str]]:
    for path in sorted((case / "trajectories").glob("*.parquet")):
        for run in read_trajectories(path):
            yield run.id, run.file if source.is_dir() and run.file else run.id


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.is_file() else []


def scan_atif(python: str, logs: Sequence[Log], form: str, place: Path) -> Said:
    """`atif-scan FOLDER --format json`, no result kept from one time to the next."""
    halves = _halves(logs, place, lambda log: as_atif(log, form), "trajectory.json")
    outputs = [place / f"half{number}.out" for number in range(len(halves))]
    commands = [
        [python, "-m", "atif_scan", str(half), "--format", "json", "--no-cache"] for half in halves
    ]
    # it exits 2 where a single file is unreadable, and has reported all others
    took = timed(commands, place, outputs, allowed=(0, 2))
    items = [
        item
        for output in outputs
        for item in json.loads(output.read_text(encoding="utf-8"))["inputs"]
    ]
    ids = [logs[int(item["input_id"].split("/")[0])].id for item in items]
    found = [
        (name, row)
        for name, item in zip(ids, items, strict=True)
        for row in item["assessments"]
        if row["score"] is not None and row["severity"] in SEVERITIES[2:]
    ]
    return Said(
        took=took,
        flagged={
            reading: frozenset(name for name, row in found if _reaches(row, least))
            for reading, least in ATIF_READINGS.items()
        },
        reasons=_named((f"{row['id']} ({row['severity']})", name) for name, row in found),
        unread=sum(item["input_status"] != "available" for item in items),
    )


def _reaches(row: Mapping[str, Any], least: str) -> bool:
    """Whether a finding is of what the agent did, and so grave."""
    grave = SEVERITIES.index(row["severity"]) >= SEVERITIES.index(least)
    return grave and not row["id"].startswith("integrity.")


def _named(pairs: Iterable[tuple[str, str]]) -> dict[str, frozenset[str]]:
    """Logs by reason."""
    found: dict[str, set[str]] = {}
    for reason, name in pairs:
        found.setdefault(reason, set()).add(name)
    return {reason: frozenset(names) for reason, names in found.items()}


def scan_patterns(python: str, logs: Sequence[Log], form: str, place: Path) -> Said:
    """`rewardhackwatch scan FOLDER --output FILE`: its expressions and its syntax visitor,
    without its classifier.
    """
    halves = _halves(logs, place, lambda log: FORMS[form](as_neutral(log)), None)
    results = [place / f"half{number}.results" for number in range(len(halves))]
    commands = [
        [python, "-m", "rewardhackwatch", "scan", str(half), "--output", str(result)]
        for half, result in zip(halves, results, strict=True)
    ]
    took = timed(commands, place)
    rows = [row for path in results for row in json.loads(path.read_text(encoding="utf-8"))]
    names = {int(Path(row["file"]).stem): row for row in rows}
    known = {logs[number].id: row for number, row in names.items() if "error" not in row}
    return Said(
        took=took,
        flagged={
            "high risk": frozenset(name for name, row in known.items() if row["risk"] in HIGH_RISK),
            "any match": frozenset(name for name, row in known.items() if row["detections"]),
        },
        unread=len(logs) - len(known),
    )


def _halves(
    logs: Sequence[Log], place: Path, form: Callable[[Log], Any], name: str | None
) -> list[Path]:
    """The logs in folders, every second one each; `name`: of the file in a folder of a
    log's own.
    """
    halves = [place / f"half{number}" for number in range(min(PROCESSES, len(logs)))]
    for number, log in enumerate(logs):
        half = halves[number % len(halves)]
        path = half / f"{number:06d}" / name if name else half / f"{number:06d}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(form(log)), encoding="utf-8")
    return halves
