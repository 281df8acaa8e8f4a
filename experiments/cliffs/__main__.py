"""Run the three parts and write `table.json` and `table.md`: `python -m experiments.cliffs`."""

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from experiments.cliffs.cliff_dpo import (
    ARMS,
    all_pairs,
    chosen_rate,
    scores,
    train_arm,
    weighted_tokens,
)
from experiments.cliffs.collecting import collect, start
from experiments.cliffs.organisms import judged_rules
from experiments.cliffs.solvable import solvable
from experiments.cliffs.tables import difference, markdown, restored, solvable_summary
from forensics.cli import progress_bars
from forensics.records.files import read_json, write_atomically, write_json

FOLDER = Path(__file__).parent
SOLVABLE_SEEDS = (201, 202, 203, 204, 205)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--cache", type=Path, default=Path(".truth-cache/cliffs"))
    arguments = parser.parse_args()
    with progress_bars() as progress:
        parts = [
            _seed(seed, arguments.cache / f"seed-{seed}", progress)
            for seed in range(arguments.seeds)
        ]
        rows = solvable(SOLVABLE_SEEDS, arguments.cache / "solvable", progress)
    result = {
        "solvable": {
            name: {
                **solvable_summary(of),
                "rollouts": _mean(of, "rollouts"),
                "tokens": _mean(of, "tokens"),
            }
            for name, of in rows.items()
        },
        "rules": _rules(parts),
        **_dpo(parts),
    }
    write_json(FOLDER / "table.json", result)
    write_atomically(FOLDER / "table.md", markdown(result))
    print((FOLDER / "table.md").read_text())


def _seed(seed: int, folder: Path, progress: Any) -> dict[str, Any]:
    """Everything of one seed; kept in its folder once it is whole."""
    path = folder / "seed.json"
    if not path.exists():
        found = collect(seed, folder, progress)
        pairs = all_pairs(found, seed)
        arms = {}
        for number, name in enumerate(ARMS):
            progress(f"seed {seed}, DPO", number, len(ARMS))
            if not pairs[name]:
                continue  # no such cliffs
            read = partial(_trained, pairs[name], seed, folder / name)
            rate = chosen_rate(read)
            arms[name] = {
                "rate": rate,
                "scores": read(rate)["reporting"],
                "pairs": len(pairs[name]),
                "tokens": weighted_tokens(pairs[name]),
            }
        progress(f"seed {seed}, DPO", len(ARMS), len(ARMS))
        write_json(
            path,
            {
                "rules": judged_rules(found, seed, folder),
                "arms": arms,
                "start": scores(start(), seed, True),
            },
        )
    part: dict[str, Any] = read_json(path)
    return part


def _trained(pairs: Any, seed: int, folder: Path, rate: float) -> dict[str, Any]:
    return train_arm(pairs, seed, rate, folder)


def _mean(rows: Any, key: str) -> float:
    return float(sum(row[key] for row in rows) / len(rows))


def _rules(parts: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in ("ours", "published"):
        rows = [part["rules"][name] for part in parts]
        told = [
            {**row, "task": f"{seed} {row['task']}"}
            for seed, one in enumerate(rows)
            for row in one["restored"]
        ]
        found[name] = {
            key: sum(row[key] for row in rows) for key in ("runs", "reported", "rollouts", "tokens")
        }
        found[name] |= {what: restored(told, what) for what in ("cliff", "control")}
    found["published"]["impossible"] = sum(
        part["rules"]["published"]["impossible"] for part in parts
    )
    kinds = [part["rules"]["ours"]["kinds"] for part in parts]
    found["ours"]["kinds"] = {
        kind: sum(row.get(kind, 0) for row in kinds) for row in kinds for kind in row
    }
    return found


def _dpo(parts: list[dict[str, Any]]) -> dict[str, Any]:
    begun = [part["start"] for part in parts]
    trained = [name for name in ARMS if all(name in part["arms"] for part in parts)]
    after = {name: [part["arms"][name]["scores"] for part in parts] for name in trained}
    arms = {
        name: {
            "gain": difference(after[name], begun),
            **{
                key: [part["arms"][name][source] for part in parts]
                for key, source in (("pairs", "pairs"), ("tokens", "tokens"), ("rates", "rate"))
            },
        }
        for name in trained
    }
    better = {name: difference(after["cliff"], after[name]) for name in trained if name != "cliff"}
    return {"dpo": arms, "better": better}


if __name__ == "__main__":
    main()
