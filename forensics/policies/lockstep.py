"""Lockstep decoding: many multi-turn episodes through one model, without padding and as a tree.

1. All rows stand at the same position of their own text. At each step every row feeds its next token:
   one it already knows (prompt or observation) or one it just drew. So all rows of the KV cache have the
   same length, and no row is ever padded, however its turns fall.
2. Where every row still knows its next k tokens, k positions go through at once (prefill).
3. Episodes whose texts are still equal share one row. Each draws from its own random stream; where their
   tokens (or their observations) part, the row forks. This is exact, and cheap for a policy that is sure.
4. An episode whose action is complete asks its *driver* what comes next: observation tokens, or nothing.
   Rows without episodes are dropped from the cache.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from forensics.policies.cache import fork_rows, keep_rows, new_cache
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
    """Episodes with one text: their drivers, the known tokens and the running action.

    A row without drivers is dead but still has its place in the cache; it feeds token 0 until it is dropped.
    """

    drivers: list[Driver]
    ids: list[int]
    start: int  # where the running action starts
    logprobs: list[float]

    def window(self, position: int, chunk: int) -> list[int]:
        known = self.ids[position : position + chunk] if self.drivers else []
        return known if len(known) == chunk else known + [0] * (chunk - len(known))

    def branch(self, drivers: list[Driver]) -> "_Row":
        return _Row(drivers, list(self.ids), self.start, list(self.logprobs))


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
        """Drive every episode to its end. `drivers[i]` are the episodes that start from `prefixes[i]`."""
        rows = [_Row(list(d), list(p), len(p), []) for p, d in zip(prefixes, drivers, strict=True)]
        for row in rows:
            self._check_room(row)
        rows = [row for row in rows if row.drivers]
        cache = new_cache(self._config)
        position = 0
        while alive := [row for row in rows if row.drivers]:
            chunk = min(len(row.ids) for row in alive) - position
            ready = [i for i, row in enumerate(rows) if row.drivers and len(row.ids) == position + chunk]
            logits = self._feed(rows, cache, position, chunk, ready)
            position += chunk
            branches = self._draw([rows[i] for i in ready], logits if len(ready) == len(rows) else logits[ready])
            rows = self._arrange(rows, [(ready[i], branch) for i, branch in branches], cache)

    def _check_room(self, row: _Row) -> None:
        if len(row.ids) >= self._settings.max_tokens:
            for driver in row.drivers:
                driver.out_of_room()
            row.drivers = []

    def _feed(self, rows: list[_Row], cache: Any, position: int, chunk: int, ready: list[int]) -> torch.Tensor:
        tokens = torch.tensor([row.window(position, chunk) for row in rows], device=self._device)
        deciding = torch.zeros(len(rows), dtype=torch.bool, device=self._device)
        deciding[[i for i in ready if not rows[i].logprobs]] = True
        return self._forward(tokens, cache, deciding)

    def _draw(self, rows: list[_Row], logits: torch.Tensor) -> list[tuple[int, _Row]]:
        """Draw a token for every episode of the ready rows; the branches that split off, by their row."""
        distribution = log_distribution(logits, self._settings)
        owners = [i for i, row in enumerate(rows) for _ in row.drivers]
        uniforms = np.array([driver.stream.random() for row in rows for driver in row.drivers])
        tokens = draw(distribution, owners, uniforms)
        chosen = distribution[torch.tensor(owners, device=logits.device), tokens].tolist()
        tokens = tokens.cpu()
        drawn = zip(tokens.tolist(), chosen, self._stops[tokens].tolist(), strict=True)
        branches: list[tuple[int, _Row]] = []
        for i, row in enumerate(rows):
            parts: dict[tuple[int, float, bool], list[Driver]] = {}
            for driver in row.drivers:
                parts.setdefault(next(drawn), []).append(driver)
            branches += [(i, branch) for branch in self._split(row, parts)]
        return branches

    def _split(self, row: _Row, parts: dict[tuple[int, float, bool], list[Driver]]) -> list[_Row]:
        """Give the row's episodes their tokens. The first part stays in the row, the others branch off."""
        branches = [row.branch(part) for part in list(parts.values())[1:]]
        row.drivers = next(iter(parts.values()))
        for branch, (token, logprob, stop) in zip([row, *branches], list(parts), strict=True):
            branch.ids.append(token)
            branch.logprobs.append(logprob)
            full = len(branch.ids) >= self._settings.max_tokens
            if stop or full or len(branch.logprobs) >= self._settings.max_turn_tokens:
                branches += self._end_action(branch, "stop-token" if stop else "length")
        return [branch for branch in branches if branch.drivers]

    def _end_action(self, row: _Row, stop: str) -> list[_Row]:
        """Ask the episodes what follows; equal answers stay together."""
        action = row.ids[row.start :]
        answers: dict[tuple[int, ...], list[Driver]] = {}
        for driver in row.drivers:
            follow = driver.action_ended(list(action), list(row.logprobs), stop)
            if follow is not None:
                answers.setdefault(tuple(follow), []).append(driver)
        branches = [row.branch(drivers) for drivers in list(answers.values())[1:]]
        row.drivers = next(iter(answers.values()), [])
        for branch, known in zip([row, *branches], answers, strict=False):
            branch.ids += known
            branch.start, branch.logprobs = len(branch.ids), []
            self._check_room(branch)
        return branches

    def _arrange(self, rows: list[_Row], branches: list[tuple[int, _Row]], cache: Any) -> list[_Row]:
        """Give branches their places in the cache, and drop dead rows once enough of them have gathered."""
        if branches:
            fork_rows(cache, len(rows), [i for i, _ in branches])
            rows = rows + [branch for _, branch in branches]
        kept = [i for i, row in enumerate(rows) if row.drivers]
        if not kept or len(kept) >= COMPACT_BELOW * len(rows):
            return rows
        keep_rows(cache, kept)
        return [rows[i] for i in kept]
