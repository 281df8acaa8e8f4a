"""Reading activations of one checkpoint on a batch of tokens; the fast path is
a hook that stops the forward pass.

A `Reader` is one checkpoint seen through one way of reading. Any way plugs in
that gives the same values: raw hooks (here), one copy of the weights with an
adapter switched on and off (`adapter_readers`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from forensics.policies import require
from forensics.policies.sites import read_sites

Read = Callable[[Tensor, Sequence[str]], list[Tensor]]


@dataclass(frozen=True, kw_only=True)
class Reader:
    """`read(ids [texts, positions], sites)` gives one `[texts, positions,
    width]` a site.

    Texts are padded on the right and attention looks back only, so that what
    stands behind a text cannot change it.
    `vocabulary`: token to id. `tokens`: ids below this exist. `positions`: the
    longest text, `None` where unknown.
    """

    identity: str
    read: Read
    vocabulary: Mapping[str, int]
    tokens: int
    positions: int | None
    device: torch.device
    dtype: torch.dtype


def reader_of(policy: Any) -> Reader:
    """A local policy read through raw hooks. A `Reader` is given back as it is."""
    if isinstance(policy, Reader):
        return policy
    require(policy, "weights", "tokens", task="reading activations of batches")
    return Reader(
        identity=policy.identity,
        read=lambda ids, sites: read_sites(policy.model, ids, sites),
        vocabulary=policy.tokenizer.get_vocab(),
        tokens=policy.model.get_input_embeddings().num_embeddings,
        positions=policy.context_length,
        device=policy.model.device,
        dtype=policy.model.dtype,
    )
