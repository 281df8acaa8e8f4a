"""Lockstep decoding: many multi-turn episodes through one model, without
padding and as a tree.

1. All rows stand at the same position of their own text. At each step every row
   feeds its next token: one it already knows (prompt or observation) or one it
   just drew. So all rows of the KV cache have the same length, and no row is
   ever padded, however its turns fall.
2. Where every row still knows its next k tokens, k positions go through at once
   (prefill).
3. Episodes whose texts are still equal share one row. Each draws from its own
   random stream; where their tokens (or their observations) part, the row
   forks. This is exact, and cheap for a policy that is sure.
4. An episode whose action is complete asks its *driver* what comes next:
   observation tokens, or nothing. The place of a row whose episodes are all
   over is taken by a fork or by the last row, so that the batch holds living
   rows only and little is ever copied.
5. A *tree* is a known text that sheds forks at chosen places. Its row is
   planted from its stem (the keys and values of the whole text, read once) just
   before a fork and leaves when nobody stands on it. At most `most` runs are
   under way at a time; forks that find no room wait for the next sweep over the
   positions. Where many runs fork off a text, what they all have of it is kept
   once (`trunk`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from forensics.policies.cache import move_rows, new_cache, plant_stems, trunk_of
from forensics.policies.collector import old_objects_apart
from forensics.policies.distribution import Text, draw, log_distribution
from forensics.policies.memory import Memory
from forensics.policies.refusals import without
from forensics.policies.rows import Driver as Driver
from forensics.policies.rows import Fork, Row, Tree
from forensics.protocols import SamplingSettings

Forward = Callable[[torch.Tensor, Any, int, list[int]], torch.Tensor]
MANY = (
    32  # forks of a text, from which a trunk pays: every text in a batch costs products of its own
)


class Lockstep:
    """Runs rows to their end. `forward(input_ids, cache, start, deciding)`
    gives logits `[rows, vocabulary]`.

    `start` is the position of the first of `input_ids`; `deciding` names the
    rows that are about to draw the first token of an action. `memory`: what the
    cache can be used for; where it is `none`, whole texts go in without one.
    `trunks`: `forward` reads a cache with a trunk, if it gets one token a row.
    """

    def __init__(
        self,
        model: Any,
        stops: frozenset[int],
        settings: SamplingSettings,
        forward: Forward,
        memory: Memory = "ours",
        trunks: bool = False,
    ) -> None:
        self._config = model.config
        self._device = model.device
        self._settings = settings
        self._forward = forward
        self._stops = stops
        self._memory = memory
        self._trunks = trunks

    def run(self, prefixes: Sequence[Sequence[int]], drivers: Sequence[Sequence[Any]]) -> None:
        """Drive every episode to its end. `drivers[i]` are the episodes that
        start from `prefixes[i]`.
        """
        rows = [Row(list(d), list(p), len(p), []) for p, d in zip(prefixes, drivers, strict=True)]
        for row in rows:
            self._check_room(row)
        rows = [row for row in rows if row.drivers]
        most = sum(len(row.drivers) for row in rows)
        with old_objects_apart():
            for _ in self._sweep(rows, [], most):
                pass

    def grow(self, trees: Sequence[Tree], most: int) -> Iterator[None]:
        """Drive every fork of every tree to its end, at most `most` runs at a
        time; gives control back each step.
        """
        plants = [Row.of_tree(tree) for tree in trees if tree.forks]
        while plants:
            forks = sum(len(fork.drivers) for row in plants for fork in row.forks)
            shared = (
                self._trunks and forks >= MANY * len(plants) and all(row.stem for row in plants)
            )
            yield from self._sweep([], list(plants), most, shared)
            plants = [
                Row.of_tree(replace(row.tree, forks=row.late))
                for row in plants
                if row.late and row.tree
            ]

    def _sweep(
        self, rows: list[Row], asleep: list[Row], most: int, shared: bool = False
    ) -> Iterator[None]:
        """Once over all positions: rows from the start, trees from just before
        their first fork.

        `shared`: what all rows have before the first fork is kept once.
        """
        cache, position = self._new_cache(most), 0
        while rows or asleep:
            if not rows:  # on to the next fork, however far
                position = min(row.entry for row in asleep)
                cache = self._new_cache(most, position if shared else 0)
            rows, asleep = self._wake(rows, asleep, cache, position)
            stops = [row.stop if row.forks else row.resume for row in rows]
            end = min(stops + [row.entry for row in asleep])
            ready = [i for i, stop in enumerate(stops) if stop == end]
            logits = self._feed(rows, cache, position, end, ready)
            position = end
            branches = self._join([(i, rows[i]) for i in ready if rows[i].forks], rows, end, most)
            drawing = [i for i in ready if rows[i].drivers or rows[i].avoiding]
            if drawing:
                drawn = self._draw(
                    [rows[i] for i in drawing],
                    logits if len(drawing) == len(rows) else logits[drawing],
                )
                branches += [(drawing[i], branch) for i, branch in drawn]
            asleep += [row for row in rows if row.forks and self._falls_asleep(row, position)]
            rows = self._arrange(rows, branches, cache)
            yield

    def _new_cache(self, most: int, trunk: int = 0) -> Any:
        return None if self._memory == "none" else new_cache(self._config, most, trunk)

    def _wake(
        self, rows: list[Row], asleep: list[Row], cache: Any, position: int
    ) -> tuple[list[Row], list[Row]]:
        """Plant the trees that are needed from here on, behind the rows that there are."""
        woken = [row for row in asleep if row.entry <= position]
        if not woken:
            return rows, asleep
        for row in woken:
            row.asleep = False
        stems = [row.stem for row in woken if row.stem]
        if position and stems:
            plant_stems(cache, stems, position)
        return rows + woken, [row for row in asleep if row.entry > position]

    @staticmethod
    def _falls_asleep(row: Row, position: int) -> bool:
        row.asleep = not row.drivers and row.stem is not None and row.entry > position
        return row.asleep

    def _check_room(self, row: Row) -> None:
        if row.resume >= self._settings.max_tokens:
            for driver in row.drivers:
                driver.out_of_room()
            row.drivers = []

    def _feed(
        self, rows: list[Row], cache: Any, start: int, end: int, ready: list[int]
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
        if start and end - start > 1 and (self._memory == "one-by-one" or trunk_of(cache)):
            for i in range(end - start - 1):
                self._forward(tokens[:, i : i + 1], cache, start + i, [])
            return self._forward(tokens[:, -1:], cache, end - 1, deciding)
        return self._forward(tokens, cache, start, deciding)

    def _join(
        self, meeting: list[tuple[int, Row]], rows: list[Row], at: int, most: int
    ) -> list[tuple[int, Row]]:
        """Let forks in, as far as there is room; those that do not draw here
        have a row of their own.
        """
        branches: list[tuple[int, Row]] = []
        room = most - sum(len(row.drivers) for row in rows) if meeting else 0
        for i, row in meeting:
            while row.forks and row.forks[0].kept == at:
                fork = row.forks.popleft()
                if len(fork.drivers) > room and (room < most or not room):
                    row.late.append(fork)
                    continue
                fork, rest = fork.split(room)
                row.late += [rest] if rest.drivers else []
                room -= len(fork.drivers)
                branches += [(i, branch) for branch in self._enter(row, fork) if branch.drivers]
        return branches

    def _enter(self, row: Row, fork: Fork) -> list[Row]:
        """Put a fork on its tree's row, or on rows of its own where something
        is appended or its action is over.
        """
        over = fork.kept > fork.start and self._ends(
            fork.kept - fork.start, fork.kept, row.ids[fork.kept - 1]
        )
        if not (fork.append or over or fork.kept >= self._settings.max_tokens):
            row.join(fork)
            return []
        branch = Row.of_fork(fork, row.ids)
        stop = self._stop(branch, branch.ids[-1]) if branch.resume > branch.start else None
        if stop:
            return [branch, *self._end_action(branch, stop)]
        self._check_room(branch)
        return [branch]

    def _draw(self, rows: list[Row], logits: torch.Tensor) -> list[tuple[int, Row]]:
        """Draw a token for every episode of the ready rows; the branches that
        split off, by their row.
        """
        texts = (
            [Text(ids=row.ids[: row.resume], start=row.start) for row in rows]
            if self._settings.penalises
            else None
        )
        distribution = log_distribution(logits, self._settings, texts)
        branches: list[tuple[int, Row]] = []
        if any(row.avoiding for row in rows):
            branches = self._avoid(rows, distribution)
        if not any(row.drivers for row in rows):
            return branches
        return branches + self._advance_all(rows, self._tokens(list(enumerate(rows)), distribution))

    def _avoid(self, rows: list[Row], distribution: torch.Tensor) -> list[tuple[int, Row]]:
        """The branches of drivers that draw anything but the text's own next token."""
        branches = []
        for i, row in enumerate(rows):
            if not row.avoiding:
                continue
            left, avoiding = distribution[i : i + 1].clone(), row.branch(row.avoiding)
            left[0, row.ids[row.resume]] = -torch.inf
            row.avoiding = []
            if not bool((left > -torch.inf).any()):
                for driver in avoiding.drivers:
                    driver.no_other_token()
                continue
            drawn = self._tokens([(0, avoiding)], left.log_softmax(-1))
            branches += [
                (i, branch)
                for branch in (avoiding, *self._advance(avoiding, drawn))
                if branch.drivers
            ]
        return branches

    def _tokens(
        self, drawing: list[tuple[int, Row]], distribution: torch.Tensor
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
            left = without(
                distribution[[owners[place] for place in refused]], list(refused.values())
            )
            tokens[list(refused)] = draw(
                left, range(len(refused)), [uniforms[place] for place in refused]
            )
        chosen = distribution[torch.tensor(owners, device=distribution.device), tokens].tolist()
        return zip(tokens.tolist(), chosen, strict=True)

    def _advance_all(
        self, rows: list[Row], drawn: Iterator[tuple[int, float]]
    ) -> list[tuple[int, Row]]:
        """Every row with what its episodes drew; the branches that split off, by their row."""
        branches: list[tuple[int, Row]] = []
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
                born = self._end_action(row, "stop-token" if token in stops else "length")
            else:
                born = self._advance(row, drawn)
            branches += [(i, branch) for branch in born if branch.drivers]
        return branches

    def _advance(self, row: Row, drawn: Iterator[tuple[int, float]]) -> list[Row]:
        """Put what a row's episodes drew behind it; the branches that split off."""
        born: list[Row] = []
        for branch, (token, logprob) in self._parted(row, drawn):
            branch.take(token, logprob)
            if branch is not row:
                born.append(branch)
            if stop := self._stop(branch, token):
                born += self._end_action(branch, stop)
        return [branch for branch in born if branch.drivers]

    @staticmethod
    def _parted(
        row: Row, drawn: Iterator[tuple[int, float]]
    ) -> list[tuple[Row, tuple[int, float]]]:
        """The row, and a branch for every further token that its episodes drew,
        each with what it drew.
        """
        known = row.ids[row.resume] if row.resume < len(row.ids) else None
        parts: dict[tuple[int, float], list[Driver]] = {}
        for driver in row.drivers:
            parts.setdefault(next(drawn), []).append(driver)
        stays = next((part for part in parts if known is None or part[0] == known), None)
        row.drivers = parts.get(stays, []) if stays else []
        return [
            (row if part == stays else row.branch(drivers), part) for part, drivers in parts.items()
        ]

    def _stop(self, row: Row, token: int) -> str | None:
        """What ends the row's action at this token, if anything."""
        return self._ends(len(row.logprobs), row.resume, token)

    def _ends(self, drawn: int, length: int, token: int) -> str | None:
        if token in self._stops:
            return "stop-token"
        settings = self._settings
        return (
            "length" if drawn >= settings.max_turn_tokens or length >= settings.max_tokens else None
        )

    def _end_action(self, row: Row, stop: str) -> list[Row]:
        """Ask the episodes what follows; equal answers stay together."""
        action, logprobs = tuple(row.ids[row.start : row.resume]), tuple(row.logprobs)
        answers: dict[tuple[int, ...], list[Driver]] = {}
        for driver in row.drivers:
            follow = driver.action_ended(action, logprobs, stop)
            if follow is not None:
                answers.setdefault(tuple(follow), []).append(driver)
        own = row.heir(answers)
        heirs = [
            (row if answer == own else row.branch(drivers), answer)
            for answer, drivers in answers.items()
        ]
        row.drivers = [] if own is None else answers[own]
        for heir, answer in heirs:
            heir.follow(answer)
            self._check_room(heir)
        return [heir for heir, _ in heirs if heir is not row]

    def _arrange(self, rows: list[Row], branches: list[tuple[int, Row]], cache: Any) -> list[Row]:
        """Rows that live, at the front of the cache: branches and the last rows
        take the places of the dead.
        """
        alive = [True if row.drivers else row.alive for row in rows]
        size = sum(alive) + len(branches)
        late = [(i, row) for i, row in enumerate(rows[size:], size) if alive[i]]
        free = [i for i, lives in enumerate(alive[:size]) if not lives] + list(
            range(len(rows), size)
        )
        moves = branches + late
        if cache is not None and size and (moves or size < len(rows)):
            move_rows(cache, [source for source, _ in moves], free, size)
        arranged: list[Row | None] = [*rows[:size], *[None] * (size - len(rows))]
        for place, (_, row) in zip(free, moves, strict=True):
            arranged[place] = row
        return [row for row in arranged if row is not None]
