"""The sampler's distribution, draws from it, and actions that it must not draw.

Log-probabilities are always those of the distribution that was sampled:
penalties, then temperature, then top-k, then top-p (the order of the common
engines), renormalised. Draws invert the cumulative distribution at a given
uniform number, so that a row's draws depend on its own random stream only.

Of actions that were refused at one place none is drawn there twice. A refused
action is a sequence of tokens whose probability is known, because it was drawn.
Its mass is taken off the distribution of each of its tokens, so that the next
draw has exactly the distribution of the policy given that it is none of those
refused so far. This is what drawing again until something else turns up gives
as well, but a policy that is 99.99 % sure of a refused action needs one more
draw instead of ten thousand.

1. At a prefix `s` of the action, a token `v` that goes on towards refused
   actions keeps `p(v|s) - sum_r p(r|s)` over the refused actions `r` that start
   with `s v`.
2. What is left of `v` is taken for nothing where float32 could not tell it from
   nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import exp

import numpy as np
import torch

from forensics.protocols import SamplingSettings

DRAWS_AT_ONCE = 256  # cumulative distributions held at once, float64 over the vocabulary


@dataclass(frozen=True, kw_only=True)
class Text:
    """What a token is drawn behind: all tokens so far, and where the running
    action starts among them.
    """

    ids: Sequence[int]
    start: int


def log_distribution(
    logits: torch.Tensor, settings: SamplingSettings, texts: Sequence[Text] | None = None
) -> torch.Tensor:
    """Log-probabilities `[rows, vocabulary]` (nats, float32) of logits under
    the settings.

    Temperature 0 is greedy: the first largest token has log-probability 0, all
    others -inf. `texts`: one a row, needed for penalties only; `ValueError`
    where they are missing.
    """
    logits = logits.float()
    if settings.penalises:
        logits = penalised(logits, settings, texts)
    if settings.temperature == 0:
        best = logits.argmax(-1, keepdim=True)
        return torch.full_like(logits, -torch.inf).scatter(-1, best, 0.0)
    scaled = logits / settings.temperature
    if 0 < settings.top_k < scaled.shape[-1]:
        smallest = scaled.topk(settings.top_k, dim=-1).values[..., -1:]
        scaled = scaled.masked_fill(scaled < smallest, -torch.inf)
    if settings.top_p < 1:
        scaled = _nucleus(scaled, settings.top_p)
    return scaled.log_softmax(-1)


def penalised(
    logits: torch.Tensor, settings: SamplingSettings, texts: Sequence[Text] | None
) -> torch.Tensor:
    """As vLLM does it: repetition divides a positive logit and multiplies a
    negative one, of any token that the text has; frequency is taken off for
    each time that the output has a token, presence once.
    """
    if texts is None:
        raise ValueError(
            "penalties need the text before each token; score with the policy's logprobs"
        )
    whole = _counts(logits, [text.ids for text in texts])
    factor = torch.where(logits > 0, 1 / settings.repetition_penalty, settings.repetition_penalty)
    logits = torch.where(whole > 0, logits * factor, logits)
    if not settings.penalises_output:
        return logits
    output = _counts(logits, [text.ids[text.start :] for text in texts])
    return logits - settings.frequency_penalty * output - settings.presence_penalty * (output > 0)


def _counts(logits: torch.Tensor, texts: Sequence[Sequence[int]]) -> torch.Tensor:
    """How often each text has each token `[rows, vocabulary]`."""
    row = torch.tensor([i for i, text in enumerate(texts) for _ in text], dtype=torch.long)
    token = torch.tensor([token for text in texts for token in text], dtype=torch.long)
    counts = torch.zeros_like(logits)
    ones = torch.ones(len(token), device=logits.device)
    return counts.index_put_(
        (row.to(logits.device), token.to(logits.device)), ones, accumulate=True
    )


def _nucleus(scaled: torch.Tensor, top_p: float) -> torch.Tensor:
    """Keep the smallest set of most probable tokens whose probability reaches `top_p`."""
    ordered, order = scaled.sort(dim=-1, descending=True)
    before = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1)
    dropped = torch.zeros_like(scaled, dtype=torch.bool).scatter(-1, order, before >= top_p)
    return scaled.masked_fill(dropped, -torch.inf)


def draw(
    log_probabilities: torch.Tensor, owners: Sequence[int], uniforms: Sequence[float]
) -> torch.Tensor:
    """One token a draw `[draws]`: from row `owners[i]` of `[rows, vocabulary]`
    at `uniforms[i]` in [0, 1).
    """
    device = log_probabilities.device
    u = on_device(uniforms, torch.float64, device)
    row = on_device(owners, torch.long, device)
    parts = [slice(first, first + DRAWS_AT_ONCE) for first in range(0, len(owners), DRAWS_AT_ONCE)]
    return torch.cat([_drawn(log_probabilities, row[part], u[part]) for part in parts])


def _drawn(log_probabilities: torch.Tensor, row: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """A draw for each of `row`, in halves where memory does not suffice for all."""
    try:
        return _invert(log_probabilities[row], u)
    except torch.OutOfMemoryError:
        if len(row) == 1:
            raise
    parts = zip(row.chunk(2), u.chunk(2), strict=True)
    return torch.cat([_drawn(log_probabilities, *part) for part in parts])


def on_device(values: Sequence[float], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Numbers of the host on a device, without waiting for what the device still has to do."""
    if device.type != "cuda":
        return torch.tensor(values, dtype=dtype, device=device)
    return torch.tensor(values, dtype=dtype).pin_memory().to(device, non_blocking=True)


