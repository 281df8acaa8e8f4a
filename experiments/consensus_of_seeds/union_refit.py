"""One piece of the study: in a planted world, what one dictionary calls after-only, what its seeds
agree on, and what is left of the union of all candidates when it is trained on.

1. Three crosscoders from other first weights learn from the same batches.
2. Candidates are the latents of every seed that `latent_table` calls specific to after, one for
   each direction.
3. They are written into the after-only block of each of the three, places that are left over get
   new random weights, and all of it is trained on for half as long (`TrainingJob.start`).
4. A latent *turned* where a shared latent of its dictionary is active with it (cosine of the
   activations of at least `TOGETHER`): then it is that shared feature, with another direction in
   each model, and nobody's own.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from crosscoders import latent_table
from crosscoders.dictionaries import (
    Dictionary,
    DictionaryConfig,
    Partition,
    TrainerSettings,
    TrainingJob,
    train_crosscoders,
)
from crosscoders.latents.encoded_blocks import encoded_blocks
from crosscoders.latents.stability import stability
from experiments.readers_of_the_difference.difference_readers import SAME
from experiments.readers_of_the_difference.reading_measures import recall
from experiments.readers_of_the_difference.study_pieces import (
    JUDGED,
    PLANTED,
    TRAINED_ON,
)
from experiments.readers_of_the_difference.synthetic_world import OWN, WIDTH, SyntheticWorld

Row = dict[str, Any]
SEEDS, LATENTS, BLOCK = 3, 384, 2 * OWN
K, OWN_K, OWN_K_AGAIN, RATE, BATCH = 12, 2.0, 1.0, 3e-3, 625  # as `forensics diff` trains
AGAIN: Final = 0.5  # of the rows, trained on from the union
AGREED, TOGETHER = 0.5, 0.5


@dataclass(frozen=True, kw_only=True)
class Piece:
    world: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.world}/{self.seed}"


def judge(piece: Piece) -> Row:
    """The row of a piece, on one core: found and false of each way to call after-only."""
    torch.set_num_threads(1)
    start = time.process_time()
    world = SyntheticWorld(seed=piece.seed, **PLANTED[piece.world])
    told, stream = world.stream(JUDGED, 9), world.stream(TRAINED_ON, 0)
    jobs = {str(number): _job(piece.seed, number) for number in range(SEEDS)}
    first = _trained(stream, jobs)
    found = [_Found.of(one, first[:at] + first[at + 1 :], told) for at, one in enumerate(first)]
    kept = _distinct(found, [one.specific for one in found])[:BLOCK]
    starts = [_written(one.dictionary, found, kept, piece.seed) for one in found]
    jobs = {str(at): _job(piece.seed, at, starts=starts) for at in range(SEEDS)}
    refitted = _trained(stream, jobs)
    last = _Found.of(refitted[0], refitted[1:], told)
    called = {
        "one dictionary": found[0].units[found[0].specific],
        "what its seeds agree on": _union([one.agreed for one in found], found),
        "and did not turn": _union([one.agreed & ~one.turned for one in found], found),
        "union, trained on": last.units[last.agreed & ~last.turned],
    }
    rows = {name: recall(one, world.truth) for name, one in called.items()}
    return rows | {"processor_seconds": round(time.process_time() - start, 1)}


def _job(seed: int, number: int, starts: Sequence[Dictionary] | None = None) -> TrainingJob:
    partition = Partition(
        latents=LATENTS, before_only=BLOCK, after_only=BLOCK, tied=True, readers="all"
    )
    own_k = OWN_K if starts is None else OWN_K_AGAIN
    config = DictionaryConfig(width=WIDTH, k=K, own_k=own_k, partition=partition)
    settings = TrainerSettings(
        tokens=TRAINED_ON,
        batch=BATCH,
        seed=seed,
        weights_seed=seed + 500 * number,
        learning_rate=RATE,
        difference_weight=(1.0, 10.0),
    )
    if starts is None:
        return TrainingJob(config=config, settings=settings)
    settings = replace(settings, tokens=round(AGAIN * TRAINED_ON), seed=seed + 7)
    return TrainingJob(config=config, settings=settings, start=starts[number])


def _trained(stream: Any, jobs: dict[str, TrainingJob]) -> list[Dictionary]:
    trained = train_crosscoders(stream, jobs, device="cpu")
    return [one.dictionary.requires_grad_(False) for one in trained.values()]


@dataclass(frozen=True, kw_only=True)
class _Found:
    """A dictionary, its unit directions in after `[latents, width]`, and which of its latents are
    specific, agreed on by enough of the others, and turned `[latents]`. `share`: of the difference.
    """

    dictionary: Dictionary
    units: Tensor
    specific: np.ndarray
    agreed: np.ndarray
    turned: np.ndarray
    share: np.ndarray

    @classmethod
    def of(cls, one: Dictionary, others: Sequence[Dictionary], told: Any) -> "_Found":
        table = latent_table(one, told)
        specific = table.column("specific") == "after"
        return cls(
            dictionary=one,
            units=normalize(one.directions()[:, 1], dim=-1),
            specific=specific,
            agreed=specific & (np.nan_to_num(stability(one, others, told).share) >= AGREED),
            turned=_with_shared(one, told) >= TOGETHER,
            share=table.column("share_of_difference"),
        )


@torch.no_grad()
def _with_shared(one: Dictionary, told: Any) -> np.ndarray:
    """The largest cosine of a latent's activations with those of a shared one `[latents]`."""
    products = torch.zeros(len(one.bias), len(one.bias), dtype=torch.float64)
    for encoded in encoded_blocks(one, told):
        values = one.values(encoded.scaled).double()
        products += values.T @ values
    size = products.diagonal().clamp(min=1e-30).sqrt()
    cosine = (products / torch.outer(size, size)).fill_diagonal_(0)
    return cosine[:, one.config.partition.shared].amax(1).numpy()


