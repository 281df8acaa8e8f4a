"""The sampler's distribution, and draws from it.

Log-probabilities are always those of the distribution that was sampled:
penalties, then temperature, then top-k, then top-p (the order of the common
engines), renormalised. Draws invert the cumulative distribution at a given
uniform number, so that a row's draws depend on its own random stream only.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

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
        logits = _penalised(logits, settings, texts)
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


def _penalised(
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
    u = torch.tensor(uniforms, dtype=torch.float64, device=device)
    row = torch.tensor(owners, device=device)
    parts = [slice(first, first + DRAWS_AT_ONCE) for first in range(0, len(owners), DRAWS_AT_ONCE)]
    return torch.cat([_invert(log_probabilities[row[part]], u[part]) for part in parts])


def _invert(log_probabilities: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    cumulative = log_probabilities.double().exp().cumsum(-1)
    target = uniforms[:, None] * cumulative[:, -1:]
    token = torch.searchsorted(cumulative, target, right=True).squeeze(-1)
    beyond = token == cumulative.shape[-1]  # by rounding only, so that it is hardly ever mended
    if bool(beyond.any()):
        possible = (log_probabilities[beyond] > -torch.inf).flip(-1).int()
        token[beyond] = cumulative.shape[-1] - 1 - possible.argmax(-1)
    return token


def row_stream(*key: int) -> np.random.Generator:
    """The random stream of one row, a function of its key alone."""
    return np.random.Generator(
        np.random.Philox(np.random.SeedSequence([part % 2**63 for part in key]))
    )


def uniforms(stream: np.random.Generator) -> Iterator[float]:
    """The stream's uniform numbers one by one (drawn in blocks, which gives the same numbers)."""
    return chain.from_iterable(iter(lambda: stream.random(64).tolist(), None))
