"""What should show nothing, on the reported texts: the null controls of a diff.

Dictionaries that were trained beside that of the pair (same model twice,
shuffled rows, a second seed), or, for a dictionary that was given, that
dictionary itself on the same model twice: there is no training to repeat.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from crosscoders.activations.streams import Stream
from crosscoders.dictionaries.dictionary import Dictionary
from crosscoders.latents.controls import false_discovery, null_controls, same_pair, shuffled_pair
from crosscoders.latents.recurrence import recurrence
from crosscoders.latents.specific import SpecificConfig
from crosscoders.latents.table import LatentTable, TableConfig, latent_table
from crosscoders.study.trained import AGAIN, PAIR, SAME, SHUFFLED
from forensics.wording import percent

NO_SHARE = TableConfig(
    specific=SpecificConfig(share=0)
)  # where both models are one there is no difference to share

Controls = list[dict[str, Any]]


def controls_of(
    real: LatentTable, dictionaries: Mapping[str, Dictionary], stream: Stream
) -> Controls:
    """`controls.json`: what each control shows and what it should."""
    if SAME not in dictionaries:
        return _given(dictionaries[PAIR], stream)
    same = latent_table(dictionaries[SAME], same_pair(stream), config=NO_SHARE)
    shuffled = latent_table(dictionaries[SHUFFLED], shuffled_pair(stream))
    rows = [
        {
            "name": control.name,
            "found": _share(control.share),
            "expected": control.must,
            "share": control.share,
            "holds": control.holds,
        }
        for control in null_controls(same, shuffled)
    ]
    return [*rows, _discovery(real, same), _recurring(dictionaries, real)]


def _given(dictionary: Dictionary, stream: Stream) -> Controls:
    """For a dictionary that was given: its latents that could be specific, read
    where both models are one.
    """
    if dictionary.config.models == 1:
        return []  # no latent of it could be
    config = NO_SHARE.specific
    table = latent_table(dictionary, same_pair(stream), config=NO_SHARE)
    norm, dedicated = table.column("relative_norm"), table.column("partition") != "shared"
    with np.errstate(invalid="ignore"):
        could = dedicated if dedicated.any() else (norm >= config.norm) | (norm <= 1 - config.norm)
    active = int((could & (table.column("frequency") > 0)).sum())
    found = sum(len(table.specific(model)) for model in ("after", "before"))
    told = (
        f"{found} of {active}"
        if active
        else f"none of the {int(could.sum())} that could be is active"
    )
    return [
        {
            "name": "same-model pair",
            "found": told,
            "expected": "no latent is specific",
            "share": found / active if active else None,
            "holds": found == 0 if active else None,
        }
    ]


def _discovery(real: LatentTable, same: LatentTable) -> dict[str, Any]:
    found = false_discovery(real, same)
    if not found.found:
        told = "nothing was found"
    elif found.rate is None or found.high is None:
        told = (
            f"{found.found} specific latents, and the same-model pair has no candidate to be false"
        )
    else:
        told = (
            f"{percent(found.rate)} of the {found.found} specific latents, at most"
            f" {percent(found.high)}"
        )
    return {
        "name": "false ones among the specific latents",
        "found": told,
        "expected": "few",
        "counts": asdict(found),
    }


def _recurring(dictionaries: Mapping[str, Dictionary], real: LatentTable) -> dict[str, Any]:
    alive = real.column("frequency") > 0
    everyone = np.ones(len(dictionaries[AGAIN].bias), dtype=bool)
    if not alive.any():
        return {
            "name": "second seed",
            "found": "no latent is ever active",
            "expected": "many come back",
        }
    found = recurrence(dictionaries[PAIR], dictionaries[AGAIN], alive=(alive, everyone))
    return {
        "name": "second seed",
        "found": f"{percent(found.share)} of the latents come back",
        "expected": f"more than by chance ({percent(found.chance)})",
        "share": found.share,
        "chance": found.chance,
    }


def _share(share: float | None) -> str:
    return "no candidate" if share is None else f"{percent(share)} of the candidates are specific"
