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

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from shutil import rmtree
from typing import Any, ClassVar, Final

import numpy as np

from crosscoders.activations.outlier_positions import plain
from crosscoders.activations.texts import texts_hash
from crosscoders.dictionaries.saved import SavedDictionary
from crosscoders.patching.decisions import (
    Behaviour,
    Decision,
    Theme,
    behaviour_of,
    contrasts_of,
    decisions_of,
    theme_of,
)
from crosscoders.patching.layered import layered_graft_map, layered_patch_map
from crosscoders.patching.maps import graft_map, patch_map
from crosscoders.patching.results import ChangeMap
from crosscoders.patching.site_choice import choose_site
from crosscoders.study.diff_files import (
    AUTO,
    BASELINES,
    CAUSES,
    CONSENSUS,
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
    TOKENS,
    VERSION,
    DiffRequest,
)
from crosscoders.study.diff_page import diff_page
from crosscoders.study.latent_sources import sources_of_case
from crosscoders.study.material import (
    TRAINING,
    Material,
    StudyStreams,
    is_small,
    played,
    read,
    settled,
    study_streams,
    training_tokens,
)
from crosscoders.study.measures import Measured, measured, rising, steer_command, told
from crosscoders.study.seeds_consensus import consensus_of
from crosscoders.study.study_dictionaries import SEEDS, dictionaries_of
from forensics.errors import UserError
from forensics.investigation import CASE, CASE_FILES, CaseRequest, Inputs, check_case, start_case
from forensics.phrases import plural
from forensics.policies import Given, decoder_layers
from forensics.progress import Progress, silent
from forensics.protocols import Environment
from forensics.records import content_hash, read_json, write_json
from forensics.study import Folder, Result, run_study
from forensics.version import code_version

SAME_WEIGHTS: Final = "before and after hold the same weights, so nothing can differ"
SHORTEST: Final = 4  # tokens of a plain text before a place where it is cut


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
        told = (EXPLANATIONS, NEURONPEDIA, CAUSES)
        own = (*parts, *told, SEEDS, CONSENSUS, "controls", "baselines")
        return (*own, *CASE_FILES) if self.request.plays else own

    def check(self, folder: Folder) -> Opened:
        request, saved = settled(self.request)
        inputs = material = None
        if request.plays:
            case = CaseRequest(
                before=request.before,
                after=request.after,
                environment=request.environment,
                environment_options=request.options,
                budget=request.budget,
                seed=request.seed,
                device=request.device,
                backend=request.backend,
            )
            inputs = check_case(case, folder)
            identities = inputs.identities
        else:
            material = read(request, folder.copies, folder.progress)
            identities = material.identities
        if identities[0] == identities[1] and not request.identical:
            raise UserError(
                f"{SAME_WEIGHTS}; give another checkpoint, or --identical to run the pair as a"
                " control, in which all that is found is false"
            )
        if saved is not None:  # a dictionary that names its checkpoints must be of these
            saved.require_checkpoints(*identities)
        return Opened(
            request=request,
            saved=saved,
            identities=identities,
            inputs=inputs,
            material=material,
        )

    def inputs(self, ready: Opened) -> dict[str, Any]:
        """Where both play, `case.json` says what decides the texts."""
        return {
            **ready.request.stated(),
            "before": ready.identities[0],
            "after": ready.identities[1],
            "texts": texts_hash(ready.material.texts) if ready.material else None,
            "dictionary": ready.saved.key if ready.saved else None,
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
        sentences = [f"- {sentence}" for sentence in found["sentences"]]
        if found["command"]:
            sentences.append(f"\nTo test latents in play:\n  {found['command']}")
        return Result(summary=found, sentences=tuple(sentences), page=page)


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

    # 3. The dictionaries, and what is measured of them.
    tokens = training_tokens(request, streams)
    dictionaries = dictionaries_of(request, folder, streams.learnt, about, saved, tokens, progress)
    behaviour = behaviour_of(theme, material.runs)
    found = measured(
        dictionaries,
        material.policies,
        streams,
        contrasts_of(theme, material.runs),
        folder,
        request.controls,
        progress,
        behaviour,
        request.labels,
        sources_of_case(request.runs),
    )
    seeds = consensus_of(
        request, dictionaries, found, material.policies, streams, behaviour, folder, about, progress
    )

    more = [seeds.sentence] if seeds else []
    known = told(found, theme, location, about["site"], saved, more)
    if identities[0] == identities[1]:
        known["sentences"] = [f"A control: {SAME_WEIGHTS}.", *known["sentences"]]

    # 4. What was found; of outliers nothing where there are none.
    outliers = streams.outliers
    return {
        "schema_version": VERSION,
        "code": code_version(),
        **about,
        "asked": request.stated(),
        "given": {"as": saved.kind, "key": saved.key} if saved else None,
        **known,
        "consensus": list(seeds.rows) if seeds else None,
        **({"outliers": plain(outliers, request.keep_outliers)} if outliers.number else {}),
        "facts": _facts(material, found, streams, saved),
        "command": next_command(request, folder, found, saved)
        if identities[0] != identities[1]
        else "",  # nothing is there to test
    }


def _facts(
    material: Material,
    found: Measured,
    streams: StudyStreams,
    saved: SavedDictionary | None,
) -> list[str]:
    models = "one model" if found.models == 1 else "both models"
    cut = f"{plural(material.cut, 'text')} read as far as the models have positions"
    return [
        f"before {material.identities[0]}",
        f"after {material.identities[1]}",
        f"dictionary given ({saved.kind}, {models}), not trained"
        if saved
        else f"{len(streams.learnt.texts):,} texts to train on",
        f"{found.quality['rows']:,} tokens of"
        f" {len({text.task for text in streams.reported.texts}):,} other tasks to report on",
        *([cut] if material.cut else []),
    ]


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


def _maps(
    material: Material,
    decisions: Sequence[Decision],
    behaviour: Behaviour | None,
    request: DiffRequest,
    progress: Progress,
) -> tuple[ChangeMap, ChangeMap]:
    """Both maps: of a small network in full, of a deeper one layers first."""
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


def next_command(
    request: DiffRequest, folder: Path, found: Measured, saved: SavedDictionary | None
) -> str:
    """How to test the latents that rise where the behaviour is decided, else those listed."""
    before, after = request.before, request.after
    in_memory = not isinstance(before, str | PathLike) or not isinstance(after, str | PathLike)
    if not request.plays or in_memory:
        return ""
    world = ["--env", request.environment] if isinstance(request.environment, str) else []
    options = [
        part
        for key, value in request.options.items()
        for part in ("--env-option", f"{key}={value}")
    ]
    if saved is not None and found.models == 1:
        options += ["--encode-from", "own"]
    return steer_command(
        before, after, folder, rising(found) or found.reported.presented, [*world, *options]
    )
