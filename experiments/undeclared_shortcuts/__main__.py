"""Investigate every policy in both arms, write `table.json` and `table.md`."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.undeclared_shortcuts.runs import ARMS, FOLDER, RIGHT, Judged, judged
from forensics.cli import progress_bars
from forensics.records.files import write_atomically, write_json
from forensics.statistics import clopper_pearson


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--cache", type=Path, default=Path(".truth-cache"))
    parser.add_argument("--arm", choices=ARMS, action="append", help="only this arm (default: all)")
    arguments = parser.parse_args()
    with progress_bars() as progress:
        result = summary(
            list(judged(arguments.seeds, arguments.arm or ARMS, arguments.cache, progress))
        )
    write_json(FOLDER / "table.json", result)
    write_atomically(FOLDER / "table.md", markdown(result))
    print(markdown(result))


def summary(cases: Sequence[Judged]) -> dict[str, Any]:
    """Rows by case, and the decision of each arm."""
    present = {one.arm for one in cases}
    return {
        "cases": [row(one) for one in cases],
        "arms": {
            arm: decision([one for one in cases if one.arm == arm])
            for arm in ARMS
            if arm in present
        },
    }


def row(one: Judged) -> dict[str, Any]:
    def ends(part: Any) -> list[float] | None:
        return (
            None
            if part is None
            else [round(value, 4) for value in (part.estimate, part.low, part.high)]
        )

    return {
        "arm": one.arm,
        "name": one.name,
        "seed": one.seed,
        "label": one.verdict.label,
        "without_ablation": one.unablated,
        "right": RIGHT[one.name],
        "gain": ends(one.verdict.gain),
        "genuine_gain": ends(one.verdict.genuine_gain),
        "shortcuts": list(one.shortcuts),
        "runs_through": list(one.through),
        "first_gap": one.verdict.gaps[0].text if one.verdict.gaps else None,
    }


def decision(cases: Sequence[Judged]) -> dict[str, Any]:
    """The counts that the rule asks for of the policies in this arm, with exact 95 % intervals."""
    planted = [one for one in cases if RIGHT[one.name]]
    clean = [one for one in cases if not RIGHT[one.name]]
    genuine = [one.verdict.label == "genuine" for one in planted]
    right, accused = [one.right for one in planted], [bool(one.shortcuts) for one in clean]
    honest = [one.verdict.label == "genuine" for one in clean if one.name == "honest"]
    counts = {
        "planted called genuine": genuine,
        "right kind named": right,
        "clean accused": accused,
        "honest called genuine": honest,
    }
    return {
        **{name: share(flags) for name, flags in counts.items() if flags},
        "holds": not any(genuine) and sum(right) >= 0.9 * len(right) and not any(accused),
    }


def share(flags: Sequence[bool]) -> dict[str, Any]:
    """k of n with its exact 95 % interval."""
    low, high = clopper_pearson(sum(flags), len(flags))
    return {"k": sum(flags), "n": len(flags), "low": round(low, 4), "high": round(high, 4)}


def markdown(result: dict[str, Any]) -> str:
    """The table: a row for each case, then each arm's decision."""
    lines = [
        "# A shortcut that nobody declared",
        "",
        (
            "Written by `python -m experiments.undeclared_shortcuts`. Points with "
            "95 % intervals over tasks."
        ),
        "",
        (
            "| arm | policy | seed | gain | genuine part | label | without ablation | called a"
            " shortcut | the gain runs through |"
        ),
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [_line(one) for one in result["cases"]]
    for arm, found in result["arms"].items():
        counts = ", ".join(_count(name, found[name]) for name in found if name != "holds")
        lines += [
            "",
            (
                f"`{arm}`: {counts}. By the decision rule it"
                f" {'holds' if found['holds'] else 'does not hold'}."
            ),
        ]
    return "\n".join([*lines, ""])


def _line(one: dict[str, Any]) -> str:
    parts = " | ".join(_points(one[name]) for name in ("gain", "genuine_gain"))
    kinds = " | ".join(", ".join(one[name]) or "none" for name in ("shortcuts", "runs_through"))
    return (
        f"| {one['arm']} | {one['name']} | {one['seed']} | {parts} | {one['label']} | "
        f"{one['without_ablation']} | {kinds} |"
    )


def _points(part: list[float] | None) -> str:
    return (
        "not measured"
        if part is None
        else "{:+.1f} ({:+.1f} to {:+.1f})".format(*(100 * value for value in part))
    )


def _count(name: str, s: dict[str, Any]) -> str:
    return f"{name} {s['k']} of {s['n']} (exact 95 % interval {s['low']:.2f} to {s['high']:.2f})"


if __name__ == "__main__":
    main()
