"""From the pieces to the table, and what follows by `rule.md`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from forensics.records import write_atomically, write_json

JUDGED = ("and did not turn", "union, trained on")
BARS = {  # least found of the planted features, largest share of what is called that is false
    "half the norm": (30 / 32, 0.05),
    "a tenth of the frequency": (24 / 32, 0.10),
    "drift of .3": (0.0, 0.10),
}
Row = Mapping[str, Any]


def write_table(rows: Mapping[str, Row], folder: Path) -> str:
    """Write `table.json` and `table.md`; returns the latter."""
    worlds = dict.fromkeys(name.split("/")[0] for name in rows)
    lines = ["| world | way | seeds | found | false |", "|---|---|---|---|---|"]
    for world in worlds:
        some = [row for name, row in rows.items() if name.split("/")[0] == world]
        for way in (key for key in some[0] if key != "processor_seconds"):
            total = summed([row[way] for row in some])
            lines.append(
                f"| {world} | {way} | {len(some)} | {total['found']} of {total['of']} |"
                f" {total['false']} of {total['called']} |"
            )
    text = "\n".join([*(verdict(rows, way) for way in JUDGED), "", *lines, ""])
    write_json(folder / "table.json", dict(rows))
    write_atomically(folder / "table.md", text)
    return text


def summed(parts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Counts of several seeds together."""
    return {key: sum(part[key] for part in parts) for key in ("found", "of", "called", "false")}


def verdict(rows: Mapping[str, Row], way: str) -> str:
    """Bar by bar, and whether all hold; a line."""
    said, holds = [], []
    for world, (least, most) in BARS.items():
        some = [row[way] for name, row in rows.items() if name.startswith(f"{world}/")]
        if len(some) < 3:
            return f"- *{way}*: open, pieces are missing."
        total = summed(some)
        false = total["false"] / total["called"] if total["called"] else 0.0
        ok = total["found"] >= least * total["of"] and false <= most
        holds.append(ok)
        said.append(
            f"{world} {total['found']} of {total['of']} found, {total['false']} of"
            f" {total['called']} false: {'held' if ok else 'missed'}"
        )
    return f"- *{way}* {'holds' if all(holds) else 'does not hold'}: {'; '.join(said)}."
