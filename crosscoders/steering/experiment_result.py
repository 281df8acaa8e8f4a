"""What `steering.json` holds of an experiment, and what a reader is told first.

`experiment`: hashes, the point that is told of; `prediction`: what was predicted, what was found,
the verdict. Rows of the point that is told of, and of
what stands beside it, have the split `report`; those of other doses, sets and positions
`dose`. Both were played on the reported tasks.

A prediction held against what was found.

1. Size: `held` where the whole interval of the effect lies beyond the least size in the
   predicted direction, `did not hold` where none of it does, else `not decided`. For
   `none`: within the largest size, outside it, or across its border.
2. Beyond random (unless the file says otherwise): the share of directions, the tested one
   among them, that do as much the predicted way, `p = (1 + as large) / (1 + all)`, is at
   most 1 in 20. Where it is more, a prediction of size that held, or could have, did not.

The page of a steering experiment: the prediction and what came of it, a curve over the
strengths for each set of features and position, what stands beside it, what else changed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from crosscoders.activations.outlier_positions import TIMES
from crosscoders.steering.experiment_file import ExperimentTable, Predicted
from crosscoders.study.instrument import points, pooled, steering_table
from forensics.records import SCHEMA_VERSION, Figure, Page, Section, Series, Table
from forensics.version import code_version

SURE: Final = 0.05
HELD, FAILED, OPEN = "held", "did not hold", "not decided"


def rank_of(effect: float, random: Sequence[float], way: int = 0) -> float:
    """`p` of step 2; `way`: the predicted one, 1 or -1 (0: that of the effect)."""
    way = way or (1 if effect >= 0 else -1)
    return (1 + sum(way * one >= way * effect for one in random)) / (1 + len(random))


def judged(
    predicted: Predicted, effect: Mapping[str, float] | None, random: Sequence[float]
) -> dict[str, Any]:
    """`verdict`, `why` in words, and `p_value`, where it was asked for."""
    if effect is None:
        return {"verdict": OPEN, "why": "fewer than two tasks have the measure", "p_value": None}
    if predicted.effect == "none":
        return {"p_value": None, **_nothing(effect, predicted.at_most or 0.0)}
    sign, least = 1 if predicted.effect == "up" else -1, predicted.at_least or 0.0
    low, high = sorted(sign * effect[end] for end in ("low", "high"))
    size = HELD if low >= least else FAILED if high < least else OPEN
    why = {
        HELD: "the whole interval lies beyond the predicted size",
        FAILED: "the whole interval falls short of the predicted size",
        OPEN: "the interval holds the predicted size and less",
    }[size]
    if not predicted.beyond_random:
        return {"verdict": size, "why": why, "p_value": None}
    p_value = rank_of(effect["estimate"], random, sign)
    if p_value > SURE and size != FAILED:
        size, why = FAILED, "random directions of equal length do as much"
    return {"verdict": size, "why": why, "p_value": p_value}


def _nothing(effect: Mapping[str, float], most: float) -> dict[str, str]:
    low, high = effect["low"], effect["high"]
    if -most <= low and high <= most:
        return {"verdict": HELD, "why": "the whole interval lies within the predicted size"}
    if low > most or high < -most:
        return {"verdict": FAILED, "why": "the whole interval lies beyond the predicted size"}
    return {"verdict": OPEN, "why": "the interval reaches across the predicted size"}


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
    p_value = rank_of(effect["estimate"], random) if effect and random else None
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
    elif not random:
        says = "an effect, without random directions beside it"
    elif p_value > SURE:
        says = f"no more than random directions of equal length do (p = {p_value:.3f})"
    else:
        most = max(map(abs, random))
        says = f"more than {len(random)} random directions of equal length, of which the largest"
        says += f" moves it by {most:.3f} (p = {p_value:.3f})"
    return f"{name}: {signed(effect)}, {says}."


def _costs(row: Row) -> str:
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


def told(found: Mapping[str, Any] | None, sign: str = "") -> str:
    """A number with its interval. `sign` "+": a difference."""
    if found is None:
        return "not known"
    return f"{found['estimate']:{sign}.3f} [{found['low']:{sign}.3f}, {found['high']:{sign}.3f}]"


def signed(found: Mapping[str, Any] | None) -> str:
    """A difference with its interval."""
    return told(found, "+")


CURVES: Final = {
    "features": "features",
    "principal-component": "component",
    "mean-direction": "mean",
    "random-direction": "random",
}
Value = Callable[[Row], Mapping[str, Any] | None]
MOST_CURVES: Final = 8


def dose_page(found: Mapping[str, Any]) -> Page:
    """Of what `steering.json` holds of an experiment."""
    hashes, row = found["experiment"], told_row(found["rows"])
    prediction = found["prediction"]
    return Page(
        eyebrow="Steering experiment",
        title=f"Does {row['set']} cause {found['measure']}?",
        sentences=tuple(found["sentences"]),
        facts=(
            *([f"prediction: {prediction['verdict']}"] if prediction else ()),
            f"{row['n']} tasks, {row['runs']} runs a condition",
            f"experiment {hashes['experiment_sha256'][:16]}",
            f"inputs {hashes['inputs_sha256'][:16]}",
        ),
        sections=tuple(_sections(found, row)),
    )


def _sections(found: Mapping[str, Any], row: Row) -> Iterator[Section]:
    prediction, rows, measure = found["prediction"], found["rows"], found["measure"]
    yield Section(
        title="What was predicted",
        hint="The prediction is part of the experiment file, whose SHA-256 was written down before"
        " anything was played. The effect is the difference to the same policy unsteered, paired"
        " by task.",
        blocks=(_predicted(prediction, measure),) if prediction else (),
        empty="Nothing; add [predicts] to the file before it is run.",
    )
    yield Section(
        title="By strength",
        hint="Each curve starts at the unsteered policy. Component (the first principal one of the"
        " models' difference) and mean (of the difference): one direction in the place of the"
        " features, every row moved exactly as far. Random directions, moved as far too: their"
        " median and whole range.",
        blocks=tuple(_curves(rows, measure))[:MOST_CURVES],
    )
    strength = f"{row['strength']:g}"
    figures = [_points(rows, measure, value) for measure, value in _measures(rows, measure)]
    yield Section(
        title=f"Side by side, strength {strength}, {row['at']}",
        hint="Projected out: the first principal components of the models' difference set to what"
        " the other model has there on average. Refusal: the action is drawn again, nothing is"
        " changed inside.",
        blocks=tuple(one for one in figures if one.series),
    )
    yield Section(title="All conditions", blocks=(steering_table([_flat(one) for one in rows]),))


def _predicted(prediction: Mapping[str, Any], measure: str) -> Table:
    said = prediction["predicted"]
    size = said.get("at_least", said.get("at_most"))
    words = {"up": "up by at least", "down": "down by at least", "none": "changed by at most"}
    p_value = prediction["p_value"]
    rank = "not asked" if p_value is None else f"{p_value:.3f}"
    return Table(
        title="",
        columns=("predicted", "found", "p among random directions", "verdict"),
        rows=(
            (
                f"{measure} {words[said['effect']]} {size:g}",
                signed(prediction["found"]),
                rank,
                f"{prediction['verdict']}: {prediction['why']}",
            ),
        ),
    )


def _measures(rows: Sequence[Row], measure: str) -> Iterator[tuple[str, Value]]:
    yield measure, lambda row: row["measured"]
    if measure != "success":
        yield "success", lambda row: row["success"]
    if any(row["elsewhere"] for row in rows):
        yield "success elsewhere", lambda row: (row["elsewhere"] or {}).get("success")
    if any(row["kl"] for row in rows):
        yield "KL on harmless texts, nats a token", lambda row: row["kl"]


def _curves(rows: Sequence[Row], measure: str) -> Iterator[Figure]:
    places = dict.fromkeys((row["set"], row["at"]) for row in rows if row["set"])
    for name, at in places:
        here = [row for row in rows if (row["set"], row["at"]) == (name, at)]
        acting = here[0]["in"]
        plain = next(row for row in rows if row["role"] == "unsteered" and row["in"] == acting)
        neutral = 1.0 if here[0]["mode"] == "scale" else 0.0
        for title, value in _measures(rows, measure):
            start = {"estimate": 0.0, "low": 0.0, "high": 0.0} if "KL" in title else value(plain)
            yield Figure(
                title=f"{opened(title)}: {name}, {at}",
                form="lines",
                x_label="strength",
                y_label=title.partition(",")[0],
                series=tuple(_series(here, value, neutral, start)),
            )


def _series(
    rows: Sequence[Row], value: Value, neutral: float, start: Mapping[str, Any] | None
) -> Iterator[Series]:
    for role, name in CURVES.items():
        own: dict[float, list[Mapping[str, Any]]] = {}
        for row in rows:
            if row["role"] == role and (found := value(row)):
                own.setdefault(row["strength"], []).append(found)
        at_strength = {neutral: start} if start and own else {}
        at_strength |= {strength: pooled(found) for strength, found in own.items()}
        if own:
            x = tuple(sorted(at_strength))
            y, low, high = (
                tuple(at_strength[at][end] for at in x) for end in ("estimate", "low", "high")
            )
            yield Series(name=name, x=x, y=y, low=low, high=high)


def _points(rows: Sequence[Row], title: str, value: Value) -> Figure:
    names: dict[str, list[Any]] = {}
    for row in rows:
        if row["split"] == "report" and (found := value(row)):
            names.setdefault(_short(row), []).append(found)
    return points(opened(title), title, names)


def _short(row: Row) -> str:
    if row["role"] == "unsteered":
        return f"unsteered, {row['in']}"
    if row["role"] == "projected-out":
        return f"{row['directions']} components projected out"
    return str(row["set"] if row["role"] == "features" else row["role"].replace("-", " "))


def _flat(row: Row) -> dict[str, Any]:
    there, shown = row["elsewhere"], dict(row)
    if row["role"] not in ("unsteered", "random-direction"):
        shown["role"] = label(row)
    hidden = ("dictionary", "split", "mode", "features")  # said by the label
    shown |= dict.fromkeys(hidden, None) | {"success elsewhere": there and there["success"]}
    return shown | {"KL": row["kl"]}
