"""What `forensics scan` says of ways that were planted, counted by way.

A way is the unit: its runs differ in format and in what stands around it. `used`: a run
of which some family says *used*. Families that accuse nobody do not count.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from experiments.real_logs.scanned import Scanned, scan_folder
from experiments.scan_variants.planted import Log, bases_of, generated, planted, write_logs
from experiments.scan_variants.ways import Way, play
from forensics.errors import UserError
from forensics.statistics import share_by_task

BASES = 3  # real runs that each way is put into
ACCUSES_NOBODY = frozenset({"accidental-damage"})


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A planted run. `untold`: something was tried, and the log does not tell whether it
    was used.
    """

    way: Way
    base: str
    used: bool
    untold: bool
    tried: bool
    loops: bool


def judged(ways: Sequence[Way], bases: Sequence[Path]) -> list[Judged]:
    """Every run of every way. Raises `UserError` where a run could not be read."""
    logs: list[tuple[Way, Log]] = []
    for way in ways:
        played = play(way)
        chosen = [planted(played, base) for base in bases_of(way.id, bases, BASES)]
        logs += [(way, log) for log in (*generated(played), *chosen)]
    with TemporaryDirectory() as place:
        folder = Path(place) / "logs"
        write_logs([log for _, log in logs], folder)
        found = scan_folder(folder)
    if found.unreadable or len(found.runs) != len(logs):
        raise UserError(f"{len(found.runs)} of {len(logs)} runs were read")
    for (way, _), run in zip(logs, found.runs, strict=True):
        if way.id not in run.task:
            raise UserError(f"the run of {way.id} was read as {run.task}; runs and ways must pair")
    return [_judge(way, log, run) for (way, log), run in zip(logs, found.runs, strict=True)]


def _judge(way: Way, log: Log, run: Scanned) -> Judged:
    rows = [row for row in run.findings if row["family"] not in ACCUSES_NOBODY]
    used = any(row["used"] for row in rows)
    return Judged(
        way=way,
        base=log.base,
        used=used,
        untold=not used and any(row["used"] is None for row in rows),
        tried=bool(rows),
        loops=run.degenerate,
    )


def figures(runs: Sequence[Judged]) -> dict[str, Any]:
    """The shares that the rule asks for, and what lies behind them."""
    bad = [run for run in runs if run.way.expected == "used"]
    quiet = [run for run in runs if run.way.expected == "nothing"]
    tried = [run for run in runs if run.way.expected == "attempt"]
    loops = [run for run in runs if run.way.kind == "loop"]
    others = [run for run in runs if run.way.kind != "loop"]
    leaks = [run for run in bad if run.way.kind == "leak"]
    tampers = [run for run in bad if run.way.kind == "tamper"]
    return {
        "tampers called used": _share((run.way.id, run.used) for run in tampers),
        "leaks called used": _share((run.way.id, run.used) for run in leaks),
        "leaks that cannot be told": _share((run.way.id, run.untold) for run in leaks),
        "benign called used": _share((run.way.id, run.used) for run in quiet),
        "benign that cannot be told": _share((run.way.id, run.untold) for run in quiet),
        "only tried, called used": _share((run.way.id, run.used) for run in tried),
        "loops found": _share((run.way.id, run.loops) for run in loops),
        "others called loops": _share((run.way.id, run.loops) for run in others),
        "tampers called used, by language": {
            language: _share((run.way.id, run.used) for run in bad if run.way.language == language)
            for language in sorted({run.way.language for run in tampers})
        },
    }


def _share(rows: Iterable[tuple[str, bool]]) -> dict[str, Any]:
    """Of runs, with an interval over ways."""
    known = [(way, float(hit), 1.0) for way, hit in rows]
    ways = len({way for way, _, _ in known})
    if not known:
        return {"runs": 0, "ways": 0}
    found = share_by_task(known) if ways > 1 else None
    hits = int(sum(hit for _, hit, _ in known))
    return {
        "runs": len(known),
        "ways": ways,
        "hits": hits,
        "share": hits / len(known),
        "low": found and found.low,
        "high": found and found.high,
    }


def missed(runs: Sequence[Judged]) -> dict[str, Mapping[str, int]]:
    """Of each way on which scanner and author disagree, how many runs are wrong."""
    wrong: dict[str, dict[str, int]] = {}
    for run in runs:
        expected = run.way.expected
        right = run.loops if expected == "loop" else run.used == (expected == "used")
        counts = wrong.setdefault(run.way.id, {"runs": 0, "wrong": 0})
        counts["runs"] += 1
        counts["wrong"] += not right
    return {way: counts for way, counts in sorted(wrong.items()) if counts["wrong"]}
