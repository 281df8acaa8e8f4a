"""From the latents that come back to those that are reported: what each moves on stored texts of
other tasks (`causes`) is tested, written to `causes.json`, and asked for (`reported`).
"""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from crosscoders.dictionaries.dictionary import Dictionary
from crosscoders.latents.table import LatentTable
from crosscoders.patching.decisions import Behaviour
from crosscoders.study.causes import FEW_TEXTS, TEXTS, Probe, causes
from crosscoders.study.diff_files import CAUSES
from crosscoders.study.material import StudyStreams
from crosscoders.study.reported import Reported, reported
from forensics.errors import UserError
from forensics.progress import Progress
from forensics.records import write_json

MOST_TESTED, FEW_TESTED = 24, 6  # latents, the most active first; of a deep network few


def tested(
    dictionary: Dictionary,
    table: LatentTable,
    separating: Sequence[int],
    seeds: int,
    policies: Sequence[Any],
    streams: StudyStreams,
    behaviour: Behaviour | None,
    folder: Path,
    progress: Progress,
) -> Reported:
    """What is reported, once what comes back was tested."""
    back = reported(table, separating, seeds).latents
    if dictionary.config.models < 2:
        return reported(table, separating, seeds)
    most, texts = (MOST_TESTED, TEXTS) if streams.small else (FEW_TESTED, FEW_TEXTS)
    try:
        probe = Probe.of(policies[-1], streams.reported, behaviour, most=texts)
    except UserError as error:
        write_json(folder / CAUSES, {"missing": str(error), "latents": {}})
        return reported(table, separating, seeds)
    found = causes(probe, dictionary, back[:most], progress=progress)
    told = {str(latent): asdict(one) for latent, one in found.items()}
    write_json(folder / CAUSES, {"measure": probe.measure, "latents": told})
    holds = {latent: one.holds for latent, one in found.items()}
    return reported(table, separating, seeds, holds, f"the {probe.measure}")
