"""How a causal language model turns its last hidden states into logits, found
and then checked.

1. The decoder and the output layer are asked for by the library's own names;
   the layer must be a plain linear one.
2. A scale or a soft cap on the logits is read from the config under the names
   that models use for it.
3. The guess is checked: the decoder's output is replaced by planted hidden
   states, small to large, and the model's own logits must be what the formula
   says. A model that does anything else is not taken apart.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from forensics.errors import UserError
from forensics.policies.kv_cache import TRIAL_ERRORS

MULTIPLIERS = ("logit_scale", "output_multiplier", "lm_head_multiplier", "logits_scaling")
DIVISORS = ("logits_scaling",)
CAPS = ("final_logit_softcapping",)
PROBED_SIZES = (0.1, 3.0, 100.0)  # largest raw logit of each planted hidden state
PROBE_TOLERANCE = {torch.bfloat16: 0.03, torch.float16: 0.01}  # else 1e-3, of the largest logit


@dataclass(frozen=True, kw_only=True)
class LogitFormula:
    """Logits from what the linear layer gives: times `scale`, then softly capped at `cap`."""

    scale: float = 1.0
    cap: float | None = None

    def logits(self, raw: torch.Tensor) -> torch.Tensor:
        scaled = raw if self.scale == 1 else raw * self.scale
        return scaled if self.cap is None else self.cap * torch.tanh(scaled / self.cap)

    def slope(self, logits: torch.Tensor) -> torch.Tensor | float:
        """Derivative of the logits (as `logits()` gave them) by what the linear layer gave."""
        return self.scale if self.cap is None else self.scale * (1 - (logits / self.cap).square())


class Float32Head(nn.Linear):
    """An output layer whose logits are formed in float32 whatever it is held in, also under
    autocast: in bfloat16 a logit of 20 is rounded to an eighth (2506.13585).
    """

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        bias = None if self.bias is None else self.bias.float()
        with torch.autocast(input.device.type, enabled=False):
            return nn.functional.linear(input.float(), self.weight.float(), bias)


def widen_head(model: Any) -> None:
    """Make a model form its logits in float32, in sampling and in scoring. Raises
    `UserError` for an output layer that is not a plain linear one.
    """
    linear = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    if not _is_plain(linear):
        raise UserError(
            'logits = "float32" needs a plain linear output layer, which this model has not; leave'
            " it out of [compute]"
        )
    linear.__class__ = Float32Head


@dataclass(frozen=True, kw_only=True)
class Head:
    """The decoder, the linear layer behind it, and the formula from there to logits."""

    decoder: Any
    linear: nn.Linear
    formula: LogitFormula

    @property
    def precision(self) -> torch.dtype | None:
        """Of the logits; `None`: that of the pass."""
        return torch.float32 if isinstance(self.linear, Float32Head) else None


_checked: WeakKeyDictionary[nn.Module, LogitFormula | None] = WeakKeyDictionary()


@torch.compiler.disable  # type: ignore[untyped-decorator]
def output_head(model: Any) -> Head | None:
    """The model's head, or `None` for a model that must be run as a whole.
    Checked once for each output layer.
    """
    decoder = model.get_decoder() if hasattr(model, "get_decoder") else None
    linear: Any = model.get_output_embeddings() if decoder is not None else None
    if not isinstance(decoder, nn.Module) or decoder is model or not _is_plain(linear):
        return None
    if linear not in _checked:
        _checked[linear] = _formula(model, decoder, linear)
    formula = _checked[linear]
    return Head(decoder=decoder, linear=linear, formula=formula) if formula is not None else None


def _is_plain(linear: Any) -> bool:
    """Nothing but weight and bias (no adapter, no hook, no patched forward)."""
    forwards = (nn.Linear.forward, Float32Head.forward)
    if not isinstance(linear, nn.Linear) or type(linear).forward not in forwards:
        return False
    return not (linear._forward_hooks or linear._forward_pre_hooks or "forward" in vars(linear))


def _formula(model: Any, decoder: Any, linear: nn.Linear) -> LogitFormula | None:
    """The first formula that the model's config suggests and the model itself follows."""
    hidden = _planted(linear)
    try:
        logits = _logits_behind(model, decoder, hidden)
    except TRIAL_ERRORS:  # no such outputs: run it as a whole
        return None
    raw = nn.functional.linear(hidden, linear.weight, linear.bias).float()
    tolerance = PROBE_TOLERANCE.get(linear.weight.dtype, 1e-3)
    return next(
        (
            formula
            for formula in _suggested(model)
            if _agree(logits, formula.logits(raw), tolerance)
        ),
        None,
    )


def _suggested(model: Any) -> Iterator[LogitFormula]:
    config = model.config.get_text_config()

    def numbers(names: tuple[str, ...]) -> list[float]:
        return [float(value) for name in names if (value := getattr(config, name, None))]

    scales = [*numbers(MULTIPLIERS), *(1 / value for value in numbers(DIVISORS)), 1.0]
    for cap, scale in product([*numbers(CAPS), None], scales):
        yield LogitFormula(scale=scale, cap=cap)


@torch.no_grad()
def _planted(linear: nn.Linear) -> torch.Tensor:
    """Hidden states `[1, sizes, width]` whose largest logit without bias is
    each of `PROBED_SIZES`.
    """
    generator = torch.Generator().manual_seed(0)
    draws = torch.randn(1, len(PROBED_SIZES), linear.in_features, generator=generator).to(
        linear.weight
    )
    largest = nn.functional.linear(draws, linear.weight).float().abs().amax(-1, keepdim=True)
    sizes = torch.tensor(PROBED_SIZES, device=draws.device)[None, :, None]
    return (draws.float() * sizes / largest.clamp(min=1e-20)).to(linear.weight.dtype)


@torch.no_grad()
def _logits_behind(model: Any, decoder: Any, hidden: torch.Tensor) -> torch.Tensor:
    """What the whole model makes of given hidden states `[1, tokens, width]`."""

    def plant(module: Any, arguments: Any, output: Any) -> Any:
        output.last_hidden_state = hidden
        return output

    tokens = torch.zeros(hidden.shape[:2], dtype=torch.long, device=hidden.device)
    cuda = [hidden.device] if hidden.device.type == "cuda" else []
    hook = decoder.register_forward_hook(plant)
    try:
        with torch.random.fork_rng(cuda), torch.autocast(hidden.device.type, enabled=False):
            logits: torch.Tensor = model(tokens, use_cache=False).logits
    finally:
        hook.remove()
    return logits.float()


def _agree(found: torch.Tensor, wanted: torch.Tensor, tolerance: float) -> bool:
    """Row by row, to a share of the row's largest logit (a soft cap shows in
    the large row, a scale in all).
    """
    if found.shape != wanted.shape:
        return False
    gap = (found - wanted).abs().amax(-1)
    return bool((gap <= tolerance * found.abs().amax(-1)).all())
