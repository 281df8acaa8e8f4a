"""The tables from what the arms of every seed left behind."""

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.cliffs.matched.arms import ARMS
from experiments.cliffs.tables import difference

KEYS = ("pairs", "steps", "weighted", "sampled", "tasks", "rate", "tried")


def result_of(seeds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Every arm against the start, and `cliff` against every other arm, each
    with its word by the rule.
    """
    after = {arm: [seed["arms"][arm]["scores"] for seed in seeds] for arm in ARMS}
    start = [seed["start"] for seed in seeds]
    arms = {}
    for arm in ARMS:
        gain = difference(after[arm], start)
        arms[arm] = {
            "gain": gain,
            "word": word(gain, "helps", "harms"),
            **{key: [seed["arms"][arm][key] for seed in seeds] for key in KEYS},
        }
    than = {arm: difference(after["cliff"], after[arm]) for arm in ARMS if arm != "cliff"}
    minus = {arm: row | {"word": word(row, "better", "worse")} for arm, row in than.items()}
    return {"arms": arms, "cliff minus": minus}


def word(row: Mapping[str, Any], above: str, below: str) -> str:
    """What the interval says."""
    return above if row["low"] > 0 else below if row["high"] < 0 else "no difference told"


def markdown(result: Mapping[str, Any]) -> str:
    lines = [
        (
            "| arm | pairs | steps | weighted tokens | tokens sampled, thousands | learning rates |"
            " score minus start, points | by seed | by the rule |"
        ),
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for arm, row in result["arms"].items():
        sampled = _list([f"{tokens / 1000:.0f}" for tokens in row["sampled"]])
        sizes = [_list(row[key]) for key in ("pairs", "steps", "weighted")]
        rates = _list([f"{rate:g}" for rate in row["rate"]])
        lines.append(
            f"| {' | '.join([arm, *sizes, sampled, rates])} | {_points(row['gain'])} |"
            f" {row['word']} |"
        )
    lines += ["", "| Cliff-DPO minus | points | by seed | by the rule |", "|---|---|---|---|"]
    lines += [
        f"| {arm} | {_points(row)} | {row['word']} |" for arm, row in result["cliff minus"].items()
    ]
    return "\n".join([*lines, ""])


def _points(row: Mapping[str, Any]) -> str:
    seeds = ", ".join(f"{100 * value:+.1f}" for value in row["by_seed"])
    return (
        f"{100 * row['estimate']:+.1f} ({100 * row['low']:+.1f} to {100 * row['high']:+.1f}) |"
        f" {seeds}"
    )


def _list(values: Sequence[Any]) -> str:
    return ", ".join(map(str, values))
