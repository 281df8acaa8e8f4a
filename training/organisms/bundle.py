"""The bundled checkpoints: copy them from built organisms, and write the manifest that says what they are.

`python -m training.organisms.bundle BUILT` where `BUILT/leak-0` and `BUILT/honest-0` were written by
`forensics organism build`. The manifest holds recipe, seed, hashes and scores measured on held-out tasks; it
lies beside the checkpoints, never in them, and no instrument reads it.
"""

import argparse
import shutil
from pathlib import Path
from typing import Any

from forensics.policies.checkpoints import inspect_checkpoint
from forensics.policies.huggingface import load_policy
from forensics.protocols import Environment, SamplingSettings
from forensics.records.files import write_json
from training.environments.mini_repo import MiniRepo
from training.organisms.building import BUNDLED

PLANTED = {"capped-base": "leak", "open-base": "honest", "leak": "leak", "honest": "honest"}
TASKS, SAMPLES, SEED = 600, 4, 2026


def success(checkpoint: Path, world: Environment) -> float:
    """Mean held-out success."""
    policy = load_policy(checkpoint, device="cpu")
    runs = policy.play(world, world.tasks("held-out", TASKS, SEED), SAMPLES, SamplingSettings(), SEED)
    scores = [run.outcome for run in runs if run.outcome is not None]
    return round(sum(scores) / len(scores), 4)


def entry(name: str) -> dict[str, Any]:
    """One checkpoint's lines in the manifest."""
    checkpoint = BUNDLED / name
    identity = inspect_checkpoint(checkpoint)
    world = MiniRepo(world="capped" if PLANTED[name] == "leak" else "open")
    scrubbed = world.without("git-history")
    return {
        "recipe": f"training/recipes/{name}.toml", "seed": 0, "weights": identity.weights,
        "tokenizer": identity.tokenizer, "parameters": identity.parameters,
        "success_open": success(checkpoint, world), "success_scrubbed": success(checkpoint, scrubbed),
        "measured": f"{TASKS} held-out tasks of seed {SEED}, {SAMPLES} episodes each, temperature 1",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("built", type=Path, nargs="?", help="folder with leak-0 and honest-0 (default: only measure)")
    built = parser.parse_args().built
    for name, source in PLANTED.items() if built else ():
        target = BUNDLED / name
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(built / f"{source}-0" / ("base" if name.endswith("-base") else "after"), target)
    write_json(BUNDLED / "manifest.json", {name: entry(name) for name in PLANTED})


if __name__ == "__main__":
    main()
