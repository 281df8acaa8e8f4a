"""The methods: what each trains on the world's stream, and which directions it
then calls after-only.

All dictionaries of a world see the same batches. Latent scaling and everything
else that judges a latent reads rows that were not trained on. The rule for
"specific" is the room's own (`crosscoders.latents.table`), with its
defaults.

| method | calls after-only |
|---|---|
| dedicated | latents of the after-only block that latent scaling finds missing in before (*) |
| dedicated, own readers (or free) | the same, as in 2602.11729: shared decoders tied (or free) |
| ..., block alone | every latent of that block that is ever active: the partition by itself |
| plain, norm | latents of a plain crosscoder with a relative norm of at least `NORM` |
| plain, norm and nu | of these, those that latent scaling finds missing in before |
| difference-SAE | every latent that is ever active |
| difference-SAE, sign | of these, those along which after moves more than twice as much as before |
| PCA | the first principal parts of the difference, as many as there are one-model features |

(*) Shared decoders tied, one-model latents read both models and are chosen
apart from the shared ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch.nn.functional import normalize

from crosscoders import LatentTable, Stream, difference_view, latent_table, principal_components
from crosscoders.dictionaries import (
    Dictionary,
    DictionaryConfig,
    Partition,
    TrainerSettings,
    TrainingJob,
    train_crosscoders,
)

NORM = 0.8


@dataclass(frozen=True, kw_only=True)
class MethodsConfig:
    """`latents` of a crosscoder, `own` of them in each dedicated block; `k`
    active ones a row, `own_k` one-model ones beside them in `dedicated`, which
    is trained with a weight that goes through `parting` (and was with an opening, see the README).
    `difference_latents` and `difference_k` of the difference-SAE. `tokens`:
    rows trained on, `judging` rows that judge.
    """

    latents: int = 384
    own: int = 32
    k: int = 12
    own_k: float = 3.0
    parting: tuple[float, float] = (1.0, 10.0)
    difference_latents: int = 64
    difference_k: int = 2
    tokens: int = 2_400_000
    judging: int = 65_536
    batch: int = 1536
    learning_rate: float | None = 4e-3

    @property
    def settings(self) -> TrainerSettings:
        return TrainerSettings(
            tokens=self.tokens, batch=self.batch, learning_rate=self.learning_rate
        )


Called = Mapping[
    str, torch.Tensor
]  # unit directions `[called, width]` in the after model, by method


@dataclass(frozen=True)
class Trained:
    """Dictionaries by name, and what the last log of each said."""

    dictionaries: Mapping[str, Dictionary]
    last: Mapping[str, Mapping[str, object]] = field(default_factory=dict)


def train_all(
    stream: Stream, config: MethodsConfig, seed: int, only: tuple[str, ...] = ()
) -> Trained:
    """Every dictionary (or `only` some) on the same batches. On a GPU where there is one."""
    settings = replace(config.settings, seed=seed)
    own = {"before_only": config.own, "after_only": config.own}
    apart = replace(settings, parting=config.parting[0], parting_last=config.parting[1])
    partitions = {
        "dedicated": Partition(latents=config.latents, tied=True, readers="all", **own),
        "own readers": Partition(latents=config.latents, tied=True, **own),
        "free": Partition(latents=config.latents, **own),
        "plain": Partition(latents=config.latents),
    }
    jobs = {
        name: TrainingJob(
            config=DictionaryConfig(
                width=stream.width,
                partition=part,
                k=config.k,
                own_k=config.own_k if name == "dedicated" else None,
            ),
            settings=apart if name == "dedicated" else settings,
        )
        for name, part in partitions.items()
    }
    jobs["difference"] = TrainingJob(
        config=DictionaryConfig(
            width=stream.width,
            partition=Partition(latents=config.difference_latents),
            models=1,
            k=config.difference_k,
        ),
        settings=settings,
        view=difference_view,
    )
    fitted = train_crosscoders(
        stream, {name: job for name, job in jobs.items() if not only or name in only}
    )
    last = {name: each.history[-1] for name, each in fitted.items()}
    return Trained({name: each.dictionary for name, each in fitted.items()}, last)


def called_after(trained: Trained, judging: Stream, one_model: int) -> Called:
    """What every method calls after-only. `one_model`: how many one-model
    features there are, told to PCA alone.
    """
    found: dict[str, torch.Tensor] = {}
    for name in ("dedicated", "own readers", "free"):
        if name in trained.dictionaries:
            told = name if name == "dedicated" else f"dedicated, {name}"
            found |= _dedicated(told, trained.dictionaries[name], judging)
    if "plain" in trained.dictionaries:
        found |= _plain(trained.dictionaries["plain"], judging)
    if "difference" in trained.dictionaries:
        found |= _difference(trained.dictionaries["difference"], judging)
    found["PCA"] = principal_components(judging).directions[:one_model].float()
    return found


def _dedicated(name: str, dictionary: Dictionary, judging: Stream) -> dict[str, torch.Tensor]:
    table = latent_table(dictionary, judging)
    block = (table.column("partition") == "after-only") & (table.column("frequency") > 0)
    return {
        name: _directions(dictionary, table.column("specific") == "after"),
        f"{name}, block alone": _directions(dictionary, block),
    }


def _plain(dictionary: Dictionary, judging: Stream) -> dict[str, torch.Tensor]:
    table: LatentTable = latent_table(dictionary, judging)
    with np.errstate(invalid="ignore"):
        longer = (table.column("relative_norm") >= NORM) & (table.column("frequency") > 0)
    return {
        "plain, norm": _directions(dictionary, longer),
        "plain, norm and nu": _directions(dictionary, table.column("specific") == "after"),
    }


@torch.no_grad()
def _difference(dictionary: Dictionary, judging: Stream) -> dict[str, torch.Tensor]:
    """`moved [latents, models]`: sums of `f (v . (h_m - mean))`; they differ by
    what after moves more than before.
    """
    directions = dictionary.decoder(0)
    mean = torch.stack([block.activations.mean(0) for block in judging.blocks()]).mean(0)
    moved = torch.zeros(len(directions), 2, dtype=torch.float64, device=directions.device)
    active = torch.zeros(len(directions), dtype=torch.bool, device=directions.device)
    for block in judging.blocks():
        rows = block.activations.to(directions.device)
        codes = dictionary.encode(dictionary.scaled(difference_view(rows)))
        active[codes.latent] = True
        centred = rows - mean.to(rows)
        for model in (0, 1):
            spoken = (centred[codes.row, model] * directions[codes.latent]).sum(-1)
            moved[:, model].index_add_(0, codes.latent, (codes.value * spoken).double())
    after = active & (moved[:, 1].abs() > 2 * moved[:, 0].abs())
    unit = normalize(directions, dim=-1).cpu()
    return {"difference-SAE": unit[active.cpu()], "difference-SAE, sign": unit[after.cpu()]}


def _directions(dictionary: Dictionary, chosen: np.ndarray) -> torch.Tensor:
    return normalize(
        dictionary.directions()[torch.from_numpy(np.flatnonzero(chosen)), 1], dim=-1
    ).cpu()
