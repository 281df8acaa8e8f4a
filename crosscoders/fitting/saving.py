"""Checkpoints of a training: safetensors and JSON, never pickle, and the last whole one always stays.

A checkpoint is written into a folder of its own; only then does `latest.json` name it, and only then the one before is
removed. Whatever interrupts this leaves a whole one.
"""

import dataclasses
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from crosscoders.activations import Stream
from crosscoders.fitting.trainee import Job, Trainee
from forensics.errors import UserError

Position = tuple[int, int]


class Place:
    """The folder of a training, and what it was begun with."""

    def __init__(self, folder: Path | str, jobs: Mapping[str, Job], stream: Stream) -> None:
        self.folder = Path(folder)
        self.begun = {"stream": stream.identity, "site": stream.site, "jobs": {n: _told(j) for n, j in jobs.items()}}

    @property
    def latest(self) -> Path:
        return self.folder / "latest.json"

    def open(self, trainees: Mapping[str, Trainee], resume: bool) -> tuple[Position, list[dict[str, Any]]]:
        """Position and history to go on from, with the trainees loaded; the start, if nothing is there yet."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self.latest.exists():
            return (0, 0), []
        if not resume:
            raise UserError(f"{self.folder} holds a training already; resume it, or choose another folder")
        state = json.loads(self.latest.read_text())
        if state["begun"] != self.begun:
            raise UserError(
                f"the training in {self.folder} was begun with {_differing(state['begun'], self.begun)}; resume it "
                "with the same, or choose another folder"
            )
        for name, trainee in trainees.items():
            trainee.load(load_file(self.folder / state["checkpoint"] / f"{name}.safetensors"))
        return (state["pass"], state["used"]), state["history"]

    def save(self, trainees: Mapping[str, Trainee], at: Position, history: list[dict[str, Any]]) -> None:
        done = next(iter(trainees.values())).steps_done
        checkpoint = self.folder / f"step-{done:08d}"
        checkpoint.mkdir(exist_ok=True)
        for name, trainee in trainees.items():
            save_file(trainee.state(), checkpoint / f"{name}.safetensors")
        state = {
            "checkpoint": checkpoint.name, "pass": at[0], "used": at[1], "begun": self.begun, "history": history,
        }
        part = self.latest.with_suffix(".part")
        part.write_text(json.dumps(state, indent=1))
        os.replace(part, self.latest)
        for old in self.folder.glob("step-*"):
            if old.name != checkpoint.name:
                shutil.rmtree(old)


def _told(job: Job) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(dataclasses.replace(job, view=None))))
    told["view"] = None if job.view is None else getattr(job.view, "__name__", type(job.view).__name__)
    return told


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
