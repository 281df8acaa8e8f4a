"""The readers of the difference on the page of a diff (`readers.json`)."""

from collections.abc import Mapping, Sequence
from typing import Any

from forensics.records import Section, Table, estimate_cell
from forensics.report import plain


def readers_section(readers: Sequence[Mapping[str, Any]], command: str | None) -> Section:
    """What each reader's account moves, taken out of the after model; the leading one first.
    `command`: what tests that one in play.
    """
    cause = readers[0]["cause"]
    return Section(
        title="What parts the models, taken out",
        hint="Each reader's account of the difference is taken out of the after model while it"
        f" reads texts of other tasks. Moved: the {cause['measure']},"
        f" {plain(cause['unchanged'], 3)}"
        " without. Beyond rotations: more than 20 rotations of equal size move it; of a single"
        " decision at a dose of a quarter (any large change moves one) and as a whole, of whole"
        " answers as a whole. Cost: nats a token on texts without the behaviour, where no action"
        " is decided. The first leads; --reader names another.",
        blocks=(readers_table(readers), *([f"To test it in play: {command}"] if command else ())),
    )


def readers_table(readers: Sequence[Mapping[str, Any]]) -> Table:
    """A row for each reader, from the leading one on."""

    def back(one: Mapping[str, Any]) -> str:
        return "not measured" if one["back"] is None else f"{one['back']} of {one['directions']}"

    doses = ("cause",) if readers[0]["cause"] == readers[0]["whole"] else ("cause", "whole")
    return Table(
        title="",
        columns=(
            "reader",
            "moved",
            "beyond rotations",
            "explained",
            "as large",
            "comes back",
            "cost",
        ),
        rows=tuple(
            (
                one["name"],
                estimate_cell(one["cause"]["effect"]),
                ", ".join("yes" if one[of]["holds"] else "not shown" for of in doses),
                one["explained"],
                one["size"],
                back(one),
                estimate_cell(one["cost"]) if one["cost"] else "not measured",
            )
            for one in readers
        ),
        units={"explained": "share", "as large": "share"},
    )
