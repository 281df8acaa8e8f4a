"""`forensics watch`: audits of the checkpoints that any trainer leaves in a folder, in a
process of its own.

1. *Look* at what lies there. A checkpoint that is not whole, or whose files are not what
   they were at the look before, is waited for; one that is gone before it was audited is
   said to be missed.
2. *Audit* the oldest that is due: its weights are read and hashed, loaded in the
   precision that they were saved in, handed to the `Auditor` that also audits inside a
   trainer, and let go. The start is the base, in the same precision.
3. *Mark* it by content (`marks`), and draw the page.

What is known stands in `promotable.json` and `audits.jsonl`, each written whole, so a
watch that is killed goes on where it was: finished audits and finished runs of the one at
work are not played again. Evidence, label and alarm are those of an audit in the trainer
with the same seed, step and weights.
"""

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from forensics.errors import UserError, stop_outside
from forensics.policies import identify_model
from forensics.progress import Progress, silent
from training.live.audit_report import (
    AuditReport,
    MissedAudit,
    read_reports,
    told,
    write_reports,
)
from training.live.auditor import Auditor
from training.live.checkpoint_folders import (
    SavedFolder,
    load_model,
    load_start,
    saved_dtype,
    saved_folders,
    tokenizer_of,
)
from training.live.marks import (
    Mark,
    content_of,
    last_judged,
    mark,
    read_marks,
    write_marks,
)
from training.live.run_page import write_page
from training.live.trained_questions import UNKNOWN, TrainedOn

NEW: Final = "It was seen just now, and is audited once its files stay as they are."
DUE: Final = "It is whole, and not audited yet."
GONE: Final = "It vanished before it was audited."
PASSED: Final = "A later checkpoint is whole, so it is not waited for."
EVERY: Final = "It was left out: audits are of every {} updates."
NO_STEP: Final = (
    "Its name ends in no number of a step, and its weights are none of those that were audited;"
    " rename it to NAME-STEP."
)
CHANGED: Final = "Its files changed while they were read."
WHOLE: Final = ("due", "audited", "left out")


@dataclass(frozen=True, kw_only=True)
class WatchedRun:
    """What is watched: the trainer's folder `out`, the checkpoint `base` that it began
    with, what it trains on, how checkpoints are played (`dtype`: as they are saved).
    """

    out: Path
    base: Path
    device: str = "cpu"
    dtype: str | None = None
    trained_on: TrainedOn


@dataclass(frozen=True, kw_only=True)
class Until:
    """When a watch ends: after what is there (`once`), with the first checkpoint of at
    least `step` updates, or after `idle` seconds without news. `poll`: seconds between looks.
    """

    once: bool = False
    step: int | None = None
    idle: float | None = None
    poll: float = 10.0


