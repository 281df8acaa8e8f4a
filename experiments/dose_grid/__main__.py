"""Investigate the grid, write `table.json` and `table.md`."""

import argparse
import logging
from pathlib import Path

from experiments.dose_grid.cells import GAINS, SEEDS, cells
from experiments.dose_grid.clerk import trained
from experiments.dose_grid.judged import judged
from experiments.dose_grid.ledger import KINDS
from experiments.dose_grid.pages import markdown
from experiments.dose_grid.tables import summary
from experiments.resumable import code_key, run
from forensics.cli import progress_bars
from forensics.records import canonical_json
from forensics.records.files import write_atomically, write_json

FOLDER = Path(__file__).parent
MAKES_ROWS = ("cells", "clerk", "judged", "ledger")  # of this study; the pages may change


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many, from --first-seed")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--gains", type=float, nargs="+", choices=GAINS, default=GAINS)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--minutes", type=float, default=200, help="then no case is begun")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--cache", type=Path, default=Path(".truth-cache/dose-grid"))
    parser.add_argument("--out", type=Path, default=FOLDER)
    given = parser.parse_args()
    logging.getLogger("forensics").setLevel(logging.ERROR)
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    planned = list(cells(seeds, given.gains, given.kinds))
    trained()  # once, before the processes part
    code = code_key(*(f"experiments/dose_grid/{name}.py" for name in MAKES_ROWS))
    with progress_bars() as progress:
        rows = run(
            {canonical_json(cell.key): cell for cell in planned},
            judged,
            given.cache,
            code=code,
            minutes=given.minutes,
            processes=given.processes,
            progress=progress,
        )
    result = summary(list(rows.values()), planned) | {"code": code}
    given.out.mkdir(parents=True, exist_ok=True)
    write_json(given.out / "table.json", result)
    write_atomically(given.out / "table.md", markdown(result))
    print(markdown(result))


if __name__ == "__main__":
    main()
