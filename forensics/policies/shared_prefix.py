"""What the rows of a batch have in common, kept once: the first positions of
the texts that they branch off.

Rows of a branched text share it up to the first branch of the sweep, for good. Its
keys and values are read from one place there: one product for all rows of a
text instead of one a row, and no copies. What follows is each row's own. The
two parts meet before the softmax, so the numbers are those of one attention up
to rounding (the shared-prefix attention of 2402.05099 and 2402.15220, on a
CPU).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

Part = tuple[
    torch.Tensor | None, torch.Tensor, torch.Tensor
]  # rows (`None`: all), keys and values [heads, length, d]


@dataclass(frozen=True, kw_only=True)
class PrefixCache:
    """Keys and values of one text, `[heads, length, head_dim]` in each layer:
    any prefix of it can be continued.
    """

    layers: tuple[tuple[torch.Tensor, torch.Tensor], ...]
    length: int


class SharedPrefix:
    """The first `length` positions of every row of a cache: which text each row has them from."""

    def __init__(self, length: int) -> None:
        self.length = length
        self._prefix_caches: list[PrefixCache] = []
        self._owners: list[int] = []
        self._groups: list[tuple[int, torch.Tensor | None]] | None = None

    def enter(self, prefix_caches: Sequence[PrefixCache]) -> None:
        """New rows behind the others."""
        for prefix_cache in prefix_caches:
            known = next(
                (i for i, other in enumerate(self._prefix_caches) if other is prefix_cache), None
            )
            if known is None:
                known = len(self._prefix_caches)
                self._prefix_caches.append(prefix_cache)
            self._owners.append(known)
        self._groups = None

    def move(self, sources: Sequence[int], targets: Sequence[int], rows: int) -> None:
        """As `forensics.policies.kv_cache.move_rows`."""
        old = list(self._owners)
        self._owners += [0] * (rows - len(old))
        for source, target in zip(sources, targets, strict=True):
            self._owners[target] = old[source]
        del self._owners[rows:]
        self._groups = None

    def parts(self, layer: int) -> Iterator[Part]:
        """The rows of each text, with its keys and values in a layer."""
        for prefix_cache, rows in self._grouped():
            keys, values = self._prefix_caches[prefix_cache].layers[layer]
            yield rows, keys[:, : self.length], values[:, : self.length]

    def _grouped(self) -> list[tuple[int, torch.Tensor | None]]:
        if self._groups is None:
            rows: dict[int, list[int]] = {}
            for row, owner in enumerate(self._owners):
                rows.setdefault(owner, []).append(row)
            whole = len(rows) == 1
            self._groups = [
                (prefix_cache, None if whole else torch.tensor(chosen))
                for prefix_cache, chosen in rows.items()
            ]
        return self._groups


def attend_with_shared_prefix(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    parts: Sequence[Part],
    length: int,
    scaling: float,
) -> torch.Tensor:
    """One query a row over a shared prefix of `length` positions and the row's own.

    `query [rows, heads, d]`, `keys`/`values [rows, kv_heads, own, d]`; gives
    `[rows, kv_heads, heads / kv_heads, d]`.
    """
    rows, heads, width = query.shape
    grouped = (query * scaling).view(rows, keys.shape[1], heads // keys.shape[1], width)
    scores = query.new_empty((*grouped.shape[:-1], length + keys.shape[2]))
    scores[..., length:] = torch.matmul(grouped, keys.transpose(-1, -2))
    for chosen, shared_prefix, _ in parts:
        found = _rows_first(
            _heads_first(_taken(grouped, chosen)) @ shared_prefix.transpose(-1, -2),
            grouped.shape[2],
        )
        scores[slice(None) if chosen is None else chosen, ..., :length] = found
    weights = scores.softmax(-1)
    mixed = torch.matmul(weights[..., length:], values)
    for chosen, _, shared_prefix in parts:
        found = _rows_first(
            _heads_first(_taken(weights[..., :length], chosen)) @ shared_prefix, grouped.shape[2]
        )
        mixed = mixed.add_(found) if chosen is None else mixed.index_add_(0, chosen, found)
    return mixed


def _taken(x: torch.Tensor, chosen: torch.Tensor | None) -> torch.Tensor:
    return x if chosen is None else x[chosen]


def _heads_first(x: torch.Tensor) -> torch.Tensor:
    """`[rows, kv_heads, group, n]` as `[kv_heads, rows x group, n]`."""
    return x.transpose(0, 1).flatten(1, 2)


def _rows_first(x: torch.Tensor, group: int) -> torch.Tensor:
    """`[kv_heads, rows x group, n]` as `[rows, kv_heads, group, n]`."""
    return x.view(len(x), -1, group, x.shape[-1]).transpose(0, 1)
