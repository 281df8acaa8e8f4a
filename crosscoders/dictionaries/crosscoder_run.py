"""Training on a stream: one pass serves every dictionary, and what was cut off
goes on with the same bits.

1. Blocks of any size are cut into batches of one size; what a pass leaves over
   is dropped, unless it is all there is.
2. Pass `p` is the stream's `blocks(seed + p)`. A checkpoint knows the pass and
   the batch; going on repeats the pass's order and skips what was used.
3. Every number of a batch is checked to be finite as it leaves the stream, so a
   broken one never reaches the weights.
4. Checkpoints are safetensors and JSON, never pickle. One is written into a
   folder of its own; only then does `latest.json` name it, and only then the
   one before is removed. Whatever interrupts this leaves a whole one.

How many bytes a training will take, by arithmetic, before anything is loaded.

What is held at the most, in the middle of Adam's step, when all gradients are there:

1. *Weights*, two *moments* and the *gradients*, all float32.
2. *Scratch*: the pre-activations `[rows, latents]`; of functions that do not choose by rank
   also what the dense path keeps of them.
3. *Copies*: in bfloat16 the encoders and their gradients once more, in two bytes; of tied
   decoders the table of each model, and one's gradient.
4. *Batch*: rows in the dictionary's units, their errors and gradients; *pairs*: indices and
   values of the active ones.

The host holds the stream's shuffling pool too, three times while it fills, and the first
rows; the disk holds each row of each model once. tests/crosscoders/test_byte_plan.py counts what
torch allocates and finds the plan within a tenth of it.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from crosscoders.activation_functions import activation_function
from crosscoders.activations.harvest import size_told
from crosscoders.activations.streams import Stream, in_blocks
from crosscoders.dictionaries.crosscoder_trainer import Trainer, TrainingJob, stacks
from crosscoders.dictionaries.dictionary import Dictionary, DictionaryConfig
from crosscoders.dictionaries.settings import TrainerSettings
from crosscoders.dictionaries.sparse import CHUNK_ON_CUDA
from forensics.errors import UserError
from forensics.policies import free_memory, resolve_device
from forensics.records import disk_told, read_json, write_json
from forensics.study import require_same

FLOAT = 4
BATCHES = 4  # of the rows [rows, models, width]: scaled, centred, errors, their gradient
PAIRS = 80  # bytes of an active pair: its row, latent, order and value, and copies while summed
DENSE = 39  # bytes of every (row, latent) that the dense path keeps beside the pre-activation
POOL = 65_536  # rows of a stored stream's pool
FILLING = 3  # copies of the pool while it fills


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """Bytes at the most. `on_host`: whether the device is the host itself."""

    weights: int
    moments: int
    gradients: int
    scratch: int
    copies: int
    batch: int
    pairs: int
    pool: int
    store: int
    on_host: bool

    @property
    def training(self) -> int:
        """What the training itself holds, on its device."""
        held = (self.weights, self.moments, self.gradients, self.scratch, self.copies)
        return sum(held) + self.batch + self.pairs

    @property
    def device(self) -> int:
        return self.training + (self.pool if self.on_host else 0)

    @property
    def host(self) -> int:
        """Beside a GPU the weights are drawn here, and held twice meanwhile."""
        return self.device if self.on_host else self.pool + 2 * self.weights


def memory_plan(
    config: DictionaryConfig,
    settings: TrainerSettings,
    *,
    device: str = "cpu",
    stored_rows: int | None = None,
    stored_bytes: int = 2,
) -> MemoryPlan:
    """Bytes by what holds them. `stored_rows` of the stream (default: as many as are trained
    on), of numbers of `stored_bytes` bytes.
    """
    part, models = config.partition, config.models
    rows = settings.batch
    encoders = config.width * sum(_length(part.read(m, models)) for m in range(models))
    tables = config.width * sum(_length(part.seen(m, models)) for m in range(models))
    tied = config.width * (models - 1) * _length(part.shared) if part.tied else 0
    function = activation_function(config.activation)
    own = function.parameters(part.latents, settings).values()
    numbers = encoders + tables - tied + part.latents + models * config.width
    numbers += sum(each.numel() for each in own)
    low = settings.precision == "bfloat16"
    pre = rows * part.latents * ((2 if low else FLOAT) + (DENSE if _dense(config) else 0))
    row = models * config.width
    active = int(rows * (0 if _dense(config) else config.k + (config.own_k or 0)))
    on_host = torch.device(device).type == "cpu"
    gathered = 0 if on_host or not low else 2 * 2 * config.width * min(active, CHUNK_ON_CUDA)
    stored = settings.tokens if stored_rows is None else stored_rows
    return MemoryPlan(
        weights=FLOAT * (numbers + part.latents),
        moments=2 * FLOAT * numbers,
        gradients=FLOAT * numbers,
        scratch=pre,
        copies=(2 * 2 * encoders if low else 0)
        + (FLOAT * tables * (models + 1) // models if part.tied else 0),
        batch=BATCHES * FLOAT * rows * row,
        pairs=PAIRS * active * models + gathered,
        pool=row * stored_bytes * (FILLING * min(POOL, stored) + settings.scale_rows),
        store=stored * row * stored_bytes,
        on_host=on_host,
    )


def require_memory(jobs: Mapping[str, TrainingJob], device: torch.device) -> None:
    """Raise `UserError` where these trainings take more than the device has free."""
    plans = [memory_plan(job.config, job.settings, device=device.type) for job in jobs.values()]
    needed, free = sum(plan.training for plan in plans), free_bytes(device)
    if free is None or needed <= free:
        return
    held = sum(plan.weights + plan.moments + plan.gradients for plan in plans)
    raise UserError(
        f"this training takes {size_told(needed)}, {size_told(held)} of it for weights, moments"
        f" and gradients, and {device} has {size_told(free)} free; give fewer latents, a smaller"
        " batch, precision bfloat16, or a larger device"
    )


def free_bytes(device: torch.device) -> int | None:
    """Of a device; `None` where the system does not say."""
    if device.type == "cuda":
        return free_memory(device)
    told = Path("/proc/meminfo")
    if device.type != "cpu" or not told.is_file():
        return None
    lines = (line.split() for line in told.read_text().splitlines())
    free = next((int(words[1]) * 1024 for words in lines if words[0] == "MemAvailable:"), None)
    limit, used = (Path("/sys/fs/cgroup") / f"memory.{name}" for name in ("max", "current"))
    if free is not None and limit.is_file() and (most := limit.read_text().strip()).isdigit():
        free = min(free, int(most) - int(used.read_text()))
    return free


def _dense(config: DictionaryConfig) -> bool:
    return activation_function(config.activation).by_rank == "never"


def _length(part: slice) -> int:
    return int(part.stop - part.start)


LATEST = "latest.json"
OFTEN = 10  # steps between two words about how far it is


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where training stands; `measures` by dictionary, of the last step that was logged: loss,
    variance explained per model, L0, dead share.
    """

    step: int
    steps: int
    tokens: int
    measures: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class TrainedDictionary:
    """A trained dictionary and its history: one row every `log_every` steps."""

    dictionary: Dictionary
    history: list[dict[str, Any]]


