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
5. The history is JSON lines in the folder, and TensorBoard where asked for (an
   extra).
"""

import dataclasses
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from crosscoders.activations.streams import Stream
from crosscoders.dictionaries.crosscoder_trainer import Trainer, TrainingJob
from crosscoders.dictionaries.dictionary import Dictionary, DictionaryConfig
from crosscoders.dictionaries.difference_init import trainer_of
from crosscoders.dictionaries.settings import TrainerSettings
from forensics.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where training stands; `measures` by dictionary: loss, variance explained
    per model, L0, dead share.
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
    tensorboard: bool = False,
) -> TrainedDictionary:
    """Train one dictionary. `folder` holds its checkpoints and `history.jsonl`;
    `resume` goes on from there.

    Raises UserError where stream and dictionary do not fit, for activations
    that are not finite, and for a folder that was begun with other settings or
    on another stream.
    """
    job = TrainingJob(config=config, settings=settings or TrainerSettings())
    return train_crosscoders(
        stream,
        {"dictionary": job},
        folder=folder,
        resume=resume,
        device=device,
        progress=progress,
        tensorboard=tensorboard,
    )["dictionary"]


def train_crosscoders(
    stream: Stream,
    jobs: Mapping[str, TrainingJob],
    *,
    folder: Path | str | None = None,
    resume: bool = False,
    device: str = "auto",
    progress: Callable[[Progress], None] | None = None,
    tensorboard: bool = False,
) -> dict[str, TrainedDictionary]:
    """Train several dictionaries on the same batches. Their tokens, batch and
    seed must be the same.
    """
    settings = _common(jobs)
    first = _first_rows(stream, settings)
    _check_fit(stream, jobs, first)
    where = torch.device(
        ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    )
    trainers = {name: trainer_of(job, first, where) for name, job in jobs.items()}
    checkpoints = None if folder is None else Checkpoints(folder, jobs, stream)
    (pass_, used), rows = checkpoints.open(trainers, resume) if checkpoints else ((0, 0), [])
    history = History(checkpoints.folder if checkpoints else None, rows, tensorboard)
    done = next(iter(trainers.values())).steps_done
    while done < settings.steps:
        for index, batch in enumerate(_batches(stream, settings, pass_)):
            if index < used:
                continue
            for trainer in trainers.values():
                trainer.step(batch)
            done += 1
            last = done == settings.steps
            if last or done % settings.log_every == 0:
                now = _progress(trainers, settings, done)
                history.write(now)
                if progress:
                    progress(now)
            if checkpoints and (last or done % settings.save_every == 0):
                checkpoints.save(trainers, (pass_, index + 1), history.rows)
            if last:
                break
        pass_, used = pass_ + 1, 0
    return {
        name: TrainedDictionary(
            trainer.dictionary,
            [
                {"step": row["step"], "tokens": row["tokens"], **row["measures"][name]}
                for row in history.rows
            ],
        )
        for name, trainer in trainers.items()
    }


def _progress(trainers: Mapping[str, Trainer], settings: TrainerSettings, done: int) -> Progress:
    measures = {name: trainer.measures() for name, trainer in trainers.items()}
    for name, values in measures.items():
        if values["loss"] != values["loss"]:
            raise UserError(
                f"training of {name} diverged before step {done}; lower the learning rate and"
                " go on from the last checkpoint or start again"
            )
    return Progress(
        step=done, steps=settings.steps, tokens=done * settings.batch, measures=measures
    )


class Checkpoints:
    """The folder of a training, and what it was begun with."""

    def __init__(self, folder: Path | str, jobs: Mapping[str, TrainingJob], stream: Stream) -> None:
        self.folder = Path(folder)
        self.begun: dict[str, Any] = {
            "stream": stream.identity,
            "site": stream.site,
            "jobs": {},
        }

        for name, job in jobs.items():
            record = json.loads(json.dumps(dataclasses.asdict(dataclasses.replace(job, view=None))))
            if job.view is not None:
                record["view"] = getattr(job.view, "__name__", type(job.view).__name__)
            self.begun["jobs"][name] = record

    @property
    def latest(self) -> Path:
        return self.folder / "latest.json"

    def open(
        self, trainers: Mapping[str, Trainer], resume: bool
    ) -> tuple[tuple[int, int], list[dict[str, Any]]]:
        """Position and history to go on from, with the trainers loaded; the
        start, if nothing is there yet.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self.latest.exists():
            return (0, 0), []
        if not resume:
            raise UserError(
                f"{self.folder} holds a training already; resume it, or choose another folder"
            )
        state = json.loads(self.latest.read_text())
        if state["begun"] != self.begun:
            raise UserError(
                f"the training in {self.folder} was begun with"
                f" {_differing(state['begun'], self.begun)}; resume it with the same, or choose"
                " another folder"
            )
        for name, trainer in trainers.items():
            trainer.load(load_file(self.folder / state["checkpoint"] / f"{name}.safetensors"))
        return (state["pass"], state["used"]), state["history"]

    def save(
        self, trainers: Mapping[str, Trainer], at: tuple[int, int], history: list[dict[str, Any]]
    ) -> None:
        done = next(iter(trainers.values())).steps_done
        checkpoint = self.folder / f"step-{done:08d}"
        checkpoint.mkdir(exist_ok=True)
        for name, trainer in trainers.items():
            save_file(trainer.state(), checkpoint / f"{name}.safetensors")
        state = {
            "checkpoint": checkpoint.name,
            "pass": at[0],
            "used": at[1],
            "begun": self.begun,
            "history": history,
        }
        part = self.latest.with_suffix(".part")
        part.write_text(json.dumps(state, indent=1))
        os.replace(part, self.latest)
        for old in self.folder.glob("step-*"):
            if old.name != checkpoint.name:
                shutil.rmtree(old)


