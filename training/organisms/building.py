"""Building organisms: the supervised start, then RL, each resumable.

`build_organism` writes two Hugging Face directories, `base` and `after`, and a `manifest.json` (recipe, seed,
hashes). No instrument reads the manifest: the directories themselves hold nothing that names the cause.
"""

import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from forensics.instruments import load_plugin
from forensics.records.files import write_json
from training.organisms.bases import BUNDLED, RECIPES, Progress, build_base, checkpoint_path
from training.organisms.recipes import Organism
from training.recipe import Recipe, read_recipe

__all__ = ["BUNDLED", "RECIPES", "build_base", "build_organism", "checkpoint_path", "organism", "train_recipe"]


def organism(name: str) -> Organism:
    """The organism of a name; unknown names are refused with the known ones."""
    found: Organism = load_plugin("forensics.organisms", name)
    return found


def train_recipe(
    recipe: Recipe, seed: int, folder: Path, checkpoint: Path, progress: Progress, device: str = "auto",
    say: Callable[[str], None] = lambda sentence: None,
) -> Path:
    """Run a GRPO recipe from `checkpoint`; writes `metrics.jsonl`, the record, resumable state, and `checkpoint/`.

    Audits are made where the recipe has an `[audit]`; `say` gets the reason where one of them ended the run early.
    """
    from forensics.policies.huggingface import load_policy
    from training.live import AuditSettings, ForensicsCallback
    from training.metrics import Metrics
    from training.parallel import first_process, own_device
    from training.trainer import grpo

    environment = load_plugin("forensics.environments", recipe.environment.name)(**recipe.environment.options)
    policy = load_policy(checkpoint, device=own_device(device), dtype="float32")
    with Metrics(folder) if first_process() else nullcontext() as metrics:

        def report(step: Any) -> None:
            metrics.step(step)
            success = "not measured" if step.success is None else format(step.success, ".2f")
            progress(f"GRPO, success {success}", step.step + 1, recipe.grpo.steps)

        scalars = metrics.scalar if metrics else lambda name, value, step: None
        audit = AuditSettings(**recipe.audit.model_dump(), tensorboard=False) if recipe.audit else None
        audits = [ForensicsCallback(audit, say=say)] if audit else []
        if stopped := grpo(policy, environment, recipe, seed, folder, report, audits, scalars):
            say(stopped)
    return folder / "checkpoint"


def build_organism(
    name: str, seed: int, folder: Path, progress: Progress, from_scratch: bool = False, device: str = "cpu"
) -> Path:
    """Write `base`, `after` and `manifest.json`. Each kind of `device` rounds in its own way, so the weights are those
    of a seed on a kind of device.

    The base is the bundled one, or built as `build_base` with seed 0 gives it, so that organisms of different
    seeds share their start. `from_scratch` trains the base anew with the organism's own seed.
    """
    from forensics.policies.checkpoints import inspect_checkpoint

    made = organism(name)
    base = folder / "base"
    if not (base / "config.json").exists():
        if from_scratch:
            build_base(made.base, seed, base, progress, from_scratch, device)
        elif (BUNDLED / made.base).is_dir():
            shutil.copytree(BUNDLED / made.base, base)
        else:
            build_base(made.base, 0, base, progress, device=device)
    after = folder / "after"
    made_by = _after(made, seed, folder, progress, device)
    write_json(folder / "manifest.json", {
        "name": name, "cause": made.cause, "expected": made.expected, "seed": seed, "from_scratch": from_scratch,
        **made_by, "base": inspect_checkpoint(base).weights, "after": inspect_checkpoint(after).weights,
    })
    return folder


def _after(made: Organism, seed: int, folder: Path, progress: Progress, device: str) -> dict[str, Any]:
    """Write `after` by the organism's own maker, or by GRPO; what the manifest says of how it was made."""
    base, after = folder / "base", folder / "after"
    shutil.rmtree(after, ignore_errors=True)
    if made.maker:
        return {"planted": resolve_name(made.maker)(base, after, seed, progress, device)}
    recipe = read_recipe(RECIPES / f"{made.name}.toml").model_copy(update={"audit": None})
    shutil.copytree(train_recipe(recipe, seed, folder / "training", base, progress, device), after)
    return {"recipe": recipe.model_dump(mode="json")}
