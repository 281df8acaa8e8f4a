"""Two pictures of a diff as inline SVG: the network with where the change
lives, and the map of its latents.

Colours come from the page's classes, so that both themes serve; every mark says
its number to a pointer, and is told apart by shape, not by colour alone. Text
from outside is escaped by `Markup.format`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from markupsafe import Markup

from crosscoders.study.page_data import LatentView
from forensics.report.escape import short
from forensics.report.numbers import percent, plain

CELL: Final = (54, 34)  # pixels of a cell of the network
NAMES: Final = 250  # pixels for the names of the network's rows
SIDE: Final = 440  # of the map
EDGE: Final = 46
MOST_MARKS: Final = 3000
NU_RANGE: Final = (-0.5, 1.5)
MARKS: Final = {  # partition -> class, shape around (0, 0)
    "shared": ("f-series-1", '<circle r="3.4"/>'),
    "after-only": ("f-series-0", '<path d="M0 -5 5 4 -5 4z"/>'),
    "before-only": ("f-series-2", '<path d="M-4 -4h8v8h-8z"/>'),
}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A place of the network: its row and column in the picture, and the share
    of the change that moves with it.
    """

    row: str
    column: str
    place: str
    share: float | None
    low: float | None
    high: float | None


def network_cells(patching: Mapping[str, Any]) -> list[Cell]:
    """The cells of `patching.json` that the picture shows: patches into before
    by position, grafts into before.
    """
    measure = "behaviour_moved" if patching.get("behaviour") else "kl_moved"
    cells = []
    for row in (*patching.get("patch", ()), *patching.get("graft", ())):
        placed = _placed(row)
        if placed is not None and row["direction"] == "into-before":
            cells.append(
                Cell(
                    row=placed[0],
                    column=placed[1],
                    place=row["place"],
                    share=row[measure],
                    low=row[f"{measure}_low"],
                    high=row[f"{measure}_high"],
                )
            )
    return cells


def _placed(row: Mapping[str, Any]) -> tuple[str, str] | None:
    """Row and column of a change in the picture, `None` for what it does not show."""
    place, where = str(row["place"]), row.get("positions")
    if where is not None:
        name = {"deciding": "residual, at the decision", "all": "residual, everywhere"}.get(where)
        column = "embed" if place == "hook_embed" else str(row.get("layer"))
        return (
            (name, column)
            if name and (place == "hook_embed" or place.endswith("hook_resid_post"))
            else None
        )
    if "+" in place:
        return ("weights, embedding and output", "embed") if place == "embed+unembed" else None
    if place in ("embed", "unembed"):
        return f"weights, {place}ding", "embed" if place == "embed" else "output"
    part = {"attn": "weights, attention", "mlp": "weights, MLP"}.get(place.rsplit(".", 1)[-1])
    return None if part is None or row.get("layer") is None else (part, str(row["layer"]))


def network_picture(patching: Mapping[str, Any], chosen: str | None) -> Markup:
    """Share of the change that moves with each place, as a grid of layers.
    `chosen`: the site of the dictionary.
    """
    cells = network_cells(patching)
    rows = list(dict.fromkeys(cell.row for cell in cells))
    layers = sorted({int(cell.column) for cell in cells if cell.column.isdigit()})
    columns = [
        "embed",
        *map(str, layers),
        *(["output"] if any(c.column == "output" for c in cells) else []),
    ]
    size = NAMES + CELL[0] * len(columns), 28 + CELL[1] * len(rows)
    drawn = [_heading(column, place) for place, column in enumerate(columns)]
    drawn += [_row_name(name, place) for place, name in enumerate(rows)]
    drawn += [
        _cell(cell, rows.index(cell.row), columns.index(cell.column), chosen) for cell in cells
    ]
    return _svg(size, "network", "Where the change lives", drawn)


def _heading(name: str, place: int) -> Markup:
    told = f"layer {name}" if name == "0" else name
    x = NAMES + CELL[0] * place + CELL[0] / 2
    return Markup(
        '<text class="f-muted" font-size="12" x="{}" y="16" text-anchor="middle">{}</text>'
    ).format(x, told)


def _row_name(name: str, place: int) -> Markup:
    y = 28 + CELL[1] * place + CELL[1] / 2 + 4
    return Markup(
        '<text class="f-ink" font-size="13" x="{}" y="{}" text-anchor="end">{}</text>'
    ).format(NAMES - 12, y, name)


