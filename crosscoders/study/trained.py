"""The dictionaries of a diff: that of the pair, and beside it those that should
show nothing.

All learn from the same batches of one stream: the pair, the before model twice
(`same`), and a pair whose rows do not belong together (`shuffled`). A second
one of the pair starts from another seed and sees another order (`again`).
Beside them a small dictionary of the models' difference learns (`difference`):
a baseline, not a control.

A dictionary that was given takes the place of the pair's; then only the
baseline is trained.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from crosscoders.activations.streams import Stream, difference_view
from crosscoders.dictionaries.crosscoder_trainer import TrainingJob
from crosscoders.dictionaries.dictionary import Dictionary, DictionaryConfig
from crosscoders.dictionaries.partition import Partition
from crosscoders.dictionaries.saved import CONFIG, SavedDictionary, load_dictionary, save_dictionary
from crosscoders.dictionaries.settings import TrainerSettings
from crosscoders.dictionaries.training_run import train_crosscoders
from crosscoders.study.asked import DiffRequest
from crosscoders.study.diff_files import DICTIONARY
from forensics.progress import Progress
from forensics.wording import percent

PAIR, SAME, SHUFFLED, AGAIN, DIFFERENCE = "pair", "same", "shuffled", "again", "difference"
TRAINING: Final = "training"  # checkpoints, until all is done
FOLDERS: Final = {
    PAIR: DICTIONARY,
    SAME: "controls/same",
    SHUFFLED: "controls/shuffled",
    AGAIN: "controls/again",
    DIFFERENCE: "baselines/difference",
}
STEPS, SMALLEST, LARGEST = 1600, 64, 2048  # of the training, and rows of a step
RATE, LARGE = (
    3e-3,
    2048,
)  # learning rate of a dictionary of at most so many latents; larger ones take the default
OWN_K, PARTING = 2.0, (1.0, 10.0)  # as in experiments/planted_features and one_feature
View = Callable[[Tensor], Tensor]


def same_model(activations: Tensor) -> Tensor:
    """The before model in both places."""
    return activations[:, [0, 0]]


def shuffled_rows(activations: Tensor) -> Tensor:
    """The after model's rows one further; rows of a batch come in random order,
    so that no two belong together.
    """
    return torch.stack([activations[:, 0], activations[:, -1].roll(1, 0)], dim=1)


@dataclass(frozen=True, kw_only=True)
class Making:
    """What is trained where. `metadata`: what the saved dictionaries say of
    themselves. `saved`: one that was given.
    """

    request: DiffRequest
    folder: Path
    stream: Stream
    metadata: Mapping[str, Any]
    progress: Progress
    saved: SavedDictionary | None = None

    def dictionaries(self) -> dict[str, Dictionary]:
        """Every dictionary by name, read back where it was finished."""
        views: dict[str, View | None] = {} if self.saved else {PAIR: None}
        controls = self.request.controls and not self.saved
        if controls:
            views |= {SAME: same_model, SHUFFLED: shuffled_rows}
        if self.request.baselines:
            views |= {DIFFERENCE: difference_view}
        found = self._given(self.saved) if self.saved else {}
        found |= self._trained("first", views, self.request.seed) if views else {}
        return found | (
            self._trained("second", {AGAIN: None}, self.request.seed + 1) if controls else {}
        )

    def _given(self, saved: SavedDictionary) -> dict[str, Dictionary]:
        """The dictionary that was given, kept beside the diff in our own form,
        which `forensics steer` reads.
        """
        place = self.folder / FOLDERS[PAIR]
        if not (place / CONFIG).is_file():
            told = {**self.metadata, "given_as": saved.kind, "given_key": saved.key}
            save_dictionary(saved.load(self.stream.width), place, **told)
        return {PAIR: load_dictionary(place, self._device())}

    def _trained(
        self, name: str, views: Mapping[str, View | None], seed: int
    ) -> dict[str, Dictionary]:
        places = {one: self.folder / FOLDERS[one] for one in views}
        if not all((place / CONFIG).is_file() for place in places.values()):
            jobs = {
                one: TrainingJob(
                    config=self._config(one), settings=self._settings(one, seed), view=view
                )
                for one, view in views.items()
            }
            fitted = train_crosscoders(
                self.stream,
                jobs,
                folder=self.folder / TRAINING / name,
                resume=True,
                device=self.request.device,
                progress=lambda now: self._hear(name, now),
            )
            for one, place in places.items():
                save_dictionary(
                    fitted[one].dictionary, place, **self.metadata, seed=seed, trained_as=one
                )
        return {one: load_dictionary(place, self._device()) for one, place in places.items()}

    def _settings(self, name: str, seed: int) -> TrainerSettings:
        tokens, config = self.request.tokens, self._config(name)
        difference = name == DIFFERENCE
        parting, last = (0.0, None) if difference else PARTING
        return TrainerSettings(
            tokens=tokens,
            batch=min(max(tokens // STEPS, SMALLEST), LARGEST, tokens),
            seed=seed,
            parting=parting,
            parting_last=last,
            opening=0.0 if difference else self.request.shape.opening,
            learning_rate=RATE if config.partition.latents <= LARGE else None,
        )

    def _config(self, name: str) -> DictionaryConfig:
        """Of the crosscoders, and of the difference's dictionary: as many
        latents as features, two of them active.
        """
        width = self.stream.width
        if name == DIFFERENCE:
            return DictionaryConfig(
                width=width, models=1, k=int(OWN_K), partition=Partition(latents=max(width, 2))
            )
        latents, after_only, k = self.request.shape.sizes(width)
        own_k = min(OWN_K, after_only / 4) if after_only else None
        partition = Partition(latents=latents, after_only=after_only, tied=True, readers="all")
        return DictionaryConfig(width=width, k=k, own_k=own_k, partition=partition)

    def _device(self) -> str:
        if self.request.device != "auto":
            return self.request.device
        return "cuda" if torch.cuda.is_available() else "cpu"

    def _hear(self, name: str, now: Any) -> None:
        measures = next(iter(now.measures.values()))
        explained = " and ".join(
            "?" if one is None else percent(one) for one in measures["variance_explained"]
        )
        self.progress(
            f"training the {name} dictionaries, {explained} explained", now.step, now.steps
        )