def train_crosscoder(
    stream: Stream,
    config: DictionaryConfig,
    settings: TrainerSettings | None = None,
    *,
    folder: Path | str | None = None,
    resume: bool = False,
    device: str = "auto",
    progress: Callable[[Progress], None] | None = None,
) -> TrainedDictionary:
    """Train one dictionary. `folder` holds its checkpoints and history;
    `resume` goes on from there.

    Raises UserError where stream and dictionary do not fit, where the device has too little
    memory, for activations that are not finite, and for a folder that was begun with other
    settings or on another stream.
    """
    job = TrainingJob(config=config, settings=settings or TrainerSettings())
    return train_crosscoders(
        stream,
        {"dictionary": job},
        folder=folder,
        resume=resume,
        device=device,
        progress=progress,
    )["dictionary"]


def train_crosscoders(
    stream: Stream,
    jobs: Mapping[str, TrainingJob],
    *,
    folder: Path | str | None = None,
    resume: bool = False,
    device: str = "auto",
    progress: Callable[[Progress], None] | None = None,
) -> dict[str, TrainedDictionary]:
    """Train several dictionaries on the same batches. Their tokens, batch and
    seed must be the same.
    """
    settings = common_settings(jobs)
    where = torch.device(resolve_device(device))
    require_memory(jobs, where)
    scaling = replace(settings, batch=settings.scale_rows)
    first, _, _ = next(endless_batches(stream, scaling, 0, 0))  # for scale and first centres
    _require_fit(stream, jobs, first[:1])
    trainers = {name: Trainer(job, first, where) for name, job in jobs.items()}
    journal = Journal(folder, jobs, stream)
    batches = endless_batches(stream, settings, *journal.open(trainers, resume))
    steppers = stacks(trainers.values())
    start, now = next(iter(trainers.values())).steps_done, None
    for done in range(start + 1, settings.steps + 1):
        batch, pass_, used = next(batches)
        for stepper in steppers:
            stepper.step(batch)
        if done == settings.steps or done % settings.log_every == 0:
            measures = {name: trainer.measures() for name, trainer in trainers.items()}
            if broken := [name for name, one in measures.items() if one["loss"] != one["loss"]]:
                raise UserError(
                    f"training of {broken[0]} diverged before step {done}; lower the learning"
                    " rate and go on from the last checkpoint or start again"
                )
            now = Progress(
                step=done, steps=settings.steps, tokens=done * settings.batch, measures=measures
            )
            journal.rows.append({"step": done, "tokens": now.tokens, "measures": measures})
        if progress and now and (now.step == done or done % OFTEN == 0):
            progress(replace(now, step=done, tokens=done * settings.batch))
        if done == settings.steps or done % settings.save_every == 0:
            journal.save(trainers, pass_, used)
    return {
        name: TrainedDictionary(
            trainer.dictionary,
            [
                {"step": row["step"], "tokens": row["tokens"], **row["measures"][name]}
                for row in journal.rows
            ],
        )
        for name, trainer in trainers.items()
    }


