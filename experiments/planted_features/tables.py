"""The table of the study: recall and false discovery rate of every method in
every world, over its seeds.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from forensics.statistics import clopper_pearson

RECALL, FALSE = 0.95, 0.05
RULED = "dedicated"


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """By world, then method: k of n over all seeds, with exact 95 % intervals;
    `None`: nothing to count.
    """
    found: dict[str, dict[str, Any]] = {}
    for world in dict.fromkeys(row["world"] for row in rows):
        mine = [row["scores"] for row in rows if row["world"] == world]
        found[world] = {method: _pooled([scores[method] for scores in mine]) for method in mine[0]}
    return found


def _pooled(scores: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    total = {key: sum(score[key] for score in scores) for key in ("found", "of", "called", "false")}
    return {
        **total,
        "seeds": len(scores),
        "recall": _share(total["found"], total["of"]),
        "false_discovery_rate": _share(total["false"], total["called"]),
        "by_seed": [[score[key] for key in ("found", "of", "called", "false")] for score in scores],
    }


def _share(part: int, whole: int) -> dict[str, float] | None:
    if not whole:
        return None
    low, high = clopper_pearson(part, whole)
    return {"estimate": part / whole, "low": low, "high": high}


def holds(pooled: Mapping[str, Any]) -> bool:
    """The decision rule: in a world without after-only features nothing may be
    called, else both limits are met.
    """
    if not pooled["of"]:
        return bool(pooled["called"] == 0)
    rate = pooled["false_discovery_rate"]
    return bool(
        pooled["recall"]["estimate"] >= RECALL and rate is not None and rate["estimate"] <= FALSE
    )


def markdown(result: Mapping[str, Any]) -> str:
    """One table a world; the ruled method's answer first."""
    done = len(result["rows"])
    lines = [
        "# Planted features",
        "",
        (
            "Written by `python -m experiments.planted_features`. Recall of after-only features"
            " and share of false ones among those called, over all seeds of a world, with exact 95"
            f" % intervals. {done} of {result['planned']} planned worlds are done."
        ),
        "",
    ]
    for world, methods in result["summary"].items():
        ruled = methods[RULED]
        verdict = "holds" if holds(ruled) else "does not hold"
        lines += [
            f"## {world} ({ruled['seeds']} seeds)",
            "",
            f'The rule {verdict} for "{RULED}".',
            "",
            "| method | recall | false among called |",
            "|---|---|---|",
        ]
        lines += [
            f"| {name} | {_text(row['recall'], row['found'], row['of'])} | "
            f"{_text(row['false_discovery_rate'], row['false'], row['called'])} |"
            for name, row in methods.items()
        ]
        lines.append("")
    return "\n".join(lines)


def _text(share: Mapping[str, float] | None, part: int, whole: int) -> str:
    if share is None:
        return "none there"
    return f"{share['estimate']:.3f} ({part} of {whole}, {share['low']:.3f} to {share['high']:.3f})"
