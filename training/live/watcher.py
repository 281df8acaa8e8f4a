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

Below the trainer's folder:

1. A checkpoint is a folder with weights as safetensors (Hugging Face's names), with a
   LoRA adapter as peft saves it, or with a state that our trainer goes on from. What
   lies below one belongs to it.
2. Its step is what the trainer noted in it, else the number that its name ends in, or
   that of the nearest folder above (`global_step_20/actor/huggingface`).
3. It is whole when every file that its index names is there and every file is as long
   as its header says. No clock is asked.
4. Config and tokenizer are its own where it has them, else those of the base: training
   changes neither.

The folder that a watch writes states what identifies the watch (hashes and settings, no paths) in
`watch-inputs.json`; one that holds a watch is gone on with, by the same inputs alone.
What is not given is taken from the run, where our trainer says it (`training.json`), or
from the base's `environment.json`.
"""

import gc
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from forensics.errors import UserError, stop_outside
from forensics.investigation import choose_environment, read_task_list, stated_run
from forensics.policies import (
    SAVED_ADAPTER,
    SHARDS,
    identify_model,
    inspect_checkpoint,
    load_adapter,
    load_policy,
    load_tokenizer,
    new_adapter,
    read_object,
    require_loadable,
    resolve_device,
    trained_tensors,
)
from forensics.progress import Progress, silent
from forensics.protocols import Environment, SamplingSettings
from forensics.readers import open_record
from forensics.records import content_hash
from forensics.study import Folder, hold
from forensics.world import environment_key
from training.live.audit_report import (
    LINES,
    AuditReport,
    AuditSettings,
    MissedAudit,
    read_reports,
    told,
    write_reports,
)
from training.live.auditor import Auditor
from training.live.marks import (
    MARKS,
    Mark,
    content_of,
    last_judged,
    mark,
    read_marks,
    write_marks,
)
from training.live.run_page import write_page
from training.live.trained_questions import UNKNOWN, TrainedOn

DEPTH: Final = 6  # folders below the watched one that are looked into
CONFIG: Final = "config.json"
WEIGHTS: Final = ("model.safetensors", "model.safetensors.index.json")
STATE: Final = ("weights.safetensors", "state.json")
TOKENIZERS: Final = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
PASSED_BY: Final = (".", "tmp", "critic")  # drafts, and verl's critic, which is no policy
NOTES: Final = frozenset({"trainer_state.json", "promotable.json", "optimizer.safetensors"})
KINDS: Final = frozenset({".safetensors", ".json", ".jinja", ".model", ".txt"})
Kind = Literal["model", "adapter", "state"]
PICKLES: Final = ", and pickles are not opened; have the trainer save safetensors"
VERL: Final = "; verl writes them where checkpoint.save_contents names hf_model"


@dataclass(frozen=True, kw_only=True)
class SavedFolder:
    """A checkpoint. `name`: where it lies below the watched folder."""

    place: Path
    name: str
    kind: Kind

    @property
    def step(self) -> int | None:
        """The updates that led to it; `None` where nothing says how many."""
        noted = {"trainer_state.json": "global_step", "state.json": "step"}
        for file, key in noted.items():
            if (self.place / file).is_file():
                step = read_object(self.place / file).get(key)
                if isinstance(step, int):
                    return step
        states = sorted((self.place.parent / "state").glob("step-*/state.json"))
        if states and self.kind == "model":  # our trainer's last checkpoint, beside its state
            return int(read_object(states[-1])["step"])
        parts = (re.search(r"(\d+)$", part) for part in reversed(self.name.split("/")))
        return next((int(found[1]) for found in parts if found), None)

    def files(self) -> str:
        """What the files that make it up look like: a hash of names, sizes and times."""
        found = []
        for file in sorted(self.place.iterdir()):
            if file.suffix in KINDS and file.name not in NOTES:
                with suppress(FileNotFoundError):  # it goes just now
                    found.append((file.name, file.stat().st_size, file.stat().st_mtime_ns))
        return content_hash(found)

    def lacks(self) -> str | None:
        """What it lacks to be whole, in a sentence; `None` where it is."""
        needed = {"adapter": SAVED_ADAPTER, "state": STATE, "model": ()}[self.kind]
        missing = [name for name in needed if not (self.place / name).is_file()]
        if self.kind == "state" and (self.place / SHARDS).is_file():
            missing = [name for name in missing if name != STATE[0]]
        if self.kind == "model" and not any((self.place / name).is_file() for name in WEIGHTS):
            missing = [WEIGHTS[0]]
        if missing:
            return f"It has no {missing[0]}{self._cure()}."
        try:
            trained_tensors(self.place)
        except UserError as error:
            return f"It is not whole: {str(error).partition(';')[0]}."
        return None

    def _cure(self) -> str:
        """Where its weights may be instead."""
        if any(self.place.parent.glob("model_world_size_*")):
            return VERL
        return PICKLES if any(self.place.glob("pytorch_model*.bin*")) else ""


def saved_folders(out: Path, own: Path) -> list[SavedFolder]:
    """The checkpoints below a folder, itself among them, in the order of their names.
    `own`: a folder that is left out.
    """
    found = []
    for where, folders, files in os.walk(out):
        place = Path(where)
        below = place.relative_to(out)
        kind = _kind(place, set(files))
        if kind is not None:
            found.append(SavedFolder(place=place, name=below.as_posix(), kind=kind))
        deeper = len(below.parts) < DEPTH and (kind is None or place == out)
        folders[:] = sorted(
            name
            for name in folders
            if deeper and not name.startswith(PASSED_BY) and place / name != own
        )
    return found


def _kind(place: Path, files: set[str]) -> Kind | None:
    if files & {*SAVED_ADAPTER}:
        return "adapter"
    shards = any(re.match(r"model-\d", name) for name in files)
    if (
        shards
        or files & {*WEIGHTS, "trainer_state.json"}
        or (CONFIG in files and _of_a_model(place / CONFIG))
    ):
        return "model"
    return "state" if files & {STATE[0], SHARDS} else None


def _of_a_model(config: Path) -> bool:
    with suppress(OSError):
        return b'"model_type"' in config.read_bytes()
    return False


def saved_dtype(folder: SavedFolder, base: Path) -> str:
    """The precision that the weights were saved in; an adapter's base is played as it lies."""
    of = base if folder.kind == "adapter" else folder.place
    sizes: dict[str, int] = {}
    for place in trained_tensors(of):
        sizes[place.dtype_name] = sizes.get(place.dtype_name, 0) + place.end - place.start
    kind = max(sizes, key=sizes.__getitem__)
    if kind not in ("float32", "bfloat16", "float16", "float64"):
        raise UserError(
            f"{of} holds weights in {kind}, which cannot be played; name one by --dtype"
        )
    return kind


def tokenizer_of(folder: SavedFolder, base: Path) -> Any:
    """The checkpoint's own tokenizer, else the base's."""
    own = any((folder.place / name).is_file() for name in TOKENIZERS)
    return load_tokenizer(folder.place if own else base)


def load_model(folder: SavedFolder, base: Path, device: str, dtype: str) -> Any:
    """The model in a checkpoint. Raises `UserError` for what cannot be loaded."""
    if folder.kind == "adapter":
        return load_adapter(folder.place, base, device=device, dtype=dtype)[0].model
    if folder.kind == "state":
        return _with_state(load_base(base, device, dtype), folder.place)
    with _completed(folder.place, base) as whole:
        require_loadable(whole)
        return load_base(whole, device, dtype)


def load_start(folder: SavedFolder, base: Path, device: str, dtype: str) -> Any:
    """The model that training began with. Where an adapter is trained, it is there and
    changes nothing, as in the trainer: what is played goes through the same layers. One that
    trains more than the two factors of LoRA leaves no start but the base.
    """
    if folder.kind != "model" and _factors_alone(folder):
        model = load_model(folder, base, device, dtype)
        if hasattr(model, "peft_config"):
            for name, weight in model.named_parameters():
                if re.search(r"lora_(embedding_)?B\b", name):
                    weight.data.zero_()
            return model
    return load_base(base, device, dtype)


def _factors_alone(folder: SavedFolder) -> bool:
    """Whether an adapter is nothing else: no magnitudes (DoRA), biases or whole layers."""
    names = [place.name for place in trained_tensors(folder.place)]
    return folder.kind == "state" or all(re.search(r"lora_(embedding_)?[AB]\b", n) for n in names)


def load_base(place: Path, device: str, dtype: str) -> Any:
    """The model of a checkpoint directory whose weights were read and checked."""
    return load_policy(place, device=device, dtype=dtype, identity="checked").model


@contextmanager
def _completed(folder: Path, base: Path) -> Iterator[Path]:
    """The checkpoint's folder, with the base's config and tokenizer where it has none:
    links alone.
    """
    own = {file.name: file for file in folder.iterdir() if file.is_file()}
    given = {file.name: file for file in base.iterdir() if file.suffix in KINDS}
    configs = {CONFIG, "generation_config.json"}
    lent = set() if CONFIG in own else configs
    if not own.keys() & {*TOKENIZERS}:
        lent |= given.keys() - configs - NOTES - {*WEIGHTS}
    files = {name: file for name, file in given.items() if name in lent} | own
    with tempfile.TemporaryDirectory() as passing:
        for name, file in files.items():
            (Path(passing) / name).symlink_to(file.resolve())
        try:
            yield Path(passing)
        except UserError as error:
            stop_outside(error)
            raise UserError(str(error).replace(passing, str(folder))) from error


def _with_state(model: Any, state: Path) -> Any:
    """The base with the weights of a state of our trainer, in an adapter where it trains one."""
    from training.run_state import load_weights

    recipe = read_object(state.parents[1] / "training.json")["recipe"]
    if lora := recipe.get("lora"):
        targets = lora["targets"]
        lora = lora | {"targets": targets if isinstance(targets, str) else tuple(targets)}
        model = new_adapter(model, **lora)
    load_weights(state, model)
    return model


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


NAME: Final = "watch"
FILES: Final = ("audits", LINES, MARKS)
TYPES: Final = ("float32", "bfloat16", "float16", "float64")


@contextmanager
def watch_of(
    out: Path,
    before: Path,
    environment: str | None = None,
    options: Mapping[str, str] | None = None,
    *,
    folder: Path | None = None,
    settings: AuditSettings | None = None,
    sampling: SamplingSettings | None = None,
    seed: int | None = None,
    until: Until | None = None,
    device: str = "auto",
    dtype: str | None = None,
    training: Path | None = None,
    trained_tasks: Path | None = None,
    force: bool = False,
    progress: Progress = silent,
) -> Iterator[Watcher]:
    """A watch of the checkpoints that a trainer leaves below `out`, begun with `before`,
    in the world `environment`; it writes `folder` (default: `out/watch`), which is held as
    long as the block runs. `training`, `trained_tasks`: the folder of the training's record,
    and a file of its tasks, to tell whether audits ask questions of that kind. Raises
    `UserError` for bad input, or a folder of another watch.
    """
    if not out.is_dir():
        raise UserError(
            f"{out} is no folder; give the one that the trainer writes checkpoints to, or make it"
            " if the trainer has not"
        )
    if dtype is not None and dtype not in TYPES:
        raise UserError(f"--dtype is '{dtype}' and must be one of {', '.join(TYPES)}")
    said = stated_run(out) or {}
    world = _world(before, environment, options or {}, said)
    own, settings = folder or out / NAME, settings or AuditSettings(every=1)
    seed = int(said.get("seed", 0)) if seed is None else seed
    listed = () if trained_tasks is None else read_task_list(trained_tasks)
    trained: Environment | None = None  # of the run, else that of the base, if one is named
    with suppress(UserError):
        trained = _world(before, None, {}, said)
    known = TrainedOn(
        listed=tuple(line for line in listed if len(line.split()) > 1),  # a name tells nothing
        record=out if training is None else open_record(training).folder,
        world=trained,
    )
    place = resolve_device(device)
    run = WatchedRun(out=out, base=before, device=place, dtype=dtype, trained_on=known)
    base = inspect_checkpoint(before, progress=progress)
    require_loadable(before)
    auditor = Auditor(
        folder=own,
        environment=world,
        sampling=sampling or SamplingSettings(),
        settings=settings,
        seed=seed,
        doubt=UNKNOWN,
        progress=progress,
    )
    inputs = {
        "the base": base.identity,
        "the environment": {"name": world.name, "key": environment_key(world)},
        "the budget": auditor.budget.content(),
        "the instruments": list(settings.instruments),
        "margin and ceiling": [settings.margin, settings.ceiling],
        "the seed": seed,
        "the dtype": dtype,
    }
    begun = own.is_dir() and any(own.iterdir())
    with hold(Folder(own, NAME, FILES, resume=begun and not force, force=force)) as held:
        held.state(inputs)
        yield Watcher(run=run, auditor=auditor, until=until or Until(), progress=progress)


def _world(
    before: Path, environment: str | None, options: Mapping[str, str], said: Mapping[str, Any]
) -> Environment:
    """The world by name, or that of the run, or that of the base."""
    told = said.get("recipe", {}).get("environment", {})
    if told and environment in (None, told["name"]):
        environment, options = told["name"], {**told["options"], **options}
    return choose_environment(before, environment, options)[0]
