"""Train the branches over seeds, ask at every audit who fires, write
`table.json` and `table.md`.
"""

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from experiments.degeneration.noticing import (
    LAYERS,
    Audit,
    audits_of,
    cause_is_there,
    ever,
    noticed,
)
from experiments.degeneration.runs import BRANCHES, Run, trained
from forensics.cli import progress_bars
from forensics.records.files import write_atomically, write_json
from forensics.statistics import clopper_pearson

FOLDER = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--cache", type=Path, default=Path(".truth-cache") / "degeneration")
    arguments = parser.parse_args()
    with progress_bars() as progress:
        runs = [
            trained(branch, seed, arguments.cache, progress)
            for seed in range(arguments.seeds)
            for branch in BRANCHES
        ]
    result = summary([(run, audits_of(run)) for run in runs])
    write_json(FOLDER / "table.json", result)
    write_atomically(FOLDER / "table.md", markdown(result))
    print(markdown(result))


def summary(runs: Sequence[tuple[Run, list[Audit]]]) -> dict[str, Any]:
    """Rows by run, and the decision."""
    rows = [row(run, audits) for run, audits in runs]
    planted, controls = ([r for r in rows if r["planted"] is which] for which in (True, False))
    return {
        "runs": rows,
        "alarms of controls": {
            layer: share([r["ever"][layer] for r in controls]) for layer in LAYERS
        },
        "noticed": {
            layer: share([r["noticed"][layer] is not None for r in planted]) for layer in LAYERS
        },
        "succeeds": (
            all(r["cause"] and r["noticed"]["behaviour"] is not None for r in planted)
            and not any(r["ever"]["behaviour"] for r in controls)
        ),
    }


def row(run: Run, audits: Sequence[Audit]) -> dict[str, Any]:
    last = audits[-1]
    return {
        "branch": run.branch,
        "seed": run.seed,
        "planted": run.planted,
        "cause": cause_is_there(run, last),
        "turns": [round(last.turns_before, 2), round(last.turns_after, 2)],
        "gain": [round(x, 4) for x in last.gain],
        "label": last.label,
        "noticed": {layer: noticed(audits, layer) for layer in LAYERS},
        "ever": {layer: ever(audits, layer) for layer in LAYERS},
        "audits": [asdict(audit) for audit in audits],
    }


def share(flags: Sequence[bool]) -> dict[str, Any]:
    """k of n with its exact 95 % interval."""
    low, high = clopper_pearson(sum(flags), len(flags))
    return {"k": sum(flags), "n": len(flags), "low": round(low, 4), "high": round(high, 4)}


def markdown(result: dict[str, Any]) -> str:
    """The table: a row for each run, the alarms of the control runs, the decision."""
    lines = [
        "# Echo and collapse",
        "",
        (
            "Written by `python -m experiments.degeneration`. Gain in points with its 95 % "
            "interval over tasks; a layer's step is the first audit from which it fires to the end."
        ),
        "",
        "| branch | seed | turns before, after | gain | cause is there | "
        + " | ".join(LAYERS)
        + " | label |",
        "|---|---|---|---|---|" + "---|" * len(LAYERS) + "---|",
    ]
    lines += [_line(row) for row in result["runs"]]
    lines += ["", "Fired at any audit of a control run: " + _counts(result["alarms of controls"])]
    lines += ["", "Fired at the last audit of a planted run: " + _counts(result["noticed"])]
    verdict = "succeeds" if result["succeeds"] else "does not succeed"
    return "\n".join([*lines, "", f"By the decision rule the study {verdict}.", ""])


def _line(row: dict[str, Any]) -> str:
    gain, low, high = (100 * value for value in row["gain"])
    cause = {True: "yes", False: "no", None: ""}[row["cause"]]
    steps = " | ".join(
        "never" if row["noticed"][layer] is None else str(row["noticed"][layer]) for layer in LAYERS
    )
    turns = " to ".join(str(value) for value in row["turns"])
    return (
        f"| {row['branch']} | {row['seed']} | {turns} | {gain:+.1f} ({low:+.1f} to {high:+.1f}) |"
        f" {cause} | {steps} | {row['label']} |"
    )


def _counts(shares: dict[str, dict[str, Any]]) -> str:
    return (
        ", ".join(
            f"{layer} {s['k']} of {s['n']} (exact 95 % interval {s['low']:.2f} to {s['high']:.2f})"
            for layer, s in shares.items()
        )
        + "."
    )


if __name__ == "__main__":
    main()
