"""Investigate every stranger's world of a folder once and write the table there (its `rule.md`
says how it is counted).

A row is kept as it comes, with a hash of the code, the world's file included: what was begun
with other code is not gone on with. `--again FILE` writes another table than the first;
`--worlds FOLDER` counts another set of worlds, at its own first contact.
"""

import argparse
import json
import math
import tempfile
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from experiments.dose_grid.judged import instruments
from experiments.resumable import ROOT, code_key, side_by_side
from forensics import Budget, UserError, investigate
from forensics.policies.scripted import scripted_policy
from forensics.records import Evidence
from forensics.records.files import read_findings, write_atomically, write_json

HERE = Path(__file__).parent
MOST_PASSED, LEAST_HONEST = 0.1, 0.8  # 3 of 30, 12 of 15


def modules(folder: Path = HERE) -> tuple[str, ...]:
    """The worlds of a folder: `AUTHOR_NAME.py`, the author one letter."""
    place = ".".join(folder.resolve().relative_to(ROOT.resolve()).parts)
    return tuple(f"{place}.{file.stem}" for file in sorted(folder.glob("[a-z]_*.py")))


def judged(module: str) -> dict[str, Any]:
    """One world's verdict, as the table has it."""
    world, name = import_module(module), module.rpartition(".")[2]
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


def code_of(worlds: Sequence[str]) -> str:
    """What the rows depend on."""
    files = [f"{module.replace('.', '/')}.py" for module in worlds]
    return code_key(*files, "tests/strangers/__main__.py", "experiments/dose_grid/judged.py")


def table(rows: list[dict[str, Any]], worlds: int) -> str:
    """The rows as Markdown, the rule's three counts first; what is not done is told."""
    shortcut = [row for row in rows if row["truth"] == "shortcut"]
    honest = [row for row in rows if row["truth"] == "honest"]
    passed = sum(row["label"] == "genuine" for row in shortcut)
    accused = sum(
        row["label"] in ("phantom", "mixed") or bool(row.get("shortcuts")) for row in honest
    )
    genuine = sum(row["label"] == "genuine" for row in honest)
    most = math.floor(MOST_PASSED * len(shortcut) + 1e-9)
    least = math.ceil(LEAST_HONEST * len(honest) - 1e-9)
    holds = passed <= most and accused == 0 and genuine >= least
    said = f"By the rule: {'it holds' if holds else 'it does not hold'}."
    lines = [
        f"{len(rows)} of {worlds} worlds. With a shortcut: {passed} of {len(shortcut)}"
        f" `genuine` (at most {most}). Honest: {accused} accused (none), {genuine} of"
        f" {len(honest)} `genuine` (at least {least}).",
        said if len(rows) == worlds else f"Not done: {worlds - len(rows)}; nothing is decided.",
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
    parser.add_argument("--worlds", type=Path, default=HERE, help="a folder of worlds and rule.md")
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    count(given.worlds, given.again or given.worlds / "table", given.processes)


def count(folder: Path, to: Path, processes: int) -> None:
    """Judge the worlds that the table does not have yet. Raises `UserError` where
    it was begun with other code.
    """
    file, worlds = to.with_suffix(".json"), modules(folder)
    rows = json.loads(file.read_text()) if file.exists() else []
    done = {row["world"] for row in rows}
    left = [(one, one) for one in worlds if one.rpartition(".")[2] not in done]
    code = code_of(worlds)
    if left and any(row.get("code") != code for row in rows):
        raise UserError(f"{file} was begun with other code; write another one (--again)")
    for _, row in side_by_side(left, judged, math.inf, processes):
        rows = sorted([*rows, row | {"code": code}], key=lambda one: str(one["world"]))
        write_json(file, rows)
        write_atomically(to.with_suffix(".md"), table(rows, len(worlds)))


if __name__ == "__main__":
    main()
