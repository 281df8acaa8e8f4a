"""The opening of a training: one-model latents are first found in the models' difference, and then join the others.

A weak feature of one model is hard to find among a dozen shared ones that overlap with it; in the difference of the
models, shared features of one direction cancel. So for the first part of the training (`FittingSettings.opening`):

1. The shared latents learn as ever; the one-model latents hold still and are never chosen. Beside them a sparse
   autoencoder learns the difference, after minus before, twice as wide as the larger one-model block, with the budget
   that this block will have. Over the last of its steps it is counted how far each model moves along each of its
   directions where it is active: `moved[m] = sum f (u . (h_m - mean))`.
2. A direction along which one model moves more than twice as far as the other is that model's own. Such latents, those
   of the largest energy first, take the places of that model's block: decoder `u` (before: `-u`, since before loses
   what the difference gains), readers `+w` of after and `-w` of before, the bias so that values are the same.
   Directions that both models move along (a shared feature that turned or grew) go nowhere. Latents that fire
   together (cosine of their values over rows of at least 0.7) are one: a strong feature is otherwise often kept as two
   directions at right angles that only together point its way, and no later step takes them apart.
3. From there on all learn together, in both models: what was found can turn, and what is in truth shared is taken over
   by the shared latents.

It is a start, not a constraint: places that nothing was found for keep their random weights, and what it got wrong is
left to the training and to latent scaling. It does get some wrong: where a shared feature turned by little, what other
features add along `u` outweighs its own part, and the half of it that each model shows may look like one model's own.
"""

from dataclasses import replace
from typing import Final

import torch

from crosscoders.dictionary import Dictionary, DictionaryConfig
from crosscoders.fitting import forward
from crosscoders.fitting.baselines import difference_view
from crosscoders.fitting.trainee import Job, Trainee, under
from crosscoders.partition import Partition

PARTED: Final = 2.0  # how many times as far its own model moves along a direction
TOGETHER: Final = 0.7  # cosine of two latents' values over rows, from which on they are one
COUNTED: Final = 0.2  # last share of the opening, over which it is counted


def trainee_of(job: Job, first: torch.Tensor, device: torch.device) -> Trainee:
    """What trains a job: with an opening where its settings ask for one."""
    return OpenedTrainee(job, first, device) if job.opens else Trainee(job, first, device)


class _DifferenceTrainee(Trainee):
    """Of the difference. `active`: latents a row, a whole number only over a batch."""

    def __init__(self, job: Job, first: torch.Tensor, device: torch.device, active: float) -> None:
        super().__init__(job, first, device)
        self.active = active

    def _how(self, rows: int) -> forward.Pass:
        return replace(super()._how(rows), number=max(1, round(self.active * rows)))


