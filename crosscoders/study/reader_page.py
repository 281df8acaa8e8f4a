"""The readers of the difference on the page of a diff (`readers.json`), and what stands before
the commands that test in play what a diff found.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from crosscoders.study.cause_words import lacks
from forensics.records import Section, Table, estimate_cell
from forensics.report import plain

BEYOND: Final = {
    "": "yes",
    "random": "not shown: one does as much",
    "spread": "not by more than tasks vary",
    "size": "yes, but hardly at all",
}


def in_play(
    summary: Mapping[str, Any], readers: Sequence[Mapping[str, Any]]
) -> dict[str, tuple[str, str]]:
    """The commands of a diff that there are, each behind what it is for: where nothing was shown
    on stored texts, that.
    """
    held = any(readers[0][of]["holds"] for of in ("cause", "whole")) if readers else False
    asked = {
        "reader_command": "To test the leading reader in play:"
        if held
        else "The leading reader was not shown to move more than rotations on stored texts; to"
        " look in play all the same:",
        "command": "To test latents in play:"
        if summary.get("reported") or summary.get("together")
        else "No latent is reported; to look in play all the same:",
    }
    return {name: (why, summary[name]) for name, why in asked.items() if summary.get(name)}


def readers_section(
    readers: Sequence[Mapping[str, Any]], command: tuple[str, str] | None
) -> Section:
    """What each reader's account moves, taken out of the after model; the leading one first.
    `command`: what tests that one in play, behind what it is for.
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
        blocks=(readers_table(readers), *([" ".join(command)] if command else ())),
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
                ", ".join(BEYOND[lacks(one[of])] for of in doses),
                one["explained"],
                one["size"],
                back(one),
                estimate_cell(one["cost"]) if one["cost"] else "not measured",
            )
            for one in readers
        ),
        units={"explained": "share", "as large": "share"},
    )
