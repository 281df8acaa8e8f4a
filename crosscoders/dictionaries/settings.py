"""How the latents of a dictionary are split between the models that they may speak of,
and how it is trained: frozen records, written beside every checkpoint.

Latents lie in the order *before-only, shared, after-only*, so that each model
sees one contiguous range of them and the blocks that are forbidden are not
stored at all: not in the encoder, the decoder, or the optimizer (2602.11729).
Departures, both options: the shared block's decoders may be tied across the
models, since free ones absorb after-only directions. And a one-model latent may
*read* all models, so that only its decoder is forbidden: what two models have
in common cancels between them, and a weak feature of one model stands out that
is lost among a dozen others in that model alone (with features in superposition
a linear reader of one model cannot find it).
"""

from dataclasses import dataclass
from typing import Literal

from forensics.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Partition:
    """`latents` in all; `before_only` and `after_only` of them speak of one
    model (two models only).

    `tied`: the shared block has one decoder for all models. `readers`: whether
    one-model latents read their `own` model alone or `all`.
    """

    latents: int
    before_only: int = 0
    after_only: int = 0
    tied: bool = False
    readers: Literal["own", "all"] = "own"

    def __post_init__(self) -> None:
        if (
            min(self.before_only, self.after_only) < 0
            or self.before_only + self.after_only > self.latents
        ):
            raise UserError(
                f"{self.latents} latents cannot hold {self.before_only} before-only and"
                f" {self.after_only} after-only ones; ask for fewer of these or for more latents"
            )

    @property
    def shared(self) -> slice:
        return slice(self.before_only, self.latents - self.after_only)

    def seen(self, model: int, models: int) -> slice:
        """The latents that speak of a model."""
        dedicated = models == 2
        first = self.before_only if dedicated and model == 1 else 0
        last = self.latents - self.after_only if dedicated and model == 0 else self.latents
        return slice(first, last)

    def read(self, model: int, models: int) -> slice:
        """The latents that read a model."""
        return slice(0, self.latents) if self.readers == "all" else self.seen(model, models)

    def name(self, latent: int) -> str:
        """`before-only`, `shared` or `after-only`."""
        if latent < self.before_only:
            return "before-only"
        return "shared" if latent < self.latents - self.after_only else "after-only"


@dataclass(frozen=True, kw_only=True)
class TrainerSettings:
    """Lengths in tokens (rows of the stream), shares of the whole training from
    0 to 1.

    The scale of the activations makes their mean norm the root of the width, so
    coefficients keep their meaning from model to model. What is not given
    (`None`) follows from the dictionary or from `tokens`.
    """

    tokens: int = 500_000  # rows trained on; the stream is passed through as often as that takes
    batch: int = 2048  # rows a step
    learning_rate: float | None = None  # Adam; None: 2e-4 / sqrt(latents / 2^14), at most 3e-3
    warmup: float = 0.05  # share over which the learning rate rises from 0
    decay: float = 0.2  # last share, over which it falls to 0
    sparsity: float = 2.0  # of the L1 penalty (relu) or of the number of active latents (jumprelu)
    sparsity_warmup: float = 0.2  # share over which that penalty rises from 0
    # of the error of the models' difference beside that of each model, at the start and at the end
    difference_weight: tuple[float, float] = (0.0, 0.0)
    auxiliary: float = 1 / 32  # weight of the loss that revives dead latents
    auxiliary_latents: int = 1024  # dead latents considered at once, drawn anew every ten steps
    dead_after: int | None = (
        None  # tokens without being active; None: a tenth of `tokens`, at most 10 million
    )
    threshold_rate: float = 0.01  # of the running mean of the smallest value BatchTopK kept
    bandwidth: float = 0.5  # of the kernel that gives JumpReLU's thresholds a gradient
    first_threshold: float = 0.5  # of JumpReLU
    precision: Literal["float32", "bfloat16"] = (
        "float32"  # of the large products; weights, moments and sums are float32
    )
    seed: int = 0  # of the order of the stream and, if nothing else is said, of the first weights
    weights_seed: int | None = None  # of the first weights and of which dead latents are drawn
    scale_rows: int = 8192  # first rows, which the scale and the first centres come from
    log_every: int = 50  # steps
    save_every: int = 500  # steps

    def __post_init__(self) -> None:
        whole = ("tokens", "batch", "scale_rows", "log_every", "save_every", "auxiliary_latents")
        for name in whole:
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}; it must be at least 1")
        for name in ("warmup", "decay", "sparsity_warmup"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(
                    f"{name} is {getattr(self, name)}; it is a share of the training, from 0 to 1"
                )
        if self.warmup + self.decay > 1:
            raise UserError(
                f"warm-up {self.warmup} and decay {self.decay} together exceed the training;"
                " lower one"
            )

    @property
    def first_weights(self) -> int:
        """The seed of the first weights."""
        return self.seed if self.weights_seed is None else self.weights_seed

    @property
    def steps(self) -> int:
        return -(-self.tokens // self.batch)

    def rate(self, step: int, latents: int) -> float:
        """The learning rate of a step, counted from 0."""
        top = (
            self.learning_rate
            if self.learning_rate is not None
            else min(3e-3, 2e-4 / (latents / 2**14) ** 0.5)
        )
        rising = _ramp(step + 1, self.warmup * self.steps)
        return top * min(rising, _ramp(self.steps - step, self.decay * self.steps))

    def difference_weight_at(self, step: int) -> float:
        """The weight of the difference's error at a step."""
        first, last = self.difference_weight
        return first + (last - first) * step / max(1, self.steps - 1)

    def penalty(self, step: int) -> float:
        """The sparsity coefficient of a step."""
        return self.sparsity * _ramp(step + 1, self.sparsity_warmup * self.steps)

    @property
    def silence(self) -> int:
        """Tokens after which a latent that was never active counts as dead."""
        return (
            self.dead_after
            if self.dead_after is not None
            else max(self.batch, min(10_000_000, self.tokens // 10))
        )


def _ramp(done: float, length: float) -> float:
    return min(1.0, done / length) if length > 0 else 1.0