class OpenedTrainee(Trainee):
    """See the module's text."""

    def __init__(self, job: Job, first: torch.Tensor, device: torch.device, path: forward.Path = "auto") -> None:
        super().__init__(job, first, device, path)
        part, settings = job.config.partition, job.settings
        self.opening = round(settings.opening * settings.steps)
        wide = 2 * max(part.before_only, part.after_only)
        share = wide / (part.before_only + part.after_only)  # the difference holds both models' features
        inner = Job(
            config=DictionaryConfig(width=job.config.width, partition=Partition(latents=wide), models=1, k=1),
            settings=replace(settings, tokens=max(1, self.opening) * settings.batch, opening=0.0, parting=0.0,
                             parting_last=None, k_first=None),
        )
        active = (job.config.own_k or 0) * share * float(self.differing)
        self.inner = _DifferenceTrainee(inner, difference_view(self.seen(first).float()), device, active)
        self.moved = torch.zeros((wide, 2), dtype=torch.float64, device=device)
        self.values = torch.zeros((wide, wide), dtype=torch.float64, device=device)  # sums of f_i f_j over rows

    def step(self, batch: torch.Tensor) -> None:
        """One step of both, and at the end of the opening the move."""
        opening = self.steps_done < self.opening
        if opening:
            rows = self.seen(batch).to(self.silent.device)
            self.inner.step(difference_view(rows))
            if self.steps_done >= (1 - COUNTED) * self.opening:
                self._count(rows)
        super().step(batch)
        if opening and self.steps_done == self.opening:
            self._move_in()

    def _how(self, rows: int) -> forward.Pass:
        how = super()._how(rows)
        return replace(how, own=0) if self.steps_done < self.opening else how

    def _look_for_dead(self) -> None:
        """One-model latents that hold still are not dead."""
        if self.steps_done <= self.opening:
            for block in self._blocks:
                self.silent[block] = 0
        super()._look_for_dead()

    @property
    def _blocks(self) -> tuple[slice, slice]:
        """Of the before and the after model."""
        part = self.job.config.partition
        return slice(0, part.before_only), slice(part.shared.stop, part.latents)

    @torch.no_grad()
    def _count(self, rows: torch.Tensor) -> None:
        found, directions = self.inner.dictionary, self.inner.dictionary.decoder(0)
        codes = found.encode(found.scaled(difference_view(rows)))
        centred = found.scaled(rows - rows.mean(0))
        for model in (0, 1):
            spoken = (centred[codes.row, model] * directions[codes.latent]).sum(-1)
            self.moved[:, model].index_add_(0, codes.latent, (codes.value * spoken).double())
        dense = codes.dense(len(directions)).double()
        self.values += dense.T @ dense

    @torch.no_grad()
    def _move_in(self) -> None:
        far, energy = self.moved.abs(), self.values.diagonal()
        order = energy.argsort(descending=True)
        for model, block in enumerate(self._blocks):
            mine = (energy > 0) & (far[:, model] > PARTED * far[:, 1 - model])
            chosen = join(self.inner.dictionary, order[mine[order]], self.values)[: block.stop - block.start]
            places = torch.arange(block.start, block.start + len(chosen), device=order.device)
            move_in(self.dictionary, self.inner.dictionary, model, places, chosen)
            self.dictionary.threshold[block] = torch.nan  # found anew, from the values that are kept from now on

    def state(self) -> dict[str, torch.Tensor]:
        """Everything that decides the steps to come."""
        found = super().state() | {"moved": self.moved, "values": self.values}
        return found | {f"inner.{name}": value for name, value in self.inner.state().items()}

    def load(self, state: dict[str, torch.Tensor]) -> None:
        """Go on from `state()`."""
        super().load({name: value for name, value in state.items() if not name.startswith("inner.")})
        self.inner.load(under("inner.", state))
        self.moved, self.values = state["moved"].to(self.moved), state["values"].to(self.values)


@torch.no_grad()
def join(difference: Dictionary, latents: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Make one of the latents that fire together, and name those that are left, in the order of `latents`.

    `values [all, all]`: sums of `f_i f_j` over rows. The first of a group takes the direction in which the group
    writes, each by its root mean square, and says what the group says along it: `f = sum_i (u . u_i) f_i`.
    """
    strength = values.diagonal().sqrt()
    cosine = values / torch.outer(strength, strength).clamp(min=1e-30)
    left, kept = latents.tolist(), []
    while left:
        group = [i for i in left if cosine[left[0], i] >= TOGETHER]
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
def move_in(
    dictionary: Dictionary, difference: Dictionary, model: int, places: torch.Tensor, chosen: torch.Tensor
) -> None:
    """Put latents `chosen` of a difference-SAE on `places` of a model's own block, so that what they say is the same.

    With `s` and `t` the scales of the two, values become `s / t` times as large, and `t d = (t / s) (x_1 - x_0)` where
    `x_m` are the dictionary's scaled activations.
    """
    reader, said = difference.encoders[0][chosen], difference.decoder(0)[chosen]
    ratio = dictionary.scale / difference.scale
    first = dictionary.config.partition.shared.stop
    for m, sign in ((0, -1.0), (1, 1.0)):
        dictionary.encoders[m][places - dictionary.read[m].start] = sign * reader
    between = dictionary.centres[1] - dictionary.centres[0]
    dictionary.bias[places] = ratio * (difference.bias[chosen] - reader @ difference.centres[0]) + reader @ between
    dictionary.decoders[model][places - (first if model == 1 else 0)] = said if model == 1 else -said
