"""Investigate the grid, write `table.json` and `table.md`."""

import argparse
import logging
from pathlib import Path

from experiments.dose_grid.cells import GAINS, cells
from experiments.dose_grid.ledger import KINDS
from experiments.dose_grid.pages import markdown
from experiments.dose_grid.running import processors, run
from experiments.dose_grid.tables import summary
from forensics.cli import progress_bars
from forensics.records.files import write_atomically, write_json

FOLDER = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=60, help="how many, from --first-seed")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--gains", type=float, nargs="+", choices=GAINS, default=GAINS)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--minutes", type=float, default=60, help="then no case is begun")
    parser.add_argument("--workers", type=int, default=processors())
    parser.add_argument("--cache", type=Path, default=Path(".truth-cache/dose-grid"))
    parser.add_argument("--out", type=Path, default=FOLDER)
    given = parser.parse_args()
    logging.getLogger("forensics").setLevel(logging.ERROR)
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    planned = list(cells(seeds, given.gains, given.kinds))
    with progress_bars() as progress:
        rows = run(planned, given.cache, given.minutes, given.workers, progress)
    result = summary(rows, planned)
    given.out.mkdir(parents=True, exist_ok=True)
    write_json(given.out / "table.json", result)
    write_atomically(given.out / "table.md", markdown(result))
    print(markdown(result))


if __name__ == "__main__":
    main()