def _distinct(found: Sequence[_Found], chosen: Sequence[np.ndarray]) -> list[tuple[int, int]]:
    """Seed and latent of each direction once, those with the largest share first."""
    listed = sorted(
        (-float(one.share[latent]), seed, int(latent))
        for seed, (one, some) in enumerate(zip(found, chosen, strict=True))
        for latent in np.flatnonzero(some)
    )
    kept: list[tuple[int, int]] = []
    for _, seed, latent in listed:
        unit = found[seed].units[latent]
        if all(float(unit @ found[s].units[one]) < SAME for s, one in kept):
            kept.append((seed, latent))
    return kept


def _union(chosen: Sequence[np.ndarray], found: Sequence[_Found]) -> Tensor:
    units = [found[seed].units[latent] for seed, latent in _distinct(found, chosen)]
    return torch.stack(units) if units else torch.zeros(0, WIDTH)


@torch.no_grad()
def _written(
    one: Dictionary,
    found: Sequence[_Found],
    kept: Sequence[tuple[int, int]],
    seed: int,
) -> Dictionary:
    """This seed with every candidate in its after-only block."""
    start, first = Dictionary(one.config, seed=seed + 900), LATENTS - BLOCK
    fresh = {name: part.clone() for name, part in start.state_dict().items()}
    start.load_state_dict(one.state_dict())
    for m in (0, 1):
        start.encoders[m][first:] = fresh[f"encoders.{m}"][first:]
    start.decoders[1].copy_(fresh["decoders.1"])
    start.bias[first:] = 0
    for place, (s, latent) in enumerate(kept, first):
        theirs = found[s].dictionary
        moved = start.centres - theirs.centres  # so that values are the same
        start.bias[place] = theirs.bias[latent]
        for m in (0, 1):
            start.encoders[m][place] = theirs.encoders[m][latent]
            start.bias[place] += moved[m] @ theirs.encoders[m][latent]
        start.decoders[1][place - first] = theirs.decoders[1][latent - first]
    return start.requires_grad_(True)
