"""What texts begin with alike is read once.

*To be read without gradient*, texts are packed without padding (`pack_by_prefix`):
1. Texts are sorted, so that each shares as much as it can with the one before
   it.
2. A pack is a forest: one node for each different beginning of its texts. A
   node has a token, a depth (its position) and sees its own ancestors only. So
   each text is read as if it stood alone, whatever stands beside it (the tree
   attention of 2404.00242 and others, here for reading what is known instead of
   for decoding).
3. Attention over a pack costs its square. A text joins the pack before it where
   that is cheaper than a pack of its own; what a token costs without attention
   is told by the model's shape (`PackCost`).

*With gradient*, rows stay rows (`beginnings`, `hidden_behind`): those of a group have
their prompt in common. Its keys and values are formed once for each different
beginning and handed to every row that begins so; the gradients of all rows add up
there. The numbers are those of whole rows up to rounding.

Two plans, because neither is always the cheaper one: with gradient, a step of 2 to 4
prompts with 8 answers each takes 22 to 38 % longer as a forest where the answers are
equally long (attention over a pack costs its square), and 10 to 28 % less at widths 256
and 512 where they are a third to the whole of the longest (nothing is filled up); the
bytes of a training would differ too.
"""

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from forensics.policies.kv_cache import attends_to_everything


@dataclass(frozen=True, kw_only=True)
class PackCost:
    """What reading a pack costs, in tokens. `call`: any pack at all. `square`:
    nodes at which attention doubles it.

    `most`: nodes of a pack of several texts.
    """

    call: float = 64.0
    square: float = 1024.0
    most: int = 4096

    def of(self, nodes: int) -> float:
        return self.call + nodes * (1 + nodes / self.square)


@dataclass(frozen=True, kw_only=True)
class PrefixPack:
    """A forest of `nodes` nodes, parents before children.

    `ids`, `depth`, `first_text` `[nodes]`: the token, its position, and the first
    text (number in `texts`) that has it.
    `texts`: which of the given ones these are. `paths`: the nodes of each text,
    `[length]`.
    """

    ids: np.ndarray
    depth: np.ndarray
    first_text: np.ndarray
    texts: tuple[int, ...]
    paths: tuple[np.ndarray, ...]

    def attention_mask(self) -> np.ndarray:
        """Which node sees which, bool `[nodes, nodes]`."""
        mask = np.zeros((len(self.ids), len(self.ids)), dtype=bool)
        for number, path in enumerate(self.paths):
            own = path[self.first_text[path] == number]
            if len(own):
                mask[own[0] : own[-1] + 1, path[: len(path) - len(own)]] = True
                mask[own[0] : own[-1] + 1, own[0] : own[-1] + 1] = np.tri(len(own), dtype=bool)
        return mask


def pack_by_prefix(texts: Sequence[np.ndarray], cost: PackCost) -> Iterator[PrefixPack]:
    """Every text in one pack; empty ones too, as empty paths."""
    order = sorted(range(len(texts)), key=lambda i: texts[i].tolist())
    members: list[int] = []
    shared: list[int] = []
    nodes = 0
    for i in order:
        alike = 0  # how many first tokens it shares with the one before
        if members:
            alike = min(len(texts[members[-1]]), len(texts[i]))
            differ = texts[members[-1]][:alike] != texts[i][:alike]
            alike = int(differ.argmax()) if differ.any() else alike
        grown = nodes + len(texts[i]) - alike
        if members and (
            grown > cost.most or cost.of(grown) > cost.of(nodes) + cost.of(len(texts[i]))
        ):
            yield pack(texts, members, shared)
            members, shared, alike, grown = [], [], 0, len(texts[i])
        members.append(i)
        shared.append(alike)
        nodes = grown
    if members:
        yield pack(texts, members, shared)


