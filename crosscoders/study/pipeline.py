"""`diff`: from two checkpoints to where and what changed inside, in a folder
that can be gone on with.

1. Both policies play (in a case folder that `investigate` can go on with), or a
   log or plain texts are read.
2. Patching and grafting say where the change lives, and choose the site
   (`locating`).
3. On the texts of some tasks a dictionary is trained: shared latents with one
   decoder for both models, and after-only ones; beside it those of the null
   controls (`making`). Or one that exists is taken (`given`).
4. On the texts of the other tasks: table of latents, strongest tokens, quality,
   controls (`measuring`), and what simpler methods do (`comparing`).
5. What was found in sentences (`telling`), and the page.

What is finished is read back when the folder is gone on with; what it was
started with must be the same.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from shutil import rmtree
from typing import Any, Final

from crosscoders.activations.harvest_stream import harvest, texts_hash
from crosscoders.dictionaries.saved import SavedDictionary
from crosscoders.study.asked import DiffRequest
from crosscoders.study.diff_files import (
    BASELINES,
    CONTROLS,
    DICTIONARY,
    DIFF,
    LATENTS,
    PAGE,
    PATCHING,
    QUALITY,
    TOKENS,
    VERSION,
)
from crosscoders.study.diff_page import write_page
from crosscoders.study.diff_sentences import rising, steer_command, told
from crosscoders.study.given import settled
from crosscoders.study.material import Material, played, read, some_texts
from crosscoders.study.measures import Measured, Reading, measured
from crosscoders.study.site import locate
from crosscoders.study.target_behaviour import Theme, contrasts_of, theme_of
from crosscoders.study.trained import TRAINING, Making
from forensics.cli.folders import claimed_folder
from forensics.errors import UserError
from forensics.investigation.folder import CASE
from forensics.investigation.run import opened_case, start_case
from forensics.progress import Progress, silent
from forensics.protocols import Environment
from forensics.records import CheckpointPair
from forensics.records.files import read_json, write_json
from forensics.version import code_version

INPUTS: Final = "diff-inputs.json"
OWN_FILES: Final = (DIFF, INPUTS, PATCHING, LATENTS, TOKENS, QUALITY, CONTROLS, BASELINES, PAGE)
OWN_FOLDERS: Final = (DICTIONARY, TRAINING, "controls", "baselines")


def diff(
    before: str | PathLike[str],
    after: str | PathLike[str],
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

    `environment`: what both policies play in; `None` takes the one that the
    before directory names, unless `asked` has `runs` or `texts`. `asked`:
    fields of `DiffRequest`. Raises `UserError` for bad input.
    """
    try:
        request = DiffRequest(
            before=Path(before), after=Path(after), environment=environment, **asked
        )
    except TypeError as error:
        raise UserError(
            f"diff cannot be asked that ({error}); see the fields of DiffRequest"
        ) from None
    return run_diff(request, Path(out), resume=resume, force=force, progress=progress)


