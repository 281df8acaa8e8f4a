"""The four branches: each a recipe with an audit every few steps, trained once and kept."""

from dataclasses import dataclass
from pathlib import Path

from forensics.progress import Progress
from training import AuditSection, Recipe, checkpoint_path, read_recipe, train_recipe
from training.organisms import RECIPES

BRANCHES = ("echo", "echo-control", "collapse", "collapse-control")
CONTROL = "-control"
AUDIT = AuditSection(every=10, tasks=100, samples=2)


@dataclass(frozen=True, kw_only=True)
class Run:
    """One branch with one training seed. `folder` holds its record and its audits."""

    branch: str
    seed: int
    folder: Path

    @property
    def planted(self) -> bool:
        return not self.branch.endswith(CONTROL)


def recipe_of(branch: str) -> Recipe:
    """The organism's recipe with audits; a control branch has the score as its only reward."""
    recipe = read_recipe(RECIPES / f"{branch.removesuffix(CONTROL)}.toml").model_copy(
        update={"audit": AUDIT}
    )
    return (
        recipe.model_copy(update={"rewards": {"outcome": 1.0}})
        if branch.endswith(CONTROL)
        else recipe
    )


def trained(branch: str, seed: int, cache: Path, progress: Progress) -> Run:
    """Train, or take what an earlier call left (a run that was killed goes on)."""
    run = Run(branch=branch, seed=seed, folder=cache / f"{branch}-{seed}")
    if not (run.folder / "checkpoint" / "environment.json").exists():
        recipe = recipe_of(branch)
        train_recipe(
            recipe, seed, run.folder, checkpoint_path(recipe.policy.checkpoint), progress, "cpu"
        )
    return run
