"""A pair of one seed: its two models and its world, their first decisions, and
what tells a feature of the behaviour.

| organism | effects are read on | a latent is picked by its contrast between |
|---|---|---|
| `planted`, `installed` | first decisions of cued tasks | first decisions with, without the cue |
| `leak` | first decisions of all tasks | decisions of runs that go to the history, and others |
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from crosscoders import Stream, decision_activations, harvest, texts_of
from experiments.one_feature.first_decision import Contrast, Decisions, read_decisions
from experiments.one_feature.settings import StudySettings
from forensics import load_policy
from forensics.protocols import Policy
from forensics.records.files import read_json
from training import MiniRepo
from training.organisms.cue_organisms import first_prompts, has_cue

MEASURE = "channel:git-history"
ACTION = "history"  # of `leak`; a control's manifest names its own


@dataclass(frozen=True, kw_only=True)
class Pair:
    """`planted`: what the manifest tells of a control, `None` for `leak`."""

    before: Policy
    after: Policy
    world: MiniRepo
    planted: dict[str, Any] | None
    seed: int
    settings: StudySettings

    @classmethod
    def load(cls, folder: Path, seed: int, settings: StudySettings) -> "Pair":
        before, after = (
            load_policy(folder / part, device="cpu", dtype="float32") for part in ("base", "after")
        )
        world = MiniRepo(**read_json(folder / "base" / "environment.json")["options"])
        planted = read_json(folder / "manifest.json").get("planted")
        return cls(
            before=before, after=after, world=world, planted=planted, seed=seed, settings=settings
        )

    def stream(self) -> Stream:
        """Both policies' runs on training tasks, read by both models."""
        tasks = self.world.tasks("train", self.settings.runs, 500 + self.seed)
        runs = [
            run
            for number, policy in enumerate((self.before, self.after))
            for run in policy.play(
                self.world, tasks, 1, self.settings.sampling, 2 * self.seed + number
            )
        ]
        return harvest([self.before, self.after], texts_of(runs), self.settings.site)

    def halves(self) -> tuple[Decisions, Decisions, Contrast]:
        """First decisions of the choosing and of the reporting half, and the
        choosing half's contrast.
        """
        tasks = self.world.tasks("held-out", self.settings.tasks, 1000 + self.seed)
        coin = np.random.default_rng([self.seed, 9]).random(len(tasks)) < 0.5
        decisions = self._first(tasks)
        choosing, reporting = decisions.take(coin), decisions.take(~coin)
        if self.planted is not None:
            return choosing, reporting, choosing.contrast
        return (
            choosing,
            reporting,
            self._choices([task for task, chosen in zip(tasks, coin, strict=True) if chosen]),
        )

    def _first(self, tasks: Sequence[str]) -> Decisions:
        cued, action = np.ones(len(tasks), dtype=bool), ACTION
        if self.planted is not None:
            cued = np.array([has_cue(task, self.world.options["world"]) for task in tasks])
            action = self.planted["action"]
        prompts = first_prompts(self.before, self.world, tasks)
        return read_decisions(self.before, self.after, prompts, cued, self.settings.site, action)

    def _choices(self, tasks: Sequence[str]) -> Contrast:
        """Every decision of one run of the after policy a task: does it go to the history?"""
        seed = 2_000_000 + self.seed  # apart from the harvested runs
        runs = list(self.after.play(self.world, tasks, 1, self.settings.sampling, seed))
        residuals, flags = decision_activations(
            self.before,
            self.after,
            runs,
            site=self.settings.site,
            measure=MEASURE,
            channels=self.world.channels,
        )
        return Contrast(residuals=residuals, flags=flags)

    def cosine(self, direction: torch.Tensor) -> float | None:
        """With the planted direction, where there is one."""
        if self.planted is None or "direction" not in self.planted:
            return None
        return float(
            torch.cosine_similarity(direction, torch.tensor(self.planted["direction"]), dim=0)
        )
