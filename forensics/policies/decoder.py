"""Batch decoding: many multi-turn episodes through one model, in lockstep, without
padding and with shared prefixes.

1. All rows stand at the same position of their own text. At each step every row
   feeds its next token: one it already knows (prompt or observation) or one it
   just drew. So all rows of the KV cache have the same length, and no row is
   ever padded, however its turns fall.
2. Where every row still knows its next k tokens, k positions go through at once
   (prefill). What all rows begin with is read once.
3. Episodes whose texts are still equal share one row. Each draws from its own random
   stream; where their tokens or observations part, the row splits.
4. An episode whose action is complete asks its *driver* what comes next: observation
   tokens, or nothing. An offshoot or the last row takes the place of a row whose
   episodes are all over, so that the batch holds running rows only.
5. Where a row knows `read_ahead` tokens more than another may wait for, or where the
   world's steps run in `threads`, rows go on at positions of their own (`ragged_rows`).
6. A *branched text* is a known text with branches at chosen places. Its row enters with
   its prefix cache (read once) just before a branch and leaves when nobody stands on it.
   At most `most` runs are under way; the others wait for the next sweep.
7. Where memory does not suffice, what is left of the batch goes on as two, its texts read
   anew; what was drawn stays drawn.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from forensics.errors import UserError
from forensics.policies.cache_room import release_memory
from forensics.policies.distribution import on_device
from forensics.policies.kv_cache import (
    READ_AT_ONCE,
    CacheKind,
    enter_prefixes,
    move_rows,
    new_cache,
)
from forensics.policies.ragged_rows import Apart, ragged_sweep
from forensics.policies.row_turns import Turns
from forensics.policies.sequences import (
    Branch,
    BranchedText,
    Offshoots,
    RunningSequence,
    frozen_garbage,
    halves,
)
from forensics.protocols import SamplingSettings

LEAST_SHARED = 16  # tokens of a common beginning that are worth a pass of their own
Forward = Callable[[torch.Tensor, Any, int, list[int]], torch.Tensor]


class BatchDecoder:
    """Runs rows to their end. `forward(input_ids, cache, start, deciding)`
    gives logits `[rows, vocabulary]`.

    `start` is the position of the first of `input_ids`; `deciding` names the rows that are
    about to draw the first token of an action. `cache_kind`: what the cache can be used
    for; where it is `none`, whole texts go in without one. `standing(rows, length)`: a
    cache that serves captured steps, or `None`. `apart`: how rows may stand at different
    positions. `halved` is told how many episodes were too many for the memory.
    """

    def __init__(
        self,
        model: Any,
        stops: frozenset[int],
        settings: SamplingSettings,
        forward: Forward,
        cache_kind: CacheKind = "own",
        standing: Callable[[int, int], Any] | None = None,
        apart: Apart | None = None,
        halved: Callable[[int], None] = lambda rows: None,
    ) -> None:
        self._config = model.config
        self._standing = standing
        self._device = model.device
        self._settings = settings
        self._forward = forward
        self._turns = Turns(stops, settings, apart.threads if apart else None)
        self._cache_kind = cache_kind
        self._apart, self._halved = apart, halved
        self._at_once = math.inf if model.device.type == "cpu" else READ_AT_ONCE

    def run(self, prefixes: Sequence[Sequence[int]], drivers: Sequence[Sequence[Any]]) -> None:
        """Drive every episode to its end. `drivers[i]` are the episodes that
        start from `prefixes[i]`.
        """
        rows = [
            RunningSequence(list(d), list(p), len(p), [])
            for p, d in zip(prefixes, drivers, strict=True)
        ]
        for row in rows:
            self._turns.check_room(row)
        batches = [[row for row in rows if row.drivers]]
        with frozen_garbage():
            while batches:
                batches = self._swept(batches[0]) + batches[1:]

    def _swept(self, rows: list[RunningSequence]) -> list[list[RunningSequence]]:
        """Drive rows to their end; where memory does not suffice, the halves of what is left."""
        try:
            for _ in self._sweep(rows, [], sum(len(row.drivers) for row in rows)):
                pass
            return []
        except torch.OutOfMemoryError as error:
            left = halves(rows)
            if len(left) < 2:
                raise UserError(
                    f"one text of at most {self._settings.max_tokens} tokens does not fit into the"
                    f" memory of {self._device} beside the model; lower max_tokens"
                ) from error
        self._halved(sum(len(row.drivers) for part in left for row in part))
        release_memory(self._device)  # the error is gone, and what it held
        return left

    def branch(self, texts: Sequence[BranchedText], most: int) -> Iterator[None]:
        """Every branch to its end, at most `most` runs at a time; gives control back each step."""
        rows = [RunningSequence.of_text(text) for text in texts if text.branches]
        while rows:
            yield from self._sweep([], list(rows), most)
            rows = [
                RunningSequence.of_text(replace(row.text, branches=row.postponed))
                for row in rows
                if row.postponed and row.text
            ]

    def _sweep(
        self, rows: list[RunningSequence], waiting: list[RunningSequence], most: int
    ) -> Iterator[None]:
        """Once over all positions: rows from the start, branched texts from just
        before their first branch. `rows` is kept to those that are not over.
        """
        given, rows, cache = rows, list(rows), self._new_cache(most)
        position = self._read_beginning(rows, cache)
        while rows or waiting:
            if self._parts_ways(rows, waiting):
                yield from self._ragged(given, rows, cache, position)
                return
            if not rows:  # on to the next branch, however far
                position = min(row.entry for row in waiting)
                cache = self._new_cache(most)
            rows, waiting = self._enter_waiting(rows, waiting, cache, position)
            stops = [row.stop if row.branches else row.resume for row in rows]
            end = min(stops + [row.entry for row in waiting])
            ready = [i for i, stop in enumerate(stops) if stop == end]
            logits = self._feed(rows, cache, position, end, ready)
            position = end
            offshoots = self._join(
                [(i, rows[i]) for i in ready if rows[i].branches], rows, end, most
            )
            drawing = [i for i in ready if rows[i].drivers or rows[i].avoiding]
            if drawing:
                drawn = self._turns.draw(
                    [rows[i] for i in drawing],
                    logits
                    if len(drawing) == len(rows)
                    else logits[on_device(drawing, torch.long, logits.device)],
                )
                offshoots += [(drawing[i], offshoot) for i, offshoot in drawn]
            waiting += [row for row in rows if row.branches and self._starts_waiting(row, position)]
            given[:] = [*rows, *(offshoot for _, offshoot in offshoots)]
            rows = self._arrange(rows, offshoots, cache)
            yield

    def _parts_ways(
        self, rows: Sequence[RunningSequence], waiting: Sequence[RunningSequence]
    ) -> bool:
        """Whether rows are to stand at positions of their own from here on."""
        apart = self._apart
        if apart is None or waiting or any(row.branches for row in rows):
            return False
        known = [row.resume for row in rows]
        return apart.threads is not None or max(known) - min(known) >= apart.read_ahead

    def _ragged(
        self, given: list[RunningSequence], rows: list[RunningSequence], cache: Any, position: int
    ) -> Iterator[None]:
        assert self._apart is not None
        if not position:  # a cache must have been written to have rows
            first = on_device([row.ids[0] for row in rows], torch.long, self._device)
            self._forward(first[:, None], cache, 0, [])
            position = 1

        def arrange(here: list[RunningSequence], offshoots: Offshoots) -> list[RunningSequence]:
            given[:] = [*here, *(offshoot for _, offshoot in offshoots)]
            return self._arrange(here, offshoots, cache)

        for row in rows:
            row.at = position
        yield from ragged_sweep(
            rows,
            cache,
            self._apart.forward,
            draw=self._turns.draw,
            follow=self._turns.follow,
            arrange=arrange,
        )

    def _read_beginning(self, rows: list[RunningSequence], cache: Any) -> int:
        """Read what all rows begin with, as one row, and copy it to each; the position
        behind it.
        """
        first, last = (pick((row.ids for row in rows), default=[]) for pick in (min, max))
        end = min((row.resume for row in rows), default=1) - 1  # each has a token left to read
        common = next((i for i in range(end) if first[i] != last[i]), end)
        if common < LEAST_SHARED or self._cache_kind != "own" or len(rows) == 1:
            return 0
        self._forward(torch.tensor([first[:common]]).to(self._device), cache, 0, [])
        move_rows(cache, [0] * (len(rows) - 1), range(1, len(rows)), len(rows))
        return common

    def _new_cache(self, most: int) -> Any:
        if self._cache_kind == "none":
            return None
        length = self._settings.max_tokens
        standing = self._standing and self._standing(most, length)
        return standing or new_cache(self._config, most, length)

    def _enter_waiting(
        self, rows: list[RunningSequence], waiting: list[RunningSequence], cache: Any, position: int
    ) -> tuple[list[RunningSequence], list[RunningSequence]]:
        """Put the texts that are needed from here on behind the rows that there are."""
        entering = [row for row in waiting if row.entry <= position]
        if not entering:
            return rows, waiting
        for row in entering:
            row.waiting = False
        prefix_caches = [row.prefix_cache for row in entering if row.prefix_cache]
        if position and prefix_caches:
            enter_prefixes(cache, prefix_caches, position)
        return rows + entering, [row for row in waiting if row.entry > position]

    @staticmethod
    def _starts_waiting(row: RunningSequence, position: int) -> bool:
        row.waiting = not row.drivers and row.prefix_cache is not None and row.entry > position
        return row.waiting

    def _feed(
        self, rows: list[RunningSequence], cache: Any, start: int, end: int, ready: list[int]
    ) -> torch.Tensor:
        """Logits at `end`, for which the tokens from `start` on are read, or
        the whole text without a cache.
        """
        start = start if cache is not None else 0
        if end - start == 1:
            flat = [row.ids[start] for row in rows]
        else:
            flat = [token for row in rows for token in row.ids[start:end]]
        tokens = on_device(flat, torch.long, self._device).view(len(rows), end - start)
        deciding = [i for i in ready if not rows[i].logprobs]
        at_once = max(1, int(min(self._at_once / len(rows), end)))
        for part in tokens.split(at_once, 1)[:-1] if cache is not None else ():
            self._forward(part, cache, start, [])
            start, tokens = start + at_once, tokens[:, at_once:]
        if start and self._cache_kind == "one-token":
            for i in range(end - start - 1):
                self._forward(tokens[:, i : i + 1], cache, start + i, [])
            return self._forward(tokens[:, -1:], cache, end - 1, deciding)
        return self._forward(tokens, cache, start, deciding)

    def _join(
        self, meeting: Offshoots, rows: list[RunningSequence], at: int, most: int
    ) -> Offshoots:
        """Let branches in, as far as there is room; those that do not draw here
        have a row of their own.
        """
        offshoots: Offshoots = []
        room = most - sum(len(row.drivers) for row in rows) if meeting else 0
        for i, row in meeting:
            while row.branches and row.branches[0].kept == at:
                branch = row.branches.popleft()
                if len(branch.drivers) > room and (room < most or not room):
                    row.postponed.append(branch)
                    continue
                branch, rest = branch.split(room)
                row.postponed += [rest] if rest.drivers else []
                room -= len(branch.drivers)
                offshoots += [
                    (i, offshoot)
                    for offshoot in self._enter_branch(row, branch)
                    if offshoot.drivers
                ]
        return offshoots

    def _enter_branch(self, row: RunningSequence, branch: Branch) -> list[RunningSequence]:
        """Put a branch on its text's row, or on rows of its own where something
        is appended or its action is over.
        """
        over = branch.kept > branch.start and self._turns.ends(
            branch.kept - branch.start, branch.kept, row.ids[branch.kept - 1]
        )
        if not (branch.append or over or branch.kept >= self._settings.max_tokens):
            row.join(branch)
            return []
        offshoot = RunningSequence.of_branch(branch, row.ids)
        stop = (
            self._turns.stop(offshoot, offshoot.ids[-1])
            if offshoot.resume > offshoot.start
            else None
        )
        if stop:
            return [offshoot, *self._turns.end_action(offshoot, stop)]
        self._turns.check_room(offshoot)
        return [offshoot]

    def _arrange(
        self, rows: list[RunningSequence], offshoots: Offshoots, cache: Any
    ) -> list[RunningSequence]:
        """Rows that go on, at the front of the cache: offshoots and the last rows
        take the places of those that are over.
        """
        alive = [True if row.drivers else row.alive for row in rows]
        size = sum(alive) + len(offshoots)
        behind = [(i, row) for i, row in enumerate(rows[size:], size) if alive[i]]
        free = [i for i, lives in enumerate(alive[:size]) if not lives] + list(
            range(len(rows), size)
        )
        moves = offshoots + behind
        if cache is not None and size and (moves or size < len(rows)):
            move_rows(cache, [source for source, _ in moves], free, size)
        arranged: list[RunningSequence | None] = [*rows[:size], *[None] * (size - len(rows))]
        for place, (_, row) in zip(free, moves, strict=True):
            arranged[place] = row
        return [row for row in arranged if row is not None]
