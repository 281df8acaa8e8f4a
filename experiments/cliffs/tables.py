"""The table of the study from what its parts left behind."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.cliffs.cliff_dpo import ARMS
from forensics.statistics import clopper_pearson, crossed_half_width

Score = Mapping[str, float]


def solvable_summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Recall and false discoveries over all seeds together, with exact
    intervals, and cost ratios by seed.
    """
    total = {key: sum(row[key] for row in rows) for key in ("large", "found", "reported", "false")}
    return {
        **total,
        "recall": total["found"] / total["large"],
        "recall_interval": _exact(total["found"], total["large"]),
        "false_share": total["false"] / max(total["reported"], 1),
        "false_interval": _exact(total["false"], total["reported"]),
    }


def _exact(part: int, whole: int) -> tuple[float, float] | None:
    return clopper_pearson(part, whole) if whole else None


def restored(rows: Sequence[Mapping[str, Any]], what: str) -> dict[str, Any]:
    """The mean over tasks of what deletion restores, with its interval."""
    by_task: dict[str, list[float]] = {}
    for row in rows:
        if row[what] is not None:
            by_task.setdefault(row["task"], []).append(row[what])
    means = np.array([np.mean(by_task[task]) for task in sorted(by_task)])
    half = (
        float(crossed_half_width(means[None], 1.0, 0.95).total) if len(means) > 1 else float("nan")
    )
    mean = float(means.mean())
    return {"estimate": mean, "low": mean - half, "high": mean + half, "tasks": len(means)}


def difference(first: Sequence[Score], second: Sequence[Score]) -> dict[str, float]:
    """Mean score of `first` minus `second`, seeds and tasks crossed; each a
    list of scores by task, one a seed.
    """
    tasks = sorted(first[0])
    values = np.array(
        [[a[task] - b[task] for task in tasks] for a, b in zip(first, second, strict=True)]
    )
    half, mean = float(crossed_half_width(values, 1.0, 0.95).total), float(values.mean())
    return {
        "estimate": mean,
        "low": mean - half,
        "high": mean + half,
        "seeds": len(values),
        "tasks": len(tasks),
        "by_seed": values.mean(axis=1).tolist(),
    }


def markdown(result: Mapping[str, Any]) -> str:
    """All three parts."""
    return "\n".join([*_solvable(result), "", *_rules(result), "", *_arms(result), ""])


def _solvable(result: Mapping[str, Any]) -> list[str]:
    lines = [
        "## (a) Exactly solvable policies",
        "",
        (
            "| rule | recall of drops of 0.2 | false among reported | rollouts a trace | tokens a"
            " trace |"
        ),
        "|---|---|---|---|---|",
    ]
    for name, row in result["solvable"].items():
        low, high = row["recall_interval"]
        wrong = row["false_interval"] or (0, 1)
        lines.append(
            f"| {name} | {row['recall']:.3f} ({row['found']} of {row['large']}, {low:.3f} to"
            f" {high:.3f}) | {row['false_share']:.3f} ({row['false']} of {row['reported']},"
            f" {wrong[0]:.3f} to {wrong[1]:.3f}) | {row['rollouts']:,.0f} | {row['tokens']:,.0f} |"
        )
    return lines


def _rules(result: Mapping[str, Any]) -> list[str]:
    lines = [
        "## (b) Runs that the open base lost",
        "",
        (
            "| rule | runs | reported | rollouts a run | deleting restores, points | a control"
            " restores, points |"
        ),
        "|---|---|---|---|---|---|",
    ]
    for name, row in result["rules"].items():
        lines.append(
            f"| {name} | {row['runs']} | {row['reported']} | {row['rollouts'] / row['runs']:,.0f} |"
            f" {_points(row['cliff'])} | {_points(row['control'])} |"
        )
    kinds = ", ".join(
        f"{count} {kind}" for kind, count in sorted(result["rules"]["ours"]["kinds"].items())
    )
    return [
        *lines,
        "",
        (
            f"Kinds of ours: {kinds}. Impossible by the identity among the published rule's:"
            f" {result['rules']['published']['impossible']} of"
            f" {result['rules']['published']['reported']}."
        ),
    ]


def _arms(result: Mapping[str, Any]) -> list[str]:
    lines = [
        "## (c) DPO by what it was trained on",
        "",
        "| arm | pairs | weighted tokens | learning rates | score minus start, points | by seed |",
        "|---|---|---|---|---|---|",
    ]
    for name in ARMS:
        if name not in result["dpo"]:
            lines.append(f"| {name} | no pairs in every seed | | | | |")
            continue
        row = result["dpo"][name]
        seeds = ", ".join(f"{100 * value:+.1f}" for value in row["gain"]["by_seed"])
        lines.append(
            f"| {name} | {_list(row['pairs'])} | {_list(row['tokens'])} | {_list(row['rates'])} | "
            f"{_points(row['gain'])} | {seeds} |"
        )
    lines += [
        "",
        "Cliff-DPO minus another arm, points: "
        + "; ".join(f"{name} {_points(row)}" for name, row in result["better"].items())
        + ".",
    ]
    return lines


def _points(row: Mapping[str, float]) -> str:
    return f"{100 * row['estimate']:+.1f} ({100 * row['low']:+.1f} to {100 * row['high']:+.1f})"


def _list(values: Sequence[Any]) -> str:
    return ", ".join(f"{value:g}" for value in values)
