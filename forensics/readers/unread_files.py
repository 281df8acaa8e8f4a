"""What could not be read, in a sentence, and which shapes were tried."""

from collections.abc import Mapping, Sequence
from itertools import islice

from forensics.phrases import printable
from forensics.readers.content import WHOLE
from forensics.readers.log_reader import UNKNOWN, installed_readers
from forensics.readers.unknown_files import ROWS, TEXT
from forensics.readers.values import TABLES

_CHAT = TABLES["chat"]
LISTED, LONGEST = 4, 240  # of what could not be read, as a sentence names it
SOME = 3  # names of a field


def unread_listed(rows: Sequence[Mapping[str, str]], more: int = 0) -> str:
    """`metrics.jsonl (no reader knows its format: 50 rows with the fields step, loss); ...`, of
    rows of `unreadable.jsonl`; rows of one file that are unread for one reason together. `more`:
    how many there are beside these.
    """
    groups: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        groups.setdefault((row["file"], row["reason"]), []).append(row["where"])
    told = [
        printable(_place(places), LONGEST) + f" ({printable(reason, LONGEST)})"
        for (_, reason), places in islice(groups.items(), LISTED)
    ]
    left = more + sum(len(places) for places in islice(groups.values(), LISTED, None))
    return "; ".join([*told, f"{left:,} more"] if left else told)


def _place(places: Sequence[str]) -> str:
    first = places[0].removesuffix(f", {WHOLE}")
    return first if len(places) == 1 else f"{first} and {len(places) - 1:,} more like it"


def shapes_tried(rows: Sequence[Mapping[str, str]]) -> str:
    """What a run would have had to look like, where no reader knew a file of rows; else `""`."""
    if not any(f"{UNKNOWN}: " in row["reason"] or ROWS in row["where"] for row in rows):
        return ""
    talk, asked, answered, scored = (
        ", ".join([f"`{name}`" for name in names if "_" not in name][:SOME])
        for names in map(_CHAT.__getitem__, ("messages", "questions", "text_answers", "outcome"))
    )
    return (
        f"Tried were the formats of {len(installed_readers())} readers; a row of any other origin"
        f" needs a conversation ({talk}) or a question ({asked}) with its answer ({answered}), and"
        f" may have a score ({scored}); field names of your own take a table of some lines"
        " (docs/logs.md)."
    )


def texts_tried(rows: Sequence[Mapping[str, str]]) -> str:
    """What to give in place of a text, where one was not known; else `""`."""
    if not any(TEXT in row["reason"] or TEXT in row["where"] for row in rows):
        return ""
    return "A text is not read: give the log that the agent or its harness wrote (JSON, Parquet)."
