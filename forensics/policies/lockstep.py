"""Lockstep decoding: many multi-turn episodes through one model without padding.

1. All rows stand at the same position of their own text. At each step every row feeds its next token:
   one it already knows (prompt or observation) or one it just drew. So all rows of the KV cache have the
   same length, and no row is ever padded, however its turns fall.
2. Where every row still knows its next k tokens, k positions go through at once (prefill).
3. Rows that share a prefix share its computation: they fork when the first token must be drawn.
4. A row whose action is complete asks its *driver* what comes next: observation tokens, or nothing (done).
   Finished rows are dropped from the cache.

Draws come from each row's own random stream.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from forensics.policies.cache import new_cache, select_rows
from forensics.policies.sampling import draw, log_distribution
from forensics.protocols import SamplingSettings

COMPACT_BELOW = 0.8  # drop finished rows from the cache when fewer than this share are alive


class Driver(Protocol):
    """What a row does when an action is complete."""

    stream: np.random.Generator

    def action_ended(self, token_ids: list[int], logprobs: list[float], stop: str) -> list[int] | None:
        """The tokens that follow (an observation), or `None` when the row is done."""
        ...

    def out_of_room(self) -> None:
        """The row's text has reached `max_tokens`: no further action can be drawn."""
        ...


@dataclass(eq=False)
class _Row:
    """One row: its drivers (several until it forks), known tokens and the running action.

    A dead row is done but still has its place in the cache; it feeds token 0 until it is dropped.
    """

    drivers: list[Driver]
    ids: list[int]
    start: int  # where the running action starts
    logprobs: list[float]
    alive: bool = True

    def window(self, position: int, chunk: int) -> list[int]:
        known = self.ids[position : position + chunk] if self.alive else []
        return known + [0] * (chunk - len(known))


class Lockstep:
    """Runs rows to their end. `forward(input_ids, cache, deciding)` gives logits `[rows, vocabulary]`."""

    def __init__(
        self, model: Any, stops: frozenset[int], settings: SamplingSettings,
        forward: Callable[[torch.Tensor, Any, torch.Tensor], torch.Tensor],
    ) -> None:
        self._config = model.config
        self._device = model.device
        self._settings = settings
        self._forward = forward
        size = int(model.get_input_embeddings().weight.shape[0])
        self._stops = torch.zeros(size, dtype=torch.bool)
        self._stops[[stop for stop in stops if stop < size]] = True

    def run(self, prefixes: Sequence[Sequence[int]], drivers: Sequence[Sequence[Driver]]) -> None:
        """Drive every row to its end. `drivers[i]` are the rows that start from `prefixes[i]`."""
        rows = [_Row(list(d), list(p), len(p), []) for p, d in zip(prefixes, drivers, strict=True) if d]
        for row in rows:
            self._check_room(row)
        rows = [row for row in rows if row.alive]
        cache = new_cache(self._config)
        position = 0
        while any(row.alive for row in rows):
            chunk = min(len(row.ids) for row in rows if row.alive) - position
            ready = [i for i, row in enumerate(rows) if row.alive and len(row.ids) == position + chunk]
            logits = self._feed(rows, cache, position, chunk, ready)
            position += chunk
            rows, ready, logits = self._fork(rows, ready, logits, cache)
            self._draw(rows, ready, logits)
            rows = self._compact(rows, cache)

    def _check_room(self, row: _Row) -> None:
        if len(row.ids) >= self._settings.max_tokens:
            row.alive = False
            for driver in row.drivers:
                driver.out_of_room()

    def _feed(self, rows: list[_Row], cache: Any, position: int, chunk: int, ready: list[int]) -> torch.Tensor:
        tokens = torch.tensor([row.window(position, chunk) for row in rows], device=self._device)
        deciding = torch.zeros(len(rows), dtype=torch.bool, device=self._device)
        deciding[[i for i in ready if not rows[i].logprobs]] = True
        return self._forward(tokens, cache, deciding)

    def _fork(
        self, rows: list[_Row], ready: list[int], logits: torch.Tensor, cache: Any
    ) -> tuple[list[_Row], list[int], torch.Tensor]:
        """Rows about to draw for the first time become one row a driver."""
        if not any(len(rows[i].drivers) > 1 for i in ready):
            return rows, ready, logits[ready] if len(ready) < len(rows) else logits
        waiting = set(ready)
        forked: list[_Row] = []
        source: list[int] = []
        for i, row in enumerate(rows):
            parts = [[driver] for driver in row.drivers] if i in waiting else [row.drivers]
            forked += [_Row(part, list(row.ids), row.start, list(row.logprobs), row.alive) for part in parts]
            source += [i] * len(parts)
        select_rows(cache, torch.tensor(source, device=self._device))
        now_ready = [j for j, i in enumerate(source) if i in waiting]
        return forked, now_ready, logits[[source[j] for j in now_ready]]

    def _draw(self, rows: list[_Row], ready: list[int], logits: torch.Tensor) -> None:
        """Draw a token for every ready row, and end the actions that are complete."""
        distribution = log_distribution(logits, self._settings)
        uniforms = np.array([rows[i].drivers[0].stream.random() for i in ready])
        tokens = draw(distribution, uniforms)
        chosen = distribution.gather(-1, tokens[:, None]).squeeze(-1).tolist()
        tokens = tokens.cpu()
        stopped = self._stops[tokens].tolist()
        for i, token, logprob, stop in zip(ready, tokens.tolist(), chosen, stopped, strict=True):
            row = rows[i]
            row.ids.append(token)
            row.logprobs.append(logprob)
            full = len(row.ids) >= self._settings.max_tokens
            if stop or full or len(row.logprobs) >= self._settings.max_turn_tokens:
                self._end_action(row, "stop-token" if stop else "length")

    def _end_action(self, row: _Row, stop: str) -> None:
        follow = row.drivers[0].action_ended(row.ids[row.start :], row.logprobs, stop)
        if follow is None:
            row.alive = False
            return
        row.ids += follow
        row.start, row.logprobs = len(row.ids), []
        self._check_room(row)

    def _compact(self, rows: list[_Row], cache: Any) -> list[_Row]:
        """Drop dead rows from the cache once enough of them have gathered."""
        kept = [i for i, row in enumerate(rows) if row.alive]
        if not kept or len(kept) >= COMPACT_BELOW * len(rows):
            return rows
        select_rows(cache, torch.tensor(kept, device=self._device))
        return [rows[i] for i in kept]
