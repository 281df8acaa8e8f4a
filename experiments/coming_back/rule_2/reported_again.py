"""Whether what a diff reports of a pair is found from other first weights: on the same tasks, and
on tasks that the diff has not seen.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from crosscoders import Stream, harvest
from crosscoders.dictionaries.saved import load_dictionary
from crosscoders.latents.stability import Stability, stability
from crosscoders.study.diff_files import (
    MOST_TOKENS,
    DiffRequest,
    read_latents,
)
from crosscoders.study.material import Material, parts, played, study_streams
from crosscoders.study.pipeline import diff_material
from crosscoders.study.study_dictionaries import PAIR, place_of
from experiments.coming_back.side_by_side import dictionaries
from forensics.budget import Budget
from forensics.investigation import CaseRequest, check_case, start_case
from forensics.progress import silent
from forensics.protocols import SamplingSettings
from forensics.study import Folder
from training.organisms import build_organism

BUNDLED: Final = Path("training/bundled")
PAIRS: Final = {
    "leak": ("capped-base", "leak"),
    "leak-open": ("open-base", "leak"),
    "honest": ("open-base", "honest"),
}
BUILT: Final = ("planted", "installed")
SETTINGS: Final = SamplingSettings(max_tokens=480)  # these models read 512 tokens
FRESH: Final = range(1001, 1011)  # first weights
OTHERS: Final = ((5000, range(2001, 2006)), (6000, range(2006, 2011)))  # of tasks, of first weights
REPORTED, NO_CAUSE, NOT_BACK, NOT_OWN = "reported", "moves nothing", "not back", "not specific"

TOGETHER: Final = "together"  # the set that is a finding, which came after the rule


def fresh_row(pair: str, seed: int, cache: Path) -> dict[str, Any]:
    """By the condition that a latent fails first, the shares of fresh dictionaries that have it."""
    folder = cache / f"{pair}-{seed}"
    before, after = checkpoints(pair, seed, folder)
    request = DiffRequest(
        before=before,
        after=after,
        seed=seed,
        budget=Budget(settings=SETTINGS),
        controls=False,
        baselines=False,
        device="cpu",
    )
    material = opened(request, folder / "diff")
    found = diff_material(request, material, folder / "diff", silent)
    streams = study_streams(material, request, found["site"], folder / "diff", silent)
    first = load_dictionary(place_of(folder / "diff", PAIR))
    same = dictionaries(streams.learnt, FRESH, MOST_TOKENS, folder / "same", seed)
    other = []
    for start, weights in OTHERS:
        learnt = other_tasks(request, material, start + seed, found["site"], folder)
        kept = folder / f"other-{start}"
        other += dictionaries(learnt, weights, MOST_TOKENS, kept, start + seed)
    again = [stability(first, fresh, streams.reported) for fresh in (same, other)]
    by_condition = conditions(found, folder / "diff")
    other_ones = by_condition.pop(NOT_OWN)
    return {
        "site": found["site"],
        "sentence": next(one for one in found["sentences"] if "the after model's own" in one),
        **{name: told(latents, again) for name, latents in by_condition.items()},
        NOT_OWN: {"number": len(other_ones), "shares": mean_shares(other_ones, again)},
        TOGETHER: found[TOGETHER],
        "all": [{"share": one.mean, "chance": one.chance} for one in again],
    }


def checkpoints(pair: str, seed: int, folder: Path) -> tuple[Path, Path]:
    """Before and after; an organism is built at the seed, once."""
    if pair not in BUILT:
        before, after = PAIRS[pair]
        return BUNDLED / before, BUNDLED / after
    place = folder / "organism"
    place.mkdir(parents=True, exist_ok=True)
    if not (place / "manifest.json").is_file():
        build_organism(pair, seed, place, silent)
    return place / "base", place / "after"


def opened(request: DiffRequest, folder: Path) -> Material:
    """Both play, as in a diff."""
    case = CaseRequest(
        before=request.before,
        after=request.after,
        environment=request.environment,
        budget=request.budget,
        seed=request.seed,
        device="cpu",
    )
    kept = Folder(folder, "coming-back")
    folder.mkdir(parents=True, exist_ok=True)
    inputs = check_case(case, kept)
    if not (folder / "case.json").is_file():
        start_case(inputs.case(folder, silent), (), inputs)
    return played(inputs, folder, silent)


def other_tasks(
    request: DiffRequest, material: Material, seed: int, site: str, folder: Path
) -> Stream:
    """As many tasks as a diff learns from, none of which this one has."""
    other = opened(replace(request, seed=seed), folder / f"tasks-{seed}")
    known = {text.note.task for text in material.texts}
    texts = [text for text in parts(other.texts, seed)[0] if text.note.task not in known]
    return harvest(other.policies, texts, site, store=folder / "activations")


def conditions(found: dict[str, Any], folder: Path) -> dict[str, list[int]]:
    """The latents by the condition that they fail first."""
    own, reported = found["specific"], found["reported"]
    back = {one.latent for one in read_latents(folder, found["contrasts"]) if one.comes_back}
    return {
        REPORTED: reported,
        NO_CAUSE: [one for one in own if one in back and one not in reported],
        NOT_BACK: [one for one in own if one not in back],
        NOT_OWN: sorted(set(found["separating"]) - set(own)),
    }


def told(latents: list[int], again: list[Stability]) -> dict[str, Any]:
    """Of each latent, in which share of the fresh dictionaries it is: same tasks, other tasks."""
    return {str(latent): mean_shares([latent], again) for latent in latents}


def mean_shares(latents: list[int], again: list[Stability]) -> list[float | None]:
    """The same on average over these latents."""
    return [float(one.share[latents].mean()) if latents else None for one in again]
