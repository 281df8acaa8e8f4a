"""Initialisation from the difference: one-model latents are first found in the
models' difference, and then join the others.

A weak feature of one model is hard to find among a dozen shared ones that
overlap with it; in the difference of the models, shared features of one
direction cancel. So for the first part of the training
(`TrainerSettings.opening`):

1. The shared latents learn as ever; the one-model latents hold still and are
   never chosen. Beside them a sparse autoencoder learns the difference, after
   minus before, twice as wide as the larger one-model block, with the budget
   that this block will have. Over the last of its steps it is counted how far
   each model moves along each of its directions where it is active: `moved[m] =
   sum f (u . (h_m - mean))`.
2. A direction along which one model moves more than twice as far as the other
   is that model's own. Such latents, those of the largest energy first, take
   the places of that model's block: decoder `u` (before: `-u`, since before
   loses what the difference gains), readers `+w` of after and `-w` of before,
   the bias so that values are the same. Directions that both models move along
   (a shared feature that turned or grew) go nowhere. Latents that fire together
   (cosine of their values over rows of at least 0.7) are one: a strong feature
   is otherwise often kept as two directions at right angles that only together
   point its way, and no later step takes them apart.
3. From there on all learn together, in both models: what was found can turn,
   and what is in truth shared is taken over by the shared latents.

It is a start, not a constraint: places that nothing was found for keep their
random weights, and what it got wrong is left to the training and to latent
scaling. It does get some wrong: where a shared feature turned by little, what
other features add along `u` outweighs its own part, and the half of it that
each model shows may look like one model's own.
"""

from dataclasses import replace
from typing import Final

import torch
from torch import Tensor

from crosscoders.activations.streams import difference_view
from crosscoders.dictionaries.crosscoder_trainer import Trainer, TrainingJob, under
from crosscoders.dictionaries.dictionary import Dictionary, DictionaryConfig
from crosscoders.dictionaries.settings import Partition

OWN_RATIO: Final = 2.0  # how many times as far its own model moves along a direction
MERGE_COSINE: Final = 0.7  # cosine of two latents' values over rows, from which on they are one
COUNTED_SHARE: Final = 0.2  # last share of the initialisation, over which it is counted


def trainer_of(job: TrainingJob, first: Tensor, device: torch.device) -> Trainer:
    """What trains a job: initialised from the difference where its settings ask for it."""
    trainer = Trainer(job, first, device)
    if job.opens:
        trainer.init = DifferenceInit(trainer, first, device)
    return trainer


