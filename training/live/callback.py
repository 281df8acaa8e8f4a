"""`ForensicsCallback`: audits a run of our trainer through its hooks.

1. `on_start` plays the start (once in a run); `on_step_end` audits every
   `every` updates; `on_end` audits the last policy where no audit fell on it,
   because that is the one that would be used.
2. Each audit becomes a case folder, a line of `audits.jsonl`, numbers for the
   trainer's logger and TensorBoard.
3. An alarm is answered as `on_phantom` says. With `withhold` every saved folder
   gets a `promotable.json`; what makes weights promotable stands at
   `marks.mark`.
4. Where the held-out questions of the world are of another kind than those that are
   trained on, nothing is promotable. A trainer with prompts of its own (TRL) has
   `compared` called once it knows them; until then nothing is either.

The weights do not depend on whether a run is audited (see below and
`audit.lent`). An audit that fails (no memory left, an instrument that raises)
is logged and the run goes on; its weights were not audited, so they are not
promotable.

Where a trainer lets others look in: four moments, and what they see (light: no
torch, no transformers).

1. The trainer calls `on_start` once before the first update of the process
   (also after a resume, when `view.step` is then not 0), `on_step_end` after
   every update, `on_save` when a resumable state or a checkpoint lies complete
   on disk, and `on_end` once when the run is over, also after a `stop`, not
   after an error.
2. A callback must leave the weights, the optimizer and the trainer's random
   state as it found them: a run with callbacks ends in the same weights, bit
   for bit. What it does to the model's mode it undoes itself.
3. `view.stop` asks for an end after the current step; the trainer saves as
   usual and reports the reason.
"""

import logging
from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from forensics.errors import NoMemory, UserError, outside_failure
from forensics.policies import identify_model, require
from forensics.protocols import Environment, Renderer, SamplingSettings
from forensics.records import write_json
from training.live.audit_report import (
    AuditReport,
    AuditSettings,
    scalars,
    tensorboard_writer,
    told,
)
from training.live.auditor import Auditor
from training.live.marks import MARKS, content_of, mark
from training.live.trained_questions import trained_prompts, unlike
from training.recipe import NotServed


@dataclass(kw_only=True)
class TrainerView:
    """What a callback sees of a run.

    `policy`: the live policy, the very weights that are being trained, never a
    copy. `environment`: the open world of the recipe: nothing scrubbed,
    whatever the policy trains in. `folder`: `None` for a run that writes
    nothing. `step`: updates done so far, 0 before the first one. `stopped`: the
    reason to end the run after this step. `log` takes the name, value and step
    of a number for whatever logger the trainer has; without one it is dropped.
    `served`: what plays an audit behind a server (`training.served_sampler.ServedSampling.at`);
    `None` where the policy is to play here.
    """

    policy: Any
    environment: Environment
    settings: SamplingSettings
    folder: Path | None
    seed: int
    step: int = 0
    stopped: str | None = None
    log: Callable[[str, float, int], None] = lambda name, value, step: None
    served: Callable[..., tuple[Any, float]] | None = None

    def stop(self, reason: str) -> None:
        """End the run after this step; `reason` is one clear sentence, the first one counts."""
        self.stopped = self.stopped or reason


class TrainerHooks(Protocol):
    """A callback. `step_report` is the trainer's own report of the step, whatever its type."""

    def on_start(self, view: TrainerView) -> None: ...
    def on_step_end(self, view: TrainerView, step_report: Any) -> None: ...
    def on_save(self, view: TrainerView, folder: Path) -> None: ...
    def on_end(self, view: TrainerView) -> None: ...


Value = TypeVar("Value")
logger = logging.getLogger("forensics.audit")
WATCH = "`forensics watch OUT --before BASE`"  # audits from a process of its own


def tried(call: Callable[[], Value], failed: str, also: type[UserError] = NoMemory) -> Value | None:
    """What `call` gives; where it fails, no memory is left or `also` is raised, a warning: the
    run is worth more than one look at it. Raises what is bad input or another failure of the
    machine.
    """
    failure: Exception
    try:
        return call()
    except Exception as error:
        failure = outside_failure(error) or error
        if isinstance(failure, UserError) and not isinstance(failure, (NoMemory, also)):
            raise failure from (None if failure is error else error)
    logger.warning(failed, f"{type(failure).__name__}: {failure}")
    return None


