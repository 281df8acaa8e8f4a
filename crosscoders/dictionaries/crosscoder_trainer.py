"""One dictionary while it is trained: a step, what is counted along the way,
and all of it as tensors.

1. Loss: mean squared error over models and width, plus the penalty and the loss
   that revives dead latents; if wanted, the error of what parts the two models
   too, which is all that one-model latents are about where the shared ones are
   tied.
2. Adam (fused). It is dense: a batch of 2,048 rows with 32 active latents
   touches nearly every one of 8,192, and a fused step costs little beside the
   large product; lazy moments would change the method for nothing.
3. Except with L1, decoders keep norm one over the models together, so that
   values compare across latents. Departure from 2504.02922, which compares
   values times the *sum* of the models' norms.
4. After each step the activation function moves the threshold. Counters stay on
   the device, nothing waits.

One forward pass through a dictionary as it is trained: the active pairs, the
reconstructions and the penalty.

1. One product gives all pre-activations, and the activation function names the
   pairs that the step has to do with. Where these are few, nothing else is
   dense. With L1 a value costs `f_l sum_m |d_lm|`.
2. Dense path: the formulas as they are written, for functions that do not
   choose by rank while many latents are active, and for tests.
3. In bfloat16 every large product has that precision: encoder, decoder and the
   gradients of both. Weights, moments and what is summed over the batch do not.
4. Dead latents reconstruct what is left over (2406.04093), each model's
   remainder only from latents that see it.

Several small dictionaries of one shape that take their steps together.

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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad

from crosscoders.activation_functions import TrainingStep, at_latents
from crosscoders.activations.streams import View
from crosscoders.dictionaries import sparse
from crosscoders.dictionaries.dictionary import Dictionary, DictionaryConfig
from crosscoders.dictionaries.settings import TrainerSettings

Path = Literal["auto", "sparse", "dense"]
SPARSE_BELOW = 0.05  # share of active pairs below which the sparse path is the faster one


@dataclass(frozen=True)
class ForwardResult:
    """`errors [rows, models, width]` (reconstruction minus activation), the
    `penalty` of one row on average, `active` pairs in all, and which latents
    `fired` at all `[latents]`. `value` of the pairs and their `latent`, of one
    shape and without gradient.
    """

    errors: Tensor
    penalty: Tensor
    active: Tensor
    fired: Tensor
    value: Tensor
    latent: Tensor


def training_step(
    dictionary: Dictionary,
    settings: TrainerSettings | None = None,
    *,
    own: int = 0,
    parameters: Mapping[str, Tensor] | None = None,
) -> TrainingStep:
    """What a step of a dictionary is; `parameters` are the first ones where none are given."""
    config, settings = dictionary.config, settings or TrainerSettings()
    latents = config.partition.latents
    return TrainingStep(
        partition=config.partition,
        settings=settings,
        k=config.k,
        own=None if config.own_k is None else own,
        parameters=dictionary.function.parameters(latents, settings)
        if parameters is None
        else parameters,
    )


def forward(
    dictionary: Dictionary,
    scaled: Float[Tensor, "rows models width"],
    step: TrainingStep,
    *,
    path: Path = "auto",
    scratch: Float[Tensor, "rows latents"] | None = None,
) -> ForwardResult:
    """Differentiable in all of the dictionary's weights and `step.parameters`.

    `scaled [rows, models, width]`: activations in the dictionary's units.
    `scratch [rows, latents]` of the product's dtype is overwritten with the
    pre-activations: on a CPU fresh memory for them costs a fifth of the step.
    """
    dtype = torch.bfloat16 if step.settings.precision == "bfloat16" else dictionary.bias.dtype
    encoders = [encoder.to(dtype) for encoder in dictionary.encoders]
    with torch.no_grad():
        if scratch is None:
            scratch = dictionary.bias.new_empty((len(scaled), len(dictionary.bias)), dtype=dtype)
        pre = dictionary.pre_activations(scaled, out=scratch, encoders=encoders)
        chosen = dictionary.function.candidates(pre, step)
    few = dictionary.function.by_rank != "never" or len(chosen) < SPARSE_BELOW * pre.numel()
    if path == "sparse" or (path == "auto" and few):
        return _sparse(dictionary, encoders, scaled, pre, chosen, step)
    return _dense(dictionary, encoders, scaled, chosen, step)


def _sparse(
    dictionary: Dictionary,
    encoders: list[Tensor],
    scaled: Tensor,
    pre: Tensor,
    chosen: Tensor,
    step: TrainingStep,
) -> ForwardResult:
    rows, latents = pre.shape
    latent = chosen % latents
    pattern = sparse.Pattern.of(chosen // latents, latent, rows, latents)
    value: Tensor = sparse.Encode.apply(  # type: ignore[no-untyped-call]
        pre.reshape(-1)[chosen].to(scaled.dtype),
        pattern,
        dictionary.read,
        (scaled - dictionary.centres).detach().to(pre.dtype),
        dictionary.bias,
        dictionary.centres,
        *encoders,
    )
    value, own_penalty = dictionary.function.value(value, latent, step)
    errors = []
    for m, seen in enumerate(dictionary.ranges):
        part, own = pattern.within(seen)
        here = value if own is None else value[own]
        table = dictionary.decoder(m).to(pre.dtype)
        said = sparse.Decode.apply(here, table, part)  # type: ignore[no-untyped-call]
        errors.append(said + dictionary.centres[m] - scaled[:, m])
    return joined_result(dictionary, torch.stack(errors, 1), value, own_penalty, latent)


def _dense(
    dictionary: Dictionary,
    encoders: list[Tensor],
    scaled: Tensor,
    chosen: Tensor,
    step: TrainingStep,
) -> ForwardResult:
    dtype = encoders[0].dtype
    pre = dictionary.pre_activations(scaled, encoders=encoders).to(scaled.dtype)
    if dictionary.function.by_rank != "never":
        kept = torch.zeros(pre.numel(), dtype=torch.bool, device=pre.device)
        kept[chosen] = True
        pre = torch.where(kept.view_as(pre), pre, 0.0)
    latent = torch.arange(pre.shape[1], device=pre.device).expand_as(pre)
    value, own_penalty = dictionary.function.value(pre, latent, step)
    errors = [
        value[:, seen].to(dtype) @ dictionary.decoder(m).to(dtype)
        + dictionary.centres[m]
        - scaled[:, m]
        for m, seen in enumerate(dictionary.ranges)
    ]
    return joined_result(dictionary, torch.stack(errors, 1), value, own_penalty, latent)


def joined_result(
    dictionary: Dictionary, errors: Tensor, value: Tensor, own: Tensor | None, latent: Tensor
) -> ForwardResult:
    """`errors [rows, models, width]`; `own`: the penalty that the function itself asks of each
    pair.
    """
    penalty = value.new_zeros(1) if own is None else own
    if dictionary.function.l1:
        weighed = value * at_latents(dictionary.decoder_norms(), latent)
        penalty = weighed if own is None else weighed + own
    held = value.detach()
    fired = torch.zeros(len(dictionary.bias), dtype=torch.bool, device=value.device)
    return ForwardResult(
        errors=errors,
        penalty=penalty.sum() / len(errors),
        active=(held > 0).sum(),
        fired=fired.index_fill(0, latent[held > 0], True),
        value=held,
        latent=latent,
    )


def aux_loss(
    dictionary: Dictionary,
    scaled: Float[Tensor, "rows models width"],
    errors: Float[Tensor, "rows models width"],
    dead: Int[Tensor, " dead"],
) -> Float[Tensor, ""]:
    """How badly the `dead` latents (rising indices), as many a row as half the width,
    reconstruct what is left over, 1 for not at all.
    """
    k = max(1, dictionary.config.width // 2)
    pre = dictionary.pre_activations_of(dead, scaled - dictionary.centres.detach())
    kept = pre.relu().topk(min(k, len(dead)), dim=-1, sorted=False)
    value = torch.zeros_like(pre).scatter(1, kept.indices, kept.values)
    given = []
    for m, seen in enumerate(dictionary.ranges):
        place = ((dead >= seen.start) & (dead < seen.stop)).nonzero().squeeze(-1)
        given.append(value[:, place] @ dictionary.decoder(m)[dead[place] - seen.start])
    left = -errors.detach()
    whole = left.square().sum().clamp(min=1e-12)
    return (left - torch.stack(given, 1)).square().sum() / whole


REDRAWN = 10  # steps after which the dead latents are looked up again


@dataclass(frozen=True, kw_only=True)
class TrainingJob:
    """What to train: the dictionary and what of the activations `[rows, models,
    width]` it sees (default: all).
    """

    config: DictionaryConfig
    settings: TrainerSettings
    view: View | None = None


class Trainer:
    """See the module's text. `step(batch)` trains; `measures()` waits for the
    device and empties the counters.
    """

    def __init__(
        self,
        job: TrainingJob,
        first: Tensor,
        device: torch.device,
    ) -> None:
        self.job, self.steps_done = job, 0
        config, settings = job.config, job.settings
        latents = config.partition.latents
        self.dictionary = Dictionary(config, settings.first_weights).to(device)
        first = (job.view(first) if job.view else first).to(device).float()
        norm = first.norm(dim=-1).mean()  # over rows and models; scaled to the root of the width
        self.dictionary.scale.copy_(config.width**0.5 / norm.clamp(min=1e-12))
        with torch.no_grad():
            self.dictionary.centres.copy_((first * self.dictionary.scale).mean(0))
        self.differing = _differing(first) if config.models == 2 else torch.ones(())
        self.parameters = {
            name: torch.nn.Parameter(start.to(device))
            for name, start in self.dictionary.function.parameters(latents, settings).items()
        }
        trained = [*self.dictionary.parameters(), *self.parameters.values()]
        self.optimizer = torch.optim.Adam(trained, lr=1.0, betas=(0.9, 0.999), fused=True)
        self.generator = torch.Generator().manual_seed(settings.first_weights)
        self.tokens_since_fired = torch.zeros(latents, dtype=torch.int64, device=device)
        self.dead = torch.zeros(0, dtype=torch.int64, device=device)
        self.sums: dict[str, Tensor] = {}  # since the last `measures`, in double precision
        self.scratch = torch.zeros(0)

    def step(self, batch: Tensor) -> None:
        """One step on `[rows, models, width]`, as the stream gives it."""
        scaled, step = self.prepare(batch)
        result = forward(self.dictionary, scaled, step, scratch=self.scratch)
        loss, squares = self.loss(scaled, result)
        self.optimizer.param_groups[0]["lr"] = self.rate()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.after(scaled, step, result, squares.detach(), loss.detach())

    def prepare(self, batch: Tensor) -> tuple[Tensor, TrainingStep]:
        """What it sees of a batch, in the dictionary's units, and what its step is."""
        rows = self.job.view(batch) if self.job.view else batch
        rows = rows.to(self.tokens_since_fired.device, non_blocking=True)
        scaled = self.dictionary.scaled(rows)
        self._update_dead_latents()
        return scaled, self._training_step(len(scaled))

    def rate(self) -> float:
        """The learning rate of the step to come."""
        return self.job.settings.rate(self.steps_done, self.job.config.partition.latents)

    def loss(self, scaled: Tensor, result: ForwardResult) -> tuple[Tensor, Tensor]:
        """The loss of a step, and the squared errors `[models]` in it."""
        settings, config = self.job.settings, self.job.config
        squares = result.errors.square().sum((0, 2))
        loss = squares.sum() / (len(scaled) * config.models * config.width)
        if (weight := settings.difference_weight_at(self.steps_done)) and config.models == 2:
            difference = (result.errors[:, 1] - result.errors[:, 0]).square().sum()
            loss = loss + weight * difference / (len(scaled) * config.models * config.width)
        here = settings.penalty(self.steps_done)
        loss = loss + here * result.penalty / (config.models * config.width)
        if len(self.dead) and settings.auxiliary:
            low = settings.precision == "bfloat16"
            with torch.autocast(scaled.device.type, torch.bfloat16, enabled=low):
                left = aux_loss(self.dictionary, scaled, result.errors, self.dead)
            loss = loss + settings.auxiliary * left
        return loss, squares

    def _training_step(self, rows: int) -> TrainingStep:
        settings, config = self.job.settings, self.job.config
        if len(self.scratch) != rows:
            dtype = torch.bfloat16 if settings.precision == "bfloat16" else torch.float32
            self.scratch = self.tokens_since_fired.new_empty(
                (rows, config.partition.latents), dtype=dtype
            )
        return training_step(
            self.dictionary,
            settings,
            own=round((config.own_k or 0) * float(self.differing) * rows),
            parameters=self.parameters,
        )

    def _update_dead_latents(self) -> None:
        """Now and then, since the number of dead latents has to be waited for."""
        if self.steps_done % REDRAWN:
            return
        settings = self.job.settings
        dead = (self.tokens_since_fired >= settings.silence).nonzero().squeeze(-1)
        if len(dead) > settings.auxiliary_latents:
            drawn = torch.randperm(len(dead), generator=self.generator)
            kept = drawn[: settings.auxiliary_latents].sort().values
            dead = dead[kept.to(dead.device)]
        self.dead = dead

    @torch.no_grad()
    def after(
        self,
        scaled: Tensor,
        step: TrainingStep,
        result: ForwardResult,
        squares: Tensor,
        loss: Tensor,
    ) -> None:
        """What follows a step: decoders of norm one, the threshold, the counters."""
        function, threshold = self.dictionary.function, self.dictionary.threshold
        if not function.l1:
            self.dictionary.unit_decoders_()
        threshold.copy_(function.threshold(threshold, result.value, result.latent, step))
        self.tokens_since_fired = torch.where(
            result.fired, 0, self.tokens_since_fired + len(scaled)
        )
        added = {
            "rows": torch.tensor(float(len(scaled))).to(loss),
            "steps": torch.tensor(1.0).to(loss),
            "loss": loss,
            "active": result.active,
            "squares": squares,
            "first": scaled.sum(0),
            "second": scaled.square().sum((0, 2)),
        }
        for name, value in added.items():
            self.sums[name] = self.sums.get(name, 0) + value.double()
        self.steps_done += 1

    def measures(self) -> dict[str, float | list[float | None]]:
        """Loss, variance explained per model (against the mean), L0 and dead
        share since they were last asked for.
        """
        sums = {name: value.cpu() for name, value in self.sums.items()}
        self.sums = {}
        rows, steps = max(sums["rows"].item(), 1.0), max(sums["steps"].item(), 1.0)
        spread = sums["second"] - sums["first"].square().sum(-1) / rows
        explained: list[float | None] = [
            1 - lost / there if there > 0 else None
            for lost, there in zip(sums["squares"].tolist(), spread.tolist(), strict=True)
        ]
        return {
            "loss": sums["loss"].item() / steps,
            "variance_explained": explained,
            "l0": sums["active"].item() / rows,
            "dead_share": (self.tokens_since_fired >= self.job.settings.silence)
            .double()
            .mean()
            .item(),
        }

    def state(self) -> dict[str, Tensor]:
        """Everything that decides the steps to come."""
        state = {
            f"dictionary.{name}": value for name, value in self.dictionary.state_dict().items()
        }
        state |= {name: value.detach() for name, value in self.parameters.items()}
        for index, moments in self.optimizer.state_dict()["state"].items():
            state |= {f"optimizer.{index}.{name}": value for name, value in moments.items()}
        state |= {f"sums.{name}": value for name, value in self.sums.items()}
        state |= {
            "differing": self.differing,
            "generator": self.generator.get_state(),
            "silent": self.tokens_since_fired,
            "dead": self.dead,
            "steps": torch.tensor(self.steps_done),
        }
        return {name: value.contiguous() for name, value in state.items()}

    def load(self, state: dict[str, Tensor]) -> None:
        """Go on from `state()`."""
        device = self.tokens_since_fired.device
        self.dictionary.load_state_dict(under("dictionary.", state))
        for name, parameter in self.parameters.items():
            parameter.data.copy_(state[name])
        moments: dict[int, dict[str, Tensor]] = {}
        for name, value in under("optimizer.", state).items():
            index, part = name.split(".")
            moments.setdefault(int(index), {})[part] = value
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": moments, "param_groups": groups})
        self.sums = {name: value.to(device) for name, value in under("sums.", state).items()}
        self.generator.set_state(state["generator"])
        self.tokens_since_fired = state["silent"].to(device)
        self.dead = state["dead"].to(device)
        self.steps_done, self.differing = int(state["steps"]), state["differing"]


def _differing(first: Tensor) -> Tensor:
    """The share of rows `[rows, 2, width]` that the models' difference is
    spread over: `(mean d^2)^2 / mean d^4`, d the length of the difference about
    its mean; 1 where all rows differ alike, 1 / rows where one row alone does.
    """
    gap = first[:, 1] - first[:, 0]
    squares = (gap - gap.mean(0)).square().sum(-1).double()
    share: Tensor = squares.mean().square() / squares.square().mean().clamp(min=1e-30)
    return share.cpu()


def under(prefix: str, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """What of a state lies under a prefix, without it."""
    return {
        name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)
    }


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
