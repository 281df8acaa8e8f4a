"""The bundled checkpoints: copy them from built organisms, and write the
manifest that says what they are.

`python -m experiments.phantom_gain.bundle BUILT` where `BUILT/leak-0` and
`BUILT/honest-0` were written by `forensics organism build`. `--base NAME`
(again and again) builds a base that goes on from a bundled one straight into
the bundle: a minute or two each. The manifest holds recipe, seed, hashes and
scores measured on held-out tasks; it lies beside the checkpoints, never in
them, and no instrument reads it.
"""

import argparse
import shutil
from pathlib import Path
from typing import Any

from forensics.cli import progress_bars
from forensics.policies import load_policy
from forensics.policies.checkpoints import inspect_checkpoint
from forensics.protocols import Environment, SamplingSettings
from forensics.records.files import read_json, write_json
from training import MiniRepo
from training.organisms import RECIPES, build_base

BUNDLED = RECIPES.parent / "bundled"
PLANTED = {"capped-base": "leak", "open-base": "honest", "leak": "leak", "honest": "honest"}
TASKS, SAMPLES, SEED = 600, 4, 2026


def success(checkpoint: Path, world: Environment) -> float:
    """Mean held-out success."""
    policy = load_policy(checkpoint, device="cpu")
    runs = policy.play(
        world, world.tasks("held-out", TASKS, SEED), SAMPLES, SamplingSettings(), SEED
    )
    scores = [run.outcome for run in runs if run.outcome is not None]
    return round(sum(scores) / len(scores), 4)


def entry(name: str) -> dict[str, Any]:
    """One checkpoint's lines in the manifest."""
    checkpoint = BUNDLED / name
    identity = inspect_checkpoint(checkpoint)
    world = MiniRepo(**read_json(checkpoint / "environment.json")["options"])
    scrubbed = world.without(*(channel.name for channel in world.channels))
    return {
        "recipe": f"training/recipes/{name}.toml",
        "seed": 0,
        "weights": identity.weights,
        "tokenizer": identity.tokenizer,
        "parameters": identity.parameters,
        "success_open": success(checkpoint, world),
        "success_scrubbed": success(checkpoint, scrubbed),
        "measured": (
            f"{TASKS} held-out tasks of seed {SEED}, {SAMPLES} episodes each, temperature 1"
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "built", type=Path, nargs="?", help="folder with leak-0 and honest-0 (default: none)"
    )
    parser.add_argument(
        "--base", action="append", default=[], help="a base to build from its bundled start"
    )
    arguments = parser.parse_args()
    for name, source in PLANTED.items() if arguments.built else ():
        target = BUNDLED / name
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(
            arguments.built / f"{source}-0" / ("base" if name.endswith("-base") else "after"),
            target,
        )
    for name in arguments.base:
        shutil.rmtree(BUNDLED / name, ignore_errors=True)
        with progress_bars() as progress:
            build_base(name, 0, BUNDLED / name, progress)
    known = read_json(BUNDLED / "manifest.json")
    changed = [*(PLANTED if arguments.built else ()), *arguments.base] or list(known)
    write_json(BUNDLED / "manifest.json", known | {name: entry(name) for name in changed})


if __name__ == "__main__":
    main()
