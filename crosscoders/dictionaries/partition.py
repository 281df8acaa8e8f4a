"""How the latents of a dictionary are split between the models that they may
speak of.

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