class ForensicsCallback:
    """Audits by `settings`. `folder` (default: the run's) receives `audits/`
    and `audits.jsonl`; `say` is given one line about each audit. `renderer`,
    `doubt`: as of `Auditor`, to be set before `on_start`.
    """

    def __init__(
        self,
        settings: AuditSettings | None = None,
        folder: Path | None = None,
        say: Callable[[str], None] = logger.info,
    ) -> None:
        self.settings = settings or AuditSettings()
        self.last: AuditReport | None = None
        self.renderer: Renderer | None = None
        self.doubt: str | None = None
        self._folder, self._say = folder, say
        self.auditor: Auditor | None = None
        self._saved: list[tuple[int, Path]] = []

    def on_start(self, view: TrainerView) -> None:
        """Play the start; where that fails, the run goes on without audits. Raises
        `UserError` where there is no folder to write to.
        """
        folder = self._folder or view.folder
        if folder is None:
            raise UserError(
                "audits need a folder to write to; train with --out, or give the callback a folder"
            )
        auditor = Auditor(
            folder=Path(folder),
            environment=view.environment,
            sampling=view.settings,
            settings=self.settings,
            seed=view.seed,
            renderer=self.renderer,
            doubt=self.doubt,
            served=getattr(view, "served", None),  # a view of another trainer has none
        )
        if not auditor.scrubbed:
            logger.warning(
                "The environment %s declares no channel, so audits give the gain without"
                " splitting it.",
                view.environment.name,
            )
        require(view.policy, "weights", "tokens", task="an audit")
        self.auditor = auditor if self._began(auditor, view) else None
        world = view.environment
        if self.doubt is None and (other := unlike(trained_prompts(world), world)):
            self.compared(view, other)
        if (
            view.step and view.step % self.settings.every == 0
        ):  # killed between the update and its audit
            self._audit(view)

    def compared(self, view: TrainerView, doubt: str | None) -> None:
        """Take in how the audited prompts differ from those that are trained
        on; answered like an alarm.
        """
        if self.auditor is None:
            return
        self.auditor.compared(doubt)
        if doubt is not None:
            self._answer(view, doubt)

    def on_step_end(self, view: TrainerView, step_report: Any) -> None:
        """Audit where it is due."""
        if view.step % self.settings.every == 0:
            self._audit(view)

    def on_save(self, view: TrainerView, folder: Path) -> None:
        """Mark a saved folder."""
        if self.settings.on_phantom == "withhold":
            self._saved.append((view.step, Path(folder)))
            self._mark(view, Path(folder))

    def on_end(self, view: TrainerView) -> None:
        """Audit the last policy, if no audit fell on it."""
        if view.step and (self.last is None or self.last.step != view.step):
            self._audit(view)
        for step, folder in self._saved:
            if step == view.step and folder.is_dir():
                self._mark(view, folder)

    def _began(self, auditor: Auditor, view: TrainerView) -> bool:
        def begin() -> bool:
            auditor.begin(view.policy.model, view.policy.tokenizer, view.step)
            return True

        return bool(
            tried(
                begin,
                "The start could not be played (%s), so this run is not audited; take fewer tasks"
                f" or samples, or audit its checkpoints with {WATCH}.",
            )
        )

    def _audit(self, view: TrainerView) -> None:
        auditor = self.auditor
        if auditor is None:  # the start could not be played
            return
        report = tried(
            lambda: auditor.audit(view.policy.model, view.policy.tokenizer, view.step),
            f"The audit after step {view.step} failed (%s); the run goes on.",
            also=NotServed,
        )
        if report is None:
            return
        self.last = report
        self._say(told(report))
        board = tensorboard_writer(auditor.folder) if self.settings.tensorboard else None
        with nullcontext() if board is None else closing(board):  # a run may end without `on_end`
            for name, value in scalars(report).items():
                view.log(name, value, view.step)
                if board is not None:
                    board.add_scalar(name, value, view.step)
        if report.alarm is not None:
            self._answer(view, f"Audit after step {report.step}: {report.alarm}")

    def _answer(self, view: TrainerView, sentence: str) -> None:
        logger.warning("%s", sentence)
        if self.settings.on_phantom == "stop":
            view.stop(sentence)

    def _mark(self, view: TrainerView, folder: Path) -> None:
        """Say of a folder saved just now whether its weights are promotable, and
        which weights these are.
        """
        said = dict(mark(view.step, self.last, self.settings.ceiling))
        try:
            said |= content_of(folder)
            against = self._other_weights(view, folder) if said["promotable"] else None
        except UserError as error:
            said["weights"], against = None, f"The weights saved here cannot be read: {error}."
        if against is not None and said["promotable"]:
            said |= {"promotable": False, "reason": against}
        write_json(folder / MARKS, said)

    def _other_weights(self, view: TrainerView, folder: Path) -> str | None:
        """Why the weights in a folder are not those of the newest audit."""
        from training.run_state import difference

        assert self.last is not None, "nothing is promotable without an audit"
        if identify_model(view.policy.model).sha256[:16] != self.last.policy:
            return "The weights have changed since they were audited."
        return difference(view.policy.model, folder)
