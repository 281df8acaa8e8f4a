"""`diff`: from two checkpoints to where and what changed inside, in a folder
that can be gone on with.

1. Both policies play (in a case folder that `investigate` can go on with), or a
   log or plain texts are read.
2. Patching and grafting say where the change lives, and choose the site
   (`locate`).
3. On the texts of some tasks a dictionary is trained: shared latents with one
   decoder for both models, and after-only ones; beside it those of the null
   controls (`material`). Or one that exists is taken.
4. On the texts of the other tasks: table of latents, strongest tokens, quality,
   controls (`measures`), and what simpler methods do (`difference_baselines`).
5. What was found in sentences (`measures`), and the page.

What is finished is read back when the folder is gone on with; what it was
started with must be the same.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from shutil import rmtree
from typing import Any, ClassVar, Final

import numpy as np

from crosscoders.activations.outlier_positions import plain as plain_outliers
from crosscoders.activations.streams import texts_hash
from crosscoders.dictionaries.saved import SavedDictionary
from crosscoders.patching.decisions import (
    Behaviour,
    Decision,
    Theme,
    behaviour_of,
    changed_themes,
    contrasts_of,
    decisions_of,
    theme_of,
)
from crosscoders.patching.maps import graft_map, layered_graft_map, layered_patch_map, patch_map
from crosscoders.patching.results import ChangeMap, choose_site
from crosscoders.study.diff_files import (
    AUTO,
    BASELINES,
    CAUSES,
    CONTROLS,
    DEEP_DECISIONS,
    DICTIONARY,
    DIFF,
    EXPLANATIONS,
    LATENTS,
    MOST_DECISIONS,
    NEURONPEDIA,
    PATCHING,
    QUALITY,
    READ_FIRST,
    READERS_FILE,
    STEERED,
    STEERED_READER,
    TOKENS,
    VERSION,
    DiffRequest,
    read_part,
    split_sentences,
)
from crosscoders.study.diff_page import diff_page, in_play
from crosscoders.study.leading_reader import (
    Read,
    account,
    read_difference,
    sentences as reader_sentences,
)
from crosscoders.study.material import (
    FEWEST,
    SEEDS,
    TRAINING,
    Inquiry,
    Material,
    StudyStreams,
    dictionaries_of,
    is_small,
    played,
    read,
    settled,
    study_streams,
)
from crosscoders.study.measures import Measured, measured, rising, told
from crosscoders.study.reported import MOST_NAMED
from forensics.errors import UserError
from forensics.investigation import CASE, CASE_FILES, CaseRequest, Inputs, check_case, start_case
from forensics.phrases import plural
from forensics.policies import Given, decoder_layers, resolve_device
from forensics.progress import Progress, silent
from forensics.protocols import Environment
from forensics.records import content_hash, read_json, write_json
from forensics.report import plain
from forensics.study import Folder, Result, run_study
from forensics.subjects import inspect_subjects
from forensics.version import code_version

HARDLY: Final = 1e-4  # nats of KL at the decisions
SHORTEST: Final = 4  # tokens of a plain text before a place where it is cut


def locate(
    material: Material, request: DiffRequest, theme: Theme | None, progress: Progress
) -> dict[str, Any]:
    """Both maps as plain rows, the site and why. Raises `UserError` where there
    is nothing to patch at.
    """
    before = material.policies[0]
    decisions = _decisions(material, request)
    behaviour = behaviour_of(theme, material.runs)

    patches, grafts = _maps(material, decisions, behaviour, request, progress)
    choice = choose_site(patches, grafts)
    site, sentences = request.site, [choice.sentence]
    if patches.outliers:
        sentences.append(patches.outliers)
    if site == AUTO and choice.site is None:
        site = f"blocks.{(len(decoder_layers(before.model)) - 1) // 2}.hook_resid_post"
        sentences.append(
            f"No site stands out ({choice.reason}), so the dictionary is trained in the middle of"
            " the network."
        )
    return {
        "behaviour": patches.behaviour if choice.measure == "behaviour" else None,
        "decisions": len(decisions),
        "kl": asdict(patches.kl),
        "before": patches.before and asdict(patches.before),
        "after": patches.after and asdict(patches.after),
        "where": choice.where,
        "site": choice.site if site == AUTO else site,
        "sentences": sentences,
        "patch": [row.flat() for row in patches.rows],
        "graft": [row.flat() for row in grafts.rows],
    }


def hardly(location: Mapping[str, Any]) -> list[str]:
    """That there is next to nothing to tell of what `locate` gave, where that is so."""
    kl = location["kl"]["estimate"]
    if kl is None or kl >= HARDLY:
        return []
    chances = [location[side] and location[side]["estimate"] for side in ("before", "after")]
    told = ""
    if location["behaviour"] and None not in chances:
        first, last = (plain(one, 4) for one in chances)
        told = f"; the chance to {location['behaviour']} is {first} before and {last} after"
    return [
        f"The two models hardly differ at the decisions (KL {kl:.1e} nats{told}), so shares of what"
        " training changed are shares of next to nothing."
    ]


def _maps(
    material: Material,
    decisions: Sequence[Decision],
    behaviour: Behaviour | None,
    request: DiffRequest,
    progress: Progress,
) -> tuple[ChangeMap, ChangeMap]:
    before, after = material.policies
    kept = request.keep_outliers
    if not is_small(before.model):
        asked: dict[str, Any] = {"behaviour": behaviour, "progress": progress}
        return (
            layered_patch_map(before, after, decisions, keep_outliers=kept, **asked),
            layered_graft_map(before, after, decisions, **asked),
        )

    def hear(what: str) -> Progress:
        return lambda _, done, of: progress(what, done, of)

    return (
        patch_map(
            before,
            after,
            decisions,
            behaviour=behaviour,
            keep_outliers=kept,
            progress=hear("patching activations"),
        ),
        graft_map(before, after, decisions, behaviour=behaviour, progress=hear("grafting weights")),
    )


def _decisions(material: Material, request: DiffRequest) -> tuple[Decision, ...]:
    """First decisions of runs, or cuts of plain texts; one a task, of as many
    tasks as were asked for.
    """
    found = decisions_of(material.runs)
    if not material.runs:  # plain texts, each cut at a place drawn at random
        random = np.random.default_rng(request.seed)
        found = tuple(
            Decision(
                token_ids=tuple(text.token_ids[: random.integers(SHORTEST, len(text))].tolist()),
                task=text.note.task,
            )
            for text in material.texts
            if len(text) > SHORTEST
        )
    by_task = {decision.task: decision for decision in reversed(found)}
    ordered = sorted(by_task, key=lambda task: content_hash([request.seed, "decisions", task]))
    if len(ordered) < 2:
        raise UserError(
            "patching needs decisions of at least two tasks; give more runs or texts, or name a"
            " --site and use --decisions 0"
        )
    number = request.decisions
    if number is None:
        small = is_small(material.policies[0].model)
        number = MOST_DECISIONS if small else DEEP_DECISIONS
    return tuple(by_task[task] for task in ordered[:number])


def next_commands(
    request: DiffRequest,
    folder: Path,
    found: Measured,
    saved: SavedDictionary | None,
    leading: Sequence[Read],
) -> dict[str, str]:
    """How to test in play what leads, and the latents: of the findings the first few, those first
    that rise where the behaviour is decided; else the set that is one as a whole; else what comes
    nearest; where there are none, those most active before the behaviour.
    """
    before, after = request.before, request.after
    in_memory = not isinstance(before, str | PathLike) or not isinstance(after, str | PathLike)
    if not request.plays or in_memory:
        return {"command": ""}
    world = ["--env", request.environment] if isinstance(request.environment, str) else []
    options = [
        part
        for key, value in request.options.items()
        for part in ("--env-option", f"{key}={value}")
    ]
    pair = ["--before", before, "--after", after, *world, *options]

    def command(dictionary: str, features: Sequence[int], out: str, own: bool) -> str:
        chosen = ",".join(map(str, features)) or f"contrast:{MOST_NAMED}"
        words = ["forensics", "steer", *pair, *(["--encode-from", "own"] if own else [])]
        words += ["--dictionary", folder / dictionary, "--features", chosen, "--out", folder / out]
        return shlex.join(map(str, words))

    told = found.reported
    few = list(rising(found) or told.latents)[:MOST_NAMED]
    latents = few or list(told.together) or told.presented
    alone = saved is not None and found.models == 1
    commands = {"command": command(DICTIONARY, latents, STEERED, alone)}
    for one in (one.reader for one in leading):
        own = one.encoding == "own"
        commands["reader_command"] = command(one.place, one.latents, STEERED_READER, own)
    return commands


SAME_WEIGHTS: Final = "before and after hold the same weights, so nothing can differ"
FEW_TASKS: Final = (
    f"There are fewer than {FEWEST} tasks, so all that is told was learnt from the same tasks, and"
    " may not hold on others."
)


@dataclass(frozen=True, kw_only=True)
class Opened:
    """What a diff works on. `request`: at the site of its dictionary, `saved`.
    `inputs`: of the case in which both play; else `material` is read.
    """

    request: DiffRequest
    saved: SavedDictionary | None
    identities: tuple[str, ...]
    inputs: Inputs | None
    material: Material | None


@dataclass(frozen=True, kw_only=True)
class DiffStudy:
    """How a diff is carried out."""

    request: DiffRequest
    name: ClassVar = "diff"

    @property
    def files(self) -> tuple[str, ...]:
        parts = (PATCHING, LATENTS, TOKENS, QUALITY, CONTROLS, BASELINES, DICTIONARY, TRAINING)
        told = (EXPLANATIONS, NEURONPEDIA, CAUSES, READERS_FILE)
        own = (*parts, *told, SEEDS, "consensus", "controls", "baselines")  # consensus: older ones
        return (*own, *CASE_FILES) if self.request.plays else own

    def check(self, folder: Folder) -> Opened:
        """A folder of other settings is refused before a checkpoint is read, one of other
        checkpoints before one is loaded.
        """
        request, saved = settled(self.request)
        folder.require_started(_asked(request, saved), READ_FIRST)
        inputs = check_case(_case(request), folder) if request.plays else None
        pair = (
            inputs.subjects
            if inputs
            else inspect_subjects(  # neither is loaded
                request.before,
                [request.after],
                folder.progress,
                backend=request.backend,
                device=resolve_device(request.device),
            )
        )
        identities = (pair[0].identity, pair[1].identity)
        if identities[0] == identities[1] and not request.identical:
            raise UserError(
                f"{SAME_WEIGHTS}; give another checkpoint, or --identical to run the pair as a"
                " control, in which all that is found is false"
            )
        if saved is not None:  # a dictionary that names its checkpoints must be of these
            saved.require_checkpoints(*identities)
        ready = Opened(
            request=request,
            saved=saved,
            identities=identities,
            inputs=inputs,
            material=None,
        )
        folder.require_started(self.inputs(ready), ("texts",))
        if request.plays:
            return ready
        return replace(ready, material=read(request, pair, folder.copies, folder.progress))

    def inputs(self, ready: Opened) -> dict[str, Any]:
        """Where both play, `case.json` says what decides the texts."""
        return {
            **_asked(ready.request, ready.saved),
            "before": ready.identities[0],
            "after": ready.identities[1],
            "texts": texts_hash(ready.material.texts) if ready.material else None,
        }

    def run(self, ready: Opened, folder: Folder) -> dict[str, Any]:
        material, inputs = ready.material, ready.inputs
        if inputs is not None:
            if not (folder.path / CASE).is_file():
                start_case(inputs.case(folder.path, folder.progress), (), inputs)
            material = played(inputs, folder.path, folder.progress)
        assert material is not None
        return diff_material(ready.request, material, folder.path, folder.progress, ready.saved)

    def write(self, found: dict[str, Any], folder: Folder) -> Result:
        write_json(folder.path / DIFF, found)  # the page is drawn from the files
        page = diff_page(folder.path)
        rmtree(folder.path / TRAINING, ignore_errors=True)
        opening, more = ([f"- {one}" for one in part] for part in split_sentences(found))
        sentences = [*opening, *([""] if more else []), *more]
        readers = read_part(folder.path, READERS_FILE) or ()
        sentences += [f"\n{why}\n  {one}" for why, one in in_play(found, readers).values()]
        return Result(summary=found, sentences=tuple(sentences), page=page)


def _asked(request: DiffRequest, saved: SavedDictionary | None) -> dict[str, Any]:
    return {**request.stated(), "dictionary": saved.key if saved else None}


def _case(request: DiffRequest) -> CaseRequest:
    return CaseRequest(
        before=request.before,
        after=request.after,
        environment=request.environment,
        environment_options=request.options,
        budget=request.budget,
        seed=request.seed,
        device=request.device,
        backend=request.backend,
    )


def diff(
    before: Given,
    after: Given,
    environment: Environment | str | None = None,
    *,
    out: str | PathLike[str],
    resume: bool = False,
    force: bool = False,
    progress: Progress = silent,
    **asked: Any,
) -> dict[str, Any]:
    """Where and what did training change inside? Writes the folder `out`;
    returns what its `diff.json` says.

    `before`, `after`: directories, or policies in memory (`forensics.policy_from`,
    `from_transformer_lens`, `from_nnsight`). `environment`: what both play in;
    `None` takes the one that the before directory names, unless `asked` has `runs`
    or `texts`. `asked`: fields of `DiffRequest`. Raises `UserError` for bad input.
    """
    try:
        request = DiffRequest(before=before, after=after, environment=environment, **asked)
    except TypeError as error:
        raise UserError(
            f"diff cannot be asked that ({error}); see the fields of DiffRequest"
        ) from None
    study = DiffStudy(request=request)
    return run_study(study, Path(out), resume=resume, force=force, progress=progress).summary


def diff_material(
    request: DiffRequest,
    material: Material,
    folder: Path,
    progress: Progress,
    saved: SavedDictionary | None = None,
) -> dict[str, Any]:
    """What `diff.json` says of texts and policies that are at hand; parts that
    are finished in `folder` are read back.
    """
    identities = material.identities
    about = {"before": identities[0], "after": identities[1], "site": request.site}

    # 1. Which behaviour it is about, where the change lives, and the site.
    theme = theme_of(material.runs, identities, material.channels, request.kind)
    location = None
    if request.decisions != 0:
        if not (folder / PATCHING).is_file():
            write_json(folder / PATCHING, locate(material, request, theme, progress))
        location = read_json(folder / PATCHING)
        about["site"] = location["site"]

    # 2. Texts to train on, texts to report on, and some of the first to choose on.
    streams = study_streams(material, request, about["site"], folder, progress)

    # 3. The dictionaries, and what is measured of them; latents are tested to move the behaviours
    # whose use training changed, the theme's own first: nothing where that cannot be read.
    themes = changed_themes(theme, material.runs, identities, alone=bool(request.kind))
    behaviours = [behaviour_of(one, material.runs) for one in themes]
    inquiry = Inquiry(
        request=request,
        policies=material.policies,
        streams=streams,
        contrasts=contrasts_of(theme, material.runs),
        behaviours=tuple(filter(None, behaviours)) if any(behaviours[:1]) else (),
        folder=folder,
        about=about,
        progress=progress,
    )
    dictionaries = dictionaries_of(inquiry, saved)
    found = measured(inquiry, dictionaries)
    seeds = found.reported.seeds
    readers, untested = read_difference(inquiry, dictionaries, found.table, seeds)
    known = told(found, theme, location, about["site"], saved)
    same = identities[0] == identities[1]
    known |= _with_readers(known, inquiry, readers, untested, location, same)

    # 4. What was found; of outliers nothing where there are none.
    outliers = streams.outliers
    return {
        "schema_version": VERSION,
        "code": code_version(),
        **about,
        "asked": request.stated(),
        "given": {"as": saved.kind, "key": saved.key} if saved else None,
        **known,
        **(
            {"outliers": plain_outliers(outliers, request.keep_outliers)} if outliers.number else {}
        ),
        "facts": _facts(material, found, streams, saved),
        "reader": readers[0].reader.name if readers else None,
        **(
            {"command": ""}  # nothing is there to test
            if same
            else next_commands(request, folder, found, saved, readers[:1])
        ),
    }


def _with_readers(
    known: Mapping[str, Any],
    inquiry: Inquiry,
    readers: Sequence[Read],
    untested: str,
    location: Mapping[str, Any] | None,
    same: bool,
) -> dict[str, Any]:
    """The sentences and how many open: caveats and readers first, the leader's account behind."""
    first = [f"A control: {SAME_WEIGHTS}."] if same else []
    first += [FEW_TASKS] if inquiry.streams.same_tasks else []
    first += [] if same or not location else hardly(location)
    first += reader_sentences(readers, inquiry.about["site"], inquiry.request.reader, untested)
    said, opening = known["sentences"], known["opening"]
    accounts = [account(one) for one in readers[:1]]
    return {
        "sentences": [*first, *said[:opening], *accounts, *said[opening:]],
        "opening": len(first) + opening,
    }


def _facts(
    material: Material,
    found: Measured,
    streams: StudyStreams,
    saved: SavedDictionary | None,
) -> list[str]:
    models = "one model" if found.models == 1 else "both models"
    cut = f"{plural(material.cut, 'text')} read as far as the models have positions"
    number = len({text.task for text in streams.reported.texts})
    tasks = plural(number, "task") if streams.same_tasks else f"{number:,} other tasks"
    return [
        f"before {material.identities[0]}",
        f"after {material.identities[1]}",
        f"dictionary given ({saved.kind}, {models}), not trained"
        if saved
        else f"{len(streams.learnt.texts):,} texts to train on",
        f"{found.quality['rows']:,} tokens of {tasks} to report on",
        *([cut] if material.cut else []),
    ]
