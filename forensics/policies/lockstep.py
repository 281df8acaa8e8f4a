"""Lockstep decoding: many multi-turn episodes through one model, without padding and as a tree.

1. All rows stand at the same position of their own text. At each step every row feeds its next token:
   one it already knows (prompt or observation) or one it just drew. So all rows of the KV cache have the
   same length, and no row is ever padded, however its turns fall.
2. Where every row still knows its next k tokens, k positions go through at once (prefill).
3. Episodes whose texts are still equal share one row. Each draws from its own random stream; where their
   tokens (or their observations) part, the row forks. This is exact, and cheap for a policy that is sure.
4. An episode whose action is complete asks its *driver* what comes next: observation tokens, or nothing.
   The place of a row whose episodes are all over is taken by a fork or by the last row, so that the batch holds
   living rows only and little is ever copied.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch

from forensics.policies.cache import move_rows, new_cache
from forensics.policies.refusals import Refusals, without
from forensics.policies.sampling import draw, log_distribution
from forensics.protocols import SamplingSettings


class Driver(Protocol):
    """What a row does when an action is complete."""

    uniforms: Iterator[float]  # in [0, 1), one for each token that is drawn
    refusals: Refusals | None  # what was refused at this place and is not drawn again

    def action_ended(self, token_ids: Sequence[int], logprobs: Sequence[float], stop: str) -> Sequence[int] | None:
        """The tokens that follow (an observation), or `None` when the row is done."""
        ...

    def out_of_room(self) -> None:
        """The row's text has reached `max_tokens`: no further action can be drawn."""
        ...


class _Row:
    """Episodes with one text: their drivers, the known tokens and the running action, which starts at `start`."""

    __slots__ = ("drivers", "ids", "logprobs", "start")

    def __init__(self, drivers: list[Driver], ids: list[int], start: int, logprobs: list[float]) -> None:
        self.drivers, self.ids, self.start, self.logprobs = drivers, ids, start, logprobs

    def branch(self, drivers: list[Driver]) -> "_Row":
        return _Row(drivers, list(self.ids), self.start, list(self.logprobs))


