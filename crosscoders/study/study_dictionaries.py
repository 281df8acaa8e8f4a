"""The dictionaries of a diff: that of the pair, and beside it those that should show nothing.

All learn from the same batches of one stream, in one pass: the pair, from several first
weights (`pair`, and the others by `seed_names`); the before model twice (`same`), and a pair
whose rows do not belong together (`shuffled`). Beside them a small dictionary of the models'
difference learns (`difference`): a baseline, not a control.

A dictionary that was given takes the place of the pair's; then only the
baseline is trained.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from crosscoders.activations.streams import View, difference_view
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
from crosscoders.study.material import TRAINING, Inquiry
from forensics.phrases import percent
from forensics.policies import resolve_device

PAIR, SAME, SHUFFLED, DIFFERENCE = "pair", "same", "shuffled", "difference"
FOLDERS: Final = {
    PAIR: DICTIONARY,
    SAME: "controls/same",
    SHUFFLED: "controls/shuffled",
    DIFFERENCE: "baselines/difference",
}
SEED: Final = "seed-"  # the pair's other seeds by name
SEEDS: Final = "seeds"  # the folder of the pair's other seeds
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


VIEWS: Final[Mapping[str, View]] = {
    SAME: same_model,
    SHUFFLED: shuffled_rows,
    DIFFERENCE: difference_view,
}


def dictionaries_of(inquiry: Inquiry, saved: SavedDictionary | None) -> dict[str, Dictionary]:
    """Every dictionary by name, read back where it was finished. `saved`: one that was given; it
    is kept beside the diff in our own form, which `forensics steer` reads.
    """
    request, folder, progress = inquiry.request, inquiry.folder, inquiry.progress
    stream, tokens, names = inquiry.streams.learnt, inquiry.training_tokens, _wanted(request, saved)
    if saved and not (folder / DICTIONARY / CONFIG).is_file():
        about = {**inquiry.about, "given_as": saved.kind, "given_key": saved.key}
        save_dictionary(saved.load(stream.width), folder / DICTIONARY, **about)
    missing = [one for one in names if not (place_of(folder, one) / CONFIG).is_file()]
    if missing:
        progress("training the dictionaries", 0, 1)

        def hear(now: Any) -> None:
            shares = next(iter(now.measures.values()))["variance_explained"]
            explained = " and ".join("?" if one is None else percent(one) for one in shares)
            progress(f"training the dictionaries, {explained} explained", now.step, now.steps)

        trained = train_crosscoders(
            stream,
            {one: dictionary_job(request, one, stream.width, tokens) for one in names},
            folder=folder / TRAINING / "dictionaries",
            resume=True,
            device=request.device,
            progress=hear,
        )
        for one, result in trained.items():
            about = {**inquiry.about, "seed": _weights_seed(request, one), "trained_as": one}
            save_dictionary(result.dictionary, place_of(folder, one), **about)
    device = resolve_device(request.device)
    everyone = dict.fromkeys((PAIR, *names))
    return {one: load_dictionary(place_of(folder, one), device) for one in everyone}


def seed_names(request: DiffRequest) -> list[str]:
    """The pair's dictionaries from other first weights."""
    return [f"{SEED}{number}" for number in range(1, request.seeds)]


def is_seed(name: str) -> bool:
    """Whether a dictionary is one of these."""
    return name.startswith(SEED)


def place_of(folder: Path, name: str) -> Path:
    """Where a dictionary is kept."""
    return folder / (f"{SEEDS}/{name[len(SEED) :]}" if is_seed(name) else FOLDERS[name])


def _wanted(request: DiffRequest, saved: SavedDictionary | None) -> list[str]:
    """What is trained."""
    names = [] if saved else [PAIR, *seed_names(request)]
    if request.controls and not saved:
        names += [SAME, SHUFFLED]
    return names + [DIFFERENCE] * request.baselines


def _weights_seed(request: DiffRequest, name: str) -> int:
    """The seed of the first weights; the pair's others follow on its own."""
    return request.seed + (int(name[len(SEED) :]) if is_seed(name) else 0)


def dictionary_job(request: DiffRequest, name: str, width: int, tokens: int) -> TrainingJob:
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
        seed=request.seed,
        weights_seed=_weights_seed(request, name),
        difference_weight=(0.0, 0.0) if difference else DIFFERENCE_WEIGHTS,
        learning_rate=RATE if config.partition.latents <= LARGE else None,
    )
    return TrainingJob(config=config, settings=settings, view=VIEWS.get(name))
