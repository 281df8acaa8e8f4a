"""Null controls: what must show nothing, what must show everything, and what
must come back.

1. `same_pair`: both models are one. No latent may be specific, whatever the
   dictionary claims. Latent scaling's difference target is 1 there exactly, so
   a latent that passes shows a fault in the rule.
2. `shuffled_pair`: the models' rows come from different tokens, so nothing is
   shared: nearly every latent of a model's own block must be specific. A rule
   that is silent here has no power.
3. `recurrence.recurrence`: two seeds of one training. The share of latents that
   come back, beside the share that would by chance, says how much of a table is
   the data's and how much the seed's.
4. `false_discovery`: the share of the candidates that is specific in the
   same-model pair, carried over to the real pair: how many of the specific
   latents there would be expected without any difference. Train the dictionary
   of the null on the same-model pair itself, with the same settings.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch

from crosscoders.activations.streams import Block, MappedStream, Stream
from crosscoders.latents.table import LatentTable
from forensics.statistics.intervals import clopper_pearson

POWER = 0.9


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


@dataclass(frozen=True, kw_only=True)
class FalseDiscovery:
    """`found` specific latents of `candidates`; of the null's
    `null_candidates`, `null_found` are.

    `rate`: expected share of `found` without any difference, `high` its upper
    end (exact for the null's share, 95 %, one-sided). `None` where nothing was
    found, or where the null had no candidate.
    """

    found: int
    candidates: int
    null_found: int
    null_candidates: int
    rate: float | None
    high: float | None


def false_discovery(real: LatentTable, null: LatentTable, model: str = "after") -> FalseDiscovery:
    """The false discovery rate of "specific to `model`", from the table of a same-model pair."""
    found, candidates = len(real.specific(model)), int(_candidates(real, model).sum())
    null_found, null_candidates = len(null.specific(model)), int(_candidates(null, model).sum())
    rate = high = None
    if found and null_candidates:
        most = clopper_pearson(null_found, null_candidates, level=0.9)[1]  # one side of it is 95 %
        rate = min(1.0, null_found / null_candidates * candidates / found)
        high = min(1.0, most * candidates / found)
    return FalseDiscovery(
        found=found,
        candidates=candidates,
        null_found=null_found,
        null_candidates=null_candidates,
        rate=rate,
        high=high,
    )


def _candidates(table: LatentTable, model: str) -> np.ndarray:
    """Latents that could be specific to a model: in its own block, or any where
    there are no blocks; not silent.
    """
    partition = table.column("partition")
    dedicated = (partition != "shared").any()
    found: np.ndarray = np.isfinite(table.column(f"nu_{model}"))
    return found & (partition == f"{model}-only") if dedicated else found


@dataclass(frozen=True, kw_only=True)
class Control:
    """A control, the share of specific latents among its candidates (`None`: no
    candidates), and whether it holds.
    """

    name: str
    must: str
    share: float | None
    holds: bool | None


def null_controls(
    same: LatentTable | None = None, shuffled: LatentTable | None = None
) -> tuple[Control, ...]:
    """What the tables of the same-model pair and of the shuffled pair say, over both directions."""
    found = []
    if same is not None:
        share = _share(same)
        found.append(
            Control(
                name="same-model pair",
                must="no latent is specific",
                share=share,
                holds=None if share is None else share == 0,
            )
        )
    if shuffled is not None:
        share = _share(shuffled)
        found.append(
            Control(
                name="shuffled pair",
                must=f"at least {POWER:.0%} of the candidates are specific",
                share=share,
                holds=None if share is None else share >= POWER,
            )
        )
    return tuple(found)


def _share(table: LatentTable) -> float | None:
    number = sum(int(_candidates(table, model).sum()) for model in ("after", "before"))
    specific = sum(len(table.specific(model)) for model in ("after", "before"))
    return specific / number if number else None
