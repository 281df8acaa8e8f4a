"""What a diff works on, checked and opened.

1. A dictionary that is given instead of trained says at which site (`settled`).
2. Texts and policies: both policies play, or a log or a file of plain texts is
   read.
3. Activations: both checkpoints are read once into a store, and every pass takes them
   from there. Of a network of more than `SMALL` layers they are read on texts of
   `MOST_READ` tokens drawn at random (more where more are asked for).
4. Outliers (attention sinks) are surveyed over all texts; where there are any, the
   rows beyond the limits are left out of what is learnt from, reported on and chosen on.

The dictionaries of a diff: that of the pair, and beside it those that should show nothing.

All learn from the same batches of one stream, in one pass: the pair, from several first
weights (`pair`, and the others by `seed_names`); the before model twice (`same`), and a pair
whose rows do not belong together (`shuffled`). Beside them a small dictionary of the models'
difference learns (`difference`): a baseline, not a control.

A dictionary that was given takes the place of the pair's; then only the
baseline is trained.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from crosscoders.activations.harvest import HarvestConfig, StoredStream, harvest
from crosscoders.activations.outlier_positions import Limits, Outliers, survey
from crosscoders.activations.streams import (
    TokenizedText,
    View,
    difference_view,
    read_texts,
    texts_of,
)
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
from crosscoders.latents.row_groups import Contrast
from crosscoders.patching.decisions import Behaviour
from crosscoders.study.diff_files import (
    AUTO,
    DICTIONARY,
    MOST_READ,
    MOST_TOKENS,
    PASSES,
    SIDES,
    SMALL,
    DiffRequest,
)
from forensics.case import Case
from forensics.errors import UserError
from forensics.investigation import Inputs
from forensics.phrases import percent
from forensics.policies import decoder_layers, resolve_device
from forensics.progress import Progress, silent
from forensics.protocols import Channel
from forensics.records import Trajectory, content_hash, read_trajectories
from forensics.rollout_logs import log_tables
from forensics.subjects import HeldPolicy, Subject, opened

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
    `policies`: before and after. `cut`: texts that are longer than a model has positions for,
    and so are read up to there (a run's last observation may lie beyond).
    """

    identities: tuple[str, str]
    policies: tuple[Any, Any]
    runs: tuple[Trajectory, ...]
    texts: tuple[TokenizedText, ...]
    channels: tuple[Channel, ...] = ()
    cut: int = 0


def parts(
    texts: Sequence[TokenizedText], seed: int
) -> tuple[list[TokenizedText], list[TokenizedText]]:
    """Texts to train on and texts to report on, by task; with too few tasks both are all."""
    tasks = sorted({text.note.task for text in texts}, key=lambda task: content_hash([seed, task]))
    if len(tasks) < FEWEST:
        return list(texts), list(texts)
    chosen = set(tasks[: round(TRAINED_ON * len(tasks))])
    first = [text for text in texts if text.note.task in chosen]
    return first, [text for text in texts if text.note.task not in chosen]


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
    before, after = (
        HeldPolicy(role=one.role, policy=policy, stated=one.stated)
        for one, policy in zip(sides, opened(sides, progress), strict=True)
    )
    case = replace(case, subjects=(before, after))
    progress("reading the runs", 0, 1)
    runs = tuple(chain(case.rollouts("before"), case.rollouts(after.role.name)))
    progress("reading the runs", 1, 1)
    identities = before.identity, after.identity
    return _material(identities, (before.policy, after.policy), runs, case.channels)


def read(
    request: DiffRequest, pair: Sequence[Subject], copies: Path, progress: Progress
) -> Material:
    """A log or plain texts, with both policies loaded; a foreign log is copied.
    Raises `UserError` for what cannot be read.
    """
    identities = pair[0].identity, pair[1].identity
    before, after = opened(pair, progress)
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
    lengths = [one.context_length for one in policies if one.context_length is not None]
    most = min(lengths, default=max(map(len, texts)))
    return Material(
        identities=identities,
        policies=policies,
        runs=tuple(runs),
        texts=tuple(text if len(text) <= most else text.until(most) for text in texts),
        channels=channels,
        cut=sum(len(text) > most for text in texts),
    )


TRAINING: Final = "training"  # checkpoints and activations, until all is done
DEEP: Final = HarvestConfig(batch=2048, window=4)  # short windows: a reader sees how far it is


@dataclass(frozen=True, kw_only=True)
class StudyStreams:
    """`learnt`: to train on; `reported`: what everything is told of; `chosen`: some of
    `learnt`, for what is chosen on it. `limits`: those that were applied. `small`: whether
    the network is.
    """

    learnt: StoredStream
    reported: StoredStream
    chosen: StoredStream
    outliers: Outliers
    limits: Limits | None
    small: bool

    @property
    def same_tasks(self) -> bool:
        """Whether there are too few tasks to report on others than those trained on."""
        learnt, reported = ({one.task for one in s.texts} for s in (self.learnt, self.reported))
        return learnt == reported


@dataclass(frozen=True, kw_only=True)
class Inquiry:
    """What is asked at a site, and of what. `policies`: before and after. `contrasts` of steps.
    `behaviours` whose use training changed, that of the theme first (none: the loss, or whole
    answers). `about`: what saved dictionaries say of themselves. Each part of the answer is written
    into `folder`.
    """

    request: DiffRequest
    policies: tuple[Any, Any]
    streams: StudyStreams
    contrasts: tuple[Contrast, ...]
    behaviours: tuple[Behaviour, ...]
    folder: Path
    about: Mapping[str, Any]
    progress: Progress = silent

    @property
    def behaviour(self) -> Behaviour | None:
        """The theme's."""
        return next(iter(self.behaviours), None)

    @property
    def training_tokens(self) -> int:
        """How many tokens the dictionaries are trained on."""
        if self.request.tokens is not None:
            return self.request.tokens
        learnt, small = self.streams.learnt, self.streams.small
        return MOST_TOKENS if small else max(1, min(MOST_TOKENS, PASSES * learnt.number))


def is_small(model: object) -> bool:
    """Whether a network is so small that it is read and patched in full."""
    return len(decoder_layers(model)) <= SMALL


def study_streams(
    material: Material, request: DiffRequest, site: str, folder: Path, progress: Progress
) -> StudyStreams:
    """See the module's text. Activations go where the request says, else below `folder`."""
    small, texts = is_small(material.policies[0].model), material.texts
    if not small:
        texts = tuple(some_texts(texts, max(MOST_READ, request.tokens or 0)))
    store = (request.activations or folder / TRAINING / "activations").expanduser()
    config = HarvestConfig() if small else DEEP
    whole = harvest(material.policies, texts, site, config, store=store, progress=progress)
    found = survey(whole)
    limits = None if request.keep_outliers else found.applied
    learnt, reported = parts(texts, request.seed)
    return StudyStreams(
        learnt=whole.part(learnt, limits),
        reported=whole.part(reported, limits),
        chosen=whole.part(some_texts(learnt), limits),
        outliers=found,
        limits=limits,
        small=small,
    )


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
    stream, tokens = inquiry.streams.learnt, inquiry.training_tokens
    names = [] if saved else [PAIR, *seed_names(request), *[SAME, SHUFFLED] * request.controls]
    names += [DIFFERENCE] * request.baselines
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