class Journal:
    """The folder of a training (none: nothing is written): what it was begun with,
    its checkpoints, and its history `rows`.
    """

    def __init__(
        self, folder: Path | str | None, jobs: Mapping[str, TrainingJob], stream: Stream
    ) -> None:
        self.folder = None if folder is None else Path(folder)
        self.rows: list[dict[str, Any]] = []
        self.begun: dict[str, Any] = {"stream": stream.identity, "site": stream.site}
        for name, job in jobs.items():
            view = getattr(job.view, "__name__", None) or type(job.view).__name__
            stated = {**asdict(job.config), **asdict(job.settings), "view": view}
            told = json.loads(json.dumps(stated))
            self.begun |= {f"{name} {field}": value for field, value in told.items()}

    def open(self, trainers: Mapping[str, Trainer], resume: bool) -> tuple[int, int]:
        """Pass and batch to go on from, with the trainers and the history loaded;
        the start, if nothing is there yet.
        """
        at = 0, 0
        if self.folder is None:
            return at
        self.folder.mkdir(parents=True, exist_ok=True)
        if (self.folder / LATEST).exists():
            if not resume:
                raise UserError(
                    f"{self.folder} holds a training already; resume it, or choose another folder"
                )
            state = read_json(self.folder / LATEST)
            require_same(self.folder, state["begun"], self.begun)
            for name, trainer in trainers.items():
                trainer.load(load_file(self.folder / state["checkpoint"] / f"{name}.safetensors"))
            at, self.rows = (state["pass"], state["used"]), state["history"]
        return at

    def save(self, trainers: Mapping[str, Trainer], pass_: int, used: int) -> None:
        """A checkpoint, in place of the one before."""
        if self.folder is None:
            return
        checkpoint = self.folder / f"step-{next(iter(trainers.values())).steps_done:08d}"
        checkpoint.mkdir(exist_ok=True)
        for name, trainer in trainers.items():
            with disk_told(checkpoint / f"{name}.safetensors"):
                save_file(trainer.state(), checkpoint / f"{name}.safetensors")
        state = {
            "checkpoint": checkpoint.name,
            "pass": pass_,
            "used": used,
            "begun": self.begun,
            "history": self.rows,
        }
        write_json(self.folder / LATEST, state)
        for old in self.folder.glob("step-*"):
            if old.name != checkpoint.name:
                shutil.rmtree(old)


def endless_batches(
    stream: Stream, settings: TrainerSettings, pass_: int, used: int
) -> Iterator[tuple[Tensor, int, int]]:
    """Batches `[batch, models, width]` of pass after pass, each with its pass and how many of
    it are then used; those of the first pass that are `used` already are left out. A pass
    shorter than a batch is one batch. Raises `UserError` where a value is not finite, or
    where there are no rows.
    """
    while True:
        number = 0
        blocks = in_blocks(stream.blocks(settings.seed + pass_), settings.batch)
        for number, block in enumerate(blocks, 1):
            rows = block.activations
            if not bool(rows.isfinite().all()):
                raise UserError(
                    f"activations at {stream.site} hold NaN or infinite values; run the models in"
                    " float32 or bfloat16 instead of float16, or leave out the texts that make"
                    " them (what was trained so far is in the last checkpoint)"
                )
            if number > used and (number == 1 or len(rows) == settings.batch):
                yield rows, pass_, number
        if not number:
            raise UserError(
                f"the stream at {stream.site} gave no rows; give it texts, or a mask that keeps"
                " some"
            )
        pass_, used = pass_ + 1, 0


def common_settings(jobs: Mapping[str, TrainingJob]) -> TrainerSettings:
    """What the jobs share; the first one's logging and saving count."""
    if not jobs:
        raise UserError("no dictionary to train; name at least one")
    settings = [job.settings for job in jobs.values()]
    for name in ("tokens", "batch", "seed", "scale_rows"):
        values = {getattr(each, name) for each in settings}
        if len(values) > 1:
            raise UserError(
                f"dictionaries of one stream must share {name}, not {sorted(values)}; give all the"
                " same"
            )
    return settings[0]


def _require_fit(stream: Stream, jobs: Mapping[str, TrainingJob], row: Tensor) -> None:
    for name, job in jobs.items():
        seen = row if job.view is None else job.view(row)
        if seen.shape[1:] != (job.config.models, job.config.width):
            raise UserError(
                f"{name} is for {job.config.models} models of width {job.config.width}, but the"
                f" stream at {stream.site} has {seen.shape[1]} of width {seen.shape[2]}; change the"
                " dictionary's config"
            )
