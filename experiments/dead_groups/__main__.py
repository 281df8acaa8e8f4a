"""Train the arms over seeds, replay their groups offline, write `table.json` and `table.md`."""

import argparse
from pathlib import Path

from experiments.dead_groups.runs import ARMS, DEVIATION, run, weights
from experiments.dead_groups.tables import markdown, offline, policies
from forensics.cli import progress_bars
from forensics.records.files import write_atomically, write_json

FOLDER = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--cache", type=Path, default=Path(".dead-groups-cache"))
    parser.add_argument("--out", type=Path, default=FOLDER, help="where the tables go")
    arguments = parser.parse_args()
    with progress_bars() as progress:
        run(ARMS[0], 0, 0.0, arguments.cache, progress)
        scale = weights(arguments.cache)
        results = {}
        for seed in range(arguments.seeds):
            for arm in ARMS:
                results[arm.name, seed] = run(
                    arm, seed, scale.get(arm.term, 0.0), arguments.cache, progress
                )
    table = {
        "seeds": arguments.seeds,
        "deviation": DEVIATION,
        "weights": scale,
        "offline": list(offline(arguments.cache, arguments.seeds, scale)),
        "policies": list(policies(results, arguments.seeds)),
    }
    write_json(arguments.out / "table.json", table)
    write_atomically(arguments.out / "table.md", markdown(table))
    print(markdown(table))


if __name__ == "__main__":
    main()
