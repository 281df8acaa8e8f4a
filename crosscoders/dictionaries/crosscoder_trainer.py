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
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from crosscoders.activation_functions import TrainingStep
from crosscoders.activations.streams import View
from crosscoders.dictionaries.dictionary import Dictionary, DictionaryConfig
from crosscoders.dictionaries.forward import (
    ForwardResult,
    aux_loss,
    forward,
    training_step,
)
from crosscoders.dictionaries.settings import TrainerSettings

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
