"""What was tested of latents on stored texts (`causes.json`), as a table of the page."""

from collections.abc import Mapping
from typing import Any

from forensics.records import Scalar, Table, estimate_cell


def causes_table(found: Mapping[str, Any]) -> Table:
    """A row a latent: what taking it out moves, of how much, and whether a quarter of it moves
    more than every random direction; where that test left it open, `not shown`.
    """
    columns = ("latent", "moves", "of", "at a quarter", "random, at most", "p", "more than random")
    return Table(
        title=f"Taken out of the after model while it reads stored texts: the {found['measure']}",
        columns=columns,
        rows=tuple(_row(latent, one) for latent, one in found["latents"].items()),
    )


def _row(latent: str, one: Mapping[str, Any]) -> tuple[Scalar | Any, ...]:
    return (
        latent,
        estimate_cell(one["effect"]),
        one["unchanged"],
        one["dose"],
        max(map(abs, one["random"]), default=None),
        one["p_value"],
        "yes" if one["holds"] else "not shown",
    )
