"""A map as a table and as pictures of the network.

The picture of patches runs along the depth: at `n` layers passed stands what
the residual stream, or the attention and MLP just passed, moves. The picture of
grafts has a bar for each module, beside it what all the others do together.
"""

import re
from collections.abc import Sequence

from crosscoders.patching.moved import Direction, Share
from crosscoders.patching.results import ChangeMap, Positions, Row
from crosscoders.patching.site_choice import Measure
from forensics.records import Figure, Series, Table

COLUMNS = (
    "place",
    "positions",
    "direction",
    "relative change of weights",
    "KL moved",
    "low",
    "high",
    "behaviour moved",
    "low",
    "high",
    "chance",
    "tasks",
)
LINES: tuple[tuple[str, str, Positions], ...] = (
    ("residual, deciding token", "resid", "deciding"),
    ("residual, earlier tokens", "resid", "earlier"),
    ("residual, all tokens", "resid", "all"),
    ("attention, all tokens", "attn", "all"),
    ("MLP, all tokens", "mlp", "all"),
)
MOST_MODULES = 24
_SITE = re.compile(r"blocks\.(\d+)\.hook_(attn|mlp|resid)_(pre|post|out)")
_WAY = {
    "into-before": "after's piece in before",
    "into-after": "before's piece in after",
    "all-but": "all but this piece",
}


def table(found: ChangeMap) -> Table:
    """Every row of a map; `None` where there is no value."""
    title = "Patches" if found.kind == "patch" else "Grafts"
    about = f" and of the chance to {found.behaviour}" if found.behaviour else ""
    rows = tuple(
        (
            row.change.place,
            row.change.positions,
            _WAY[row.change.direction],
            row.change.relative_change,
            *_ends(row.kl_moved),
            *_ends(row.behaviour_moved),
            row.chance.estimate if row.chance else None,
            row.tasks,
        )
        for row in found.rows
    )
    return Table(title=f"{title}: share of the KL{about} that moves", columns=COLUMNS, rows=rows)


def figures(found: ChangeMap) -> tuple[Figure, ...]:
    """The pictures of a map: of the KL, and of the behaviour where it has a value."""
    measures: list[Measure] = ["kl"]
    if any(row.behaviour_moved.estimate is not None for row in found.rows):
        measures.append("behaviour")
    if found.kind == "graft":
        return tuple(_modules(found, measure) for measure in measures)
    ways: tuple[Direction, ...] = ("into-before", "into-after")
    return tuple(
        _depth(found, measure, way) for measure in measures for way in ways if _rows(found, way)
    )


def _depth(found: ChangeMap, measure: Measure, way: Direction) -> Figure:
    series = [
        _line(name, _rows(found, way), part, positions, measure) for name, part, positions in LINES
    ]
    return Figure(
        title=f"Share of the {_what(found, measure)} that moves, {_WAY[way]}",
        form="lines",
        x_label="layers passed",
        y_label="share moved",
        series=tuple(one for one in series if one.x),
    )


def _line(
    name: str, rows: Sequence[Row], part: str, positions: Positions, measure: Measure
) -> Series:
    points = sorted(
        (
            (depth, _share(row, measure))
            for row in rows
            if row.change.positions == positions
            and (depth := _depth_of(row.change.place, part)) is not None
        ),
        key=lambda point: point[0],
    )
    return _series(name, [float(depth) for depth, _ in points], [share for _, share in points])


def _depth_of(site: str, part: str) -> int | None:
    """How many layers a text has passed at a site, `None` for a site of another part."""
    match = _SITE.fullmatch(site)
    if not match or match[2] != part:
        return None
    return int(match[1]) + (match[3] != "pre")


def _modules(found: ChangeMap, measure: Measure) -> Figure:
    """The modules that move the most, in the network's order."""
    singles = _rows(found, "into-before")
    shown = sorted(singles, key=lambda row: -(_share(row, measure).estimate or 0.0))[:MOST_MODULES]
    places = [row.change.place for row in singles if row in shown]
    left = (
        f" (the {MOST_MODULES} of {len(singles)} modules that move most)"
        if len(singles) > MOST_MODULES
        else ""
    )
    ways: tuple[Direction, ...] = ("into-before", "all-but")
    series = tuple(
        _series(_WAY[way], places, [_share(found.row(place, way), measure) for place in places])
        for way in ways
    )
    return Figure(
        title=f"Share of the {_what(found, measure)} that moves with one module{left}",
        form="bars",
        x_label="module",
        y_label="share moved",
        series=series,
    )


def _series(name: str, x: Sequence[str | float], shares: Sequence[Share]) -> Series:
    return Series(
        name=name,
        x=tuple(x),
        y=tuple(share.estimate for share in shares),
        low=tuple(share.low for share in shares),
        high=tuple(share.high for share in shares),
    )


def _rows(found: ChangeMap, way: Direction) -> list[Row]:
    return [row for row in found.rows if row.change.direction == way]


def _share(row: Row, measure: Measure) -> Share:
    return row.behaviour_moved if measure == "behaviour" else row.kl_moved


def _what(found: ChangeMap, measure: Measure) -> str:
    return f"chance to {found.behaviour}" if measure == "behaviour" else "KL at the decisions"


def _ends(share: Share) -> tuple[float | None, float | None, float | None]:
    return share.estimate, share.low, share.high
