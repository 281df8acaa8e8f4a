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

Which latents of a dictionary come back from other first weights, and by how much more than
by chance.

1. Candidates are pairs of a latent here and one there whose decoders, over all models together,
   have a cosine of at least `LEAST_COSINE`; one that changed its block is not the same.
2. On rows that nothing was trained on the pair's activations must have a cosine of at least
   `LEAST_ACTIVATION` too: two latents may point one way and fire on other tokens.
3. Each latent has one partner: of the pairs that are left the assignment with the largest sum of
   both cosines (2501.16615 matches by assignment; best cosines let many claim one).
   Pairs that share no latent do not compete, so it is solved part by part.
4. `stability` is the share of the other dictionaries in which a latent has a partner; one that is
   never active has none to find. Chance: the others' decoders with their coordinates mixed up,
   which keeps norms and the relation of the models to each other and destroys the directions.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float, Int
from scipy.optimize import linear_sum_assignment
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from crosscoders.activations.streams import Block, MappedStream, Stream
from crosscoders.dictionaries.dictionary import Dictionary
from crosscoders.latents.encoded_blocks import encoded_blocks
from crosscoders.latents.table import LatentTable, SpecificConfig, latent_table
from forensics.errors import UserError
from forensics.phrases import percent, plural
from forensics.statistics import clopper_pearson

LEAST_COSINE = 0.9  # of the decoders of a latent that comes back
LEAST_ACTIVATION = 0.7  # of its activations
LATENTS_AT_ONCE = 2048


@dataclass(frozen=True, kw_only=True)
class Stability:
    """`partners [others, latents]`: which latent of each other dictionary it is (-1: none).
    `alive [latents]`: active at all on the rows read. `chance`: the share of the living that
    comes back where the others are mixed up.
    """

    partners: np.ndarray
    alive: np.ndarray
    chance: float

    @property
    def share(self) -> np.ndarray:
        """In how many of the others `[latents]`, as a share; NaN for a latent that is silent."""
        return np.where(self.alive, (self.partners >= 0).mean(0), np.nan)

    @property
    def mean(self) -> float | None:
        """The share of the living latents that comes back, over the others."""
        return float(self.share[self.alive].mean()) if self.alive.any() else None


def stability(first: Dictionary, others: Sequence[Dictionary], stream: Stream) -> Stability:
    """Match `first` with each of the others, which were trained at the same site. Raises
    `UserError` where they have other models or another width, or where there is none.
    """
    if not others:
        raise UserError("stability needs a second dictionary; train one from other first weights")
    shapes = {(one.config.width, one.config.models) for one in (first, *others)}
    if len(shapes) > 1:
        raise UserError(
            "the dictionaries differ in width or models; train all on the same site of the same"
            " pair"
        )
    trials = [_candidates(first, other, mixed) for mixed in (False, True) for other in others]
    alive, agreements = _activations(first, others, trials, stream)
    found = np.stack(
        [
            assigned(pairs, agreement, len(first.bias))
            for pairs, agreement in zip(trials, agreements, strict=True)
        ]
    )
    real, mixed_up = found[: len(others)], found[len(others) :]
    chance = float((mixed_up >= 0)[:, alive].mean()) if alive.any() else 0.0
    return Stability(partners=real, alive=alive, chance=chance)


@dataclass(frozen=True)
class Pairs:
    """Candidates: a latent here, one there, and the cosine of their decoders `[pairs]`."""

    here: Int[Tensor, " pairs"]
    there: Int[Tensor, " pairs"]
    cosine: Float[Tensor, " pairs"]


def _candidates(first: Dictionary, other: Dictionary, mixed: bool) -> Pairs:
    theirs = other.directions().float()
    if mixed:
        order = np.random.default_rng(0).permutation(first.config.width)
        theirs = theirs[..., torch.from_numpy(order).to(theirs.device)]
    rows, columns = (
        torch.nn.functional.normalize(
            rearrange(one, "latents models width -> latents (models width)")
        )
        for one in (first.directions().float(), theirs.to(first.bias.device))
    )
    here, there, cosines = [], [], []
    for start in range(0, len(rows), LATENTS_AT_ONCE):
        cosine = rows[start : start + LATENTS_AT_ONCE] @ columns.T
        one, two = (cosine >= LEAST_COSINE).nonzero(as_tuple=True)
        here.append(one + start)
        there.append(two)
        cosines.append(cosine[one, two])
    return Pairs(torch.cat(here), torch.cat(there), torch.cat(cosines))


@torch.no_grad()
def _activations(
    first: Dictionary, others: Sequence[Dictionary], trials: Sequence[Pairs], stream: Stream
) -> tuple[np.ndarray, list[Tensor]]:
    """Which latents of the first are active at all, and the cosine of the activations of every
    pair of the trials, each of the others in turn, in one pass.
    """
    squares, *theirs = (torch.zeros_like(one.bias, dtype=torch.float64) for one in (first, *others))
    products = [torch.zeros_like(trial.cosine, dtype=torch.float64) for trial in trials]
    for encoded in encoded_blocks(first, stream):
        raw, values = encoded.scaled / first.scale, first.values(encoded.scaled)
        squares += values.double().square().sum(0)
        said = [other.values(other.scaled(raw)) for other in others]
        for own, one in zip(theirs, said, strict=True):
            own += one.double().square().sum(0)
        for place, (trial, total) in enumerate(zip(trials, products, strict=True)):
            there = said[place % len(others)][:, trial.there]
            total += (values[:, trial.here] * there).sum(0).double()
    cosines = [
        total / (squares[trial.here] * theirs[place % len(others)][trial.there]).sqrt().clamp(1e-30)
        for place, (trial, total) in enumerate(zip(trials, products, strict=True))
    ]
    return (squares > 0).cpu().numpy(), cosines


def assigned(pairs: Pairs, activation: Tensor, latents: int) -> np.ndarray:
    """The partner of each of `latents` (-1: none): the assignment with the largest sum of both
    cosines, among the pairs whose activations agree.
    """
    kept = activation >= LEAST_ACTIVATION
    here, there = (one[kept].cpu().numpy() for one in (pairs.here, pairs.there))
    value = (pairs.cosine.double() + activation)[kept].cpu().numpy()
    partner = np.full(latents, -1)
    if not len(here):
        return partner
    nodes = int(max(latents, there.max() + 1 + latents))
    graph = coo_array((value, (here, there + latents)), shape=(nodes, nodes))
    number, part = connected_components(graph, directed=False)
    order = np.argsort(part[here], kind="stable")
    starts = np.searchsorted(part[here][order], np.arange(number + 1))
    for low, high in pairwise(starts):
        if low < high:
            chosen = order[low:high]
            partner_of = _solved(here[chosen], there[chosen], value[chosen])
            partner[list(partner_of)] = list(partner_of.values())
    return partner


def _solved(here: np.ndarray, there: np.ndarray, value: np.ndarray) -> dict[int, int]:
    """The best assignment of pairs that hang together."""
    rows, row = np.unique(here, return_inverse=True)
    columns, column = np.unique(there, return_inverse=True)
    table = np.zeros((len(rows), len(columns)))
    table[row, column] = value
    found = linear_sum_assignment(table, maximize=True)
    return {int(rows[i]): int(columns[j]) for i, j in zip(*found, strict=True) if table[i, j] > 0}


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