def _cell(cell: Cell, row: int, column: int, chosen: str | None) -> Markup:
    x, y = NAMES + CELL[0] * column, 28 + CELL[1] * row
    told = "could not be told" if cell.share is None else percent(cell.share)
    if cell.low is not None and cell.high is not None:
        told += f" ({plain(100 * cell.low, 1)} to {plain(100 * cell.high, 1)})"
    strength = 0.0 if cell.share is None else min(max(cell.share, 0.0), 1.0)
    number = "?" if cell.share is None else plain(100 * cell.share, 0)
    frame = Markup(
        '<rect class="s-ink" fill="none" stroke-width="2" x="{}" y="{}" width="{}" height="{}"'
        ' rx="5"/>'
    )
    return Markup(
        '<g><title>{place}: {told}</title><rect class="f-soft" x="{x}" y="{y}" width="{w}"'
        ' height="{h}" rx="5"/><rect class="f-phantom" fill-opacity="{strength}" x="{x}" y="{y}"'
        ' width="{w}" height="{h}" rx="5"/><text class="f-ink" font-size="12.5" x="{tx}" y="{ty}"'
        ' text-anchor="middle">{number}</text>{frame}</g>'
    ).format(
        place=short(cell.place),
        told=told,
        x=x + 2,
        y=y + 2,
        w=CELL[0] - 4,
        h=CELL[1] - 4,
        strength=f"{0.75 * strength:.3f}",
        tx=x + CELL[0] / 2,
        ty=y + CELL[1] / 2 + 4,
        number=number,
        frame=frame.format(x + 2, y + 2, CELL[0] - 4, CELL[1] - 4) if cell.place == chosen else "",
    )


def latent_map(latents: Sequence[LatentView]) -> Markup:
    """Each latent by relative decoder norm (across) and nu of the after
    direction (up); filled where it is specific.

    Beyond `MOST_MARKS` every one that is specific, or of one model, stays and
    the others are thinned evenly.
    """
    known = [one for one in latents if one.relative_norm is not None and one.nu_after is not None]
    rare = [one for one in known if one.is_specific or one.partition != "shared"][:MOST_MARKS]
    chosen = {one.latent for one in rare}
    others = [one for one in known if one.latent not in chosen]
    step = max(1, -(-len(others) // max(1, MOST_MARKS - len(rare))))
    drawn = [*_axes(), *(_mark(one) for one in (*others[::step], *rare))]
    return _svg(
        (SIDE + EDGE + 12, SIDE + EDGE + 12), "latents", "The latents of the dictionary", drawn
    )


def _axes() -> Iterator[Markup]:
    line = Markup('<path class="s-line" fill="none" d="M{} {}L{} {}"/>')
    text = Markup('<text class="f-muted" font-size="12" x="{}" y="{}" text-anchor="{}">{}</text>')
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = _across(share)
        yield line.format(x, _up(NU_RANGE[0]), x, _up(NU_RANGE[1]))
        yield text.format(x, SIDE + 26, "middle", plain(share))
    for nu in (-0.5, 0.0, 0.5, 1.0, 1.5):
        yield line.format(_across(0), _up(nu), _across(1), _up(nu))
        yield text.format(EDGE - 8, _up(nu) + 4, "end", plain(nu, 1))
    yield text.format(
        _across(0.5), SIDE + 46, "middle", "relative decoder norm (0 before, 1 after)"
    )
    yield text.format(_across(0), 10, "start", "nu: how much of it the before model has too")


def _mark(latent: LatentView) -> Markup:
    kind, shape = MARKS.get(latent.partition, MARKS["shared"])
    nu = min(max(latent.nu_after or 0.0, NU_RANGE[0]), NU_RANGE[1])
    told = (
        f"latent {latent.latent}, {latent.partition}: relative norm"
        f" {plain(latent.relative_norm or 0.0)}, nu"
        f" {plain(latent.nu_after or 0.0)}{', specific' if latent.is_specific else ''}"
    )
    group = (
        '<g transform="translate({:.1f} {:.1f})" class="{}"'
        ' fill-opacity="{}"><title>{}</title>{}</g>'
    )
    return Markup(group).format(
        _across(latent.relative_norm or 0.0),
        _up(nu),
        kind,
        "1" if latent.is_specific else "0.35",
        told,
        Markup(shape),
    )


def _across(share: float) -> float:
    return EDGE + SIDE * min(max(share, 0.0), 1.0)


def _up(nu: float) -> float:
    return 12 + (SIDE - 12) * (NU_RANGE[1] - nu) / (NU_RANGE[1] - NU_RANGE[0])


def _svg(size: tuple[float, float], name: str, title: str, parts: Sequence[Markup]) -> Markup:
    opening = Markup(
        '<svg class="figure {0}" viewBox="0 0 {1} {2}" width="{1}" role="img"'
        ' aria-labelledby="{0}-title"><title id="{0}-title">{3}</title>'
    )
    return opening.format(name, size[0], size[1], title) + Markup("").join(parts) + Markup("</svg>")