def on_host(tokens: torch.Tensor, logprobs: torch.Tensor) -> Iterator[tuple[int, float]]:
    """Each token with its log-probability: one copy for both, for which alone a step of
    decoding waits (float64 holds either as it is).
    """
    found, numbers = torch.stack([tokens.double(), logprobs.double()]).tolist()
    return zip(map(int, found), numbers, strict=True)


def _invert(log_probabilities: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    cumulative = log_probabilities.double().exp().cumsum(-1)
    target = uniforms[:, None] * cumulative[:, -1:]
    token = torch.searchsorted(cumulative, target, right=True).squeeze(-1)
    beyond = token == cumulative.shape[-1]  # by rounding only, so that it is hardly ever mended
    if token.device.type == "cpu" and not bool(beyond.any()):
        return token  # to ask a GPU would cost more than to mend
    possible = (log_probabilities > -torch.inf).flip(-1).int()
    return torch.where(beyond, cumulative.shape[-1] - 1 - possible.argmax(-1), token)


def row_stream(*key: int) -> np.random.Generator:
    """The random stream of one row, a function of its key alone."""
    return np.random.Generator(
        np.random.Philox(np.random.SeedSequence([part % 2**63 for part in key]))
    )


def uniforms(stream: np.random.Generator) -> Iterator[float]:
    """The stream's uniform numbers one by one (drawn in blocks, which gives the same numbers)."""
    return chain.from_iterable(iter(lambda: stream.random(64).tolist(), None))


NOTHING = 1e-5  # of a token's probability: the error of its refused mass in float32


class Refusals:
    """The refused actions of one place, each with its tokens' log-probabilities (nats)."""

    def __init__(self, actions: Mapping[tuple[int, ...], tuple[float, ...]] = {}) -> None:
        self._actions = dict(actions)

    def also(self, token_ids: Sequence[int], logprobs: Sequence[float]) -> "Refusals":
        """These and one more."""
        return Refusals({**self._actions, tuple(token_ids): tuple(logprobs)})

    def __contains__(self, token_ids: Sequence[int]) -> bool:
        return tuple(token_ids) in self._actions

    def masses(self, prefix: Sequence[int]) -> dict[int, float]:
        """Probability, given `prefix`, of the refused actions that go on with each token."""
        start = tuple(prefix)
        found: dict[int, float] = {}
        for action, logprobs in self._actions.items():
            if len(action) > len(start) and action[: len(start)] == start:
                token = action[len(start)]
                found[token] = found.get(token, 0.0) + exp(sum(logprobs[len(start) :]))
        return found


def renormalised_without(
    log_probabilities: torch.Tensor, masses: Sequence[Mapping[int, float]]
) -> torch.Tensor:
    """Log-probabilities `[rows, vocabulary]` with each row's refused masses
    taken off and normalised, float64.

    A row of which nothing is left stays as it was. Float64, so that what is
    left beside a nearly certain token keeps its proportions.
    """
    probabilities = log_probabilities.double().exp()
    row = torch.tensor(
        [i for i, refused in enumerate(masses) for _ in refused], device=probabilities.device
    )
    token = torch.tensor(
        [token for refused in masses for token in refused], device=probabilities.device
    )
    taken = torch.tensor(
        [mass for refused in masses for mass in refused.values()], dtype=torch.float64
    )
    whole = probabilities[row, token]
    left = whole - taken.to(probabilities.device)
    spared = probabilities.index_put((row, token), torch.where(left > NOTHING * whole, left, 0.0))
    kept = torch.where(spared.sum(-1, keepdim=True) > 0, spared, probabilities)
    return (kept / kept.sum(-1, keepdim=True)).log()