def pack(texts: Sequence[np.ndarray], members: Sequence[int], shared: Sequence[int]) -> PrefixPack:
    """`shared`: how many first tokens each member has in common with the one before."""
    paths: list[np.ndarray] = []
    nodes = 0
    for member, alike in zip(members, shared, strict=True):
        new = np.arange(nodes, nodes + len(texts[member]) - alike)
        paths.append(np.concatenate([paths[-1][:alike], new]) if paths else new)
        nodes += len(new)
    own = [slice(alike, None) for alike in shared]
    return PrefixPack(
        ids=np.concatenate(
            [texts[member][part] for member, part in zip(members, own, strict=True)]
        ),
        depth=np.concatenate(
            [np.arange(len(texts[m]))[part] for m, part in zip(members, own, strict=True)]
        ),
        first_text=np.repeat(
            np.arange(len(members)),
            [len(texts[m]) - a for m, a in zip(members, shared, strict=True)],
        ),
        texts=tuple(members),
        paths=tuple(paths),
    )


WORTH = (
    0.9  # a plan that leaves more than this share of the tokens to compute is not worth two passes
)
KEYS_AND_VALUES = 0.2  # of a token's activations, at most (a seventh in a small Llama)


@dataclass(frozen=True, kw_only=True)
class Beginnings:
    """The first `length` tokens of each row: which different ones there are
    `[different, length]`, and whose they are.

    `owners` `[rows]` names each row's beginning.
    """

    length: int
    token_ids: torch.Tensor
    owners: torch.Tensor


def beginnings(token_ids: torch.Tensor, wanted: torch.Tensor) -> Beginnings | None:
    """What rows `[rows, length]` share before the first prediction that is
    wanted `[rows, length - 1]`, where it pays.

    All rows are cut at one place, so that what is left is a rectangle again.
    """
    length = int(wanted.any(0).to(torch.uint8).argmax()) if wanted.any() else 0
    if length == 0:
        return None
    different, owners = torch.unique(token_ids[:, :length], dim=0, return_inverse=True)
    shared = Beginnings(length=length, token_ids=different, owners=owners)
    return shared if _tokens(token_ids, shared) < WORTH * _tokens(token_ids, None) else None


def computed_tokens(token_ids: torch.Tensor, wanted: torch.Tensor) -> int:
    """Tokens that go through the decoder for these rows."""
    return _tokens(token_ids, beginnings(token_ids, wanted))


def held_tokens(token_ids: torch.Tensor, wanted: torch.Tensor) -> float:
    """Tokens whose activations wait for the backward pass of these rows. A row that
    shares its beginning has its own copy of the keys and values.
    """
    shared = beginnings(token_ids, wanted)
    copies = len(token_ids) * shared.length if shared else 0
    return _tokens(token_ids, shared) + KEYS_AND_VALUES * copies


def _tokens(token_ids: torch.Tensor, shared: Beginnings | None) -> int:
    rows, length = token_ids.shape[0], token_ids.shape[1] - 1
    return (
        rows * length
        if shared is None
        else shared.token_ids.numel() + rows * (length - shared.length)
    )


def can_share(model: Any, decoder: Any) -> bool:
    """Whether keys and values of a beginning say all there is to know of it,
    and a cache keeps their gradient.
    """
    checkpointed = any(
        module.training and getattr(module, "gradient_checkpointing", False)
        for module in model.modules()
    )
    keeps = "past_key_values" in inspect.signature(decoder.forward).parameters
    return keeps and not checkpointed and attends_to_everything(model.config)


def hidden_behind(decoder: Any, token_ids: torch.Tensor, shared: Beginnings) -> torch.Tensor:
    """Last hidden states `[rows, length - shared.length, width]` of the tokens
    behind the beginnings.
    """
    from transformers import DynamicCache

    cache = DynamicCache()
    decoder(shared.token_ids, past_key_values=cache, use_cache=True)
    for layer in cache.layers:
        layer.keys, layer.values = layer.keys[shared.owners], layer.values[shared.owners]
    hidden: torch.Tensor = decoder(
        token_ids[:, shared.length :], past_key_values=cache, use_cache=True
    ).last_hidden_state
    return hidden