class Lockstep:
    """Runs rows to their end. `forward(input_ids, cache, deciding)` gives logits `[rows, vocabulary]`.

    `deciding` names the rows that are about to draw the first token of an action.
    """

    def __init__(
        self, model: Any, stops: frozenset[int], settings: SamplingSettings,
        forward: Callable[[torch.Tensor, Any, list[int]], torch.Tensor],
    ) -> None:
        self._config = model.config
        self._device = model.device
        self._settings = settings
        self._forward = forward
        self._stops = stops

    def run(self, prefixes: Sequence[Sequence[int]], drivers: Sequence[Sequence[Driver]]) -> None:
        """Drive every episode to its end. `drivers[i]` are the episodes that start from `prefixes[i]`."""
        rows = [_Row(list(d), list(p), len(p), []) for p, d in zip(prefixes, drivers, strict=True)]
        for row in rows:
            self._check_room(row)
        rows = [row for row in rows if row.drivers]
        cache = new_cache(self._config, sum(len(row.drivers) for row in rows))
        position = 0
        while rows:
            known = [len(row.ids) for row in rows]
            end = min(known)
            ready = [i for i, length in enumerate(known) if length == end]
            logits = self._feed(rows, cache, position, end, ready)
            position = end
            branches = self._draw([rows[i] for i in ready], logits if len(ready) == len(rows) else logits[ready])
            rows = self._arrange(rows, [(ready[i], branch) for i, branch in branches], cache)

    def _check_room(self, row: _Row) -> None:
        if len(row.ids) >= self._settings.max_tokens:
            for driver in row.drivers:
                driver.out_of_room()
            row.drivers = []

    def _feed(self, rows: list[_Row], cache: Any, start: int, end: int, ready: list[int]) -> torch.Tensor:
        flat = [token for row in rows for token in row.ids[start:end]]
        tokens = torch.tensor(flat).view(len(rows), end - start).to(self._device)
        return self._forward(tokens, cache, [i for i in ready if not rows[i].logprobs])

    def _draw(self, rows: list[_Row], logits: torch.Tensor) -> list[tuple[int, _Row]]:
        """Draw a token for every episode of the ready rows; the branches that split off, by their row."""
        distribution = log_distribution(logits, self._settings)
        owners = [i for i, row in enumerate(rows) for _ in row.drivers]
        uniforms = [next(driver.uniforms) for row in rows for driver in row.drivers]
        tokens = draw(distribution, owners, uniforms)
        self._redraw(rows, distribution, uniforms, tokens)
        chosen = distribution[torch.tensor(owners, device=logits.device), tokens].tolist()
        drawn = zip(tokens.tolist(), chosen, strict=True)
        branches: list[tuple[int, _Row]] = []
        for i, row in enumerate(rows):
            born: list[_Row] = []
            for branch, (token, logprob) in self._parted(row, drawn):
                branch.ids.append(token)
                branch.logprobs.append(logprob)
                if branch is not row:
                    born.append(branch)
                if stop := self._stop(branch, token):
                    born += self._end_action(branch, stop)
            branches += [(i, branch) for branch in born if branch.drivers]
        return branches

    @staticmethod
    def _redraw(rows: list[_Row], distribution: torch.Tensor, uniforms: list[float], tokens: torch.Tensor) -> None:
        """Draw again for the episodes to whom some action was refused here, from what is left; into `tokens`."""
        everyone = [(i, row, driver) for i, row in enumerate(rows) for driver in row.drivers]
        refused = [place for place, (_, _, driver) in enumerate(everyone) if driver.refusals is not None]
        for place in refused:
            i, row, driver = everyone[place]
            assert driver.refusals is not None
            if masses := driver.refusals.masses(row.ids[row.start :]):
                tokens[place] = draw(without(distribution[i], masses)[None], [0], [uniforms[place]])[0]

    @staticmethod
    def _parted(row: _Row, drawn: Iterator[tuple[int, float]]) -> list[tuple[_Row, tuple[int, float]]]:
        """The row, and a branch for every further token that its episodes drew, each with what it drew."""
        if len(row.drivers) == 1:
            return [(row, next(drawn))]
        parts: dict[tuple[int, float], list[Driver]] = {}
        for driver in row.drivers:
            parts.setdefault(next(drawn), []).append(driver)
        row.drivers, *others = parts.values()
        return list(zip([row, *(row.branch(drivers) for drivers in others)], parts, strict=True))

    def _stop(self, row: _Row, token: int) -> str | None:
        """What ends the row's action at this token, if anything."""
        if token in self._stops:
            return "stop-token"
        settings = self._settings
        over = len(row.logprobs) >= settings.max_turn_tokens or len(row.ids) >= settings.max_tokens
        return "length" if over else None

    def _end_action(self, row: _Row, stop: str) -> list[_Row]:
        """Ask the episodes what follows; equal answers stay together."""
        action, logprobs = tuple(row.ids[row.start :]), tuple(row.logprobs)
        answers: dict[tuple[int, ...], list[Driver]] = {}
        for driver in row.drivers:
            follow = driver.action_ended(action, logprobs, stop)
            if follow is not None:
                answers.setdefault(tuple(follow), []).append(driver)
        row.drivers, *others = answers.values() or [[]]
        branches = [row.branch(drivers) for drivers in others]
        for branch, known in zip([row, *branches], answers, strict=False):
            branch.ids += known
            branch.start, branch.logprobs = len(branch.ids), []
            self._check_room(branch)
        return branches

    def _arrange(self, rows: list[_Row], branches: list[tuple[int, _Row]], cache: Any) -> list[_Row]:
        """Rows that live, at the front of the cache: branches and the last rows take the places of the dead."""
        size = sum(bool(row.drivers) for row in rows) + len(branches)
        late = [(i, row) for i, row in enumerate(rows[size:], size) if row.drivers]
        free = [i for i, row in enumerate(rows[:size]) if not row.drivers] + list(range(len(rows), size))
        moves = branches + late
        if moves or size < len(rows):
            move_rows(cache, [source for source, _ in moves], free, size)
        arranged: list[_Row | None] = [*rows[:size], *[None] * (size - len(rows))]
        for place, (_, row) in zip(free, moves, strict=True):
            arranged[place] = row
        return [row for row in arranged if row is not None]
