"""Run all parts and write `table.json` and `table.md`: `python -m
experiments.progress_advantage`.
"""

import argparse
import math
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from experiments.progress_advantage import organisms
from experiments.progress_advantage.dense import demonstrate
from experiments.progress_advantage.mdp import curve, draw_world
from experiments.progress_advantage.tables import decisions, markdown
from forensics.cli import progress_bars
from forensics.records.files import write_atomically, write_json

FOLDER: Final = Path(__file__).parent
MARKS: Final = (0, 1, 3, 10, 30, 100, 300, 600, 1000, 1500)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--cache", type=Path, default=Path(".truth-cache"), help="where organisms lie, or are built"
    )
    arguments = parser.parse_args()
    seeds = range(arguments.seeds)
    with progress_bars() as progress, TemporaryDirectory() as folder:
        result: dict[str, Any] = {
            "identity": [identity(certain, seed) for certain in (True, False) for seed in seeds]
        }
        parts = {name: [] for name in organisms.WORLDS}
        for number, (name, seed) in enumerate(
            (name, seed) for name in organisms.WORLDS for seed in seeds
        ):
            progress("organisms", number, len(seeds) * len(organisms.WORLDS))
            parts[name].append(one_pair(organisms.open_pair(name, seed, arguments.cache, progress)))
        result["organisms"] = {name: together(found) for name, found in parts.items()}
        result["step_rewards"] = demonstrate(Path(folder) / "run")
    result = plain(result)
    result["decisions"] = decisions(result)
    write_json(FOLDER / "table.json", result)
    write_atomically(FOLDER / "table.md", markdown(result))
    print((FOLDER / "table.md").read_text())


def identity(certain: bool, seed: int) -> dict[str, Any]:
    """One world's curve."""
    world = draw_world(np.random.default_rng(seed), certain=certain)
    return {
        "transitions": "certain" if certain else "random",
        "seed": seed,
        "curve": curve(world, MARKS),
    }


def one_pair(pair: organisms.Pair) -> dict[str, Any]:
    """Everything of one seed; `lost`: what the attribution of all seeds together is made from."""
    advantages, lost = {}, {}
    for setting in organisms.SETTINGS:
        found = organisms.values(pair, setting)
        advantages[setting] = organisms.against_advantages(pair, setting, found)
        lost[setting] = organisms.lost_runs(pair, setting, found)
    success = {
        side: float(np.mean([run.outcome for run in runs if run.outcome is not None]))
        for side, runs in pair.logs.items()
    }
    return {
        "seed": pair.seed,
        "success": success,
        "advantages": advantages,
        "lost": lost,
        "ranking": {side: organisms.ranking(pair, side) for side in pair.logs},
        "shortcut": {side: organisms.shortcut(pair, side) for side in pair.logs},
        "kl": organisms.spent(pair),
    }


def together(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The seeds of one organism, and the attribution over all of them."""
    lost = [part.pop("lost") for part in parts]
    found = {}
    for setting in organisms.SETTINGS:
        runs = [run for part in lost for run in part[setting][0]]
        truth = {name: step for part in lost for name, step in part[setting][1].items()}
        found[setting] = {"runs": len(runs), "scores": organisms.attributions(runs, truth)}
    return {"seeds": parts, "attribution": found}


def plain(value: Any) -> Any:
    """As JSON has it: no number that is not one, and six digits of those that are."""
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


if __name__ == "__main__":
    main()