def run_diff(
    request: DiffRequest,
    out: Path,
    *,
    resume: bool = False,
    force: bool = False,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Diff two checkpoints; returns what `diff.json` says. Raises `UserError` for bad input."""
    request, saved = settled(request)
    with _opened(request, saved, out, resume, force, progress) as (folder, material):
        return diff_material(request, material, folder, progress, saved)


def diff_material(
    request: DiffRequest,
    material: Material,
    folder: Path,
    progress: Progress,
    saved: SavedDictionary | None = None,
) -> dict[str, Any]:
    """The diff of texts and policies that are at hand, written into `folder`;
    goes on from what is finished there.
    """
    identities = (material.pair.before.identity, material.pair.after[0].identity)
    about = {"before": identities[0], "after": identities[1]}
    _require_same(
        folder / INPUTS,
        {
            **request.stated(),
            **about,
            "texts": texts_hash(material.texts),
            "dictionary": saved.key if saved else None,
        },
    )
    theme = theme_of(material.runs, identities, material.channels, request.kind)
    location = _located(material, request, theme, folder, progress)
    about["site"] = location["site"] if location else request.site
    parts = material.parts(request.seed)
    streams = [
        harvest(material.policies, texts, about["site"]) for texts in (*parts, some_texts(parts[0]))
    ]
    making = Making(
        request=request,
        folder=folder,
        stream=streams[0],
        metadata=about,
        progress=progress,
        saved=saved,
    )
    dictionaries = making.dictionaries()
    progress("reading the latents", 0, 1)
    found = measured(
        dictionaries,
        Reading(policies=material.policies, texts=parts[1], stream=streams[1], learnt=streams[2]),
        contrasts_of(theme, material.runs),
        folder,
        seed=request.seed,
        controls=request.controls,
    )
    progress("reading the latents", 1, 1)
    summary = {
        "schema_version": VERSION,
        "code": code_version(),
        **about,
        "asked": request.stated(),
        "given": {"as": saved.kind, "key": saved.key} if saved else None,
        **told(found, theme, location, about["site"], saved),
        "facts": _facts(material, parts, found, saved),
        "command": _next_command(request, folder, found, saved),
    }
    write_json(folder / DIFF, summary)
    write_page(folder)
    rmtree(folder / TRAINING, ignore_errors=True)
    return summary


@contextmanager
def _opened(
    request: DiffRequest,
    saved: SavedDictionary | None,
    out: Path,
    resume: bool,
    force: bool,
    progress: Progress,
) -> Iterator[tuple[Path, Material]]:
    """The folder, held, and what the diff works on."""
    if not request.plays:
        with claimed_folder(out, force=force, resume=resume) as folder:
            material = read(request, progress)
            _require_pair(saved, material.pair)
            yield folder, material
        return
    with opened_case(
        request.before,
        request.after,
        request.environment,
        environment_options=request.options,
        budget=request.budget,
        training=None,
        seed=request.seed,
        out=out,
        resume=resume,
        force=force,
        device=request.device,
        progress=progress,
    ) as (folder, inputs, started):
        _require_pair(saved, inputs.pair)
        if force:
            _clear(folder)
        if started is None or not (folder / CASE).is_file():
            start_case(inputs.case(folder, progress), (), inputs)
        yield folder, played(inputs, folder, progress)


def _require_pair(saved: SavedDictionary | None, pair: CheckpointPair) -> None:
    """A dictionary that names its checkpoints must be of these."""
    if saved is not None:
        saved.require_checkpoints(pair.before.identity, pair.after[0].identity)


def _clear(folder: Path) -> None:
    """What a diff wrote; everything else stays."""
    for name in OWN_FILES:
        (folder / name).unlink(missing_ok=True)
    for name in OWN_FOLDERS:
        rmtree(folder / name, ignore_errors=True)


def _require_same(path: Path, inputs: dict[str, Any]) -> None:
    """Refuse to go on with another diff."""
    if path.exists():
        started = read_json(path)
        for name, value in inputs.items():
            if started.get(name) != value:
                raise UserError(
                    f"{path.parent} was started with another {name}; give the same, or use --force"
                )
    write_json(path, inputs)


def _located(
    material: Material, request: DiffRequest, theme: Theme | None, folder: Path, progress: Progress
) -> dict[str, Any] | None:
    """`patching.json`, read back where it is finished; `None` where nothing is to be patched."""
    if not request.decisions:
        return None
    path = folder / PATCHING
    if not path.is_file():
        write_json(path, locate(material, request, theme, progress))
    found: dict[str, Any] = read_json(path)
    return found


def _next_command(
    request: DiffRequest, folder: Path, found: Measured, saved: SavedDictionary | None
) -> str:
    """How to test the latents that rise where the behaviour is decided."""
    if not request.plays:
        return ""
    world = ["--env", request.environment] if isinstance(request.environment, str) else []
    options = [
        part
        for key, value in request.options.items()
        for part in ("--env-option", f"{key}={value}")
    ]
    if saved is not None and found.models == 1:
        options += ["--encode-from", "own"]
    return steer_command(request.before, request.after, folder, rising(found), [*world, *options])


def _facts(
    material: Material,
    parts: tuple[list[Any], list[Any]],
    found: Measured,
    saved: SavedDictionary | None,
) -> list[str]:
    tasks = len({text.note.task for text in parts[1]})
    trained = (
        f"{len(parts[0]):,} texts to train on"
        if saved is None
        else (
            f"dictionary given ({saved.kind},"
            f" {'one model' if found.models == 1 else 'both models'}), not trained"
        )
    )
    return [
        f"before {material.pair.before.identity}",
        f"after {material.pair.after[0].identity}",
        trained,
        f"{found.quality['rows']:,} tokens of {tasks:,} other tasks to report on",
    ]
