"""The dictionaries of a diff: that of the pair, and beside it those that should show nothing.

All learn from the same batches of one stream: the pair, the before model twice
(`same`), and a pair whose rows do not belong together (`shuffled`). A second
one of the pair starts from another seed and sees another order (`again`).
Beside them a small dictionary of the models' difference learns (`difference`):
a baseline, not a control.

A dictionary that was given takes the place of the pair's; then only the
baseline is trained.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from crosscoders.activations.streams import Stream, View, difference_view
from crosscoders.dictionaries.crosscoder_run import train_crosscoders
from crosscoders.dictionaries.crosscoder_trainer import TrainingJob
from crosscoders.dictionaries.dictionary import Dictionary, DictionaryConfig
from crosscoders.dictionaries.saved import (
    CONFIG,
    SavedDictionary,
    load_dictionary,
    save_dictionary,
)
from crosscoders.dictionaries.settings import Partition, TrainerSettings
from crosscoders.study.diff_files import DICTIONARY, DiffRequest
from crosscoders.study.material import TRAINING
from forensics.phrases import percent
from forensics.policies import resolve_device
from forensics.progress import Progress

PAIR, SAME, SHUFFLED, AGAIN, DIFFERENCE = "pair", "same", "shuffled", "again", "difference"
FOLDERS: Final = {
    PAIR: DICTIONARY,
    SAME: "controls/same",
    SHUFFLED: "controls/shuffled",
    AGAIN: "controls/again",
    DIFFERENCE: "baselines/difference",
}
STEPS, SMALLEST, LARGEST = 1600, 64, 2048  # of the training, and rows of a step
# learning rate of a dictionary of at most so many latents; larger ones take the default
RATE, LARGE = 3e-3, 2048
OWN_K, DIFFERENCE_WEIGHTS = 2.0, (1.0, 10.0)  # as in experiments/planted_features and one_feature


def same_model(activations: Tensor) -> Tensor:
    """The before model in both places."""
    return activations[:, [0, 0]]


def shuffled_rows(activations: Tensor) -> Tensor:
    """The after model's rows one further; rows of a batch come in random order,
    so that no two belong together.
    """
    return torch.stack([activations[:, 0], activations[:, -1].roll(1, 0)], dim=1)


def dictionaries_of(
    request: DiffRequest,
    folder: Path,
    stream: Stream,
    metadata: Mapping[str, Any],
    saved: SavedDictionary | None,
    tokens: int,
    progress: Progress,
) -> dict[str, Dictionary]:
    """Every dictionary by name, read back where it was finished. `metadata`: what
    the saved ones say of themselves. `saved`: one that was given; it is kept
    beside the diff in our own form, which `forensics steer` reads. `tokens` to train on.
    """
    controls = request.controls and not saved
    views: dict[str, View | None] = {}
    if saved is None:
        views[PAIR] = None
    elif not (folder / DICTIONARY / CONFIG).is_file():
        about = {**metadata, "given_as": saved.kind, "given_key": saved.key}
        save_dictionary(saved.load(stream.width), folder / DICTIONARY, **about)
    if controls:
        views |= {SAME: same_model, SHUFFLED: shuffled_rows}
    if request.baselines:
        views[DIFFERENCE] = difference_view
    runs = [("first", views, request.seed)]
    if controls:
        runs.append(("second", {AGAIN: None}, request.seed + 1))
    for name, jobs, seed in runs:
        if all((folder / FOLDERS[one] / CONFIG).is_file() for one in jobs):
            continue

        def hear(now: Any, name: str = name) -> None:
            shares = next(iter(now.measures.values()))["variance_explained"]
            explained = " and ".join("?" if one is None else percent(one) for one in shares)
            progress(
                f"training the {name} dictionaries, {explained} explained", now.step, now.steps
            )

        trained = train_crosscoders(
            stream,
            {
                one: _job(request, one, stream.width, seed, view, tokens)
                for one, view in jobs.items()
            },
            folder=folder / TRAINING / name,
            resume=True,
            device=request.device,
            progress=hear,
        )
        for one, result in trained.items():
            place = folder / FOLDERS[one]
            save_dictionary(result.dictionary, place, **metadata, seed=seed, trained_as=one)
    device = resolve_device(request.device)
    names = [PAIR, *(one for _, jobs, _ in runs for one in jobs if one != PAIR)]
    return {one: load_dictionary(folder / FOLDERS[one], device) for one in names}


def _job(
    request: DiffRequest, name: str, width: int, seed: int, view: View | None, tokens: int
) -> TrainingJob:
    """A crosscoder, or the difference's dictionary: as many latents as features,
    two of them active.
    """
    difference = name == DIFFERENCE
    if difference:
        config = DictionaryConfig(
            width=width, models=1, k=int(OWN_K), partition=Partition(latents=max(width, 2))
        )
    else:
        latents, after_only, k = request.shape.sizes(width)
        own_k = min(OWN_K, after_only / 4) if after_only else None
        partition = Partition(latents=latents, after_only=after_only, tied=True, readers="all")
        config = DictionaryConfig(width=width, k=k, own_k=own_k, partition=partition)
    settings = TrainerSettings(
        tokens=tokens,
        batch=min(max(tokens // STEPS, SMALLEST), LARGEST, tokens),
        seed=seed,
        difference_weight=(0.0, 0.0) if difference else DIFFERENCE_WEIGHTS,
        learning_rate=RATE if config.partition.latents <= LARGE else None,
    )
    return TrainingJob(config=config, settings=settings, view=view)
