"""`python -m experiments.readers_of_the_difference --workers 2 --minutes 10`: goes on where it was,
adds what is done to `rule_2/cases.jsonl`, and writes the table and what follows by the rule there.

Without `--real FOLDER` (as `make real` makes it) the real pair is left out, and the table says so.
"""

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from experiments.readers_of_the_difference.reading_verdict import write_tables
from experiments.readers_of_the_difference.study_pieces import CHOOSING, SEEDS, judge, pieces
from experiments.resumable import Row, code_key, kept, run
from forensics.cli import progress_bars
from forensics.records import canonical_json, write_atomically

FOLDER = Path(__file__).parent / "rule_2"
ROWS = FOLDER / "cases.jsonl"


def main(
    workers: Annotated[int, typer.Option(help="Processes, one core each.")] = 1,
    minutes: Annotated[float, typer.Option(help="No piece is begun after these.")] = 10.0,
    cache: Annotated[Path, typer.Option()] = Path(".truth-cache/readers"),
    real: Annotated[Path | None, typer.Option(help="The folder of `make real`.")] = None,
    only: Annotated[str, typer.Option(help="Pieces whose name begins so.")] = "",
    choosing: Annotated[bool, typer.Option(help="The choosing seeds; no table.")] = False,
) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    asked = pieces(cache, real, CHOOSING if choosing else SEEDS)
    done = {} if choosing else kept(ROWS)
    left = {n: one for n, one in asked.items() if n.startswith(only) and n not in done}
    with progress_bars() as progress:
        key = code_key("experiments/readers_of_the_difference")
        place = cache / ("choosing" if choosing else f"pieces-{key[:12]}")
        rows = run(
            left, judge, place, code=key, minutes=minutes, processes=workers, progress=progress
        )
    if choosing:
        print(json.dumps(rows, indent=1))
        return
    print(write_tables(keep(rows), FOLDER))


def keep(rows: dict[str, Row]) -> dict[str, Row]:
    """These rows added to those that are there by now, in the order of their names; all of them."""
    known = kept(ROWS) | rows
    lines = (canonical_json([name, known[name]]) + "\n" for name in sorted(known))
    write_atomically(ROWS, "".join(lines))
    return known


if __name__ == "__main__":
    typer.run(main)
