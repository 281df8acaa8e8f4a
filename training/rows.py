"""What the trainer hands to the recorder: rows of a step, and what holds for the whole run."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from forensics.policies.tokenizers import identify_tokenizer
from forensics.protocols import Environment
from forensics.records import TrainingRow, TrainingRun, Trajectory
from forensics.version import code_version
from training.groups import Judged
from training.recipe import Recipe
from training.update import RowNotes


def record_rows(
    step: int, groups: Sequence[Judged], notes: Sequence[RowNotes], mask_truncated: bool
) -> list[TrainingRow]:
    """Every episode of a step, dropped ones with their reason. `notes` are of the trained rows, in order."""
    left = iter(notes)
    rows = []
    for number, group in enumerate(groups):
        played = group.played
        for sample, trajectory in enumerate(played.trajectories):
            advantage = group.advantages.values[sample]
            missing = played.missing.get(sample) or ("no reward" if advantage is None else None)
            used: dict[str, Any] = {"dropped": missing or group.dropped}
            if used["dropped"] is None:
                masked = mask_truncated and trajectory.end == "truncated"
                used |= {"advantage": advantage, **_numbers(next(left), trajectory if masked else None)}
            rows.append(TrainingRow.of(
                trajectory, step=step, group=f"{step}-{number}", rewards=played.components[sample],
                reward=played.totals[sample], **used,
            ))
    return rows


def _numbers(note: RowNotes, masked: Trajectory | None) -> dict[str, Any]:
    """What the update noted of a row; of a `masked` trajectory only that no token of it counted."""
    if masked is not None:
        return {"token_weights": (0.0,) * (masked.sampled_tokens or 0)}
    values = {"old_logprobs": note.old_logprobs, "reference_logprobs": note.reference_logprobs,
              "entropies": note.entropies}
    return {name: tuple(value) for name, value in values.items() if value is not None}


def run_metadata(recipe: Recipe, seed: int, start: str, tokenizer: Any, world: Environment) -> TrainingRun:
    """Recipe, estimator, seed, and what the run started from."""
    config = recipe.grpo
    return TrainingRun(
        code=code_version(), recipe=recipe.model_dump(mode="json"), seed=seed, start=start,
        tokenizer=_identity(tokenizer),
        environment={"name": world.name, "options": dict(world.options), "without": list(world.scrubbed)},
        estimator={"scaling": config.scaling, "dead_tolerance": config.dead_tolerance, "filter": config.filter,
                   "samples": config.samples, "baseline": "group mean"},
    )


def _identity(tokenizer: Any) -> str:
    """As of a checkpoint directory."""
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        return identify_tokenizer(Path(folder))
