"""What a diff works on, checked and opened.

1. A dictionary that is given instead of trained says at which site (`settled`).
2. Texts and policies: both policies play, or a log or a file of plain texts is
   read.

3. The dictionaries: that of the pair, and beside it those that should show nothing.

All learn from the same batches of one stream: the pair, the before model twice
(`same`), and a pair whose rows do not belong together (`shuffled`). A second
one of the pair starts from another seed and sees another order (`again`).
Beside them a small dictionary of the models' difference learns (`difference`):
a baseline, not a control.

A dictionary that was given takes the place of the pair's; then only the
baseline is trained.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from crosscoders.activations.streams import Stream, difference_view
from crosscoders.activations.texts import TokenizedText, read_texts, texts_of
from crosscoders.dictionaries.crosscoder_run import train_crosscoders
from crosscoders.dictionaries.crosscoder_trainer import TrainingJob
from crosscoders.dictionaries.dictionary import Dictionary, DictionaryConfig
from crosscoders.dictionaries.saved import (
    CONFIG,
    SavedDictionary,
    load_dictionary,
    open_dictionary,
    read_object,
    save_dictionary,
)
from crosscoders.dictionaries.settings import Partition, TrainerSettings
from crosscoders.study.diff_files import AUTO, DICTIONARY, SIDES, DiffRequest
from forensics.case import Case
from forensics.errors import UserError
from forensics.investigation.inputs import Inputs
from forensics.phrases import percent
from forensics.policies.compatibility import resolve_device
from forensics.progress import Progress, silent
from forensics.protocols import Channel
from forensics.records import Trajectory, content_hash
from forensics.records.tables import read_trajectories
from forensics.rollout_logs import log_tables
from forensics.subjects import HeldPolicy, inspect_subjects

EMBEDDING: Final = "hook_embed"  # may be narrower than the rest of the model
TRAINED_ON: Final = 0.6  # share of the tasks; the table and all figures are of the others
FEWEST: Final = 5  # tasks, below which all serve for both
ENOUGH: Final = 100_000  # tokens of the tasks trained on, for what is chosen on them


def settled(request: DiffRequest) -> tuple[DiffRequest, SavedDictionary | None]:
    """The request at the site of its dictionary, and what that is. Raises
    `UserError` where they contradict.
    """
    if request.dictionary is None:
        return request, None
    saved = open_dictionary(request.dictionary)
    site = request.site if request.site != AUTO else saved.site
    if site is None:
        raise UserError(
            f"{saved.path} does not say at which site it was trained; name it with --site"
        )
    if saved.site not in (None, site):
        raise UserError(
            f"{saved.path} was trained at {saved.site} and --site is {request.site}; leave --site"
            " out, or give a dictionary of that site"
        )
    request = replace(request, site=site)
    before = request.before
    config = Path(before) / "config.json" if isinstance(before, str | PathLike) else None
    if site != EMBEDDING and config and config.is_file():
        stated = read_object(config)
        text = stated.get("text_config")
        width = {**stated, **(text if isinstance(text, dict) else {})}.get("hidden_size")
        if isinstance(width, int):
            saved.load(width)  # refused before anything is played
    return request, saved


@dataclass(frozen=True, kw_only=True)
class Material:
    """What a diff works on. `runs`: of both policies, none for plain texts.
    `policies`: before and after.
    """

    identities: tuple[str, str]
    policies: tuple[Any, Any]
    runs: tuple[Trajectory, ...]
    texts: tuple[TokenizedText, ...]
    channels: tuple[Channel, ...] = ()

    def parts(self, seed: int) -> tuple[list[TokenizedText], list[TokenizedText]]:
        """Texts to train on and texts to report on, by task; with too few tasks both are all."""
        tasks = sorted(
            {text.note.task for text in self.texts}, key=lambda task: content_hash([seed, task])
        )
        if len(tasks) < FEWEST:
            return list(self.texts), list(self.texts)
        chosen = set(tasks[: round(TRAINED_ON * len(tasks))])
        first = [text for text in self.texts if text.note.task in chosen]
        return first, [text for text in self.texts if text.note.task not in chosen]


def some_texts(texts: Sequence[TokenizedText], most: int = ENOUGH) -> list[TokenizedText]:
    """Texts drawn at random until they have so many tokens, in their order."""
    order = np.random.default_rng(0).permutation(len(texts))
    lengths = np.array([len(texts[place]) for place in order])
    enough = int((lengths.cumsum() - lengths < most).sum())
    return [texts[place] for place in sorted(order[:enough].tolist())]


def played(inputs: Inputs, folder: Path, progress: Progress) -> Material:
    """Held-out runs of both policies in the open world. Both stay in memory."""
    return of_case(inputs.case(folder, progress), progress)


def of_case(case: Case, progress: Progress = silent) -> Material:
    """The runs of a case, its first after side against before."""
    sides = case.subject("before"), case.subject(case.afters[0])
    progress("loading both models", 0, 1)
    before, after = (
        HeldPolicy(role=one.role, policy=one.open(), stated=one.stated) for one in sides
    )
    progress("loading both models", 1, 1)
    case = replace(case, subjects=(before, after))
    runs = tuple(chain(case.rollouts("before"), case.rollouts(after.role.name)))
    identities = before.identity, after.identity
    return _material(identities, (before.policy, after.policy), runs, case.channels)


def read(request: DiffRequest, copies: Path, progress: Progress) -> Material:
    """A log or plain texts, with both policies loaded; a foreign log is copied.
    Raises `UserError` for what cannot be read or compared.
    """
    place = resolve_device(request.device)
    first, second = inspect_subjects(
        request.before, [request.after], progress, backend=request.backend, device=place
    )
    identities = first.identity, second.identity
    progress("loading both models", 0, 1)
    before, after = first.open(), second.open()
    progress("loading both models", 1, 1)
    if request.texts is not None:
        texts = tuple(read_texts(request.texts, before.tokenizer))
        return Material(identities=identities, policies=(before, after), runs=(), texts=texts)
    assert request.runs is not None
    files, _ = log_tables(request.runs.expanduser(), copies)
    runs = (run for file in files for run in read_trajectories(file) if not run.without)
    return _material(identities, (before, after), tuple(runs), ())


def _material(
    identities: tuple[str, str],
    policies: tuple[Any, Any],
    runs: Sequence[Trajectory],
    channels: tuple[Channel, ...],
) -> Material:
    sources = dict(zip(identities, SIDES, strict=True))
    texts = tuple(texts_of(runs, policy=policies[0], sources=sources))
    if not texts:
        raise UserError("there is no run with a token to look at; give a log with runs in it")
    return Material(
        identities=identities,
        policies=policies,
        runs=tuple(runs),
        texts=texts,
        channels=channels,
    )


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
# learning rate of a dictionary of at most so many latents; larger ones take the default
RATE, LARGE = 3e-3, 2048
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
    parting, last = (0.0, None) if difference else PARTING
    settings = TrainerSettings(
        tokens=tokens,
        batch=min(max(tokens // STEPS, SMALLEST), LARGEST, tokens),
        seed=seed,
        parting=parting,
        parting_last=last,
        opening=0.0 if difference else request.shape.opening,
        learning_rate=RATE if config.partition.latents <= LARGE else None,
    )
    return TrainingJob(config=config, settings=settings, view=view)
