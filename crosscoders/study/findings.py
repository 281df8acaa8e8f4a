"""From the latents that come back to those that are reported: what each moves on stored texts of
other tasks (`causes`), and what they move together (`latent_sets`), is tested, written to
`causes.json`, and asked for (`reported`).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from crosscoders.dictionaries.dictionary import Dictionary
from crosscoders.latents.table import LatentTable
from crosscoders.patching.decisions import Behaviour
from crosscoders.study.acting_places import Asked, causes_where_they_act
from crosscoders.study.causal_probe import FEW_TEXTS, TEXTS, Probe
from crosscoders.study.causes import Cause, causes
from crosscoders.study.diff_files import CAUSES
from crosscoders.study.latent_sets import latent_sets
from crosscoders.study.material import StudyStreams
from crosscoders.study.reported import Reported, reported
from forensics.errors import UserError
from forensics.progress import Progress
from forensics.records import write_json

MOST_TESTED, FEW_TESTED = 24, 6  # latents, the most active first; of a deep network few


def tested(
    dictionaries: Sequence[Dictionary],
    table: LatentTable,
    separating: Sequence[int],
    policies: Sequence[Any],
    streams: StudyStreams,
    behaviours: Sequence[Behaviour],
    folder: Path,
    progress: Progress,
) -> Reported:
    """What is reported, once what comes back was tested. `dictionaries`: of every seed, the
    pair's own first. `behaviours`: whose use training changed, the theme's first; none: the loss,
    or the chance of whole answers.
    """
    own, seeds = dictionaries[0], len(dictionaries) - 1
    back = reported(table, separating, seeds).latents
    if own.config.models < 2:
        return reported(table, separating, seeds)
    texts = TEXTS if streams.small else FEW_TEXTS
    try:
        first = behaviours[0] if behaviours else None
        probe = Probe.of(policies[-1], streams.reported, first, most=texts)
    except UserError as error:
        write_json(folder / CAUSES, {"missing": str(error), "latents": {}})
        return reported(table, separating, seeds)
    most = MOST_TESTED if streams.small or probe.of_answers else FEW_TESTED
    rise, specific = probe.rise(policies[0]), table.specific("after").tolist()
    if behaviours:
        asked = Asked(
            dictionary=own, policies=policies, streams=streams, behaviours=behaviours, most=texts
        )
        found = causes_where_they_act(asked, back[:most], progress=progress)
    else:
        shares = rise if probe.of_answers else None
        found = causes(probe, own, back[:most], rise=shares, progress=progress)
    sets = latent_sets(
        probe, rise, dictionaries, streams.reported, specific, back, progress=progress
    )
    told = {str(latent): one.plain() for latent, one in found.items()}
    together = [one.plain() for one in sets]
    write_json(folder / CAUSES, {"measure": probe.measure, "latents": told, "together": together})
    holds = {latent: one.holds for latent, one in found.items()}
    return reported(table, separating, seeds, holds, _moved(probe, found), sets)


def _moved(probe: Probe, found: Mapping[int, Cause]) -> str:
    """Of those that move something; of all where none does."""
    measures = {one.measure for one in found.values() if one.holds}
    measures = measures or {one.measure for one in found.values()} or {probe.measure}
    if len(measures) > 1:
        return "the chance of an action whose use training changed, where it acts,"
    return f"the {measures.pop()}"
