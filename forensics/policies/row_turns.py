"""What rows draw, and how they go on behind it: stop tokens, limits, answers of the world.

Episodes on one row that draw the same, and are told the same, stay on it; the others
split off, as offshoots.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor

import torch

from forensics.policies.distribution import Text, log_distribution
from forensics.policies.ragged_rows import Waiting
from forensics.policies.sequences import (
    Follow,
    Offshoots,
    RunningSequence,
    SequenceDriver,
    draw_next,
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
