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
5. A *branched text* is a known text with branches at chosen places. Its row enters with
   its prefix cache (read once) just before a branch and leaves when nobody stands on it.
   At most `most` runs are under way; the others wait for the next sweep.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from forensics.policies.distribution import Text, draw, log_distribution, renormalised_without
from forensics.policies.kv_cache import CacheKind, enter_prefixes, move_rows, new_cache
from forensics.policies.sequences import (
    Branch,
    BranchedText,
    RunningSequence,
    SequenceDriver,
    frozen_garbage,
)
from forensics.protocols import SamplingSettings

LEAST_SHARED = 16  # tokens of a common beginning that are worth a pass of their own
Offshoots = list[tuple[int, RunningSequence]]  # by the row that each splits off
Forward = Callable[[torch.Tensor, Any, int, list[int]], torch.Tensor]


class BatchDecoder:
    """Runs rows to their end. `forward(input_ids, cache, start, deciding)`
    gives logits `[rows, vocabulary]`.

    `start` is the position of the first of `input_ids`; `deciding` names the rows that are
    about to draw the first token of an action. `cache_kind`: what the cache can be used
    for; where it is `none`, whole texts go in without one. `standing(rows, length)`: a
    cache that serves captured steps, or `None`.
    """

    def __init__(
        self,
        model: Any,
        stops: frozenset[int],
        settings: SamplingSettings,
        forward: Forward,
        cache_kind: CacheKind = "own",
        standing: Callable[[int, int], Any] | None = None,
    ) -> None:
        self._config = model.config
        self._standing = standing
        self._device = model.device
        self._settings = settings
        self._forward = forward
        self._stops = stops
        self._cache_kind = cache_kind

    def run(self, prefixes: Sequence[Sequence[int]], drivers: Sequence[Sequence[Any]]) -> None:
        """Drive every episode to its end. `drivers[i]` are the episodes that
        start from `prefixes[i]`.
        """
        rows = [
            RunningSequence(list(d), list(p), len(p), [])
            for p, d in zip(prefixes, drivers, strict=True)
        ]
        for row in rows:
            self._check_room(row)
        rows = [row for row in rows if row.drivers]
        most = sum(len(row.drivers) for row in rows)
        with frozen_garbage():
            for _ in self._sweep(rows, [], most):
                pass

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
        before their first branch.
        """
        cache = self._new_cache(most)
        position = self._read_beginning(rows, cache)
        while rows or waiting:
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
                drawn = self._draw(
                    [rows[i] for i in drawing],
                    logits if len(drawing) == len(rows) else logits[drawing],
                )
                offshoots += [(drawing[i], offshoot) for i, offshoot in drawn]
            waiting += [row for row in rows if row.branches and self._starts_waiting(row, position)]
            rows = self._arrange(rows, offshoots, cache)
            yield

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
        standing = self._standing and self._standing(most, self._settings.max_tokens)
        return standing or new_cache(self._config, most)

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

    def _check_room(self, row: RunningSequence) -> None:
        if row.resume >= self._settings.max_tokens:
            for driver in row.drivers:
                driver.out_of_room()
            row.drivers = []

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
        tokens = torch.tensor(flat).view(len(rows), end - start).to(self._device)
        deciding = [i for i in ready if not rows[i].logprobs]
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
        over = branch.kept > branch.start and self._ends(
            branch.kept - branch.start, branch.kept, row.ids[branch.kept - 1]
        )
        if not (branch.append or over or branch.kept >= self._settings.max_tokens):
            row.join(branch)
            return []
        offshoot = RunningSequence.of_branch(branch, row.ids)
        stop = self._stop(offshoot, offshoot.ids[-1]) if offshoot.resume > offshoot.start else None
        if stop:
            return [offshoot, *self._end_action(offshoot, stop)]
        self._check_room(offshoot)
        return [offshoot]

    def _draw(self, rows: list[RunningSequence], logits: torch.Tensor) -> Offshoots:
        """Draw a token for every episode of the ready rows."""
        texts = (
            [Text(ids=row.ids[: row.resume], start=row.start) for row in rows]
            if self._settings.penalises
            else None
        )
        distribution = log_distribution(logits, self._settings, texts)
        offshoots: Offshoots = []
        if any(row.avoiding for row in rows):
            offshoots = self._avoid(rows, distribution)
        if not any(row.drivers for row in rows):
            return offshoots
        return offshoots + self._advance_all(
            rows, self._tokens(list(enumerate(rows)), distribution)
        )

    def _avoid(self, rows: list[RunningSequence], distribution: torch.Tensor) -> Offshoots:
        """The offshoots of drivers that draw anything but the text's own next token."""
        offshoots = []
        for i, row in enumerate(rows):
            if not row.avoiding:
                continue
            left, avoiding = distribution[i : i + 1].clone(), row.branch_off(row.avoiding)
            left[0, row.ids[row.resume]] = -torch.inf
            row.avoiding = []
            if not bool((left > -torch.inf).any()):
                for driver in avoiding.drivers:
                    driver.no_other_token()
                continue
            drawn = self._tokens([(0, avoiding)], left.log_softmax(-1))
            offshoots += [
                (i, offshoot)
                for offshoot in (avoiding, *self._advance(avoiding, drawn))
                if offshoot.drivers
            ]
        return offshoots

    def _tokens(
        self, drawing: Offshoots, distribution: torch.Tensor
    ) -> Iterator[tuple[int, float]]:
        """What each driver of each row draws, with its log-probability, each
        row from its line of the distribution.
        """
        owners: list[int] = []
        uniforms: list[float] = []
        refused: dict[int, dict[int, float]] = {}
        for line, row in drawing:
            for driver in row.drivers:
                if driver.refusals is not None and (
                    masses := driver.refusals.masses(row.ids[row.start : row.resume])
                ):
                    refused[len(owners)] = masses
                owners.append(line)
                uniforms.append(next(driver.uniforms))
        tokens = draw(distribution, owners, uniforms)
        if refused:  # from what is left
            left = renormalised_without(
                distribution[[owners[place] for place in refused]], list(refused.values())
            )
            tokens[list(refused)] = draw(
                left, range(len(refused)), [uniforms[place] for place in refused]
            )
        chosen = distribution[torch.tensor(owners, device=distribution.device), tokens].tolist()
        return zip(tokens.tolist(), chosen, strict=True)

    def _advance_all(
        self, rows: list[RunningSequence], drawn: Iterator[tuple[int, float]]
    ) -> Offshoots:
        """Every row with what its episodes drew."""
        offshoots: Offshoots = []
        stops, settings = self._stops, self._settings
        longest, most = settings.max_turn_tokens, settings.max_tokens
        for i, row in enumerate(rows):
            if len(row.drivers) == 1 and row.resume == len(
                row.ids
            ):  # nearly always, so without a call of its own
                token, logprob = next(drawn)
                row.ids.append(token)
                row.logprobs.append(logprob)
                row.resume += 1
                if token not in stops and len(row.logprobs) < longest and row.resume < most:
                    continue
                new = self._end_action(row, "stop-token" if token in stops else "length")
            else:
                new = self._advance(row, drawn)
            offshoots += [(i, offshoot) for offshoot in new if offshoot.drivers]
        return offshoots

    def _advance(
        self, row: RunningSequence, drawn: Iterator[tuple[int, float]]
    ) -> list[RunningSequence]:
        """Put what a row's episodes drew behind it; the offshoots."""
        offshoots: list[RunningSequence] = []
        for offshoot, (token, logprob) in self._grouped(row, drawn):
            offshoot.take(token, logprob)
            if offshoot is not row:
                offshoots.append(offshoot)
            if stop := self._stop(offshoot, token):
                offshoots += self._end_action(offshoot, stop)
        return [offshoot for offshoot in offshoots if offshoot.drivers]

    @staticmethod
    def _grouped(
        row: RunningSequence, drawn: Iterator[tuple[int, float]]
    ) -> list[tuple[RunningSequence, tuple[int, float]]]:
        """The row, and an offshoot for every further token that its episodes drew,
        each with what it drew.
        """
        known = row.ids[row.resume] if row.resume < len(row.ids) else None
        parts: dict[tuple[int, float], list[SequenceDriver]] = {}
        for driver in row.drivers:
            parts.setdefault(next(drawn), []).append(driver)
        stays = next((part for part in parts if known is None or part[0] == known), None)
        row.drivers = parts.get(stays, []) if stays else []
        return [
            (row if part == stays else row.branch_off(drivers), part)
            for part, drivers in parts.items()
        ]

    def _stop(self, row: RunningSequence, token: int) -> str | None:
        """What ends the row's action at this token, if anything."""
        return self._ends(len(row.logprobs), row.resume, token)

    def _ends(self, drawn: int, length: int, token: int) -> str | None:
        if token in self._stops:
            return "stop-token"
        full = drawn >= self._settings.max_turn_tokens or length >= self._settings.max_tokens
        return "length" if full else None

    def _end_action(self, row: RunningSequence, stop: str) -> list[RunningSequence]:
        """Ask the episodes what follows; equal answers stay together."""
        action, logprobs = tuple(row.ids[row.start : row.resume]), tuple(row.logprobs)
        answers: dict[tuple[int, ...], list[SequenceDriver]] = {}
        for driver in row.drivers:
            follow = driver.action_ended(action, logprobs, stop)
            if follow is not None:
                answers.setdefault(tuple(follow), []).append(driver)
        own = row.continues_as(answers)
        going_on = [
            (row if answer == own else row.branch_off(drivers), answer)
            for answer, drivers in answers.items()
        ]
        row.drivers = [] if own is None else answers[own]
        for sequence, answer in going_on:
            sequence.follow(answer)
            self._check_room(sequence)
        return [sequence for sequence, _ in going_on if sequence is not row]

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
