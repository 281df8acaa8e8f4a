"""Rows that stand at different positions of their texts, each as far as it has got.

In lockstep (`decoder`) an observation goes in one token a step as soon as any row draws.
Here a row that knows its next tokens reads them in a few passes, and then all rows take
one step, each at its own position:

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

from forensics.policies.distribution import on_device
from forensics.policies.kv_cache import READ_AT_ONCE, Spots
from forensics.policies.sequences import Follow, Offshoots, RunningSequence

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
