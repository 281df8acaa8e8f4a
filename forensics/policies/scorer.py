"""What a model says of known tokens, without the logits of all positions: the one
scorer of trainer, log readers and policies.

1. Hidden states come from the decoder, over what texts share once
   (`shared_prefixes`, `hidden_states`); only positions that matter go through
   the output layer.
2. Their logits are formed a chunk of positions at a time, turned into the
   sampler's distribution (`forensics.policies.distribution.log_distribution`: the
   very function that drew), reduced to some numbers each, and dropped (`Spreads`).
   So at most a few `[chunk, vocabulary]` tensors live at once.
3. With gradient (`token_logprobs_and_entropies`) the numbers are log-probability
   and entropy. Backward forms each chunk's logits again, for one more product
   with the output weight.
4. Without, they are what `score_columns` reads off one or two models.

Logits are rounded as the model itself rounds them (its own precision, or that
of autocast); everything behind them, and the sum of the weight's gradient over
chunks, is float32. For training, a model whose head is more than a linear layer, a
scale and a soft cap (`forensics.policies.output_head`) is run as a whole, a few rows
at a time, and checkpointed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from forensics.policies.distribution import Text, log_distribution
from forensics.policies.output_head import LogitFormula, output_head
from forensics.policies.shared_prefixes import beginnings, can_share, hidden_behind
from forensics.protocols import SamplingSettings

CHUNK = 1024  # positions whose logits are held at once
NO_CHANCE = -1e4  # in place of log 0 where it is multiplied by probability 0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What turns hidden states into numbers: distribution, formula of the head,
    positions at once, precision.

    `entropies`: whether they are wanted (otherwise 0, and a pass over the
    vocabulary is saved).
    """

    settings: SamplingSettings
    formula: LogitFormula
    chunk: int
    precision: torch.dtype
    entropies: bool = True

    def parts(self, hidden: torch.Tensor) -> list[slice]:
        """A chunk of positions each."""
        return [slice(first, first + self.chunk) for first in range(0, len(hidden), self.chunk)]

    def spreads(
        self, hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> "Spreads":
        """For chunks of these hidden states."""
        shape = (min(self.chunk, len(hidden)), len(weight))
        return Spreads(weight, bias, self, shape, hidden.device)


def token_logprobs_and_entropies(
    model: Any,
    token_ids: torch.Tensor,
    settings: SamplingSettings,
    mask: torch.Tensor | None = None,
    chunk: int = CHUNK,
    entropies: bool = True,
    share: bool = True,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Of tokens 1.. of each row `[rows, length]`: log-probabilities and
    entropies (nats), both `[rows, length - 1]`.

    `mask` `[rows, length - 1]`: which of them are wanted (default all); the
    others are 0 and cost nothing in the output layer. Without `entropies` those
    are 0 and cost nothing either. Rows are filled up on the right, which causal
    attention never sees from the left. Float32, with gradient to all weights
    that want one. `share`: rows that begin alike go through their beginning
    together, where that pays; whether it does is seen in the tokens.
    """
    wanted = torch.ones_like(token_ids[:, 1:], dtype=torch.bool) if mask is None else mask.bool()
    head = output_head(model)
    if head is None:
        return _whole_model(model, token_ids, settings, wanted, chunk, entropies)
    shared = beginnings(token_ids, wanted) if share and can_share(model, head.decoder) else None
    if shared is None:
        hidden = head.decoder(token_ids[:, :-1], use_cache=False).last_hidden_state
    else:
        hidden = hidden_behind(head.decoder, token_ids[:, :-1], shared)
    found = project(
        hidden[wanted[:, shared.length if shared else 0 :]],
        head.linear.weight,
        token_ids[:, 1:][wanted],
        settings,
        bias=head.linear.bias,
        formula=head.formula,
        chunk=chunk,
        entropies=entropies,
        precision=head.precision,
    )
    empty = torch.zeros(wanted.shape, dtype=torch.float32, device=hidden.device)
    return empty.masked_scatter(wanted, found[0]), empty.masked_scatter(wanted, found[1])


@torch.compiler.disable  # type: ignore[untyped-decorator]
def project(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    targets: torch.Tensor,
    settings: SamplingSettings,
    *,
    bias: torch.Tensor | None = None,
    formula: LogitFormula | None = None,
    chunk: int = CHUNK,
    entropies: bool = True,
    precision: torch.dtype | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities of `targets` `[positions]` and entropies, from hidden
    states `[positions, width]`.

    `weight`: `[vocabulary, width]`, which may be tied to the embedding. A
    target outside top-k or top-p has log-probability -inf. `precision` of the
    logits: that of autocast, or of the weight, unless given.
    """
    device = hidden.device.type
    if precision is None:
        precision = (
            torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype
        )
    plan = Plan(
        settings=settings,
        formula=formula or LogitFormula(),
        chunk=chunk,
        precision=precision,
        entropies=entropies,
    )
    with torch.autocast(device, enabled=False):
        found: tuple[torch.Tensor, torch.Tensor] = _Projection.apply(  # type: ignore[no-untyped-call]
            hidden.to(precision), weight, bias, targets, plan
        )
    return found


class _Projection(torch.autograd.Function):
    """Two numbers a position, chunk by chunk; backward does each chunk again."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        targets: torch.Tensor,
        plan: Plan,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        spreads = plan.spreads(hidden, weight, bias)
        logprobs = torch.empty(len(hidden), dtype=torch.float32, device=hidden.device)
        entropies = torch.zeros_like(logprobs)
        for part in plan.parts(hidden):
            logits, spread = spreads.at(hidden[part])
            logprobs[part] = spread.gather(-1, targets[part, None]).squeeze(-1)
            if plan.entropies:
                entropies[part] = entropy(spread.clamp_(min=NO_CHANCE), out=logits)
        ctx.plan = plan
        ctx.save_for_backward(hidden, weight, bias, targets, entropies)
        return logprobs, entropies

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, to_logprobs: torch.Tensor, to_entropies: torch.Tensor
    ) -> tuple[Any, ...]:
        hidden, weight, bias, targets, entropies = ctx.saved_tensors
        plan, (wants_hidden, wants_weight, wants_bias, *_) = ctx.plan, ctx.needs_input_grad
        grad_hidden = torch.zeros_like(hidden) if wants_hidden else None
        grad_weight = torch.zeros_like(weight, dtype=torch.float32) if wants_weight else None
        grad_bias = torch.zeros_like(bias, dtype=torch.float32) if wants_bias else None
        spreads = plan.spreads(hidden, weight, bias)
        for part in plan.parts(hidden) if plan.settings.temperature else []:
            logits, spread = spreads.at(hidden[part])
            slope = plan.formula.slope(logits)
            gradient = _to_logits(
                spread,
                targets[part],
                entropies[part],
                to_logprobs[part],
                to_entropies[part],
                spare=logits,
            )
            raw = gradient.mul_(slope / plan.settings.temperature).to(plan.precision)
            if grad_hidden is not None:
                grad_hidden[part] = raw @ spreads.weight
            if grad_weight is not None:
                _add_product(grad_weight, raw.T, hidden[part])
            if grad_bias is not None:
                grad_bias += raw.sum(0)
        return grad_hidden, _like(grad_weight, weight), _like(grad_bias, bias), None, None


class Spreads:
    """Logits and distribution of one chunk of positions at a time, in arrays
    that all chunks share. `weight` `None`: the states are logits already. `like`:
    another one, whose array of logits serves this one too.

    (Fresh arrays of this size are mapped anew by the system each time, which on
    a CPU costs more than the arithmetic.)
    """

    def __init__(
        self,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        plan: Plan,
        shape: tuple[int, int],
        device: torch.device,
        like: "Spreads | None" = None,
    ) -> None:
        self.plan = plan
        self.weight = None if weight is None else weight.to(plan.precision)
        self.bias = None if bias is None else bias.to(plan.precision)
        if like is None or like.plan.precision != plan.precision:
            self._raw = torch.empty(shape, dtype=plan.precision, device=device)
        else:
            self._raw = like._raw
        self._spread = torch.empty(shape, dtype=torch.float32, device=device)

    def at(
        self, states: torch.Tensor, texts: Sequence[Text] | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits and log-probabilities `[positions, vocabulary]`, float32; both
        may be written to. `texts`: what stands before each, where settings ask.
        """
        raw, settings = self._raw[: len(states)], self.plan.settings
        if self.weight is None:
            raw = states.to(torch.float32, copy=True)
        elif self.bias is None:
            torch.mm(states, self.weight.T, out=raw)
        else:
            torch.addmm(self.bias, states, self.weight.T, out=raw)
        logits = self.plan.formula.logits(raw.float())
        if settings.temperature != 1 or not is_whole(settings):
            return logits, log_distribution(logits, settings, texts)
        spread = torch.log_softmax(logits, -1, out=self._spread[: len(states)])
        return logits, spread


def is_whole(settings: SamplingSettings) -> bool:
    """Whether every token keeps a chance, whatever stands before it."""
    cut = settings.top_k > 0 or settings.top_p < 1
    return settings.temperature > 0 and not cut and not settings.penalises


def entropy(spread: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """Of log-probabilities `[..., vocabulary]` without -inf (clamped at
    `NO_CHANCE` they count 0). Overwrites `out`.
    """
    expected: torch.Tensor = torch.linalg.vecdot(torch.exp(spread, out=out), spread)
    return -expected


def kl_divergence(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """KL(p || q) in nats, float64 `[...]`, of log-probabilities `[..., vocabulary]`. Tokens
    that p excludes count nothing.
    """
    terms = torch.where(p == -torch.inf, 0.0, p.exp() * (p - q))
    return terms.sum(-1, dtype=torch.float64)


def _to_logits(
    spread: torch.Tensor,
    targets: torch.Tensor,
    entropies: torch.Tensor,
    to_logprobs: torch.Tensor,
    to_entropies: torch.Tensor,
    spare: torch.Tensor,
) -> torch.Tensor:
    """Gradient at the tempered logits: of log p at the target `1 - p`, of the
    entropy `-p (log p + H)`.

    Tokens that top-k or top-p shut out have none: which tokens those are is not
    differentiated. Overwrites `spread` and `spare`.
    """
    reached = spread.gather(-1, targets[:, None]).isfinite().squeeze(-1)
    probability = torch.exp(spread.clamp_(min=NO_CHANCE), out=spare)
    factor = spread.add_(entropies[:, None]).mul_(to_entropies[:, None])
    gradient = factor.add_(to_logprobs[:, None]).mul_(probability).neg_()
    return gradient.scatter_add_(
        -1, targets[:, None], torch.where(reached, to_logprobs, 0.0)[:, None]
    )


def _add_product(total: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> None:
    """`total += left @ right`, without a copy of the total's size where the precisions allow."""
    if left.dtype == total.dtype:
        total.addmm_(left, right)
    else:
        total += left @ right


def _like(gradient: torch.Tensor | None, parameter: torch.Tensor | None) -> torch.Tensor | None:
    return None if gradient is None or parameter is None else gradient.to(parameter.dtype)


def _whole_model(
    model: Any,
    token_ids: torch.Tensor,
    settings: SamplingSettings,
    wanted: torch.Tensor,
    chunk: int,
    entropies: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same two numbers by the model's own forward, a few rows at a time,
    formed again in backward.
    """

    def block(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        spread = log_distribution(model(rows[:, :-1], use_cache=False).logits, settings)
        return spread.gather(-1, rows[:, 1:, None]).squeeze(-1), entropy(
            spread.clamp(min=NO_CHANCE)
        )

    rows = max(1, chunk // max(1, token_ids.shape[1] - 1))
    found = [checkpoint(block, part, use_reentrant=False) for part in token_ids.split(rows)]
    logprobs, spreads = (torch.cat(values) for values in zip(*found, strict=True))
    return torch.where(wanted, logprobs, 0.0), torch.where(wanted & entropies, spreads, 0.0)
