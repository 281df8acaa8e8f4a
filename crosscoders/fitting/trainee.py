"""One dictionary while it is trained: a step, what is counted along the way, and all of it as tensors.

1. Loss: mean squared error over models and width, plus penalty and the revival of dead latents; if wanted, the error of
   what parts the two models too, which is all that one-model latents are about where the shared ones are tied.
2. Adam (fused). It is dense: a batch of 2,048 rows with 32 active latents touches nearly every one of 8,192, and a
   fused step costs little beside the large product; lazy moments would change the method for nothing.
3. Except with L1, decoders keep norm one over the models together, so that values compare across latents.
   Departure from 2504.02922, which compares values times the *sum* of the models' norms.
4. BatchTopK's threshold is the running mean of the smallest value kept; counters stay on the device, nothing waits.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from crosscoders.dictionary import Dictionary, DictionaryConfig
from crosscoders.fitting import forward
from crosscoders.fitting.settings import FittingSettings
from forensics.errors import UserError

View = Callable[[torch.Tensor], torch.Tensor]
REDRAWN = 10  # steps after which the dead latents are looked up again


@dataclass(frozen=True, kw_only=True)
class Job:
    """What to train: the dictionary and what of the activations `[rows, models, width]` it sees (default: all)."""

    config: DictionaryConfig
    settings: FittingSettings
    view: View | None = None

    def __post_init__(self) -> None:
        if self.opens and (self.config.own_k is None or self.config.partition.readers != "all"):
            raise UserError(
                f"opening is {self.settings.opening}, which needs one-model latents that read all models and are "
                'chosen apart; give own_k and readers="all", or set opening to 0'
            )

    @property
    def opens(self) -> bool:
        """Whether one-model latents are found in the difference first."""
        return self.settings.opening > 0


class Trainee:
    """See the module's text. `step(batch)` trains; `measures()` waits for the device and empties the counters."""

    def __init__(self, job: Job, first: torch.Tensor, device: torch.device, path: forward.Path = "auto") -> None:
        self.job, self.path, self.steps_done = job, path, 0
        config, settings = job.config, job.settings
        self.dictionary = Dictionary(config, settings.seed).to(device)
        self._start(self.seen(first).to(device))
        start = torch.full((config.partition.latents,), settings.first_threshold, device=device).log()
        self.log_threshold = torch.nn.Parameter(start) if config.activation == "jumprelu" else None
        trained = [*self.dictionary.parameters(), *([] if self.log_threshold is None else [self.log_threshold])]
        self.optimizer = torch.optim.Adam(trained, lr=1.0, betas=(0.9, 0.999), fused=True)
        self.generator = torch.Generator().manual_seed(settings.seed)
        self.silent = torch.zeros(config.partition.latents, dtype=torch.int64, device=device)
        self.dead = torch.zeros(0, dtype=torch.int64, device=device)
        self.sums = self._no_sums()
        self.scratch = torch.zeros(0)

    def seen(self, activations: torch.Tensor) -> torch.Tensor:
        """What of a block's activations this dictionary is about."""
        return activations if self.job.view is None else self.job.view(activations)

    @torch.no_grad()
    def _start(self, first: torch.Tensor) -> None:
        """Scale and centres from the first rows: mean norm (over rows and models) to the root of the width."""
        norm = first.float().norm(dim=-1).mean()
        self.dictionary.scale.copy_(self.job.config.width**0.5 / norm.clamp(min=1e-12))
        self.dictionary.centres.copy_((first.float() * self.dictionary.scale).mean(0))
        self.differing = _differing(first.float()) if self.job.config.models == 2 else torch.ones(())

    def step(self, batch: torch.Tensor) -> None:
        """One step on `[rows, models, width]`, as the stream gives it."""
        settings, config = self.job.settings, self.job.config
        scaled = self.dictionary.scaled(self.seen(batch).to(self.silent.device, non_blocking=True))
        self._look_for_dead()
        passed = forward.run(self.dictionary, scaled, self._how(len(scaled)))
        squares = passed.errors.square().sum((0, 2))
        loss = squares.sum() / (len(scaled) * config.models * config.width)
        if (weight := settings.parting_at(self.steps_done)) and config.models == 2:
            parting = (passed.errors[:, 1] - passed.errors[:, 0]).square().sum()
            loss = loss + weight * parting / (len(scaled) * config.models * config.width)
        loss = loss + settings.penalty(self.steps_done) * passed.penalty / (config.models * config.width)
        loss = loss + self._revival(scaled, passed.errors)
        self.optimizer.param_groups[0]["lr"] = settings.rate(self.steps_done, config.partition.latents)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self._after(scaled, passed, squares.detach(), loss.detach())

    def _how(self, rows: int) -> forward.Pass:
        settings = self.job.settings
        if len(self.scratch) != rows:
            dtype = torch.bfloat16 if settings.precision == "bfloat16" else torch.float32
            self.scratch = self.silent.new_empty((rows, self.job.config.partition.latents), dtype=dtype)
        return forward.Pass(
            k=settings.k(self.steps_done, self.job.config.k), path=self.path, bandwidth=settings.bandwidth,
            product=torch.bfloat16 if settings.precision == "bfloat16" else None, log_threshold=self.log_threshold,
            scratch=self.scratch, own=round((self.job.config.own_k or 0) * float(self.differing) * rows),
        )

    def _revival(self, scaled: torch.Tensor, errors: torch.Tensor) -> torch.Tensor | float:
        settings = self.job.settings
        if not len(self.dead) or not settings.auxiliary:
            return 0.0
        k = settings.auxiliary_k or max(1, self.job.config.width // 2)
        return settings.auxiliary * forward.revival_loss(self.dictionary, scaled, errors, self.dead, k)

    def _look_for_dead(self) -> None:
        """Now and then, since the number of dead latents has to be waited for."""
        if self.steps_done % REDRAWN:
            return
        dead = (self.silent >= self.job.settings.silence).nonzero().squeeze(-1)
        if len(dead) > self.job.settings.auxiliary_latents:
            drawn = torch.randperm(len(dead), generator=self.generator)[: self.job.settings.auxiliary_latents]
            dead = dead[drawn.sort().values.to(dead.device)]
        self.dead = dead

    @torch.no_grad()
    def _after(self, scaled: torch.Tensor, passed: forward.Passed, squares: torch.Tensor, loss: torch.Tensor) -> None:
        if self.job.config.activation != "relu":
            self.dictionary.unit_decoders_()
        self._move_threshold(passed.smallest)
        self.silent = torch.where(passed.fired, 0, self.silent + len(scaled))
        found = {
            "rows": torch.tensor(float(len(scaled))), "steps": torch.tensor(1.0), "loss": loss,
            "active": passed.active, "squares": squares, "first": scaled.sum(0), "second": scaled.square().sum((0, 2)),
        }
        for name, value in found.items():
            self.sums[name] += value.to(self.sums[name])
        self.steps_done += 1

    def _move_threshold(self, smallest: torch.Tensor) -> None:
        threshold = self.dictionary.threshold
        if self.log_threshold is not None:
            threshold.copy_(self.log_threshold.exp())
        elif self.job.config.activation == "batchtopk":
            rate = self.job.settings.threshold_rate
            threshold.copy_(torch.where(threshold.isnan(), smallest, threshold + rate * (smallest - threshold)))

    def _no_sums(self) -> dict[str, torch.Tensor]:
        """Since the last `measures`, in double precision."""
        config, device = self.job.config, self.silent.device
        shapes: dict[str, tuple[int, ...]] = {
            "rows": (), "steps": (), "loss": (), "active": (), "squares": (config.models,),
            "first": (config.models, config.width), "second": (config.models,),
        }
        return {name: torch.zeros(shape, dtype=torch.float64, device=device) for name, shape in shapes.items()}

    def measures(self) -> dict[str, float | list[float | None]]:
        """Loss, variance explained per model (against the mean), L0 and dead share since they were last asked for."""
        sums = {name: value.cpu() for name, value in self.sums.items()}
        self.sums = self._no_sums()
        rows, steps = max(sums["rows"].item(), 1.0), max(sums["steps"].item(), 1.0)
        spread = sums["second"] - sums["first"].square().sum(-1) / rows
        explained: list[float | None] = [
            1 - lost / there if there > 0 else None
            for lost, there in zip(sums["squares"].tolist(), spread.tolist(), strict=True)
        ]
        return {
            "loss": sums["loss"].item() / steps, "variance_explained": explained, "l0": sums["active"].item() / rows,
            "dead_share": (self.silent >= self.job.settings.silence).double().mean().item(),
        }

    def state(self) -> dict[str, torch.Tensor]:
        """Everything that decides the steps to come."""
        found = {f"dictionary.{name}": value for name, value in self.dictionary.state_dict().items()}
        if self.log_threshold is not None:
            found["log_threshold"] = self.log_threshold.detach()
        for index, moments in self.optimizer.state_dict()["state"].items():
            found |= {f"optimizer.{index}.{name}": value for name, value in moments.items()}
        found |= {f"sums.{name}": value for name, value in self.sums.items()}
        done = torch.tensor(self.steps_done)
        found["differing"] = self.differing
        found |= {"generator": self.generator.get_state(), "silent": self.silent, "dead": self.dead, "steps": done}
        return {name: value.contiguous() for name, value in found.items()}

    def load(self, state: dict[str, torch.Tensor]) -> None:
        """Go on from `state()`."""
        device = self.silent.device
        self.dictionary.load_state_dict(under("dictionary.", state))
        if self.log_threshold is not None:
            self.log_threshold.data.copy_(state["log_threshold"])
        moments: dict[int, dict[str, torch.Tensor]] = {}
        for name, value in under("optimizer.", state).items():
            index, part = name.split(".")
            moments.setdefault(int(index), {})[part] = value
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": moments, "param_groups": groups})
        self.sums = {name: value.to(device) for name, value in under("sums.", state).items()}
        self.generator.set_state(state["generator"])
        self.silent, self.dead = state["silent"].to(device), state["dead"].to(device)
        self.steps_done, self.differing = int(state["steps"]), state["differing"]


def _differing(first: torch.Tensor) -> torch.Tensor:
    """The share of rows `[rows, 2, width]` that the models' difference is spread over: `(mean d^2)^2 / mean d^4`, d the
    length of the difference about its mean; 1 where all rows differ alike, 1 / rows where one row alone does."""
    gap = first[:, 1] - first[:, 0]
    squares = (gap - gap.mean(0)).square().sum(-1).double()
    found: torch.Tensor = squares.mean().square() / squares.square().mean().clamp(min=1e-30)
    return found.cpu()


def under(prefix: str, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """What of a state lies under a prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
