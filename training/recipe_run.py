"""A recipe run from its files: what stands behind `forensics train`.

Inputs are checked before anything is written. GRPO builds the environment that
the recipe names; a recipe with `[preference]` trains on its pairs, and what the
checkpoint's `environment.json` says of its world goes on to the trained policy.
"""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from forensics.plugins import load_plugin
from forensics.policies import inspect_checkpoint, read_environment_hint, read_object
from forensics.progress import Progress
from forensics.records import read_pairs
from training.distributed import check_launch, first_process, own_device
from training.recipe import PreferenceRecipe, Recipe
from training.trackers import Trackers, check_trackers


def check_inputs(recipe: Recipe | PreferenceRecipe, checkpoint: Path, device: str) -> None:
    """Refuse what would fail later, without loading the model. Raises `UserError`."""
    from forensics.investigation import build_environment
    from forensics.policies import resolve_device
    from training.dpo_trainer import check_alone
    from training.run_inputs import check_pairs

    check_trackers(recipe.logging)
    if isinstance(recipe, Recipe):
        check_launch(recipe.parallel.processes)
        resolve_device(own_device(device))
        build_environment(recipe.environment.name, recipe.environment.options).without(
            *recipe.environment.without
        )
        inspect_checkpoint(checkpoint)
        return
    check_alone()
    resolve_device(device)
    pairs = read_pairs(Path(recipe.preference.pairs))
    config = read_object(checkpoint / "config.json") if checkpoint.is_dir() else {}
    check_pairs(
        pairs, inspect_checkpoint(checkpoint).identity, config, recipe.preference.any_policy
    )


def train_recipe(
    recipe: Recipe | PreferenceRecipe,
    seed: int,
    folder: Path,
    checkpoint: Path,
    progress: Progress,
    device: str = "auto",
    say: Callable[[str], None] = lambda sentence: None,
) -> Path:
    """Run a recipe from `checkpoint`; writes `metrics.jsonl`, resumable state,
    the record of a GRPO run, and `checkpoint/`, the path that is returned.

    Audits are made where the recipe has an `[audit]`; `say` gets the reason
    where one of them ended the run early.
    """
    if isinstance(recipe, PreferenceRecipe):
        _train_on_pairs(recipe, seed, folder, checkpoint, progress, device)
    else:
        _train_with_grpo(recipe, seed, folder, checkpoint, progress, device, say)
    return folder / "checkpoint"


def _trackers(recipe: Recipe | PreferenceRecipe, seed: int, folder: Path) -> Trackers | None:
    """What the recipe asks for under [logging], on the first process."""
    if recipe.logging is None or not first_process():
        return None
    return Trackers(recipe.logging, folder, recipe.model_dump(mode="json") | {"seed": seed})


def _train_with_grpo(
    recipe: Recipe,
    seed: int,
    folder: Path,
    checkpoint: Path,
    progress: Progress,
    device: str,
    say: Callable[[str], None],
) -> None:
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


def _train_on_pairs(
    recipe: PreferenceRecipe,
    seed: int,
    folder: Path,
    checkpoint: Path,
    progress: Progress,
    device: str,
) -> None:
    from forensics.policies import load_policy
    from training.dpo_trainer import PreferenceStep, dpo
    from training.recorder import Metrics

    pairs = read_pairs(Path(recipe.preference.pairs))
    policy = load_policy(checkpoint, device=device, dtype="float32")
    hint = read_environment_hint(checkpoint)
    world = {"name": hint.name, "options": hint.options} if hint else None
    steps = -(-len(pairs) // recipe.preference.minibatch) * recipe.preference.epochs
    with closing(Metrics(folder, _trackers(recipe, seed, folder))) as metrics:

        def report(step: PreferenceStep) -> None:
            metrics.step(step)
            loss = "not finite" if step.loss is None else format(step.loss, ".3f")
            progress(f"DPO, loss {loss}", step.step + 1, steps)

        dpo(policy, pairs, recipe, seed, folder, report, progress, world)
