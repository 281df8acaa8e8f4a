"""Where a trainer lets others look in: four moments, and what they see. Light: no torch, no transformers.

1. The trainer calls `on_start` once before the first update of the process (also after a resume, when
   `view.step` is then not 0), `on_step_end` after every update, `on_save` when a resumable state or a checkpoint
   lies complete on disk, and `on_end` once when the run is over, also after a `stop`, not after an error.
2. A callback must leave the weights, the optimizer and the trainer's random state as it found them: a run with
   callbacks ends in the same weights, bit for bit. What it does to the model's mode it undoes itself.
3. `view.stop` asks for an end after the current step; the trainer saves as usual and reports the reason.
"""

from pathlib import Path
from typing import Any, Protocol

from forensics.protocols import Environment, Policy, SamplingSettings


class TrainerView(Protocol):
    """What a callback sees of a run. `step`: updates done so far, 0 before the first one."""

    @property
    def policy(self) -> Policy:
        """The live policy: the very weights that are being trained, never a copy."""
        ...

    @property
    def environment(self) -> Environment:
        """The open world of the recipe: nothing scrubbed, whatever the policy trains in."""
        ...

    @property
    def settings(self) -> SamplingSettings: ...
    @property
    def step(self) -> int: ...
    @property
    def folder(self) -> Path | None:
        """The run's folder; `None` for a run that writes nothing."""
        ...

    @property
    def seed(self) -> int: ...

    def log(self, name: str, value: float, step: int) -> None:
        """A number for whatever logger the trainer has; a trainer without one drops it."""
        ...

    def stop(self, reason: str) -> None:
        """End the run after this step; `reason` is one clear sentence."""
        ...


class TrainerHooks(Protocol):
    """A callback. `step_report` is the trainer's own report of the step, whatever its type."""

    def on_start(self, view: TrainerView) -> None: ...
    def on_step_end(self, view: TrainerView, step_report: Any) -> None: ...
    def on_save(self, view: TrainerView, folder: Path) -> None: ...
    def on_end(self, view: TrainerView) -> None: ...
