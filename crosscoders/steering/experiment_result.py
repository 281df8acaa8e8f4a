"""What `steering.json` holds of an experiment, and what a reader is told first.

Beside the keys that `forensics steer` with options writes: `experiment` (hashes, the point
that is told of), `prediction` (what was predicted, what was found, the verdict), and in each
row `set`, `at`, `success_effect`, `elsewhere`, `kl`. Rows of the point that is told of, and of
what stands beside it, have the split `report`; those of other doses, sets and positions
`dose`. Both were played on the reported tasks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from crosscoders.activations.outlier_positions import TIMES
from crosscoders.steering.experiment_file import ExperimentTable
from crosscoders.steering.judged_prediction import SURE, judged, rank_of
from forensics.records import SCHEMA_VERSION
from forensics.version import code_version

Row = Mapping[str, Any]
DONE: Final = {"ablate": "ablated", "scale": "scaled", "add": "added"}
SIMPLER: Final = ("principal-component", "mean-direction", "projected-out")
LEVEL: Final = 0.95
HASHES: Final = ("experiment_sha256", "inputs_sha256")


@dataclass(frozen=True, kw_only=True)
class Found:
    """What was run. `latents`: of each set. `sinks`: whether attention sinks were left alone."""

    measure: str
    rows: Sequence[Row]
    missing: dict[str, str]
    latents: dict[str, list[int]]
    sinks: bool


def result_of(found: Found, table: ExperimentTable, cited: Mapping[str, Any]) -> dict[str, Any]:
    """Plain values for `steering.json`. `cited`: both hashes, and the `inputs` of the second."""
    prediction = _prediction(found.rows, table)
    summary = _summary(found, table, prediction)
    point = dict(zip(("features", "strength", "at"), table.told_of, strict=True))
    return {
        "schema_version": SCHEMA_VERSION,
        "experiment": {name: cited[name] for name in HASHES} | {"told_of": point},
        "prediction": prediction,
        "inputs": cited["inputs"],
        "measure": found.measure,
        "direction": _direction(found.rows, table),
        "chosen_strengths": {},
        "features": found.latents,
        "level": LEVEL,
        "broken": [],
        "missing": found.missing,
        "summary": summary,
        "sentences": _sentences(found, table, prediction, cited),
        "rows": list(found.rows),
        "code": code_version(),
    }


def told_row(rows: Sequence[Row]) -> Row:
    """The row that prediction and summary are of."""
    return next(row for row in rows if row["role"] == "features" and row["split"] == "report")


def random_effects(rows: Sequence[Row], of: Row) -> list[float]:
    """Effects of the random directions beside a set, at its strength and position."""
    return [
        row["effect"]["estimate"]
        for row in rows
        if row["role"] == "random-direction" and row["effect"] and _place(row) == _place(of)
    ]


def _place(row: Row) -> tuple[Any, ...]:
    return row["set"], row["at"], row["strength"]


def _prediction(rows: Sequence[Row], table: ExperimentTable) -> dict[str, Any] | None:
    if table.predicts is None:
        return None
    row = told_row(rows)
    random = random_effects(rows, row)
    verdict = judged(table.predicts, row["effect"], random)
    said = table.predicts.model_dump(exclude={"features", "strength", "at"}, exclude_none=True)
    return {"predicted": said, "found": row["effect"], "random_directions": len(random), **verdict}


def _direction(rows: Sequence[Row], table: ExperimentTable) -> int:
    """Which way counts: that of the prediction, or from the changed policy to the other."""
    if table.predicts is not None and table.predicts.effect != "none":
        return 1 if table.predicts.effect == "up" else -1
    plain = {row["in"]: row["measured"] for row in rows if row["role"] == "unsteered"}
    here, there = plain.pop(table.acting), next(iter(plain.values()))
    return 1 if here and there and there["estimate"] >= here["estimate"] else -1


def _summary(
    found: Found, table: ExperimentTable, prediction: dict[str, Any] | None
) -> dict[str, Any]:
    """As that of a steering study; of components no share is told as that of latents."""
    row, direction = told_row(found.rows), _direction(found.rows, table)
    random, latents = random_effects(found.rows, row), found.latents.get(row["set"])
    effect = row["effect"]
    p_value = rank_of(effect["estimate"], random) if effect else None
    return {
        "measure": found.measure,
        "effect": effect,
        "moved": row["moved"] if latents else None,
        "moved_missing": row["moved_missing"] if latents else f"{row['set']} is no set of latents",
        "random_directions": random,
        "p_value": prediction["p_value"] if prediction and prediction["p_value"] else p_value,
        "largest_random": direction * max(direction * one for one in random) if random else None,
    }


def _sentences(
    found: Found,
    table: ExperimentTable,
    prediction: dict[str, Any] | None,
    cited: Mapping[str, Any],
) -> list[str]:
    """The prediction first, unless something simpler does as much, which then leads."""
    rows = found.rows
    simpler = _simpler(found, table)
    said = [] if simpler is None else [simpler]
    said += [] if prediction is None else [_judgement(found, table, prediction)]
    plain = {row["in"]: row["measured"] for row in rows if row["role"] == "unsteered"}
    unsteered = ", ".join(f"{side} {told(plain[side])}" for side in ("before", "after"))
    said.append(f"Unsteered, {found.measure}: {unsteered}.")
    strength = table.told_of[1]
    sets = [r for r in rows if r["role"] == "features" and r["strength"] == strength]
    said += [f"{_moved(found, row)} {_costs(row)}" for row in sets]
    whole = [row for row in rows if row["role"] in ("projected-out", "refusal")]
    said += [f"{opened(label(row))}: {signed(row['effect'])}. {_costs(row)}" for row in whole]
    said += [f"Not run, {what}: {why}." for what, why in sorted(found.missing.items())]
    if found.sinks:
        said.append(
            f"Attention sinks (rows with more than {TIMES:g} times the median norm) were left as"
            " they are."
        )
    said.append(
        f"To cite: experiment sha256 {cited['experiment_sha256']}, inputs sha256"
        f" {cited['inputs_sha256']}."
    )
    return [one.strip() for one in said]


def _judgement(found: Found, table: ExperimentTable, prediction: Mapping[str, Any]) -> str:
    said, row = prediction["predicted"], told_row(found.rows)
    size = said.get("at_least", said.get("at_most"))
    predicted = {
        "up": f"raises {found.measure} by at least {size:g}",
        "down": f"lowers {found.measure} by at least {size:g}",
        "none": f"changes {found.measure} by at most {size:g}",
    }[said["effect"]]
    p_value = prediction["p_value"]
    rank = "" if p_value is None else f"; p = {p_value:.3f} among random directions"
    return (
        f"Predicted: {label(row)} {predicted}. It {prediction['verdict']}"
        f" ({signed(row['effect'])}{rank}): {prediction['why']}."
    ).replace("It not decided", "It is not decided")


def _simpler(found: Found, table: ExperimentTable) -> str | None:
    """The simpler change that does most, where it does as much as the tested features."""
    row, way = told_row(found.rows), _direction(found.rows, table)
    if row["effect"] is None or (table.predicts and table.predicts.effect == "none"):
        return None
    own = way * row["effect"]["estimate"]
    sure = [
        one
        for one in found.rows
        if one["split"] == "report"
        and one["role"] in SIMPLER
        and one["effect"]
        and min(way * one["effect"]["low"], way * one["effect"]["high"]) > 0
        and way * one["effect"]["estimate"] >= own
    ]
    best = max(sure, key=lambda one: way * one["effect"]["estimate"], default=None)
    if best is None:
        return None
    return (
        f"A simpler change does as much or more: {label(best)} moves {found.measure} by"
        f" {signed(best['effect'])}, {label(row)} by {signed(row['effect'])}."
    )


def _moved(found: Found, row: Row) -> str:
    """Whether a set moves the measure, and more than random directions do."""
    effect, random = row["effect"], random_effects(found.rows, row)
    name = opened(label(row, found.latents.get(row["set"])))
    if effect is None:
        return f"{name}: not known, fewer than two tasks have the measure."
    p_value = rank_of(effect["estimate"], random)
    if effect["low"] <= 0 <= effect["high"]:
        says = "no effect is seen"
    elif p_value is None:
        says = "an effect, without random directions beside it"
    elif p_value > SURE:
        says = f"no more than random directions of equal length do (p = {p_value:.3f})"
    else:
        most = max(map(abs, random))
        says = f"more than {len(random)} random directions of equal length, of which the largest"
        says += f" moves it by {most:.3f} (p = {p_value:.3f})"
    return f"{name}: {signed(effect)}, {says}."


def _costs(row: Row) -> str:
    """What else changed."""
    parts = [f"success {signed(row['success_effect'])}"] if row["success_effect"] else []
    if (there := row["elsewhere"]) and there["effect"]:
        parts.append(f"success elsewhere {signed(there['effect'])}")
    if row["kl"]:
        kl = f"KL on harmless texts {row['kl']['estimate']:.2g} nats a token"
        parts.append(f"{kl}, changed at every one")
    return f"Beside it: {', '.join(parts)}." if parts else ""


def label(row: Row, latents: Sequence[int] | None = None) -> str:
    """A condition in words."""
    role, at = row["role"], f" at {row['at']}" if row["at"] else ""
    if role == "refusal":
        return f"{row['constraint'].removeprefix('refuse:')} refused"
    if role == "projected-out":
        return f"the first {row['directions']} components of the difference projected out{at}"
    if role in SIMPLER:
        return f"{role} in the place of {row['set']}, strength {row['strength']:g}{at}"
    listed = ", ".join(map(str, (latents or ())[:6]))
    named = f" (latents {listed})" if listed and listed != row["set"].replace(",", ", ") else ""
    return f"{row['set']}{named} {DONE[row['mode']]}, strength {row['strength']:g}{at}"


def opened(text: str) -> str:
    """With a capital; the rest as it stands."""
    return text[:1].upper() + text[1:]


def told(found: Mapping[str, Any] | None) -> str:
    """A number with its interval."""
    if found is None:
        return "not known"
    return f"{found['estimate']:.3f} [{found['low']:.3f}, {found['high']:.3f}]"


def signed(found: Mapping[str, Any] | None) -> str:
    """A difference with its interval."""
    if found is None:
        return "not known"
    return f"{found['estimate']:+.3f} [{found['low']:+.3f}, {found['high']:+.3f}]"
