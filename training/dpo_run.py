"""A preference recipe run from its files: the part of `forensics train` behind
a `[preference]` section.

Pairs and checkpoint are checked against each other before anything is written;
what the checkpoint's `environment.json` says of its world goes on to the
trained policy.
"""

from collections.abc import Callable
from pathlib import Path

from forensics.policies.checkpoints import inspect_checkpoint, read_environment_hint, read_object
from forensics.progress import Progress
from forensics.records.feedback import read_pairs
from training.recipe import PreferenceRecipe


def check_preference_inputs(recipe: PreferenceRecipe, checkpoint: Path, device: str) -> None:
    """Refuse what would fail later, without loading the model. Raises `UserError`."""
    from forensics.investigation.inputs import resolve_device
    from training.dpo_trainer import check_alone
    from training.recipe_checks import check_pairs

    check_alone()
    resolve_device(device)
    pairs = read_pairs(Path(recipe.preference.pairs))
    config = read_object(checkpoint / "config.json") if checkpoint.is_dir() else {}
    check_pairs(
        pairs, inspect_checkpoint(checkpoint).identity, config, recipe.preference.any_policy
    )


def train_preference_recipe(
    recipe: PreferenceRecipe,
    seed: int,
    folder: Path,
    checkpoint: Path,
    progress: Progress,
    device: str = "auto",
    say: Callable[[str], None] = lambda sentence: None,
) -> Path:
    """Run a preference recipe from `checkpoint`; writes `metrics.jsonl`,
    resumable state, and `checkpoint/`.

    `say` is there to be called as `train_recipe` is: nothing ends such a run
    early.
    """
    from forensics.policies import load_policy
    from training.dpo_trainer import PreferenceStep, dpo
    from training.recorder import Metrics

    pairs = read_pairs(Path(recipe.preference.pairs))
    policy = load_policy(checkpoint, device=device, dtype="float32")
    hint = read_environment_hint(checkpoint)
    world = {"name": hint.name, "options": hint.options} if hint else None
    steps = -(-len(pairs) // recipe.preference.minibatch) * recipe.preference.epochs
    with Metrics(folder) as metrics:

        def report(step: PreferenceStep) -> None:
            metrics.step(step)
            progress(f"DPO, loss {step.loss:.3f}", step.step + 1, steps)

        dpo(policy, pairs, recipe, seed, folder, report, progress, world)
    return folder / "checkpoint"
