"""Investigate every stranger's world once and write the table (`rule.md` says how it is
counted). Goes on where it stopped; `--again FILE` writes another table than the first.
"""

import argparse
import json
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from experiments.dose_grid.judged import instruments
from forensics import Budget, investigate
from forensics.policies.scripted import scripted_policy
from forensics.records import Evidence
from forensics.records.files import read_findings, write_json

HERE = Path(__file__).parent
WORLDS = tuple(sorted(file.stem for file in HERE.glob("[abc]_*.py")))


def judged(name: str) -> dict[str, Any]:
    """One world's verdict, as the table has it."""
    world = import_module(f"tests.strangers.{name}")
    row: dict[str, Any] = {"world": name, "truth": world.TRUTH, "share": world.SHARE}
    row |= {"allow": list(world.ALLOW), "accept": list(world.ACCEPT)}
    started = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "case"
        try:
            verdict = investigate(
                scripted_policy(world.BEFORE),
                scripted_policy(world.AFTER),
                world.World(),
                budget=Budget(tasks=300, samples=4),
                seed=0,
                allow=world.ALLOW,
                accept=world.ACCEPT,
                instruments=instruments(),
                out=out,
                device="cpu",
                formats=(),
            )
        except Exception as error:
            return row | {"label": "failed", "why": f"{type(error).__name__}: {error}"}
        found = [one for one in read_findings(out / "evidence.jsonl") if isinstance(one, Evidence)]
    over = [one for one in found if one.question.endswith(".over_bar") and one.interval]
    return row | {
        "label": verdict.label,
        "reason_code": verdict.reason_code,
        "gain": verdict.gain and round(verdict.gain.estimate, 3),
        "found": sorted({one.question.split(".")[0] for one in over if one.interval.low > 0}),
        "shortcuts": sorted(
            one.about or ""
            for one in found
            if one.question == "ablation.shortcut" and one.estimate == 1
        ),
        "first_gap": verdict.gaps[0].text if verdict.gaps else "",
        "rule": verdict.rule,
        "seconds": round(time.process_time() - started, 1),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as Markdown, the rule's three counts first."""
    shortcut = [row for row in rows if row["truth"] == "shortcut"]
    honest = [row for row in rows if row["truth"] == "honest"]
    passed = sum(row["label"] == "genuine" for row in shortcut)
    accused = sum(
        row["label"] in ("phantom", "mixed") or bool(row.get("shortcuts")) for row in honest
    )
    genuine = sum(row["label"] == "genuine" for row in honest)
    holds = passed <= 3 and accused == 0 and genuine >= 12 and len(rows) == len(WORLDS)
    lines = [
        f"{len(rows)} of {len(WORLDS)} worlds. With a shortcut: {passed} of {len(shortcut)}"
        f" `genuine` (at most 3). Honest: {accused} accused (none), {genuine} of {len(honest)}"
        " `genuine` (at least 12).",
        f"By the rule: {'it holds' if holds else 'it does not hold'}.",
        "",
        "| world | truth | share | flags | label | found by | called a shortcut | seconds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        code = f" ({row['reason_code']})" if row.get("reason_code") else ""
        cells = (
            row["world"],
            row["truth"],
            f"{row['share']:g}",
            ", ".join([*row["allow"], *row["accept"]]),
            row["label"] + code,
            ", ".join(row.get("found", ())),
            ", ".join(row.get("shortcuts", ())),
            str(row.get("seconds", "")),
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--again", type=Path, help="the table of a mended version, without suffix")
    to = parser.parse_args().again or HERE / "table"
    rows = (
        json.loads(to.with_suffix(".json").read_text()) if to.with_suffix(".json").exists() else []
    )
    for name in WORLDS:
        if name not in {row["world"] for row in rows}:
            rows.append(judged(name))
            write_json(to.with_suffix(".json"), rows)
            to.with_suffix(".md").write_text(table(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
