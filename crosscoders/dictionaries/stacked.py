"""Several small dictionaries of one shape that take their steps together.

1. Each has its own product, choice and loss, and nothing of one reaches another: a step is
   the one that each takes alone, up to the last digits.
2. What is left of a step is small: the time goes into starting kernels. The active pairs of all
   are those of one dictionary whose rows and latents lie one behind the other, so that encoder,
   decoders and their gradients are one kernel for all, and so is Adam.
3. Which pairs are the largest is looked up among those above a share of the threshold, which
   follows the smallest that was kept; alone it is guessed from a sample.

Of large dictionaries the product is the time, and the copy that puts weights one behind the other
is not worth it: those train by themselves on the same batches.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from crosscoders.activation_functions import TrainingStep
from crosscoders.dictionaries import sparse
from crosscoders.dictionaries.crosscoder_trainer import Trainer
from crosscoders.dictionaries.forward import ForwardResult, joined_result

SMALL = 2**18  # latents times width, up to which dictionaries are stacked
BOUND = 0.7  # of the threshold, above which the largest are looked for


def stacks(trainers: Iterable[Trainer]) -> "list[Trainer | Stack]":
    """The trainers, with those that can take their steps together in stacks."""
    alone: list[Trainer | Stack] = []
    together: dict[str, list[Trainer]] = {}
    for trainer in trainers:
        if _can_be_stacked(trainer):
            settings = replace(trainer.job.settings, weights_seed=None)
            together.setdefault(repr((trainer.job.config, settings)), []).append(trainer)
        else:
            alone.append(trainer)
    return alone + [Stack(one) if len(one) > 1 else one[0] for one in together.values()]


def _can_be_stacked(trainer: Trainer) -> bool:
    config, partition = trainer.job.config, trainer.job.config.partition
    whole = all(read == slice(0, partition.latents) for read in trainer.dictionary.read)
    ranked = trainer.dictionary.function.by_rank != "never" and not trainer.parameters
    exact = trainer.job.settings.precision == "float32"
    return whole and ranked and exact and partition.latents * config.width <= SMALL


class Stack:
    """Trainers of one config and one kind of settings. `step(batch)` is a step of each."""

    def __init__(self, trainers: Sequence[Trainer]) -> None:
        self.trainers = trainers
        parts = [part for trainer in trainers for part in trainer.dictionary.parameters()]
        self.optimizer = torch.optim.Adam(parts, lr=1.0, betas=(0.9, 0.999), fused=True)
        self._share(of=[trainer.optimizer for trainer in trainers], to=[self.optimizer])

    def _share(self, of: Sequence[torch.optim.Adam], to: Sequence[torch.optim.Adam]) -> None:
        """One memory of the moments for the common optimizer and those of the trainers."""
        moments = {part: state for one in of for part, state in one.state.items()}
        for one in to:
            for part in one.param_groups[0]["params"]:
                if part in moments:
                    one.state[part] = moments[part]

    def step(self, batch: Tensor) -> None:
        """On `[rows, models, width]`, as the stream gives it."""
        ready = [trainer.prepare(batch) for trainer in self.trainers]
        results = self._forward(ready)
        losses = [
            trainer.loss(scaled, result)
            for trainer, (scaled, _), result in zip(self.trainers, ready, results, strict=True)
        ]
        first = not self.optimizer.state
        self.optimizer.param_groups[0]["lr"] = self.trainers[0].rate()
        self.optimizer.zero_grad(set_to_none=True)
        torch.stack([loss for loss, _ in losses]).sum().backward()
        self.optimizer.step()
        if first:
            self._share(of=[self.optimizer], to=[one.optimizer for one in self.trainers])
        for trainer, (scaled, step), result, (loss, squares) in zip(
            self.trainers, ready, results, losses, strict=True
        ):
            trainer.after(scaled, step, result, squares.detach(), loss.detach())

    def _forward(self, ready: Sequence[tuple[Tensor, TrainingStep]]) -> list[ForwardResult]:
        dictionaries = [trainer.dictionary for trainer in self.trainers]
        latents, rows = len(dictionaries[0].bias), len(ready[0][0])
        known, row, latent = [], [], []
        with torch.no_grad():
            for trainer, (scaled, step) in zip(self.trainers, ready, strict=True):
                one = trainer.dictionary
                pre = one.pre_activations(scaled, out=trainer.scratch)
                step = replace(step, bound=BOUND * one.threshold)
                chosen = one.function.candidates(pre, step)
                known.append(pre.reshape(-1)[chosen])
                row.append(chosen // latents)
                latent.append(chosen % latents)
        number = len(dictionaries)
        behind = range(number)
        pattern = sparse.Pattern.of(
            torch.cat([one + i * rows for i, one in zip(behind, row, strict=True)]),
            torch.cat([one + i * latents for i, one in zip(behind, latent, strict=True)]),
            number * rows,
            number * latents,
        )
        inputs = torch.cat([scaled for scaled, _ in ready])
        centres = torch.stack([one.centres for one in dictionaries])
        value: Tensor = sparse.EncodeStacked.apply(  # type: ignore[no-untyped-call]
            torch.cat(known),
            pattern,
            (inputs.unflatten(0, (number, rows)) - centres[:, None]).detach().flatten(0, 1),
            torch.cat([one.bias for one in dictionaries]),
            centres,
            *(
                torch.cat(tables)
                for tables in zip(*(one.encoders for one in dictionaries), strict=True)
            ),
        )
        values = [
            one.function.value(part, index, step)
            for one, part, index, (_, step) in zip(
                dictionaries, value.split([*map(len, latent)]), latent, ready, strict=True
            )
        ]
        active, errors = torch.cat([part for part, _ in values]), []
        for m, seen in enumerate(dictionaries[0].ranges):
            rim = (0, 0, seen.start, latents - seen.stop)
            table = torch.cat([pad(one.decoder(m), rim) for one in dictionaries])
            said = sparse.Decode.apply(active, table, pattern)  # type: ignore[no-untyped-call]
            errors.append(said.unflatten(0, (number, rows)) + centres[:, None, m])
        left = torch.stack(errors, 2) - inputs.unflatten(0, (number, rows))
        return [
            joined_result(one, error, part, own, index)
            for one, error, (part, own), index in zip(
                dictionaries, left, values, latent, strict=True
            )
        ]
