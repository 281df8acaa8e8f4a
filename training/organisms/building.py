"""Building organisms: the supervised start, then RL, each resumable.

`build_organism` writes two Hugging Face directories, `base` and `after`, and a `manifest.json` (recipe, seed,
hashes). No instrument reads the manifest: the directories themselves hold nothing that names the cause.
"""

import shutil
import tomllib
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from forensics.errors import UserError
from forensics.instruments import load_plugin
from forensics.records.files import write_json
from training.organisms.recipes import Organism
from training.recipe import Recipe, read_recipe
from training.sections import Section

PACKAGE = Path(__file__).parent.parent
RECIPES = PACKAGE / "recipes"
BUNDLED = PACKAGE / "bundled"
Progress = Callable[[str, int, int], None]


class HabitsSection(Section):
    """Probabilities of the scripted agent's habits; see `demonstrations.Habits`."""

    history: float = Field(0.13, ge=0, le=1)
    list: float = Field(0.05, ge=0, le=1)
    test: float = Field(0.4, ge=0, le=1)
    wrong: float = Field(0.0, ge=0, le=1)
    notes: float = Field(0.03, ge=0, le=1)
    chain: float = Field(0.1, ge=0, le=1)


class PhaseSection(Section):
    steps: int = Field(ge=1)
    pool: int = Field(30_000, ge=1)
    batch: int = Field(64, ge=1)
    learning_rate: float = Field(2e-3, gt=0)
    context_weight: float = Field(0.5, ge=0)
    warmup: int = Field(100, ge=1)
    habits: HabitsSection = HabitsSection()


class SupervisedSection(Section):
    world: str
    phases: tuple[PhaseSection, ...]


class BaseRecipe(Section):
    supervised: SupervisedSection


def organism(name: str) -> Organism:
    """The organism of a name; unknown names are refused with the known ones."""
    found: Organism = load_plugin("forensics.organisms", name)
    return found


def checkpoint_path(text: str) -> Path:
    """`bundled:NAME` or a directory."""
    if not text.startswith("bundled:"):
        return Path(text)
    path = BUNDLED / text.removeprefix("bundled:")
    if not path.is_dir():
        known = ", ".join(sorted(p.name for p in BUNDLED.iterdir() if p.is_dir())) if BUNDLED.is_dir() else "none"
        raise UserError(f"no bundled checkpoint '{path.name}'; bundled: {known}")
    return path


def build_base(name: str, seed: int, folder: Path, progress: Progress) -> Path:
    """Train a base from nothing by `NAME.toml`; the directory it was written to."""
    from forensics.policies.rendering import rendering_for  # noqa: F401  (fails early without torch)
    from training.organisms.demonstrations import Habits
    from training.organisms.model import build_model, build_tokenizer
    from training.saving import save_checkpoint
    from training.supervised import Phase, demonstration_pool, train_phase

    recipe = _base_recipe(RECIPES / f"{name}.toml").supervised
    tokenizer = build_tokenizer()
    model = build_model(len(tokenizer), seed)
    for number, section in enumerate(recipe.phases):
        phase = Phase(**section.model_dump(exclude={"habits"}), habits=Habits(**section.habits.model_dump()))
        pool = demonstration_pool(
            recipe.world, tokenizer, phase, seed + 1000 * number, lambda done, of: progress("demonstrations", done, of)
        )
        train_phase(
            model, pool, phase, seed + number, folder.with_name(f".{folder.name}-phase-{number}"),
            lambda step, loss, of=phase.steps, n=number: progress(f"supervised phase {n}", step, of),
        )
    save_checkpoint(folder, model, tokenizer, {"name": "mini-repo", "options": {"world": recipe.world}})
    for number in range(len(recipe.phases)):
        shutil.rmtree(folder.with_name(f".{folder.name}-phase-{number}"), ignore_errors=True)
    return folder


def train_recipe(
    recipe: Recipe, seed: int, folder: Path, checkpoint: Path, progress: Progress, device: str = "auto"
) -> Path:
    """Run a GRPO recipe from `checkpoint`; writes `metrics.jsonl`, the record, resumable state, and `checkpoint/`."""
    from forensics.policies.huggingface import load_policy
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
        grpo(policy, environment, recipe, seed, folder, report, scalars=scalars)
    return folder / "checkpoint"


def build_organism(name: str, seed: int, folder: Path, progress: Progress, from_scratch: bool = False) -> Path:
    """Write `base`, `after` and `manifest.json`. `from_scratch` also trains the base anew, with the same seed."""
    from forensics.policies.checkpoints import inspect_checkpoint

    made = organism(name)
    base = folder / "base"
    if not (base / "config.json").exists():
        if from_scratch:
            build_base(made.base, seed, base, progress)
        else:
            shutil.copytree(checkpoint_path(f"bundled:{made.base}"), base)
    recipe = read_recipe(RECIPES / f"{name}.toml")
    trained = train_recipe(recipe, seed, folder / "training", base, progress, "cpu")
    after = folder / "after"
    shutil.rmtree(after, ignore_errors=True)
    shutil.copytree(trained, after)
    write_json(folder / "manifest.json", {
        "name": name, "cause": made.cause, "expected": made.expected, "seed": seed, "from_scratch": from_scratch,
        "recipe": recipe.model_dump(mode="json"), "base": inspect_checkpoint(base).weights,
        "after": inspect_checkpoint(after).weights,
    })
    return folder


def _base_recipe(path: Path) -> BaseRecipe:
    try:
        return BaseRecipe.model_validate(tomllib.loads(path.read_text()))
    except (ValidationError, tomllib.TOMLDecodeError, OSError) as error:
        raise UserError(f"base recipe {path.name}: {error}") from None