@dataclass(kw_only=True)
class Watcher:
    """Watches a run; writes into `auditor.folder`. `every`: as of `AuditSettings`; the last
    one is audited in any case. `say` is given a sentence about each checkpoint.
    """

    run: WatchedRun
    auditor: Auditor
    until: Until = field(default_factory=Until)
    say: Callable[[str], None] = lambda sentence: None
    progress: Progress = silent
    sleep: Callable[[float], None] = time.sleep
    marks: dict[str, Mark] = field(default_factory=dict, init=False)
    _found: dict[str, SavedFolder] = field(default_factory=dict, init=False, repr=False)
    _tokenizer: Any = field(default=None, init=False, repr=False)

    @property
    def folder(self) -> Path:
        return self.auditor.folder

    def watch(self) -> Mark | None:
        """Until the end; the mark of the last checkpoint that was judged, `None`: none was."""
        self.marks = {one.checkpoint: one for one in read_marks(self.folder)}
        self._try_again()
        quiet = 0.0
        while True:
            news = self.look()
            while (due := self._oldest()) is not None:
                self._settle(due)
                news = True
            if news:
                write_page(self.folder)
            quiet = 0.0 if news else quiet + self.until.poll
            if self._over(quiet):
                break
            self.sleep(self.until.poll)
        self._end()
        write_page(self.folder)
        return last_judged(self.marks.values())

    def _try_again(self) -> None:
        """What failed, what was left out of fewer audits, and what was audited when nothing was
        known of its training is looked at anew.
        """
        for one in list(self.marks.values()):
            left_out = one.state == "left out" and one.step is not None
            again = one.state == "failed" or one.reason == UNKNOWN
            if again or (left_out and self._is_due(one.step)):
                self._put(one, state="waiting", reason=NEW, files="")

    def look(self) -> bool:
        """Take in what lies there now; whether anything is new."""
        before = dict(self.marks)
        self._found = {one.name: one for one in saved_folders(self.run.out, self.folder)}
        for folder in self._found.values():
            self._see(folder)
        for name in (name for name in before if name not in self._found):
            self._gone(before[name])
        for one in [one for one in self.marks.values() if one.state == "waiting"]:
            later = any(
                other.state in WHOLE and (other.step or 0) > one.step
                for other in self.marks.values()
                if one.step is not None
            )
            if later and before.get(one.checkpoint) == one and one.reason != NEW:
                self._put(one, state="broken", reason=f"{one.reason} {PASSED}")
        return before != self.marks

    def _gone(self, known: Mark) -> None:
        """What lies there no more was missed, if it was to be audited."""
        if known.state in ("waiting", "due", "failed") and self._is_due(known.step):
            self._put(known, state="vanished", reason=GONE)
        elif known.state in ("waiting", "left out"):
            del self.marks[known.checkpoint]
            write_marks(self.folder, self.marks.values())

    def _see(self, folder: SavedFolder) -> None:
        """One checkpoint as it lies there now."""
        known = self.marks.get(folder.name)
        try:
            files = folder.files()
            same = known is not None and known.files == files
            if known is not None and same and known.state not in ("waiting", "vanished"):
                return
            step, lacks = folder.step, folder.lacks()
        except (OSError, UserError) as error:  # it changes, or goes, while it is looked at
            files, same, step, lacks = "", False, None, f"It cannot be read yet: {error}."
        now = Mark(checkpoint=folder.name, step=step, files=files, reason=lacks or NEW)
        if lacks is None and (same or self.until.once):
            now = now.model_copy(update=self._whole(step))
        news = lacks is not None and (known is None or known.reason == NEW)
        if news and self._is_due(step) and not self.until.once:
            self.say(f"{folder.name} is waited for. {lacks}")
        self._put(now)

    def _is_due(self, step: int | None) -> bool:
        """Whether a checkpoint of this step is to be audited."""
        return step is None or step % self.auditor.settings.every == 0

    def _whole(self, step: int | None) -> dict[str, Any]:
        """What a whole checkpoint is: due, or left out by its step."""
        if self._is_due(step):
            return {"state": "due", "reason": DUE}
        return {"state": "left out", "reason": EVERY.format(self.auditor.settings.every)}

    def _put(self, one: Mark, **now: Any) -> None:
        """Keep what is known of a checkpoint, on the disk too."""
        changed = one.model_copy(update=now)
        was = self.marks.get(one.checkpoint)
        if was == changed:
            return
        self.marks[one.checkpoint] = changed
        missed = ("broken", "vanished")
        if changed.state in missed or (was is not None and was.state in missed):
            self._write_missed(missed)
        write_marks(self.folder, self.marks.values())
        if changed.state in (*missed, "failed"):
            self.say(f"{one.checkpoint}: {changed.reason}")

    def _write_missed(self, states: Sequence[str]) -> None:
        missed = [
            MissedAudit(checkpoint=one.checkpoint, step=one.step, missed=one.reason)
            for one in self.marks.values()
            if one.state in states
        ]
        write_reports(self.folder, read_reports(self.folder), missed)

    def _oldest(self) -> Mark | None:
        """The next one to audit: by step, those without one last."""
        due = [one for one in self.marks.values() if one.state == "due"]
        return min(due, key=lambda one: (one.step is None, one.step, one.checkpoint), default=None)

    def _settle(self, one: Mark) -> None:
        """Audit a checkpoint, or say why it cannot be."""
        folder = self._found[one.checkpoint]
        try:
            self._put(one, **self._judged(one, folder.place))
        except (UserError, OSError) as error:
            stop_outside(error)
            if not folder.place.is_dir():
                self._put(one, state="vanished", reason=GONE)
            elif folder.files() != one.files:
                self._put(one, state="waiting", reason=CHANGED, files="")
            else:
                self._put(one, state="broken", reason=f"It cannot be audited: {error}.")
        except Exception as error:  # the next one is worth a look all the same
            stop_outside(error)
            told = f"The audit failed ({type(error).__name__}: {error}); start again to repeat it."
            self._put(one, state="failed", reason=told)
        _let_go()

    def _judged(self, one: Mark, place: Path) -> dict[str, Any]:
        """What is to be said of a whole checkpoint."""
        self.progress(f"reading {one.checkpoint}", 0, 1)
        content = content_of(place)
        self.progress(f"reading {one.checkpoint}", 1, 1)
        twin = self._with_content(content, one.step)
        if twin is not None:
            kept = ("policy", "promotable", "reason", "audit")
            return {**content, "state": "audited"} | {name: getattr(twin, name) for name in kept}
        if one.step is None:
            return {**content, "state": "left out", "reason": NO_STEP}
        report = self._audit(one, one.step)
        if report is None:
            return {"state": "waiting", "reason": CHANGED, "files": ""}
        self.say(f"{told(report)} ({one.checkpoint}). {report.alarm or ''}".rstrip())
        said = mark(one.step, report, self.auditor.settings.ceiling)
        return {**content, **said, "state": "audited", "policy": report.policy}

    def _with_content(self, content: Mapping[str, str | None], step: int | None) -> Mark | None:
        """An audited checkpoint that is the same policy, and of the same step if any."""
        known = (
            one
            for one in self.marks.values()
            if one.state == "audited" and one.content == content and step in (None, one.step)
        )
        return next(known, None)

    def _audit(self, one: Mark, step: int) -> AuditReport | None:
        """`None` where the files are not those that were read."""
        run, folder, auditor = self.run, self._found[one.checkpoint], self.auditor
        dtype = run.dtype or saved_dtype(folder, run.base)
        tokenizer = tokenizer_of(folder, run.base)
        if auditor.begun(tokenizer):  # so it is the one of the start, and one object serves all
            tokenizer = self._tokenizer = self._tokenizer or tokenizer
        else:
            start = load_start(folder, run.base, run.device, dtype)
            auditor.play_start(start, tokenizer, 0, str(run.base))
            del start
            _let_go()
        if folder.kind == "model" and dtype != auditor.start.dtype:
            raise UserError(
                f"it was saved in {dtype}, and the start was played in {auditor.start.dtype}, so"
                " that rounding alone would change the policy; start over with one --dtype for both"
            )
        model = load_model(folder, run.base, run.device, dtype)
        if folder.files() != one.files:
            return None
        self._require_own_step(one, model)
        if auditor.doubt == UNKNOWN:
            auditor.doubt = run.trained_on.doubt(auditor.environment, tokenizer)
        return auditor.audit(model, tokenizer, step, one.checkpoint)

    def _require_own_step(self, one: Mark, model: Any) -> None:
        """Two runs in one folder would audit over each other. Raises `UserError`."""
        for other in self.marks.values():
            if other.state != "audited" or other.step != one.step:
                continue
            if identify_model(model).sha256[:16] != other.policy:
                raise UserError(
                    f"{other.checkpoint} is of the same step and holds other weights; watch the"
                    " folder of one run"
                )

    def _over(self, quiet: float) -> bool:
        until, marks = self.until, self.marks.values()
        if until.once:
            return True
        if any(one.state == "waiting" and one.reason in (NEW, CHANGED) for one in marks):
            return False
        reached = any(
            one.step is not None and one.step >= until.step and one.state != "waiting"
            for one in marks
            if until.step is not None
        )
        return reached or (until.idle is not None and quiet >= until.idle)

    def _end(self) -> None:
        """The last checkpoint is the one that would be used: it is audited in any case."""
        steps = [one for one in self.marks.values() if one.state in WHOLE and one.step is not None]
        last = max(steps, key=lambda one: one.step or 0, default=None)
        if last is not None and last.state == "left out" and last.checkpoint in self._found:
            self._settle(last)
        for one in [one for one in self.marks.values() if one.state == "waiting"]:
            if self.until.once:  # nobody waits for it any more
                self._put(one, state="broken")
            else:
                self.say(f"{one.checkpoint} is not audited. {one.reason}")


def _let_go() -> None:
    """The memory of a model that nobody holds any more."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
