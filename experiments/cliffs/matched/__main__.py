"""Run all seeds and write `table.json` and `table.md`: `python -m experiments.cliffs.matched`."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.cliffs.matched.arms import ARMS, pairs_of
from experiments.cliffs.matched.learning import learnt, untrained
from experiments.cliffs.matched.tables import markdown, result_of
from forensics.cli import progress_bars
from forensics.progress import Progress
from forensics.records.files import read_json, write_atomically, write_json

FOLDER = Path(__file__).parent
SEEDS = (11, 12, 13, 14, 15)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=SEEDS, help="others than the rule's write no table"
    )
    parser.add_argument("--cache", type=Path, default=Path(".truth-cache/cliffs-matched"))
    arguments = parser.parse_args()
    seeds = tuple(arguments.seeds)
    with progress_bars() as progress:
        parts = _parts(seeds, arguments.cache, progress)
    result = result_of([parts[seed] for seed in seeds])
    if seeds == SEEDS:
        write_json(FOLDER / "table.json", result)
        write_atomically(FOLDER / "table.md", markdown(result))
    print(markdown(result))


def _parts(seeds: Sequence[int], cache: Path, progress: Progress) -> dict[int, Any]:
    """Everything by seed, arm after arm: what decides first is run first. What
    the cache holds is not done again.
    """
    folders = {seed: cache / f"seed-{seed}" for seed in seeds}
    parts = {
        seed: {"start": untrained(seed, folders[seed] / "start"), "arms": {}} for seed in seeds
    }
    work = [(arm, seed) for arm in ARMS for seed in seeds]
    for number, (arm, seed) in enumerate(work):
        progress(f"arms, {arm} of seed {seed}", number, len(work))
        path = folders[seed] / arm / "arm.json"
        parts[seed]["arms"][arm] = (
            read_json(path)
            if path.exists()
            else learnt(
                arm, *pairs_of(arm, seed, folders[seed], progress), seed, folders[seed] / arm
            )
        )
    progress("arms", len(work), len(work))
    return parts


if __name__ == "__main__":
    main()
