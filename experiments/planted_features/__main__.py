"""Train every method in every world and write `table.json` and `table.md`:
`python -m experiments.planted_features`.
"""

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from crosscoders import SpecificConfig
from experiments.planted_features.methods import MethodsConfig, called_after, train_all
from experiments.planted_features.scoring import judge
from experiments.planted_features.tables import markdown, summary
from experiments.planted_features.world import World, WorldConfig
from forensics.cli import progress_bars
from forensics.records import content_hash
from forensics.records.files import read_json, write_atomically, write_json

FOLDER = Path(__file__).parent
TRAINING_ROWS = 400_000
MAIN, SWAPPED, SEEN = "as it is", "swapped", "as it is, seeds 1 to 10"
# seed of the world as it is; those before it were looked at with earlier forms of the
# method
FIRST = 11
CHANGED = (1, 16)  # of the rarer, weaker and drifting worlds; 16 was never looked at, in any world
WORLDS = {
    MAIN: WorldConfig(),
    SWAPPED: WorldConfig(pair="swapped"),
    "identical pair": WorldConfig(pair="identical"),
    "same model, noise apart": WorldConfig(pair="same-model"),
    "1/2 as strong": WorldConfig(weakness=1 / 2),
    "1/4 as strong": WorldConfig(weakness=1 / 4),
    "1/3 as frequent": WorldConfig(rarity=1 / 3),
    "1/10 as frequent": WorldConfig(rarity=1 / 10),
    "drift of 0.3": WorldConfig(drift=0.3),
    SEEN: WorldConfig(),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="of the world as it is and swapped")
    parser.add_argument(
        "--world", action="append", choices=[*WORLDS], help="only this one (again and again)"
    )
    parser.add_argument("--cache", type=Path, default=Path(".truth-cache/planted-features"))
    arguments = parser.parse_args()
    config = MethodsConfig()
    plan = [(name, seed) for name in WORLDS for seed in _seeds(name, arguments.seeds)]
    wanted = [
        one for one in sorted(plan, key=lambda one: one[1]) if one[0] in (arguments.world or WORLDS)
    ]  # by seed
    with progress_bars() as progress:
        for number, (name, seed) in enumerate(wanted):
            progress("worlds", number, len(wanted))
            _cached(name, seed, config, arguments.cache)
        progress("worlds", len(wanted), len(wanted))
    rows = [
        read_json(path) for one in plan if (path := _place(*one, config, arguments.cache)).exists()
    ]
    result = {
        "config": asdict(config),
        "rows": rows,
        "summary": summary(rows),
        "planned": len(plan),
    }
    write_json(FOLDER / "table.json", result)
    write_atomically(FOLDER / "table.md", markdown(result))
    print((FOLDER / "table.md").read_text())


def _seeds(name: str, number: int) -> Sequence[int]:
    """Which seeds of a world are run; `number` of the world as it is and of the swapped one."""
    if name in (MAIN, SWAPPED):
        return range(FIRST, FIRST + number)
    if name == SEEN:
        return range(1, 11)
    return CHANGED if WORLDS[name].pair == "as-is" else (1,)


def run_world(
    name: str, world: World, config: MethodsConfig, only: tuple[str, ...] = ()
) -> dict[str, Any]:
    """One world: every method's score (or `only` some dictionaries'), and how
    well the dictionaries were trained.
    """
    trained = train_all(world.stream(TRAINING_ROWS), config, world.seed, only)
    one_model = world.config.before_only + world.config.after_only
    called = called_after(trained, world.stream(config.judging, part=1), one_model)
    truth = world.truth("after-only", 1)
    return {
        "world": name,
        "seed": world.seed,
        "scores": {method: asdict(judge(d, truth)) for method, d in called.items()},
        "dictionaries": dict(trained.last),
    }


def _cached(name: str, seed: int, config: MethodsConfig, cache: Path) -> None:
    path = _place(name, seed, config, cache)
    if not path.exists():
        write_json(path, run_world(name, World(WORLDS[name], seed), config))


def _place(name: str, seed: int, config: MethodsConfig, cache: Path) -> Path:
    key = content_hash(
        [asdict(WORLDS[name]), asdict(config), asdict(SpecificConfig()), seed, TRAINING_ROWS]
    )[:16]
    return (
        cache / f"{name.replace(' ', '-').replace('/', '-of-').replace(',', '')}-{seed}-{key}.json"
    )


if __name__ == "__main__":
    main()
