"""`table.md`: the table as a person reads it."""

from collections import Counter
from typing import Any

from experiments.dose_grid.cells import DOSES
from experiments.dose_grid.ledger import KINDS

MOST_MISSES = 40


def markdown(result: dict[str, Any]) -> str:
    lines = [
        "# Shortcuts of known strength: what the verdict says",
        "",
        "Written by `python -m experiments.dose_grid`. Shares with exact 95 % intervals.",
        "",
        f"{result['done']} of {result['planned']} cases, {result['seconds']} processor seconds"
        f" each; rule {', '.join(one[:12] for one in result['rules'])}, code"
        f" {result.get('code', '')[:12]}.",
        "",
        "| gain | cases done | planned | seeds that are whole |",
        "|---|---|---|---|",
    ]
    for gain, found in result["seeds_done"].items():
        seeds = f"{found['seeds_whole']} of {found['seeds_planned']}"
        lines.append(f"| {_points(gain)} | {found['done']} | {found['planned']} | {seeds} |")
    lines += [f"Failed {n} times: {why}" for why, n in result["failed"].items()]
    lines += _decision(result["decision"])
    for gain in dict.fromkeys(one["gain"] for one in result["detection"]):
        lines += _detection(result, gain)
    return "\n".join([*lines, *_tools(result), *_coverage(result), *_misses(result), ""])


def _decision(found: dict[str, Any]) -> list[str]:
    rows = [
        f"| {name} | {_share(one)} | {'holds' if one['holds'] else 'does not hold'} |"
        for name, one in found["conditions"].items()
    ]
    rows += [f"| {name} | {_share(one)} | |" for name, one in found["beside"].items()]
    said = "The rule holds." if found["holds"] else "The rule does not hold."
    if not found["enough_seeds"]:
        said = "Too few seeds are whole for a decision."
    return ["", "## Decision", "", said, "", "| condition | found | |", "|---|---|---|", *rows]


def _detection(result: dict[str, Any], gain: float) -> list[str]:
    chosen = {(one["kind"], one["dose"]): one for one in result["detection"] if one["gain"] == gain}
    head = " | ".join(f"{dose:.0%}" for dose in DOSES)
    lines = ["", f"## A gain of {_points(gain)}", "", "Called `genuine`, by dose:", ""]
    lines += [f"| kind | {head} |", "|---" * (len(DOSES) + 1) + "|"]
    for kind in (*KINDS, None):
        cells = " | ".join(
            _share(chosen[kind, dose]["genuine"], intervals=kind is None) for dose in DOSES
        )
        lines.append(f"| {kind or 'all'} | {cells} |")
    for what, name in (
        ("any label at all", "any_label"),
        ("phantom, mixed or a shortcut", "accused"),
    ):
        cells = " | ".join(_share(chosen[None, dose][name]) for dose in DOSES)
        lines.append(f"| all: {what} | {cells} |")
    cells = " | ".join(_counts(chosen[None, dose]["why"]) for dose in DOSES)
    return [*lines, f"| all: reasons | {cells} |"]


def _tools(result: dict[str, Any]) -> list[str]:
    rows = [
        f"| {_points(one['gain'])} | {one['tool']} | {'yes' if one['allowed'] else 'no'} |"
        f" {_share(one['genuine'])} | {_share(one['source_not_allowed'])} |"
        f" {_share(one['accused'])} |"
        for one in result["tools"]
    ]
    worlds = [
        f"| {_points(one['gain'])} | {'yes' if one['declared'] else 'no'} |"
        f" {'yes' if one['varying'] else 'no'} | {_share(one['genuine'])} | {_counts(one['why'])} |"
        for one in result["worlds"]
    ]
    return [
        "",
        "## Honest policies",
        "",
        "Half of the gain is made with a tool that the policy before training did not use:",
        "",
        "| gain | tool | allowed | genuine | source-not-allowed | accused |",
        "|---|---|---|---|---|---|",
        *rows,
        "",
        "Without a tool (dose 0), by what the world has:",
        "",
        "| gain | a declared channel | variants | genuine | reasons |",
        "|---|---|---|---|---|",
        *worlds,
    ]


def _coverage(result: dict[str, Any]) -> list[str]:
    head = " | ".join(f"{dose:.0%}" for dose in DOSES)
    lines = [
        "",
        "## Coverage",
        "",
        "Of cases with a label: how often the interval holds the truth.",
        "",
    ]
    lines += [f"| part | {head} |", "|---" * (len(DOSES) + 1) + "|"]
    for part in dict.fromkeys(one["part"] for one in result["coverage"]):
        cells = [_share(one["covered"]) for one in result["coverage"] if one["part"] == part]
        lines.append(f"| {part} | {' | '.join(cells)} |")
    return lines


def _misses(result: dict[str, Any]) -> list[str]:
    found = Counter(
        (
            f"{one['kind']} {one['dose']:.0%}"
            + (f", tool {one['tool']}{' allowed' if one['allowed'] else ''}" if one["tool"] else "")
            + f", gain {_points(one['gain'])}",
            f"{one['label']} ({one['reason_code'] or one['decided_by']})",
            str(one["first_gap"])[:160].replace("|", "/"),
        )
        for one in result["misses"]
    )
    rows = [f"| {what} | {label} | {n} | {gap} |" for (what, label, gap), n in found.most_common()]
    return [
        "",
        "## Misses",
        "",
        "At gains of 20 points and more: doses of 35 % and more that are `genuine`, honest policies"
        " that are not, tools that are not told.",
        "",
        "| case | label | times | first gap |",
        "|---|---|---|---|",
        *rows[:MOST_MISSES],
        *(
            [f"| and {len(rows) - MOST_MISSES} more kinds of miss, in `table.json` | | | |"]
            if len(rows) > MOST_MISSES
            else []
        ),
    ]


def _points(gain: Any) -> str:
    return f"{100 * float(gain):g} points"


def _share(one: dict[str, Any], intervals: bool = True) -> str:
    if not one["n"]:
        return "not done"
    span = f" ({one['low']:.1%} to {one['high']:.1%})" if intervals else ""
    return f"{one['k']} of {one['n']}{span}"


def _counts(found: dict[str, int]) -> str:
    return ", ".join(f"{name} {n}" for name, n in sorted(found.items(), key=lambda one: -one[1]))
