"""Null controls, as rows of `controls.json`: what must show nothing, what must
show everything, and what must come back.

1. Same-model pair (`same_pair`): both models are one. No latent may be specific,
   whatever the dictionary claims. Latent scaling's difference target is 1 there
   exactly, so a latent that passes shows a fault in the rule.
2. Shuffled pair (`shuffled_pair`): the models' rows come from different tokens,
   so nothing is shared: nearly every latent of a model's own block must be
   specific. A rule that is silent here has no power.
3. False discoveries: the share of the candidates that is specific in the
   same-model pair, carried over to the real pair: how many of the specific
   latents there would be expected without any difference. Train the dictionary
   of the null on the same-model pair itself, with the same settings.
4. Other seeds: the share of latents that come back, beside the share that would by chance, says
   how much of a table is the data's and how much the seed's (`stability`).
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from crosscoders.activations.streams import Block, MappedStream, Stream
from crosscoders.dictionaries.dictionary import Dictionary
from crosscoders.latents.stability import Stability
from crosscoders.latents.table import LatentTable, SpecificConfig, latent_table
from forensics.phrases import percent, plural
from forensics.statistics import clopper_pearson

POWER = 0.9
BOTH = ("after", "before")
# where both models are one there is no difference to share
NO_SHARE = SpecificConfig(share=0)


def same_pair(stream: Stream, model: int = 0) -> Stream:
    """A stream whose models are all the model `model` of another."""

    def one_model(blocks: Iterator[Block]) -> Iterator[Block]:
        for block in blocks:
            yield replace(
                block, activations=block.activations[:, model, None].expand(-1, stream.models, -1)
            )

    return MappedStream(stream=stream, models=stream.models, name=f"/same-{model}", view=one_model)


def shuffled_pair(stream: Stream, seed: int = 0) -> Stream:
    """A stream in which the last model's row never belongs to the token of the
    others'.

    Within each block the last model's rows go round one random cycle. `rows`
    tell of the other models' token. A block of one row has no partner and is
    left out.
    """

    def parted(blocks: Iterator[Block]) -> Iterator[Block]:
        generator = np.random.default_rng(seed)
        for block in blocks:
            if len(block.rows) < 2:
                continue
            order = torch.from_numpy(generator.permutation(len(block.rows)))
            changed = block.activations.clone()
            changed[order, -1] = block.activations[order.roll(1), -1]
            yield replace(block, activations=changed)

    return MappedStream(stream=stream, models=stream.models, name=f"/shuffled-{seed}", view=parted)


def pair_row(table: LatentTable, *, shuffled: bool) -> dict[str, Any]:
    """What the table of a same-model pair, or of a shuffled one, says: the share
    of the candidates, over both directions; `None` without any.
    """
    number, share, holds = sum(candidates(table, model) for model in BOTH), None, None
    if number:
        share = sum(len(table.specific(model)) for model in BOTH) / number
        holds = share >= POWER if shuffled else share == 0
    most = f"at least {POWER:.0%} of the candidates are specific"
    return {
        "name": "shuffled pair" if shuffled else "same-model pair",
        "found": f"{percent(share)} of the candidates are specific"
        if share is not None
        else "no candidate",
        "expected": most if shuffled else "no latent is specific",
        "share": share,
        "holds": holds,
    }


def candidates(table: LatentTable, model: str) -> int:
    """How many latents could be specific to a model: in its own block, or any where
    there are no blocks; not silent.
    """
    partition, known = table.column("partition"), np.isfinite(table.column(f"nu_{model}"))
    dedicated = (partition != "shared").any()
    return int((known & (partition == f"{model}-only") if dedicated else known).sum())


def given_row(dictionary: Dictionary, stream: Stream) -> dict[str, Any]:
    """For a dictionary that was given, so that no training can be repeated: its
    latents that could be specific, read where both models are one.
    """
    table = latent_table(dictionary, same_pair(stream), specific=NO_SHARE)
    norm, dedicated = table.column("relative_norm"), table.column("partition") != "shared"
    with np.errstate(invalid="ignore"):
        apart = (norm >= NO_SHARE.norm) | (norm <= 1 - NO_SHARE.norm)
    could = dedicated if dedicated.any() else apart
    active = int((could & (table.column("frequency") > 0)).sum())
    found = sum(len(table.specific(model)) for model in BOTH)
    none = f"none of the {int(could.sum())} that could be is active"
    return {
        "name": "same-model pair",
        "found": f"{found} of {active}" if active else none,
        "expected": "no latent is specific",
        "share": found / active if active else None,
        "holds": found == 0 if active else None,
    }


def false_discovery_row(real: LatentTable, null: LatentTable) -> dict[str, Any]:
    """The false discovery rate of "specific to after", from the table of a
    same-model pair.

    `counts`: `found` specific latents of `candidates`; of the null's
    `null_candidates`, `null_found` are. `rate`: expected share of `found`
    without any difference, `high` its upper end (exact for the null's share, 95
    %, one-sided); `None` where nothing was found, or where the null had no
    candidate.
    """
    found, null_found = len(real.specific("after")), len(null.specific("after"))
    could, null_could = candidates(real, "after"), candidates(null, "after")
    rate = high = None
    if not found:
        told = "nothing was found"
    elif not null_could:
        own = plural(found, "specific latent")
        told = f"{own}, and the same-model pair has no candidate to be false"
    else:
        most = clopper_pearson(null_found, null_could, level=0.9)[1]  # one side of it is 95 %
        rate = min(1.0, null_found / null_could * could / found)
        high = min(1.0, most * could / found)
        told = f"{percent(rate)} of the {found} specific latents, at most {percent(high)}"
    return {
        "name": "false ones among the specific latents",
        "found": told,
        "expected": "few",
        "counts": {
            "found": found,
            "candidates": could,
            "null_found": null_found,
            "null_candidates": null_could,
            "rate": rate,
            "high": high,
        },
    }


def other_seeds_row(found: Stability) -> dict[str, Any]:
    """Which share of the living latents comes back in the dictionaries of other seeds."""
    share = found.mean
    if share is None:
        told, expected = "no latent is ever active", "many come back"
    else:
        told = f"{percent(share)} of the latents come back"
        expected = f"more than by chance ({percent(found.chance)})"
    return {
        "name": "other seeds",
        "found": told,
        "expected": expected,
        "share": share,
        "chance": found.chance,
    }
