"""A sparse dictionary over one or several models' activations: crosscoders, and
SAEs as the case of one model.

1. Activations are scaled by *one* number for all models.
2. `f = act(sum_m W_enc[m] (h_m - c_m) + b)`; latents that may not speak of a
   model have no weights there.
3. `h_hat_m = W_dec[m]^T f + c_m`, by gathering the active latents' rows only.

Codes are sparse from the start: `(row, latent, value)` sorted by row. Source:
transformer-circuits 2024 (crosscoders), 2504.02922 (BatchTopK crosscoders),
2602.11729 (dedicated feature crosscoders).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from crosscoders.activation_functions import activation_function
from crosscoders.dictionaries import sparse
from crosscoders.dictionaries.settings import Partition
from forensics.errors import UserError


@dataclass(frozen=True, kw_only=True)
class DictionaryConfig:
    """`activation`: the name of an installed activation function. `k`: active
    latents a row (TopK), or on average (BatchTopK, before it has a threshold).
    Width per model.

    `own_k`: active one-model latents a row in which the models differ, chosen
    beside the `k` shared ones (BatchTopK); `None`: all compete for `k`, where
    weak features of one model lose against strong shared ones.
    """

    width: int
    partition: Partition
    models: int = 2
    activation: str = "batchtopk"
    k: int = 32
    own_k: float | None = None

    def __post_init__(self) -> None:
        dedicated = self.partition.before_only + self.partition.after_only
        if dedicated and self.models != 2:
            raise UserError(
                f"dedicated latents need two models, not {self.models}; use a partition without"
                " them"
            )
        function = activation_function(self.activation)
        if self.own_k is not None and not (
            function.one_model_budget and 0 < self.own_k <= dedicated
        ):
            raise UserError(
                f"own_k is {self.own_k}; it needs BatchTopK and is above 0 and at most the number"
                f" of one-model latents, {dedicated}"
            )
        function.check(self.k, self.partition.latents)


@dataclass(frozen=True)
class Codes:
    """Active latents, sorted by row."""

    rows: int
    row: Int[Tensor, " active"]
    latent: Int[Tensor, " active"]
    value: Float[Tensor, " active"]

    def dense(self, latents: int) -> Float[Tensor, "rows latents"]:
        """All values, zeros included; for tests and small things."""
        full = self.value.new_zeros((self.rows, latents))
        return full.index_put((self.row, self.latent), self.value)


class Dictionary(nn.Module):
    """See the module's text. `scale`: what activations are multiplied by before
    anything else.

    `threshold [latents]`: what a pre-activation must exceed to be active
    (JumpReLU; BatchTopK once it is trained).
    """

    scale: Tensor
    threshold: Tensor

    def __init__(self, config: DictionaryConfig, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        self.function = activation_function(config.activation)
        generator = torch.Generator().manual_seed(seed)
        part = config.partition
        self.ranges = [part.seen(m, config.models) for m in range(config.models)]
        self.read = [part.read(m, config.models) for m in range(config.models)]
        directions = self._first_directions(generator)
        readers = directions.clone()
        if part.readers == "all" and config.models == 2:  # a one-model latent reads the difference
            readers[part.shared.stop :, 0] = -directions[part.shared.stop :, 1]
            readers[: part.before_only, 1] = -directions[: part.before_only, 0]
        self.encoders = nn.ParameterList(
            nn.Parameter(readers[read, m].clone()) for m, read in enumerate(self.read)
        )  # each [latents that read it, width]
        self.decoders = nn.ParameterList(
            nn.Parameter(directions[self.own(m), m].clone()) for m in range(config.models)
        )  # each [latents it owns, width]
        self.tied_decoder = nn.Parameter(directions[part.shared, 0].clone()) if part.tied else None
        self.bias = nn.Parameter(torch.zeros(part.latents))
        self.centres = nn.Parameter(torch.zeros(config.models, config.width))
        self.register_buffer("scale", torch.ones(()))
        self.register_buffer("threshold", torch.full((part.latents,), torch.nan))

    def _first_directions(self, generator: torch.Generator) -> Tensor:
        """Random, the same for all models that a latent sees, of norm one over
        these together `[latents, models, w]`.

        A latent so starts as shared; whatever makes it one model's own is
        learnt.
        """
        config = self.config
        one = nn.functional.normalize(
            torch.randn((config.partition.latents, config.width), generator=generator)
        )
        seen = torch.zeros((config.partition.latents, config.models))
        for m, range_ in enumerate(self.ranges):
            seen[range_, m] = 1
        return one[:, None] * (seen / seen.sum(-1, keepdim=True).sqrt())[..., None]

    def own(self, model: int) -> slice:
        """The latents whose decoder belongs to this model alone (all it sees,
        unless the shared block is tied).
        """
        part, seen = self.config.partition, self.ranges[model]
        if not part.tied:
            return seen
        return (
            slice(seen.start, part.before_only)
            if model == 0
            else slice(part.shared.stop, seen.stop)
        )

    def decoder(self, model: int) -> Float[Tensor, "seen width"]:
        """Decoder rows `[latents seen, width]` of a model, in scaled units."""
        own: Tensor = self.decoders[model]
        if self.tied_decoder is None:
            return own
        parts = [own, self.tied_decoder] if model == 0 else [self.tied_decoder, own]
        return torch.cat(parts)

    def directions(self, models: int | None = None) -> Float[Tensor, "latents seen width"]:
        """All decoders, zero where a latent is silent on a model; a copy. The one decoder of an
        SAE stands for so many `models`.
        """
        config = self.config
        full = self.bias.new_zeros((config.partition.latents, config.models, config.width))
        for m, seen in enumerate(self.ranges):
            full[seen, m] = self.decoder(m).detach()
        return full if models is None or config.models > 1 else full.expand(-1, models, -1)

    def scaled(self, activations: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows width"]:
        """Activations in the dictionary's units."""
        return activations.to(self.bias.dtype) * self.scale

    def pre_activations(
        self,
        scaled: Float[Tensor, "rows models width"],
        out: Float[Tensor, "rows latents"] | None = None,
        encoders: Sequence[Tensor] | None = None,
    ) -> Float[Tensor, "rows latents"]:
        """Of activations in the dictionary's units. `out` is overwritten with them, without a
        gradient. `encoders`: its own in another precision, which the product then has.
        """
        tables = self.encoders if encoders is None else encoders
        bias = self.bias.to(tables[0].dtype)
        pre = bias.expand(len(scaled), -1).clone() if out is None else out.copy_(bias)
        centred = (scaled - self.centres).to(pre.dtype)
        for m, read in enumerate(self.read):
            pre[:, read].addmm_(centred[:, m], tables[m].T)
        return pre

    def pre_activations_of(
        self, latents: Int[Tensor, " chosen"], centred: Float[Tensor, "rows models width"]
    ) -> Float[Tensor, "rows chosen"]:
        """Of a few latents alone, from activations less the centres."""
        pre = self.bias[latents].expand(len(centred), -1)
        for m, read in enumerate(self.read):
            place = ((latents >= read.start) & (latents < read.stop)).nonzero().squeeze(-1)
            encoder = self.encoders[m][latents[place] - read.start]
            pre = pre.index_add(1, place, (centred[:, m] @ encoder.T).to(pre.dtype))
        return pre

    @torch.no_grad()
    def unit_decoders_(self) -> None:
        """Each latent's decoders to norm one, over its models together."""
        part = self.config.partition
        squares = torch.zeros_like(self.bias)
        for m, decoder in enumerate(self.decoders):
            squares[self.own(m)] += torch.linalg.vector_norm(decoder, dim=-1).square()
        if self.tied_decoder is not None:
            squares[part.shared] += self.config.models * self.tied_decoder.square().sum(-1)
        factor = squares.clamp(min=1e-24).rsqrt()[:, None]
        for m, decoder in enumerate(self.decoders):
            decoder.mul_(factor[self.own(m)])
        if self.tied_decoder is not None:
            self.tied_decoder.mul_(factor[part.shared])

    def decoder_norms(self) -> Float[Tensor, " latents"]:
        """`sum_m |d_lm|` of every latent, differentiable."""
        norms = self.bias.new_zeros(self.config.partition.latents)
        for m, seen in enumerate(self.ranges):
            indices = torch.arange(seen.start, seen.stop, device=norms.device)
            norms = norms.index_add(0, indices, self.decoder(m).norm(dim=-1))
        return norms

    def encode(self, scaled: Float[Tensor, "rows models width"]) -> Codes:
        """Codes at inference, from activations in the dictionary's units."""
        dense = self.values(scaled)
        row, latent = dense.nonzero(as_tuple=True)
        return Codes(len(scaled), row, latent, dense[row, latent])

    def values(
        self,
        scaled: Float[Tensor, "rows models width"],
        latents: Int[Tensor, " chosen"] | None = None,
    ) -> Float[Tensor, "rows chosen"]:
        """Activations at inference, of all latents or of a few; only these are
        computed, unless all compete.
        """
        if latents is None or self.function.by_rank == "always":
            pre = self.pre_activations(scaled)
            found = self.function.infer(pre, self.threshold, self.config.k)
            return found if latents is None else found[:, latents]
        pre = self.pre_activations_of(latents, scaled - self.centres)
        return self.function.infer(pre, self.threshold[latents], self.config.k)

    def decode(self, codes: Codes, model: int) -> Float[Tensor, "rows width"]:
        """The reconstruction of one model, in the dictionary's units."""
        seen = self.ranges[model]
        chosen = (codes.latent >= seen.start) & (codes.latent < seen.stop)
        row, latent = codes.row[chosen], codes.latent[chosen] - seen.start
        starts = sparse.starts(row, codes.rows)
        bags = sparse.bags(latent, starts, codes.value[chosen], self.decoder(model))
        return bags + self.centres[model]
