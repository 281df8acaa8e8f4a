"""The page of a steering experiment: the prediction and what came of it, a curve over the
strengths for each set of features and position, what stands beside it, what else changed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any, Final

from crosscoders.steering.experiment_result import label, opened, signed, told_row
from crosscoders.study.instrument import steering_table
from forensics.records import Figure, Page, Section, Series, Table

Row = Mapping[str, Any]
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
    points = [_points(rows, measure, value) for measure, value in _measures(rows, measure)]
    yield Section(
        title=f"Side by side, strength {strength}, {row['at']}",
        hint="Projected out: the first principal components of the models' difference set to what"
        " the other model has there on average. Refusal: the action is drawn again, nothing is"
        " changed inside.",
        blocks=tuple(one for one in points if one.series),
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
    """What has a picture: the measure, success here and elsewhere, divergence."""
    yield measure, lambda row: row["measured"]
    if measure != "success":
        yield "success", lambda row: row["success"]
    if any(row["elsewhere"] for row in rows):
        yield "success elsewhere", lambda row: (row["elsewhere"] or {}).get("success")
    if any(row["kl"] for row in rows):
        yield "KL on harmless texts, nats a token", lambda row: row["kl"]


def _curves(rows: Sequence[Row], measure: str) -> Iterator[Figure]:
    """A figure for each set, position and measure that has more than one strength."""
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
        own = [row for row in rows if row["role"] == role and value(row)]
        points = {neutral: start} if start and own else {}
        for strength in sorted({row["strength"] for row in own}):
            points[strength] = _pooled([value(row) for row in own if row["strength"] == strength])
        if own:
            x = tuple(sorted(points))
            y, low, high = (
                tuple(points[at][end] for at in x) for end in ("estimate", "low", "high")
            )
            yield Series(name=name, x=x, y=y, low=low, high=high)


def _pooled(found: Sequence[Any]) -> Mapping[str, Any]:
    """One as it stands; of several draws their median and whole range."""
    if len(found) == 1:
        one: Mapping[str, Any] = found[0]
        return one
    values = [one["estimate"] for one in found]
    return {"estimate": median(values), "low": min(values), "high": max(values)}


def _points(rows: Sequence[Row], title: str, value: Value) -> Figure:
    """What stands beside the point that is told of."""
    names: dict[str, list[Any]] = {}
    for row in rows:
        if row["split"] == "report" and (found := value(row)):
            names.setdefault(_short(row), []).append(found)
    pooled = {name: _pooled(found) for name, found in names.items()}
    ends = ("estimate", "low", "high")
    y, low, high = (tuple(one[end] for one in pooled.values()) for end in ends)
    series = (Series(name=title, x=tuple(pooled), y=y, low=low, high=high),) if pooled else ()
    return Figure(title=opened(title), form="points", y_label=title, series=series)


def _short(row: Row) -> str:
    if row["role"] == "unsteered":
        return f"unsteered, {row['in']}"
    if row["role"] == "projected-out":
        return f"{row['directions']} components projected out"
    return str(row["set"] if row["role"] == "features" else row["role"].replace("-", " "))


def _flat(row: Row) -> dict[str, Any]:
    """A row as the table of all conditions shows it."""
    there, shown = row["elsewhere"], dict(row)
    if row["role"] not in ("unsteered", "random-direction"):
        shown["role"] = label(row)
    hidden = ("dictionary", "split", "mode", "features")  # said by the label
    shown |= dict.fromkeys(hidden, None) | {"success elsewhere": there and there["success"]}
    return shown | {"KL": row["kl"]}
