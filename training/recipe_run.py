"""A recipe run from its files: what stands behind `forensics train`.

Inputs are checked before anything is written; then GRPO builds the environment that the recipe
names.
"""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from forensics.plugins import load_plugin
from forensics.policies import inspect_checkpoint
from forensics.progress import Progress
from training.distributed import check_launch, first_process, own_device
from training.recipe import Recipe
from training.trackers import Trackers, check_trackers


def check_inputs(recipe: Recipe, checkpoint: Path, device: str) -> None:
    """Refuse what would fail later, without loading the model. Raises `UserError`."""
    from forensics.investigation import build_environment
    from forensics.policies import resolve_device

    check_trackers(recipe.logging)
    check_launch(recipe.parallel.processes)
    resolve_device(own_device(device))
    build_environment(recipe.environment.name, recipe.environment.options).without(
        *recipe.environment.without
    )
    inspect_checkpoint(checkpoint)


def train_recipe(
    recipe: Recipe,
    seed: int,
    folder: Path,
    checkpoint: Path,
    progress: Progress,
    device: str = "auto",
    say: Callable[[str], None] = lambda sentence: None,
) -> Path:
    """Run a recipe from `checkpoint`; writes `metrics.jsonl`, resumable state,
    the record of the run, and `checkpoint/`, the path that is returned.

    Audits are made where the recipe has an `[audit]`; `say` gets the reason
    where one of them ended the run early.
    """
    from forensics.policies import load_policy, warn_of_chat
    from training.live import AuditSettings, ForensicsCallback
    from training.recorder import Metrics, StepReport
    from training.trainer import grpo

    environment = load_plugin("forensics.environments", recipe.environment.name)(
        **recipe.environment.options
    )
    policy = load_policy(checkpoint, device=own_device(device), dtype="float32")
    if first_process():
        warn_of_chat(environment, policy.rendered_for(environment).renderer)
    audits = []
    if recipe.audit:
        settings = AuditSettings(**recipe.audit.model_dump(), tensorboard=False)
        audits.append(ForensicsCallback(settings, say=say))
    with closing(Metrics(folder, _trackers(recipe, seed, folder))) as metrics:

        def report(step: StepReport) -> None:
            metrics.step(step)
            success = "not measured" if step.success is None else format(step.success, ".2f")
            progress(f"GRPO, success {success}", step.step + 1, recipe.grpo.steps)

        if stopped := grpo(
            policy, environment, recipe, seed, folder, report, audits, metrics.scalar
        ):
            say(stopped)
    return folder / "checkpoint"


def _trackers(recipe: Recipe, seed: int, folder: Path) -> Trackers | None:
    """What the recipe asks for under [logging], on the first process."""
    if recipe.logging is None or not first_process():
        return None
    return Trackers(recipe.logging, folder, recipe.model_dump(mode="json") | {"seed": seed})
