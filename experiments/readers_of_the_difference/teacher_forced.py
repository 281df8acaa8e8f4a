"""The after model with its activations at one site changed, on texts that are known: exact
chances of a behaviour, and the KL from the model as it was.

1. Both models read the texts once, as far as the site (`Texts`); a change happens there alone,
   so the layers below need not run again.
2. `Above` is the after model's rest: its layers behind the site, final norm and unembedding. A
   graft is the same with pieces of the before model in it.
"""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from forensics.policies import decoder_layers, kl_divergence

AT_ONCE: Final = 64  # texts


@dataclass(frozen=True, kw_only=True)
class Texts:
    """`pairs [texts, length, models, width]` at the site, padded on the right; `kept [texts,
    length]`: rows that may be changed (no padding, no sinks). `claims`: chances that are asked
    for, each as (text, positions, tokens that follow them). `spots`: (text, position) at which
    the KL is read. `tasks` of the claims.
    """

    pairs: Tensor
    kept: Tensor
    claims: Sequence[tuple[int, Sequence[int], Sequence[int]]]
    spots: Sequence[tuple[int, int]] = field(default_factory=tuple)

    def edited(self, taken: Tensor | None) -> Tensor:
        """After's activations without what is taken out of the kept rows `[kept, width]`."""
        after = self.pairs[:, :, 1].clone()
        if taken is not None:
            after[self.kept] -= taken
        return after


@dataclass(frozen=True)
class Above:
    """A model behind layer `layer`."""

    model: Any
    layer: int

    @torch.no_grad()
    def logprobs(self, hidden: Tensor, where: Sequence[tuple[int, int]]) -> Tensor:
        """Of what follows the positions `where` (text, position): `[where, vocabulary]`."""
        decoder = self.model.get_decoder()
        found = []
        for first in range(0, len(hidden), AT_ONCE):
            some = [(text - first, at) for text, at in where if first <= text < first + AT_ONCE]
            if not some:
                continue
            with _cut(self.model, self.layer):
                states = decoder(inputs_embeds=hidden[first : first + AT_ONCE], use_cache=False)
            text, at = (torch.tensor(one, dtype=torch.long) for one in zip(*some, strict=True))
            states = states.last_hidden_state[text, at]
            found.append(self.model.get_output_embeddings()(states).float().log_softmax(-1))
        return torch.cat(found)


@contextmanager
def _cut(model: Any, layer: int) -> Iterator[None]:
    """The model without its layers up to this one."""
    decoder, whole = model.get_decoder(), decoder_layers(model)
    decoder.layers = whole[layer + 1 :]
    try:
        yield
    finally:
        decoder.layers = whole


def chance(above: Above, texts: Texts, taken: Tensor | None = None) -> float:
    """The mean chance of the claims, with `taken` out of the kept rows."""
    where = [(text, at) for text, places, _ in texts.claims for at in places]
    order = sorted(range(len(where)), key=lambda i: where[i])
    logs = above.logprobs(texts.edited(taken), [where[i] for i in order])
    token = torch.tensor([one for _, _, tokens in texts.claims for one in tokens])[order]
    claim = np.repeat(range(len(texts.claims)), [len(places) for _, places, _ in texts.claims])
    sums = np.zeros(len(texts.claims))
    np.add.at(sums, claim[order], logs.gather(1, token[:, None])[:, 0].double().numpy())
    return float(np.exp(sums).mean())


def spot_logprobs(above: Above, texts: Texts, taken: Tensor | None = None) -> Tensor:
    """`[spots, vocabulary]`."""
    return above.logprobs(texts.edited(taken), texts.spots)


def mean_kl(plain: Tensor, changed: Tensor) -> float:
    """KL(plain, changed) in nats, the mean over positions."""
    return float(kl_divergence(plain, changed).clamp_min(0).mean())


def grafted_copy(before: Any, after: Any) -> Any:
    """After with before's last MLP, final norm and unembedding."""
    model = copy.deepcopy(after)
    decoder_layers(model)[-1].mlp = copy.deepcopy(decoder_layers(before)[-1].mlp)
    model.get_decoder().norm = copy.deepcopy(before.get_decoder().norm)
    model.set_output_embeddings(copy.deepcopy(before.get_output_embeddings()))
    return model


def random_graft(grafted: Any, after: Any, seed: int) -> Any:
    """After with the same pieces changed by as much, weight by weight, in a random direction."""
    model, drawn = copy.deepcopy(grafted), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for piece in (
            lambda one: decoder_layers(one)[-1].mlp,
            lambda one: one.get_decoder().norm,
            lambda one: one.get_output_embeddings(),
        ):
            pairs = zip(piece(model).parameters(), piece(after).parameters(), strict=True)
            for mine, theirs in pairs:
                size = (mine - theirs).norm()
                way = torch.randn(mine.shape, generator=drawn)
                mine.copy_(theirs + size * way / way.norm())
    return model
