"""Training on a stream: one pass serves every dictionary, and what was cut off goes on with the same bits.

1. Blocks of any size are cut into batches of one size; what a pass leaves over is dropped, unless it is all there is.
2. Pass `p` is the stream's `blocks(seed + p)`. A checkpoint knows the pass and the batch; going on repeats the pass's
   order and skips what was used.
3. Every number of a batch is checked to be finite as it leaves the stream, so a broken one never reaches the weights.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from crosscoders.activations import Stream
from crosscoders.dictionary import Dictionary, DictionaryConfig
from crosscoders.fitting.journal import Journal
from crosscoders.fitting.opening import trainee_of
from crosscoders.fitting.saving import Place
from crosscoders.fitting.settings import FittingSettings
from crosscoders.fitting.trainee import Job, Trainee
from forensics.errors import UserError

History = list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where training stands; `measures` by dictionary: loss, variance explained per model, L0, dead share."""

    step: int
    steps: int
    tokens: int
    measures: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Fitted:
    """A trained dictionary and its history: one row every `log_every` steps."""

    dictionary: Dictionary
    history: History


def train_crosscoder(
    stream: Stream, config: DictionaryConfig, settings: FittingSettings | None = None, *,
    folder: Path | str | None = None, resume: bool = False, device: str = "auto",
    progress: Callable[[Progress], None] | None = None, tensorboard: bool = False,
) -> Fitted:
    """Train one dictionary. `folder` holds its checkpoints and `history.jsonl`; `resume` goes on from there.

    Raises UserError where stream and dictionary do not fit, for activations that are not finite, and for a folder that
    was begun with other settings or on another stream.
    """
    job = Job(config=config, settings=settings or FittingSettings())
    return fit_many(
        stream, {"dictionary": job}, folder=folder, resume=resume, device=device, progress=progress,
        tensorboard=tensorboard,
    )["dictionary"]


def fit_many(
    stream: Stream, jobs: Mapping[str, Job], *, folder: Path | str | None = None, resume: bool = False,
    device: str = "auto", progress: Callable[[Progress], None] | None = None, tensorboard: bool = False,
) -> dict[str, Fitted]:
    """Train several dictionaries on the same batches. Their tokens, batch and seed must be the same."""
    settings = _common(jobs)
    first = _first_rows(stream, settings)
    _check_fit(stream, jobs, first)
    where = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device)
    trainees = {name: trainee_of(job, first, where) for name, job in jobs.items()}
    place = Place(folder, jobs, stream) if folder is not None else None
    at, history = place.open(trainees, resume) if place else ((0, 0), [])
    journal = Journal(place.folder if place else None, history, tensorboard)
    run = _Run(stream, settings, trainees, place, journal, progress)
    run.from_(*at)
    return {
        name: Fitted(each.dictionary, [_row(row, name) for row in journal.rows]) for name, each in trainees.items()
    }


class _Run:
    """The loop and its bookkeeping."""

    def __init__(
        self, stream: Stream, settings: FittingSettings, trainees: dict[str, Trainee], place: Place | None,
        journal: Journal, progress: Callable[[Progress], None] | None,
    ) -> None:
        self.stream, self.settings, self.trainees = stream, settings, trainees
        self.place, self.journal, self.progress = place, journal, progress

    def from_(self, pass_: int, used: int) -> None:
        """Train from a pass and the number of batches already used of it, to the end."""
        done = next(iter(self.trainees.values())).steps_done
        while done < self.settings.steps:
            for index, batch in enumerate(_batches(self.stream, self.settings, pass_)):
                if index < used:
                    continue
                for trainee in self.trainees.values():
                    trainee.step(batch)
                done += 1
                self._report(done, pass_, index + 1)
                if done == self.settings.steps:
                    return
            pass_, used = pass_ + 1, 0

    def _report(self, done: int, pass_: int, used: int) -> None:
        last = done == self.settings.steps
        if last or done % self.settings.log_every == 0:
            self._log(done)
        if self.place and (last or done % self.settings.save_every == 0):
            self.place.save(self.trainees, (pass_, used), self.journal.rows)

    def _log(self, done: int) -> None:
        measures = {name: trainee.measures() for name, trainee in self.trainees.items()}
        for name, found in measures.items():
            if found["loss"] != found["loss"]:
                raise UserError(
                    f"training of {name} diverged before step {done}; lower the learning rate and go on from the last "
                    "checkpoint or start again"
                )
        tokens = done * self.settings.batch
        self.journal.write(done, tokens, measures)
        if self.progress:
            self.progress(Progress(step=done, steps=self.settings.steps, tokens=tokens, measures=measures))


def _batches(stream: Stream, settings: FittingSettings, pass_: int) -> Iterator[torch.Tensor]:
    """Batches `[batch, models, width]` of one pass; a pass shorter than a batch is one batch."""
    held: list[torch.Tensor] = []
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
            raise UserError(f"the stream at {stream.site} gave no rows; give it texts, or a mask that keeps some")
        yield torch.cat(held)


def _finite(activations: torch.Tensor, stream: Stream) -> torch.Tensor:
    if not bool(activations.isfinite().all()):
        raise UserError(
            f"activations at {stream.site} hold NaN or infinite values; run the models in float32 or bfloat16 instead "
            "of float16, or leave out the texts that make them (what was trained so far is in the last checkpoint)"
        )
    return activations


def _first_rows(stream: Stream, settings: FittingSettings) -> torch.Tensor:
    """The first `scale_rows` rows of the first pass."""
    held: list[torch.Tensor] = []
    for block in stream.blocks(settings.seed):
        held.append(_finite(block.activations, stream))
        if sum(map(len, held)) >= settings.scale_rows:
            break
    if not sum(map(len, held)):
        raise UserError(f"the stream at {stream.site} gave no rows; give it texts, or a mask that keeps some")
    return torch.cat(held)[: settings.scale_rows]


def _common(jobs: Mapping[str, Job]) -> FittingSettings:
    """What the jobs share; the first one's logging and saving count."""
    if not jobs:
        raise UserError("no dictionary to train; name at least one")
    settings = [job.settings for job in jobs.values()]
    for name in ("tokens", "batch", "seed", "scale_rows"):
        found = {getattr(each, name) for each in settings}
        if len(found) > 1:
            raise UserError(f"dictionaries of one stream must share {name}, not {sorted(found)}; give all the same")
    return settings[0]


def _check_fit(stream: Stream, jobs: Mapping[str, Job], first: torch.Tensor) -> None:
    for name, job in jobs.items():
        seen = first[:1] if job.view is None else job.view(first[:1])
        if seen.shape[1:] != (job.config.models, job.config.width):
            raise UserError(
                f"{name} is for {job.config.models} models of width {job.config.width}, but the stream at "
                f"{stream.site} has {seen.shape[1]} of width {seen.shape[2]}; change the dictionary's config"
            )


def _row(row: dict[str, Any], name: str) -> dict[str, Any]:
    return {"step": row["step"], "tokens": row["tokens"], **row["measures"][name]}
