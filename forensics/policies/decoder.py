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
   world's steps run in `threads`, rows go on at positions of their own.
6. A *branched text* is a known text with branches at chosen places. Its row enters with
   its prefix cache (read once) just before a branch and leaves when nobody stands on it.
   At most `most` runs are under way; the others wait for the next sweep.
7. Where memory does not suffice, what is left of the batch goes on as two, its texts read
   anew; what was drawn stays drawn. (Branched texts do not: they end with torch's error.)

In lockstep an observation goes in one token a step as soon as any row draws. At positions of
its own (`Apart`), a row that knows its next tokens reads them in a few passes, and then all
rows take one step, each at its own position:

1. *Read ahead*: rows with more than one unread token go through together, filled up
   behind; what the filling writes lies behind every text and is never looked at.
2. *Step*: the last token of every row. A mask says how far each row looks.
3. *Wait* (where the world's steps run in threads): a row whose action is over keeps its
   place, and its last token is read again, until every row's is. Then the answers come in,
   in the order of the rows, so nothing depends on which was first.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from typing import Any

import torch

from forensics.errors import UserError
from forensics.policies.distribution import Text, log_distribution, on_device
from forensics.policies.kv_cache import (
    READ_AT_ONCE,
    CacheKind,
    Spots,
    enter_prefixes,
    move_rows,
    new_cache,
    release_memory,
)
from forensics.policies.sequences import (
    Branch,
    BranchedText,
    Follow,
    Offshoots,
    RunningSequence,
    SequenceDriver,
    draw_next,
    frozen_garbage,
    halves,
)
from forensics.protocols import SamplingSettings


class Turns:
    """The turns of a batch under `settings`; `stops`: token ids that end an action. With
    `threads`, the world is asked in them, and a row waits for it.
    """

    def __init__(
        self, stops: frozenset[int], settings: SamplingSettings, threads: Executor | None
    ) -> None:
        self._stops, self._settings, self._threads = stops, settings, threads

    def check_room(self, row: RunningSequence) -> None:
        if row.resume >= self._settings.max_tokens:
            for driver in row.drivers:
                driver.out_of_room()
            row.drivers = []

    def draw(self, rows: list[RunningSequence], logits: torch.Tensor) -> Offshoots:
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
        return offshoots + self._advance_all(rows, draw_next(enumerate(rows), distribution))

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
            drawn = draw_next([(0, avoiding)], left.log_softmax(-1))
            offshoots += [
                (i, offshoot)
                for offshoot in (avoiding, *self._advance(avoiding, drawn))
                if offshoot.drivers
            ]
        return offshoots

    def _advance_all(
        self, rows: list[RunningSequence], drawn: Iterator[tuple[int, float]]
    ) -> Offshoots:
        """Every row with what its episodes drew."""
        offshoots: Offshoots = []
        stops, longest, most = (
            self._stops,
            self._settings.max_turn_tokens,
            self._settings.max_tokens,
        )
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
                new = self.end_action(row, "stop-token" if token in stops else "length")
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
            if stop := self.stop(offshoot, token):
                offshoots += self.end_action(offshoot, stop)
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

    def stop(self, row: RunningSequence, token: int) -> str | None:
        """What ends the row's action at this token, if anything."""
        return self.ends(len(row.logprobs), row.resume, token)

    def ends(self, drawn: int, length: int, token: int) -> str | None:
        if token in self._stops:
            return "stop-token"
        settings = self._settings
        return (
            "length" if drawn >= settings.max_turn_tokens or length >= settings.max_tokens else None
        )

    def end_action(self, row: RunningSequence, stop: str) -> list[RunningSequence]:
        """Ask the episodes what follows."""
        if self._threads is not None:
            row.waits_for = Waiting.of(row, stop, self._threads)
            return []
        action, logprobs = tuple(row.ids[row.start : row.resume]), tuple(row.logprobs)
        return self.follow(
            row, [driver.action_ended(action, logprobs, stop) for driver in row.drivers]
        )

    def follow(self, row: RunningSequence, follows: Sequence[Follow]) -> list[RunningSequence]:
        """What each driver of a row goes on with; equal answers stay together."""
        answers: dict[tuple[int, ...], list[SequenceDriver]] = {}
        for driver, follow in zip(row.drivers, follows, strict=True):
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
            self.check_room(sequence)
        return [sequence for sequence, _ in going_on if sequence is not row]


MOST_WIDTH = 512  # half of the tokens of a row that go through at once
ForwardAt = Callable[..., torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class Apart:
    """How rows may stand at different positions: `forward(input_ids, cache, *, position_ids,
    attention_mask)`; where a row knows `read_ahead` tokens more than another, or where the
    world's steps run in `threads`.
    """

    forward: ForwardAt
    read_ahead: float = math.inf
    threads: Executor | None = None


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """An action that is over, and what the world says to each driver of its row, once it
    has said it (`None`: the driver is done).
    """

    token_ids: tuple[int, ...]
    stop: str
    answers: list["Future[Any] | None"]

    @classmethod
    def of(cls, row: RunningSequence, stop: str, threads: Executor) -> "Waiting":
        action, logprobs = tuple(row.ids[row.start : row.resume]), tuple(row.logprobs)
        texts = [driver.act(action, logprobs) for driver in row.drivers]
        return cls(
            token_ids=action,
            stop=stop,
            answers=[
                None if text is None else threads.submit(driver.stepped, text)
                for driver, text in zip(row.drivers, texts, strict=True)
            ],
        )

    def split(self, size: int) -> "tuple[Waiting, Waiting]":
        """Of the first `size` drivers, and of the rest."""
        first, rest = self.answers[:size], self.answers[size:]
        return replace(self, answers=first), replace(self, answers=rest)

    def follows(self, row: RunningSequence) -> list[Follow]:
        """What follows for each driver of the row."""
        return [
            None if answer is None else driver.observe(answer.result(), self.token_ids, self.stop)
            for driver, answer in zip(row.drivers, self.answers, strict=True)
        ]


def ragged_sweep(
    rows: list[RunningSequence],
    cache: Any,
    forward: ForwardAt,
    *,
    draw: Callable[[list[RunningSequence], torch.Tensor], Offshoots],
    follow: Callable[[RunningSequence, Sequence[Follow]], list[RunningSequence]],
    arrange: Callable[[list[RunningSequence], Offshoots], list[RunningSequence]],
) -> Iterator[None]:
    """Drive rows to their end, each from `row.at` on, how far the cache has it. After an
    action the row's offshoots are those that `follow` or `draw` give.
    """
    while rows:
        while any(row.unread > 1 for row in rows):
            _read_ahead(rows, cache, forward)
        logits = _fed(rows, range(len(rows)), [1] * len(rows), cache, forward)
        ready = [i for i, row in enumerate(rows) if row.waits_for is None]
        for i in ready:
            rows[i].at += 1
        if len(ready) < len(rows):
            logits = logits[on_device(ready, torch.long, logits.device)]
        drawn = draw([rows[i] for i in ready], logits)
        offshoots = [(ready[i], offshoot) for i, offshoot in drawn]
        rows = arrange(rows, offshoots)
        if rows and all(row.waits_for is not None for row in rows):
            rows = arrange(rows, list(_answered(rows, follow)))
        for layer in cache.layers:
            layer.length = max((row.at for row in rows), default=0)
        yield


def _answered(
    rows: list[RunningSequence],
    follow: Callable[[RunningSequence, Sequence[Follow]], list[RunningSequence]],
) -> Iterator[tuple[int, RunningSequence]]:
    """Let the answers in; the offshoots of rows whose drivers were told different things."""
    for i, row in enumerate(rows):
        waiting, row.waits_for = row.waits_for, None
        yield from ((i, offshoot) for offshoot in follow(row, waiting.follows(row)))


def _read_ahead(rows: list[RunningSequence], cache: Any, forward: ForwardAt) -> None:
    """Some unread tokens of some rows, the shortest first; each keeps one for its step."""
    unread = {i: row.unread - 1 for i, row in enumerate(rows) if row.unread > 1}
    width = min(min(unread.values()), MOST_WIDTH)
    alike = [
        i
        for i in sorted(unread, key=unread.__getitem__)
        if unread[i] <= 2 * width or width == MOST_WIDTH
    ]
    chosen = sorted(alike[: max(1, READ_AT_ONCE // (2 * width))])
    counts = [min(unread[i], 2 * width) for i in chosen]
    _fed(rows, chosen, counts, cache, forward)
    for i, count in zip(chosen, counts, strict=True):
        rows[i].at += count


def _fed(
    rows: list[RunningSequence],
    chosen: Sequence[int],
    counts: Sequence[int],
    cache: Any,
    forward: ForwardAt,
) -> torch.Tensor:
    """Logits `[chosen, vocabulary]` behind the next `counts` tokens of chosen rows, in
    ascending order (behind the filling where a row has fewer than others).
    """
    device, width = cache.layers[0].device, max(counts)
    starts = [rows[i].at for i in chosen]
    ends = [start + count for start, count in zip(starts, counts, strict=True)]
    behind = max(*(row.at for row in rows), *ends)  # no text has a token there
    length = behind + (min(counts) < width)
    flat = [
        token
        for i, start, end in zip(chosen, starts, ends, strict=True)
        for token in [*rows[i].ids[start:end], *[0] * (start + width - end)]
    ]
    sent = on_device([*chosen, *starts, *ends, *flat], torch.long, device)
    of_rows, tokens = sent[: 3 * len(chosen)].view(3, -1), sent[3 * len(chosen) :]
    at = of_rows[1][:, None] + torch.arange(width, device=device)
    inside = at < of_rows[2][:, None]
    spots = Spots(rows=of_rows[0], at=torch.where(inside, at, behind), end=length)
    positions = torch.minimum(at, of_rows[2][:, None] - 1)
    held = max(length, cache.get_seq_length())
    mask = torch.arange(held, device=device) <= positions[:, None, :, None]
    for layer in cache.layers:
        layer.spots = spots
    try:
        return forward(tokens.view(-1, width), cache, position_ids=positions, attention_mask=mask)
    finally:
        for layer in cache.layers:
            layer.spots = None


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

    def _swept(
        self, rows: list[RunningSequence], again: bool = True
    ) -> list[list[RunningSequence]]:
        """Drive rows to their end; where memory does not suffice, the halves of what is left. A
        single row is tried `again` when all that is spare was given back.
        """
        try:
            for _ in self._sweep(rows, [], sum(len(row.drivers) for row in rows)):
                pass
            return []
        except torch.OutOfMemoryError as error:
            left = halves(rows)
            if len(left) < 2 and not again:
                raise UserError(
                    f"one text of at most {self._settings.max_tokens} tokens does not fit into the"
                    f" memory of {self._device} beside the model; lower max_tokens"
                ) from error
        self._halved(sum(len(row.drivers) for part in left for row in part))
        release_memory(self._device)  # the error is gone, and what it held
        return left if len(left) != 1 else self._swept(left[0], again=False)

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