class DifferenceInit:
    """See the module's text. It lasts `steps` steps of the trainer that asks it.

    `displacement [latents, models]`: how far each model moved along each
    direction. `products [latents, latents]`: sums of `f_i f_j` over rows.
    """

    def __init__(self, trainer: Trainer, first: Tensor, device: torch.device) -> None:
        config, settings = trainer.job.config, trainer.job.settings
        part = config.partition
        self.steps = round(settings.opening * settings.steps)
        self.blocks = (slice(0, part.before_only), slice(part.shared.stop, part.latents))
        latents = 2 * max(part.before_only, part.after_only)
        share = latents / (part.before_only + part.after_only)  # it holds both models' features
        job = TrainingJob(
            config=DictionaryConfig(
                width=config.width, partition=Partition(latents=latents), models=1, k=1
            ),
            settings=replace(
                settings,
                tokens=max(1, self.steps) * settings.batch,
                opening=0.0,
                parting=0.0,
                parting_last=None,
                k_first=None,
            ),
        )
        self.inner = Trainer(
            job,
            difference_view(trainer.seen(first).float()),
            device,
            active=(config.own_k or 0) * share * float(trainer.differing),
        )
        self.displacement = torch.zeros((latents, 2), dtype=torch.float64, device=device)
        self.products = torch.zeros((latents, latents), dtype=torch.float64, device=device)

    def holds(self, step: int) -> bool:
        """Whether one-model latents hold still in a step."""
        return step < self.steps

    def before_step(self, trainer: Trainer, rows: Tensor) -> None:
        """Train on the difference. Latents that hold still are not dead."""
        if self.holds(trainer.steps_done):
            self.inner.step(difference_view(rows))
            if trainer.steps_done >= (1 - COUNTED_SHARE) * self.steps:
                self._count(rows)
        if trainer.steps_done <= self.steps:
            for block in self.blocks:
                trainer.tokens_since_fired[block] = 0

    @torch.no_grad()
    def _count(self, rows: Tensor) -> None:
        inner, directions = self.inner.dictionary, self.inner.dictionary.decoder(0)
        codes = inner.encode(inner.scaled(difference_view(rows)))
        centred = inner.scaled(rows - rows.mean(0))
        for model in (0, 1):
            along = (centred[codes.row, model] * directions[codes.latent]).sum(-1)
            self.displacement[:, model].index_add_(0, codes.latent, (codes.value * along).double())
        dense = codes.dense(len(directions)).double()
        self.products += dense.T @ dense

    @torch.no_grad()
    def after_step(self, trainer: Trainer) -> None:
        """At the end, the move into the blocks of the two models."""
        if trainer.steps_done != self.steps:
            return
        far, energy = self.displacement.abs(), self.products.diagonal()
        order = energy.argsort(descending=True)
        for model, block in enumerate(self.blocks):
            own = (energy > 0) & (far[:, model] > OWN_RATIO * far[:, 1 - model])
            kept = merge_coactive(self.inner.dictionary, order[own[order]], self.products)
            chosen = kept[: block.stop - block.start]
            places = torch.arange(block.start, block.start + len(chosen), device=order.device)
            write_latents(trainer.dictionary, self.inner.dictionary, model, places, chosen)
            trainer.dictionary.threshold[block] = torch.nan  # found anew from the values to come

    def state(self) -> dict[str, Tensor]:
        """Everything that decides the steps to come."""
        state = {"moved": self.displacement, "values": self.products}
        return state | {f"inner.{name}": value for name, value in self.inner.state().items()}

    def load(self, state: dict[str, Tensor]) -> None:
        """Go on from `state()`."""
        self.inner.load(under("inner.", state))
        self.displacement = state["moved"].to(self.displacement)
        self.products = state["values"].to(self.products)


@torch.no_grad()
def merge_coactive(difference: Dictionary, latents: Tensor, products: Tensor) -> Tensor:
    """Make one of the latents that fire together, and name those that are left,
    in the order of `latents`.

    `products [all, all]`: sums of `f_i f_j` over rows. The first of a group takes
    the direction in which the group writes, each by its root mean square, and
    says what the group says along it: `f = sum_i (u . u_i) f_i`.
    """
    strength = products.diagonal().sqrt()
    cosine = products / torch.outer(strength, strength).clamp(min=1e-30)
    left, kept = latents.tolist(), []
    while left:
        group = [i for i in left if cosine[left[0], i] >= MERGE_COSINE]
        left = [i for i in left if i not in group]
        kept.append(group[0])
        if len(group) > 1:
            directions = difference.decoder(0)[group]
            one = torch.nn.functional.normalize(strength[group].to(directions) @ directions, dim=0)
            share = directions @ one
            difference.encoders[0][group[0]] = share @ difference.encoders[0][group]
            difference.bias[group[0]] = share @ difference.bias[group]
            difference.decoders[0][group[0]] = one
    return torch.tensor(kept, dtype=torch.int64, device=latents.device)


@torch.no_grad()
def write_latents(
    dictionary: Dictionary,
    difference: Dictionary,
    model: int,
    places: Tensor,
    chosen: Tensor,
) -> None:
    """Put latents `chosen` of a difference-SAE on `places` of a model's own
    block, so that what they say is the same.

    With `s` and `t` the scales of the two, values become `s / t` times as
    large, and `t d = (t / s) (x_1 - x_0)` where `x_m` are the dictionary's
    scaled activations.
    """
    reader, said = difference.encoders[0][chosen], difference.decoder(0)[chosen]
    ratio = dictionary.scale / difference.scale
    first = dictionary.config.partition.shared.stop
    for m, sign in ((0, -1.0), (1, 1.0)):
        dictionary.encoders[m][places - dictionary.read[m].start] = sign * reader
    between = dictionary.centres[1] - dictionary.centres[0]
    dictionary.bias[places] = (
        ratio * (difference.bias[chosen] - reader @ difference.centres[0]) + reader @ between
    )
    dictionary.decoders[model][places - (first if model == 1 else 0)] = (
        said if model == 1 else -said
    )
