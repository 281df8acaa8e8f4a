"""What a case says on the command line: progress on stderr, the verdict on stdout,
and of a scan what it read and found, counted from its folder.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from forensics.cli.console import progress_bars
from forensics.cli.options import Run
from forensics.investigation import investigate
from forensics.investigation.folder import CASE, FINDINGS, UNREADABLE
from forensics.records import Verdict
from forensics.records.files import read_json
from forensics.wording import plural, printable


def run_investigation(
    run: Run, before: Path, after: Sequence[Path], environment: str | None = None, **case: Any
) -> None:
    """Investigate and say the verdict. `case`: further arguments of `investigate`."""
    with progress_bars() as progress:
        verdict = investigate(
            before, list(after), environment, **case, **run.arguments, progress=progress
        )
    say_verdict(run, verdict)


def say_verdict(run: Run, verdict: Verdict, found: Iterable[str] = ()) -> None:
    """The verdict on stdout, with what was found, its reasons and its gaps."""
    gaps = (f"open: {gap.text} Would tell: {gap.measurement}" for gap in verdict.gaps)
    told = (verdict.sentence, "", *(f"- {line}" for line in (*found, *verdict.reasons, *gaps)))
    run.say({"verdict": verdict.model_dump(mode="json")}, told, "report.html")


Counts = Mapping[str, Mapping[str, int]]  # side -> runs, unreadable, scrubbed_left_out
NAMES = {"before": " before training", "after-0": " after training"}


def summary(folder: Path) -> Iterator[str]:
    """Lines on what was read, and on every channel that was tried: by how many
    runs, and how far it went.
    """
    logs: Counts = read_json(folder / CASE)["provenance"]["logs"]
    for side in sorted(logs, key=lambda side: (side != "before", side)):
        read, left = plural(logs[side]["runs"], "run"), _left_out(logs[side], folder)
        yield f"Read {read}{_when(side, logs)}{left}."
    tallies = _tallies(folder / FINDINGS)
    for (side, channel), tally in sorted(
        tallies.items(), key=lambda item: (item[0][0] != "before", item[0])
    ):
        untold = (
            f"; whether they won by it the log does not tell for {tally['untold']:,}"
            if tally["untold"]
            else ""
        )
        yield (
            f"{printable(channel)}{_when(side, logs)}: tried in {tally['tried']:,} of "
            f"{plural(logs[side]['runs'], 'run')}, used in {tally['used']:,}, "
            f"credited in {tally['credited']:,}{untold}."
        )
    if not tallies:
        yield "No shortcut was found."


def _left_out(counts: Mapping[str, int], folder: Path) -> str:
    scrubbed, unreadable = counts["scrubbed_left_out"], counts["unreadable"]
    told = f"; left out {plural(scrubbed, 'run')} of a scrubbed world" if scrubbed else ""
    broken = (
        f"; {unreadable:,} of the files or rows could not be read ({folder / UNREADABLE})"
        if unreadable
        else ""
    )
    return told + broken


def _when(side: str, logs: Counts) -> str:
    """The side in words; of one set of logs nobody says when it was made."""
    return "" if len(logs) == 1 else NAMES.get(side, f", {side}")


def _tallies(path: Path) -> dict[tuple[str, str], Counter[str]]:
    """Of each side and channel, how many runs tried it, used it, won by it;
    `untold`: used, the rest open.
    """
    tallies: dict[tuple[str, str], Counter[str]] = {}
    with path.open(encoding="utf-8") as file:
        for line in file:
            row: dict[str, Any] = json.loads(line)
            tally = tallies.setdefault((row["side"], row["channel"]), Counter())
            tally["tried"] += 1
            tally["used"] += row["used"] is True
            tally["credited"] += row["complete"]
            tally["untold"] += row["used"] is True and row["credited"] is None
    return tallies
