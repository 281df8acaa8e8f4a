"""Bases: what RL starts from. A base is trained on demonstrations, from nothing
or from another base.

A recipe `NAME-base.toml` names the world (`options` of `mini-repo`), the phases
and, where the base goes on from another one, its `start`: `bundled:NAME`. Such
a base is a matter of a minute or two, so it is built when it is needed rather
than bundled.
"""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from forensics.errors import UserError
from forensics.policies import load_policy, resolve_device
from forensics.progress import Progress
from training.environments.mini_repo import MiniRepo
from training.organisms.supervised import Phase, demonstration_pool, train_phase
from training.organisms.tiny_policy import build_model, build_tokenizer
from training.recipe import read_toml
from training.run_state import save_checkpoint
from training.sections import Section, parse_as

PACKAGE = Path(__file__).parent.parent
RECIPES = PACKAGE / "recipes"
BUNDLED = PACKAGE / "bundled"

KEPT_IN = "bfloat16"  # what organisms and their bases are rounded to: half the size


class SupervisedSection(Section):
    """`options`: of the world. `start`: the base to go on from (default: none)."""

    options: dict[str, str] = {}
    start: str | None = None
    phases: tuple[Phase, ...] = Field(strict=False)


class BaseRecipe(Section):
    supervised: SupervisedSection


def checkpoint_path(text: str) -> Path:
    """`bundled:NAME` or a directory."""
    if not text.startswith("bundled:"):
        return Path(text)
    path = BUNDLED / text.removeprefix("bundled:")
    if not path.is_dir():
        known = (
            ", ".join(sorted(p.name for p in BUNDLED.iterdir() if p.is_dir()))
            if BUNDLED.is_dir()
            else "none"
        )
        raise UserError(f"no bundled checkpoint '{path.name}'; bundled: {known}")
    return path


def read_base_recipe(path: Path) -> BaseRecipe:
    """Raises `UserError` for a recipe that is missing, broken, or has unknown keys."""
    return parse_as(BaseRecipe, read_toml(path), str(path))


def build_base(
    name: str,
    seed: int,
    folder: Path,
    progress: Progress,
    from_scratch: bool = False,
    device: str = "cpu",
    recipes: Path | None = None,
) -> Path:
    """Train a base by `NAME.toml` in `recipes`; the directory it was written
    to. `from_scratch`: its start anew too.

    Resumable: what was finished of a run that was killed is kept beside
    `folder`.
    """
    recipe = read_base_recipe((recipes or RECIPES) / f"{name}.toml").supervised
    model, tokenizer = _start(recipe.start, seed, folder, progress, from_scratch, device)
    world = MiniRepo(**recipe.options)
    for number, phase in enumerate(recipe.phases):
        drawn = seed + 1000 * number
        pool = demonstration_pool(
            world,
            tokenizer,
            world.tasks("train", phase.pool, drawn),
            [phase.habits] * phase.pool,
            np.random.default_rng([drawn, 1]),
            progress,
        )
        kept = _beside(folder, f"phase-{number}")
        train_phase(model, pool, phase, seed + number, kept, progress, f"supervised phase {number}")
    note = {"name": "mini-repo", "options": recipe.options}
    save_checkpoint(folder, model, tokenizer, note, dtype=KEPT_IN)
    for left in ("start", *(f"phase-{number}" for number in range(len(recipe.phases)))):
        shutil.rmtree(_beside(folder, left), ignore_errors=True)
    return folder


def _start(
    start: str | None, seed: int, folder: Path, progress: Progress, from_scratch: bool, device: str
) -> tuple[Any, Any]:
    """Model (float32) and tokenizer to begin with: new ones, or those of the base to go on from."""
    if start is None:
        tokenizer = build_tokenizer()
        return build_model(len(tokenizer), seed).to(resolve_device(device)), tokenizer
    path = checkpoint_path(start)
    if from_scratch and start.startswith("bundled:"):
        path = _beside(folder, "start")
        if not (path / "environment.json").exists():
            build_base(start.removeprefix("bundled:"), seed, path, progress, from_scratch, device)
    policy = load_policy(path, device=device, dtype="float32")
    return policy.model, policy.tokenizer


def _beside(folder: Path, what: str) -> Path:
    return folder.with_name(f".{folder.name}-{what}")
