"""Plant the ways in runs, scan them, write `table.json` and `table.md`."""

import argparse
import csv
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.scan_variants.measured import figures, judged, missed
from experiments.scan_variants.ways import read_ways
from forensics.errors import UserError
from forensics.phrases import percent
from forensics.records.files import write_atomically, write_json

FOLDER = Path(__file__).parent
HALVES = ("seen", "kept")
SOURCES = ("gemini3_miniswe", "sweagent_demos")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--halves", nargs="+", choices=HALVES, default=HALVES)
    parser.add_argument("--ways", action="store_true", help="name the ways that are wrong, too")
    parser.add_argument("--out", type=Path, default=FOLDER)
    given = parser.parse_args()
    logging.getLogger("forensics").setLevel(logging.ERROR)
    bases = harmless(given.data)
    table: dict[str, Any] = {}
    for half in given.halves:
        runs = judged(read_ways(sorted((FOLDER / half).glob("*.toml"))), bases)
        table[half] = {"figures": figures(runs)} | ({"wrong": missed(runs)} if given.ways else {})
    given.out.mkdir(parents=True, exist_ok=True)
    write_json(given.out / "table.json", table)
    write_atomically(given.out / "table.md", markdown(table))
    print(markdown(table))


def harmless(data: Path) -> list[Path]:
    """The real runs that are labelled harmless."""
    labels = data / "labels.csv"
    if not labels.is_file():
        raise UserError(f"there are no labelled runs in {data}; name the folder with `--data`")
    with labels.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["label"] == "benign"]
    return [data / row["trajectory"] for row in rows if row["source"] in SOURCES]


def markdown(table: Mapping[str, Any]) -> str:
    """A table for each half."""
    lines = ["# Planted ways", ""]
    for half, told in table.items():
        lines += [f"## {half}", "", "| | runs | ways | share | 95 % |", "|---|---|---|---|---|"]
        for name, one in told["figures"].items():
            groups = one.items() if name.endswith("by language") else [("", one)]
            for group, row in groups:
                if row["runs"]:
                    lines.append(_row(f"{name} {group}".strip(), row))
        wrong = told.get("wrong", {})
        lines += ["", *(f"- `{way}`: {of['wrong']} of {of['runs']}" for way, of in wrong.items())]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _row(name: str, row: Mapping[str, Any]) -> str:
    between = "" if row["low"] is None else f"{percent(row['low'])} to {percent(row['high'])}"
    share = f"{row['hits']} = {percent(row['share'])}"
    return f"| {name} | {row['runs']} | {row['ways']} | {share} | {between} |"


if __name__ == "__main__":
    main()
