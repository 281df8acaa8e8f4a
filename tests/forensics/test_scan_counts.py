"""Terminal, report and JSON of a scan agree on every count: on a generated set, on two, and on
real logs where they lie beside the project.
"""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from forensics import scan
from forensics.cli.case_output import opening_of_case, summary
from forensics.records import Trajectory
from forensics.records.tables import write_trajectories
from forensics.report.data import load_case
from forensics.report.findings import read_findings_of
from forensics.report.profile import STANDS, profile_told, stands
from forensics.report.rows import read_chains
from tests.forensics.test_scan import episode
from tests.forensics.test_scan_degenerate import stuck
from tests.forensics.test_scan_profile import found

NAMES = ["edits"] * 3 + ["maybe"] * 4 + ["tried"] * 2 + ["broke", *["clean"] * 5]


def generated(folder: Path, side: str, loops: int = 2) -> Path:
    """Runs of every stand, each with a twin of its task, some without an outcome."""
    runs = [
        episode(side, f"{name}-{n}", sample, won=n % 2 == 0, outcome=None if n % 5 == 4 else won)
        for n, name in enumerate(NAMES)
        for sample, won in ((0, float(n % 2 == 0)), (1, 1.0))
    ]
    path = folder / f"{side}.parquet"
    write_trajectories(path, [*runs, *(stuck(f"s-{n}") for n in range(loops))])
    return path


def first_only(run: Trajectory) -> list[dict[str, Any]]:
    return found(run) if run.sample == 0 else []


def agree(case: Path) -> None:
    """Every count of the page and the terminal against the rows of the files themselves."""
    rows = [json.loads(line) for line in (case / "findings.jsonl").read_text().splitlines()]
    loops = (case / "loops.jsonl").read_text().splitlines()
    content = json.loads((case / "case.json").read_text())
    runs = {side: log["runs"] for side, log in content["provenance"]["logs"].items()}
    page, text, told = ((case / f"report.{end}").read_text() for end in ("html", "txt", "md"))
    shown = read_findings_of(case)
    assert shown.total == len(rows) and len(shown.shown) == min(len(rows), 200)
    for counted in shown.counts:
        counts = [sum(cells) for cells in (counted.wins, counted.losses, counted.unscored)]
        here = (counted.side, counted.channel, counted.family)
        assert sum(counts) == sum(
            (row["side"], row["channel"], row["family"]) == here for row in rows
        )
    lines = "\n".join(summary(case))
    for (side, channel), tried in Counter((row["side"], row["channel"]) for row in rows).items():
        when = "" if len(runs) == 1 else " before" if side == "before" else " after"
        used = [row["used"] for row in rows if (row["side"], row["channel"]) == (side, channel)]
        (line,) = re.findall(rf"(?m)^{channel}{when}.*$", lines)
        assert f"tried in {tried} of {runs[side]} runs" in line
        assert not any(used) or re.search(rf"used in (?:at least )?{sum(map(bool, used))}\b", line)
    verdict = load_case(case).verdict
    opening = opening_of_case(case, verdict)
    assert opening is not None
    lines, one = " ".join(opening.told), opening.headline
    heading = page.split('id="headline"')[1].split(">", 1)[1].split("</h1>")[0]
    assert heading == one and " ".join(text.split()).startswith(lines)
    assert " ".join(told.replace("\\", "").split()).startswith(f"# {lines}")
    report = json.loads((case / "report.json").read_text())
    assert (report["headline"], report["lines"]) == (one, [*opening.told[1:]])
    for side in runs:
        by = {
            (row.trajectory, row.channel): stands(row)
            for row in read_chains(case)
            if row.side == side
        }
        said = profile_told(case, runs[side], side)
        assert said in lines
        numbers = [
            int(one.replace(",", ""))
            for one in re.findall(r"(?:^|; )([\d,]+) (?!runs? could not)", said)
        ]
        looping = sum(json.loads(line)["side"] == side for line in loops)
        per = Counter((stand, channel) for (_, channel), stand in by.items())
        assert sorted(numbers) == sorted([*per.values(), *([looping] if looping else [])])
        assert set(by.values()) <= set(STANDS)
    assert page.count('<details class="finding"') == min(len(rows), 200)
    table = page.split('id="loops"')[1].split("</section>")[0] if loops else ""
    assert table.count("<tr>") == (1 + min(len(loops), 20) if loops else 0)


def scanned(folder: Path, after: Path, before: Path | None = None, **more: Any) -> Path:
    scan(after, before, out=folder / "case", formats=("html", "md", "text", "json"), **more)
    return folder / "case"


def test_one_set_agrees_everywhere(tmp_path: Path) -> None:
    case = scanned(tmp_path, generated(tmp_path, "a"), scanner=first_only)
    agree(case)
    page = (case / "report.html").read_text()
    assert page.count("Same task, no finding (1 run):") == 10


def test_two_sets_agree_everywhere(tmp_path: Path) -> None:
    after, before = generated(tmp_path, "a"), generated(tmp_path, "b", loops=1)
    agree(scanned(tmp_path, after, before, scanner=first_only))
