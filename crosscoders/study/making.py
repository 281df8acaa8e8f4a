"""The dictionaries of a diff: that of the pair, and beside it those that should show nothing.

All learn from the same batches of one stream: the pair, the before model twice (`same`), and a pair whose rows do not
belong together (`shuffled`). A second one of the pair starts from another seed and sees another order (`again`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from crosscoders.activations import Stream
from crosscoders.dictionary import Dictionary, DictionaryConfig
from crosscoders.fitting import FittingSettings, Job, fit_many
from crosscoders.interchange.storing import CONFIG, load_dictionary, save_dictionary
from crosscoders.partition import Partition
from crosscoders.study.asked import DiffRequest
from crosscoders.study.files import DICTIONARY
from forensics.case import Progress
from forensics.wording import percent

PAIR, SAME, SHUFFLED, AGAIN = "pair", "same", "shuffled", "again"
TRAINING: Final = "training"  # checkpoints, until all is done
FOLDERS: Final = {PAIR: DICTIONARY, SAME: "controls/same", SHUFFLED: "controls/shuffled", AGAIN: "controls/again"}
STEPS, SMALLEST, LARGEST = 1600, 64, 2048  # of the training, and rows of a step
RATE, LARGE = 3e-3, 2048  # learning rate of a dictionary of at most so many latents; larger ones take the default
OWN_K, PARTING = 2.0, (1.0, 10.0)  # as in experiments/planted_features and one_feature


def same_model(activations: torch.Tensor) -> torch.Tensor:
    """The before model in both places."""
    return activations[:, [0, 0]]


def shuffled_rows(activations: torch.Tensor) -> torch.Tensor:
    """The after model's rows one further; rows of a batch come in random order, so that no two belong together."""
    return torch.stack([activations[:, 0], activations[:, -1].roll(1, 0)], dim=1)


@dataclass(frozen=True, kw_only=True)
class Making:
    """What is trained where. `metadata`: what the saved dictionaries say of themselves."""

    request: DiffRequest
    folder: Path
    stream: Stream
    metadata: Mapping[str, Any]
    progress: Progress

    def dictionaries(self) -> dict[str, Dictionary]:
        """Every dictionary by name, read back where it was finished."""
        views: dict[str, Callable[[torch.Tensor], torch.Tensor] | None] = {PAIR: None}
        if self.request.controls:
            views |= {SAME: same_model, SHUFFLED: shuffled_rows}
        found = self._trained("first", views, self.request.seed)
        return found | (self._trained("second", {AGAIN: None}, self.request.seed + 1) if self.request.controls else {})

    def _trained(
        self, name: str, views: Mapping[str, Callable[[torch.Tensor], torch.Tensor] | None], seed: int
    ) -> dict[str, Dictionary]:
        places = {one: self.folder / FOLDERS[one] for one in views}
        if not all((place / CONFIG).is_file() for place in places.values()):
            batch = min(max(self.request.tokens // STEPS, SMALLEST), LARGEST, self.request.tokens)
            settings = FittingSettings(
                tokens=self.request.tokens, batch=batch, seed=seed, parting=PARTING[0], parting_last=PARTING[1],
                learning_rate=RATE if self._config().partition.latents <= LARGE else None,
            )
            jobs = {one: Job(config=self._config(), settings=settings, view=view) for one, view in views.items()}
            fitted = fit_many(
                self.stream, jobs, folder=self.folder / TRAINING / name, resume=True, device=self.request.device,
                progress=lambda now: self._hear(name, now),
            )
            for one, place in places.items():
                save_dictionary(fitted[one].dictionary, place, **self.metadata, seed=seed, trained_as=one)
        return {one: load_dictionary(place, self._device()) for one, place in places.items()}

    def _config(self) -> DictionaryConfig:
        latents, after_only, k = self.request.shape.sizes(self.stream.width)
        own_k = min(OWN_K, after_only / 4) if after_only else None
        partition = Partition(latents=latents, after_only=after_only, tied=True, readers="all")
        return DictionaryConfig(width=self.stream.width, k=k, own_k=own_k, partition=partition)

    def _device(self) -> str:
        if self.request.device != "auto":
            return self.request.device
        return "cuda" if torch.cuda.is_available() else "cpu"

    def _hear(self, name: str, now: Any) -> None:
        measures = next(iter(now.measures.values()))
        explained = " and ".join("?" if one is None else percent(one) for one in measures["variance_explained"])
        self.progress(f"training the {name} dictionaries, {explained} explained", now.step, now.steps)
