"""`python -m experiments.consensus_of_seeds --minutes 10`: goes on where it was (what stands
in `table.json` is done), and writes `table.json` and `table.md` here. `--choosing`: the choosing
seeds, no table.
"""

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from experiments.consensus_of_seeds.planted_verdict import write_table
from experiments.consensus_of_seeds.union_refit import Piece, judge
from experiments.resumable import code_key, run
from forensics.cli import progress_bars
from forensics.records import read_json

WORLDS = ("half the norm", "a tenth of the frequency", "drift of .3", "as it is")
HERE = Path(__file__).parent
SEEDS, CHOOSING = (41, 42, 43), (100, 101)


def main(
    workers: Annotated[int, typer.Option(help="Processes, one core each.")] = 1,
    minutes: Annotated[float, typer.Option(help="No piece is begun after these.")] = 10.0,
    cache: Annotated[Path, typer.Option()] = Path(".truth-cache/consensus"),
    only: Annotated[str, typer.Option(help="Pieces whose name begins so.")] = "",
    choosing: Annotated[bool, typer.Option(help="The choosing seeds; no table.")] = False,
) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    seeds = CHOOSING if choosing else SEEDS
    pieces = [Piece(world=world, seed=seed) for seed in seeds for world in WORLDS[:3]]
    pieces += [Piece(world=WORLDS[3], seed=seed) for seed in seeds]
    table = HERE / "table.json"
    done = read_json(table) if table.exists() and not choosing else {}
    todo = {one.name: one for one in pieces if one.name.startswith(only) and one.name not in done}
    key = code_key("experiments/consensus_of_seeds", "experiments/readers_of_the_difference")
    place = cache / ("choosing" if choosing else f"pieces-{key[:12]}")
    with progress_bars() as progress:
        rows = run(
            todo, judge, place, code=key, minutes=minutes, processes=workers, progress=progress
        )
    print(json.dumps(rows, indent=1) if choosing else write_table({**done, **rows}, HERE))


if __name__ == "__main__":
    typer.run(main)