def _differing(old: Mapping[str, Any], new: Mapping[str, Any], under: str = "") -> str:
    """The first entry that differs, in words."""
    for name in [*old, *(name for name in new if name not in old)]:
        there, here = old.get(name), new.get(name)
        if there == here:
            continue
        if isinstance(there, dict) and isinstance(here, dict):
            return _differing(there, here, f"{under}{name}.")
        return f"{under}{name} = {there} (now {here})"
    return "other settings"


class History:
    """Rows so far, and their files."""

    def __init__(self, folder: Path | None, rows: list[dict[str, Any]], tensorboard: bool) -> None:
        self.rows = rows
        self.file = folder / "history.jsonl" if folder else None
        if self.file:  # what a cut-off run wrote later goes
            self.file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        self.board = _board(folder) if tensorboard else None

    def write(self, now: Progress) -> None:
        row = {"step": now.step, "tokens": now.tokens, "measures": now.measures}
        self.rows.append(row)
        if self.file:
            with self.file.open("a") as file:
                file.write(json.dumps(row) + "\n")
        if not self.board:
            return
        for dictionary, measures in now.measures.items():
            for name, value in measures.items():
                several = value if isinstance(value, list) else [value]
                for index, number in enumerate(several):
                    if number is not None:
                        end = f"/{index}" if isinstance(value, list) else ""
                        self.board.add_scalar(f"{dictionary}/{name}{end}", number, now.tokens)
        self.board.flush()


def _board(folder: Path | None) -> Any:
    if folder is None:
        raise UserError("TensorBoard needs a folder to write to; give `folder`")
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as missing:
        raise UserError(
            "TensorBoard is not installed; install policy-forensics[tensorboard]"
        ) from missing
    return SummaryWriter(str(folder / "tensorboard"))


def _batches(stream: Stream, settings: TrainerSettings, pass_: int) -> Iterator[Tensor]:
    """Batches `[batch, models, width]` of one pass; a pass shorter than a batch is one batch."""
    held: list[Tensor] = []
    number, whole = 0, False
    for block in stream.blocks(settings.seed + pass_):
        held.append(_finite(block.activations, stream))
        number += len(block.activations)
        if number < settings.batch:
            continue
        joined = torch.cat(held)
        whole = True
        for first in range(0, number - settings.batch + 1, settings.batch):
            yield joined[first : first + settings.batch]
        held = [joined[number - number % settings.batch :]]
        number %= settings.batch
    if not whole:
        if not number:
            raise UserError(
                f"the stream at {stream.site} gave no rows; give it texts, or a mask that keeps"
                " some"
            )
        yield torch.cat(held)


def _finite(activations: Tensor, stream: Stream) -> Tensor:
    if not bool(activations.isfinite().all()):
        raise UserError(
            f"activations at {stream.site} hold NaN or infinite values; run the models in float32"
            " or bfloat16 instead of float16, or leave out the texts that make them (what was"
            " trained so far is in the last checkpoint)"
        )
    return activations


def _first_rows(stream: Stream, settings: TrainerSettings) -> Tensor:
    """The first `scale_rows` rows of the first pass."""
    held: list[Tensor] = []
    for block in stream.blocks(settings.seed):
        held.append(_finite(block.activations, stream))
        if sum(map(len, held)) >= settings.scale_rows:
            break
    if not sum(map(len, held)):
        raise UserError(
            f"the stream at {stream.site} gave no rows; give it texts, or a mask that keeps some"
        )
    return torch.cat(held)[: settings.scale_rows]


def _common(jobs: Mapping[str, TrainingJob]) -> TrainerSettings:
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


def _check_fit(stream: Stream, jobs: Mapping[str, TrainingJob], first: Tensor) -> None:
    for name, job in jobs.items():
        seen = first[:1] if job.view is None else job.view(first[:1])
        if seen.shape[1:] != (job.config.models, job.config.width):
            raise UserError(
                f"{name} is for {job.config.models} models of width {job.config.width}, but the"
                f" stream at {stream.site} has {seen.shape[1]} of width {seen.shape[2]}; change the"
                " dictionary's config"
            )
