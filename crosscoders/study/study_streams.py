"""The activations that a diff learns from, reports on and chooses on, without outliers
of the norm.

1. In a network of at most `SMALL` layers each pass reads both checkpoints again, which is
   cheaper than to keep anything. A deeper one is read once, on texts of `MOST_READ`
   tokens drawn at random (more where more are asked for), into a file
   (`activations.kept_stream`) where the disk has room when the study begins.
2. Outliers (attention sinks) are surveyed over all texts; where there are any, the
   rows beyond the limits are left out of all three streams.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from crosscoders.activations.harvest_stream import HarvestConfig, HarvestStream, harvest
from crosscoders.activations.kept_stream import KeptStream, fits, keep
from crosscoders.activations.outlier_positions import Limits, Outliers, survey
from crosscoders.activations.texts import TokenizedText
from crosscoders.study.diff_files import MOST_READ, MOST_TOKENS, PASSES, SMALL, DiffRequest
from crosscoders.study.material import TRAINING, Material, some_texts
from forensics.policies.sites import decoder_layers
from forensics.progress import Progress
from forensics.records.files import read_json, write_json

ONCE: Final = HarvestConfig(batch=2048, window=4)  # short windows: a reader sees how far it is
READ: Final = "read.json"
Rows = HarvestStream | KeptStream


@dataclass(frozen=True, kw_only=True)
class StudyStreams:
    """`learnt`: to train on; `reported`: what everything is told of; `chosen`: some of
    `learnt`, for what is chosen on it. `limits`: those that were applied.
    """

    learnt: Rows
    reported: Rows
    chosen: Rows
    outliers: Outliers
    limits: Limits | None


def training_tokens(request: DiffRequest, learnt: Rows) -> int:
    """How many tokens the dictionaries are trained on."""
    if request.tokens is not None:
        return request.tokens
    if isinstance(learnt, KeptStream):
        return max(1, min(MOST_TOKENS, PASSES * len(learnt.index)))
    return MOST_TOKENS


def is_small(model: object) -> bool:
    """Whether a network is so small that it is read and patched in full."""
    return len(decoder_layers(model)) <= SMALL


def _keeps(once: HarvestStream, folder: Path) -> bool:
    """Whether the rows are kept, as was decided when the study began: the disk may have more or
    less room when it is gone on with, and what is trained depends on it.
    """
    decided = folder / TRAINING / READ
    if not decided.is_file():
        write_json(decided, {"kept": fits(once, folder)})
    return bool(read_json(decided)["kept"])


def study_streams(
    material: Material, request: DiffRequest, site: str, folder: Path, progress: Progress
) -> StudyStreams:
    """See the module's text."""
    policies, kept = material.policies, None
    if not is_small(policies[0].model):
        most = max(MOST_READ, request.tokens or 0)
        material = replace(material, texts=tuple(some_texts(material.texts, most)))
        once = harvest(policies, material.texts, site, ONCE)
        if _keeps(once, folder):
            kept = keep(once, folder / TRAINING / "activations", progress)
    whole: Rows = kept or harvest(policies, material.texts, site)
    found = survey(whole)
    limits = None if request.keep_outliers else found.applied

    def part(texts: Sequence[TokenizedText]) -> Rows:
        if kept is not None:
            return kept.part(texts, limits)
        return harvest(policies, texts, site, HarvestConfig(limits=limits))

    learnt, reported = material.parts(request.seed)
    return StudyStreams(
        learnt=part(learnt),
        reported=part(reported),
        chosen=part(some_texts(learnt)),
        outliers=found,
        limits=limits,
    )
