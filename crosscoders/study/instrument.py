"""Which features does the gain run through? An instrument that reads the diff
of a case; no model is loaded.

A diff takes minutes, so `investigate` does not make one: `forensics diff`
writes it into the case folder, `forensics steer` puts what its features cause
beside it, and this tells both in the case report.

1. `features.separating`: latents specific to the after model (by block and by
   latent scaling) that separate decisions for the theme of the diff from
   others, at a false discovery rate. The control is the same-model pair.
2. `features.ablated`: the share of the way to the before policy that changing
   them in the after policy covers, on tasks that chose nothing. The control is
   the distribution of random directions of equal norm.

A diff of other checkpoints, or none, gives `Undefined`: both questions for one
reason, so that a report says it once.

Steering is told as pictures and as a table as well: features beside their controls.

Rows are those that `forensics steer` writes: what was changed (`role`), in
which policy (`in`), how strongly, on which split of the tasks, and for each
measure an object with `estimate`, `low`, `high`. Several random draws of one
control become one point: their median, with the whole range that they covered.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from crosscoders.study.diff_files import (
    BASELINES,
    CONTROLS,
    DIFF,
    STEERED,
    STEERING,
    Latent,
    read_latents,
    read_part,
    read_summary,
    separating,
)
from forensics.case import Case
from forensics.errors import MissingInput, refused_as_missing
from forensics.instruments import AnswerMaker, instrument
from forensics.phrases import plural, printable, share_of_change
from forensics.records import (
    Control,
    Evidence,
    Figure,
    Interval,
    Series,
    Table,
    Undefined,
    content_hash,
    estimate_cell,
)

SEPARATING: Final = "features.separating"
ABLATED: Final = "features.ablated"
UNREADABLE: Final = ("The diff cannot be read", "Make it again with `forensics diff --force`.")
METHOD: Final = (
    "crosscoder with tied shared decoders and after-only latents, latent scaling, contrasts by task"
)
WHERE: Final = {
    "output": (
        "The change is mostly a re-weighting at the output: features in the middle can carry little"
        " of it."
    ),
    "inside": "The change is carried in the middle of the network.",
    "spread": "The change is spread over layers.",
}


@dataclass(frozen=True, kw_only=True)
class FeaturesConfig:
    """`sure`: the false discovery rate of a latent that separates. `most` latents in the table."""

    sure: float = 0.05
    most: int = 12


@instrument(
    name="features", layer="features", questions=(SEPARATING, ABLATED), config=FeaturesConfig()
)
def features(case: Case, config: FeaturesConfig) -> Iterator[Evidence | Undefined]:
    """Raises `MissingInput` where the case has no checkpoints, or no diff of them."""
    summary = _summary(case)
    provenance = features.configured(**vars(config)).provenance(case)
    provenance = provenance.model_copy(
        update={"inputs": provenance.inputs | {"diff": content_hash(summary)}}
    )
    separate = AnswerMaker(layer="features", method=METHOD, provenance=provenance)
    ablate = AnswerMaker(layer="features", method="steering", provenance=provenance)
    with refused_as_missing(*UNREADABLE):
        yield _separating(case.folder, summary, separate, config)
        yield _ablated(case.folder, ablate)


def _summary(case: Case) -> dict[str, Any]:
    if not case.runs_models:
        raise MissingInput(
            "Logs alone show no activations.",
            "Give the checkpoints and the environment to `forensics diff`.",
        )
    if not (case.folder / DIFF).is_file():
        raise MissingInput(
            "No diff was made.",
            "`forensics diff --resume` into this folder, same options, makes one.",
        )
    with refused_as_missing(*UNREADABLE):
        summary = read_summary(case.folder)
    if (summary.get("before"), summary.get("after")) != (
        case.subject("before").identity,
        case.subject(case.afters[0]).identity,
    ):
        raise MissingInput(
            "The diff in the case folder is of other checkpoints.",
            "Make that of this pair with `forensics diff --force`.",
        )
    return summary


def _separating(
    folder: Path, summary: Mapping[str, Any], make: AnswerMaker, config: FeaturesConfig
) -> Evidence | Undefined:
    latents = read_latents(folder, summary.get("contrasts"))
    theme = summary.get("theme")
    tested = [one for one in latents if one.q_value is not None]
    if not theme or not tested:
        missing = MissingInput(
            "No kind of action is known whose decisions could be told from others, so no latent"
            " was tested.",
            "Name a kind with `forensics diff --kind`, on runs that have it.",
        )
        return make.undefined(SEPARATING, missing)
    sure = [
        one for one in separating(tested) if one.q_value is not None and one.q_value < config.sure
    ]
    own = [one for one in sure if one.specific == "after" and one.comes_back]
    nulls = [row for row in read_part(folder, CONTROLS) or () if row["name"] == "same-model pair"]
    methods = (read_part(folder, BASELINES) or {}).get("methods", ())
    specific = f"{len(own)} of them {'is' if len(own) == 1 else 'are'} specific to the after model"
    return make.evidence(
        SEPARATING,
        float(len(own)),
        about=theme["name"],
        unit="latents",
        n=len(latents),
        clusters=int(summary.get("tasks", 0)),
        control=Control(
            name="same-model pair, share of candidates that are specific",
            estimate=nulls[0].get("share"),
        )
        if nulls
        else None,
        artifacts=(
            _table([*own, *(one for one in sure if one not in own)][: config.most]),
            *([_beside(methods)] if methods else []),
        ),
        diagnostics={
            "separating": len(sure),
            "tested": len(tested),
            "site": summary["site"],
            "where": summary.get("where"),
        },
        summary=(
            f"{plural(len(sure), 'latent')} of {len(latents)} at {summary['site']} separate"
            f" decisions for {printable(theme['name'])} from others, and {specific}."
            f" {WHERE.get(str(summary.get('where')), '')}".strip()
        ),
    )


def _table(latents: Sequence[Latent]) -> Table:
    names = (
        "latent partition specific q_value difference nu_after nu_before relative_norm frequency"
    )
    return Table(
        title="Latents that separate the decisions",
        columns=tuple(name.replace("_", " ") for name in names.split()),
        rows=tuple(tuple(getattr(one, name) for name in names.split()) for one in latents),
    )


def _beside(methods: Sequence[Mapping[str, Any]]) -> Table:
    ends = ("estimate", "low", "high")
    return Table(
        title="Beside simpler methods",
        columns=("method", "explained", "active a token", "one feature", "AUROC", "low", "high"),
        rows=tuple(
            (
                *(one[name] for name in ("name", "explained", "active", "feature")),
                *((one["auroc"] or {}).get(end) for end in ends),
            )
            for one in methods
        ),
    )


def _ablated(folder: Path, make: AnswerMaker) -> Evidence | Undefined:
    found = read_part(folder, STEERING) or read_part(folder / STEERED, STEERING)
    moved = found["summary"].get("moved") if found else None
    if found is None or moved is None:
        missing = "Nobody changed the features while the policy acts."
        if found is not None:
            why = printable(str(found["summary"].get("moved_missing")), 200)
            missing = f"The effect has no share: {why}."
        cure = (
            "Run `forensics steer` with the dictionary of the diff; its report names the command."
        )
        return make.undefined(ABLATED, MissingInput(missing, cure))
    row = next(
        one for one in found["rows"] if one["role"] == "features" and one["split"] == "report"
    )
    random, latents = found["summary"].get("random_directions") or [], row["features"]
    done = {"ablate": "Ablating", "scale": "Scaling", "add": "Adding"}
    named = ", ".join(map(str, latents[:5])) + (", ..." if len(latents) > 5 else "")
    which = f"{'latent' if len(latents) == 1 else 'latents'} {named} in the {row['in']} policy"
    return make.evidence(
        ABLATED,
        moved["estimate"],
        about=str(found["measure"]),
        unit="share of the way to the other policy",
        n=int(row["runs"]),
        clusters=int(row["n"]),
        interval=Interval(
            low=moved["low"], high=moved["high"], level=float(found.get("level", 0.95))
        ),
        control=Control(
            name=f"{len(random)} random directions of equal norm",
            p_value=found["summary"].get("p_value"),
        ),
        artifacts=tuple(curves(found["rows"])[:3]),
        diagnostics={"mode": row["mode"], "in": row["in"], "strength": row["strength"]},
        summary=(
            f"{done.get(str(row['mode']), 'Changing')} {which} moves"
            f" {printable(str(found['measure']))} {share_of_change(moved['estimate'])} of the way"
            " to the other policy."
        ),
    )


Row = Mapping[str, Any]
MEASURES: Final = ("measured", "success")  # that have pictures; the table has all
NAMES: Final = ("role", "in", "mode", "strength", "features", "draw", "dictionary", "split", "n")


def curves(rows: Sequence[Row]) -> list[Figure]:
    """What was reported, by role, for each measure that has points."""
    figures = []
    for measure in MEASURES:
        by_role: dict[str, list[Mapping[str, Any]]] = {}
        for row in rows:
            if row.get("split", "report") == "report" and _is_estimate(row.get(measure)):
                name = f"{row.get('role')}, in {row.get('in')}"
                by_role.setdefault(name, []).append(row[measure])
        title = f"{measure.capitalize()} on the reported tasks"
        figures.append(points(title, measure, by_role))
    return [figure for figure in figures if figure.series]


def points(title: str, name: str, found: Mapping[str, Sequence[Mapping[str, Any]]]) -> Figure:
    """A point for each name; see `pooled`."""
    y, low, high = (
        tuple(pooled(values).get(end) for values in found.values())
        for end in ("estimate", "low", "high")
    )
    series = (Series(name=name, x=tuple(found), y=y, low=low, high=high),) if found else ()
    return Figure(title=title, form="points", y_label=name, series=series)


def pooled(found: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """One as it stands; of several draws their median and whole range."""
    if len(found) == 1:
        return found[0]
    values = [one["estimate"] for one in found]
    return {"estimate": median(values), "low": min(values), "high": max(values)}


def steering_table(rows: Sequence[Row]) -> Table:
    """All rows, with the columns that say something; channels are measures of
    their own, lists are text.
    """
    flat = []
    for row in rows:
        cells: dict[str, Any] = {}
        for name, value in row.items():
            if name == "channel_use" and isinstance(value, Mapping):
                cells |= {f"channel {channel}": use for channel, use in value.items()}
            else:
                several = isinstance(value, list | tuple)
                cells[name] = ", ".join(map(str, value)) if several else value
        flat.append(cells)
    names = [name for name in NAMES if any(row.get(name) not in (None, "") for row in flat)]
    names += dict.fromkeys(name for row in flat for name in row if _is_estimate(row[name]))
    table = (
        tuple(
            estimate_cell(cell) if _is_estimate(cell) else cell
            for cell in (row.get(name) for name in names)
        )
        for row in flat
    )
    return Table(title="All conditions", columns=tuple(names), rows=tuple(table))


def _is_estimate(value: Any) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("estimate"), int | float)
