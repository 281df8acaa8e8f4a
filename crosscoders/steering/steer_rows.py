"""What was steered as rows of `steering.json`: plain values, numbers with
intervals, missing ones with a reason.
"""

from collections.abc import Sequence
from typing import Any

from crosscoders.steering.edits import SIDES
from crosscoders.steering.outcomes import difference_of, mean_of, moved
from crosscoders.steering.steer_study import Steered, Tried
from forensics.statistics import Estimate

FILE = "steering.json"


def rows_of(steered: Steered, level: float = 0.95) -> list[dict[str, Any]]:
    """One row for each condition and split, in the order in which they were run."""
    return [_row(one, steered.measure, level) for one in steered.tried]


def _row(one: Tried, measure: str, level: float) -> dict[str, Any]:
    condition, outcomes = one.condition, one.outcomes
    values = outcomes.of(measure)
    channels = sorted(name for name in outcomes.measures if name.startswith("channel:"))
    way = (
        "nothing was changed"
        if condition.change is None
        else moved(values, one.base.of(measure), one.goal.of(measure), level)
    )
    return {
        "role": condition.role,
        "in": condition.acting,
        "mode": condition.mode,
        "strength": condition.strength,
        "features": list(condition.features),
        "draw": condition.draw,
        "directions": condition.directions,
        "dictionary": one.subject,
        "split": one.split,
        "n": len(outcomes.tasks),
        "runs": outcomes.runs,
        "channel_use": {
            name.partition(":")[2]: _plain(mean_of(outcomes.of(name), level)) for name in channels
        },
        "success": _plain(mean_of(outcomes.of("success"), level)),
        "turns": _plain(mean_of(outcomes.of("turns"), level)),
        "handed_in": _plain(mean_of(outcomes.of("handed-in"), level)),
        "measured": _plain(mean_of(values, level)),
        "effect": (
            None
            if condition.change is None
            else _plain(difference_of(values, one.base.of(measure), level))
        ),
        "moved": _plain(way) if isinstance(way, Estimate) else None,
        "moved_missing": None if isinstance(way, Estimate) else way,
    }


def _plain(found: Estimate | None) -> dict[str, float] | None:
    return dict(zip(("estimate", "low", "high"), found.ends, strict=True)) if found else None


def summary_of(steered: Steered, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The features' effect on the reported tasks among those of the random
    directions, and what it moved.
    """
    reported = [row for row in rows if row["split"] == "report"]
    features = next(row for row in reported if row["role"] == "features")
    random = [
        row["effect"]["estimate"]
        for row in reported
        if row["role"] == "random-direction" and row["effect"]
    ]
    effect = features["effect"]
    told: dict[str, Any] = {
        "measure": steered.measure,
        "effect": effect,
        "moved": features["moved"],
        "moved_missing": features["moved_missing"],
        "random_directions": random,
        "p_value": None,
        "largest_random": None,
    }
    if effect is not None and random:
        own, others = (
            steered.direction * effect["estimate"],
            [steered.direction * value for value in random],
        )
        told["p_value"] = (1 + sum(value >= own for value in others)) / (1 + len(others))
        told["largest_random"] = steered.direction * max(others)
    return told


def sentences(steered: Steered, rows: Sequence[dict[str, Any]]) -> list[str]:
    """What a reader is told first."""
    summary = summary_of(steered, rows)
    reported = [row for row in rows if row["split"] == "report"]
    plain = {row["in"]: row for row in reported if row["role"] == "unsteered"}
    features = next(row for row in reported if row["role"] == "features")
    said = [
        f"Measured: {steered.measure}. "
        + ", ".join(f"{side} {_told(plain[side]['measured'])}" for side in SIDES)
    ]
    for row in reported:
        if row["role"] in (
            "features",
            "mean-difference",
            "difference-subspace",
            "routing",
            "spillover",
        ):
            said.append(f"{_name(row)}: {_told(row['measured'])}, success {_told(row['success'])}")
    way = summary["moved"]
    share = _told(way) if way else f"not known: {summary['moved_missing']}"
    said.append(f"Share of the way to the other model: {share}")
    if summary["p_value"] is not None:
        said.append(
            f"{len(summary['random_directions'])} random directions of equal norm: the largest"
            f" effect the same way is {summary['largest_random']:+.3f}, that of the features"
            f" {features['effect']['estimate']:+.3f} (p = {summary['p_value']:.3f})"
        )
    said += [
        f"Every strength of {role} broke the policy; the mildest is shown."
        for role in steered.broken
    ]
    return said + [
        f"Not run in full, {role}: {why}." for role, why in sorted(steered.missing.items())
    ]


def _name(row: dict[str, Any]) -> str:
    strength = "" if row["strength"] is None else f" at {row['strength']:g}"
    latents = f" {', '.join(map(str, row['features']))}" if row["features"] else ""
    return f"{row['role']}{latents}{strength} in {row['in']} ({row['dictionary']})"


def _told(found: dict[str, float] | None) -> str:
    return (
        "not known"
        if found is None
        else f"{found['estimate']:.3f} [{found['low']:.3f}, {found['high']:.3f}]"
    )
