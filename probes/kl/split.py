"""Where RL spent its KL: the book's sums as shares of the whole, with intervals by task (ours; docs/methods.md).

`KL(after || before)` on the runs of *after*, nats a run: what it costs to tell after's runs from before's. It is not
symmetric: on the runs of *before*, with the roles exchanged, it is another number, and says what before did that after
gave up. A share is a ratio of sums over tasks, and may be negative or above 1 (a choice that after makes *less* often
than before has a negative term). Its interval is the delta method's over tasks, with a t quantile.

A whole that cannot be told from 0, or is below `least` nats a run (two roundings of one policy), has no shares.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from forensics.errors import MissingInput
from forensics.protocols import Channel
from forensics.statistics import t_quantile
from probes.kl.book import CONDITIONAL, MOST_TURNS, PLAIN, Book
from probes.kl.classes import CLASSES
from probes.kl.lexicon import ELSE

LEAST: Final = 1e-3  # nats a run
NO_CHANNEL: Final = "no declared channel"
PSEUDO_TASKS: Final = 2  # as in `forensics.statistics.paired`, one range of what was seen from the middle
SAME: Final = 1e-9  # relative: tasks that differ by less agree


@dataclass(frozen=True, kw_only=True)
class Part:
    """One place of an axis. `nats`: a run; `choice` and `content`: its two parts, where the axis has them.

    `share` with `low` and `high`: of the whole, `None` where there is none. `plain`: nats by the plain estimator, and
    `difference_error`: the standard error by task of plain minus conditional. `tokens`: share of the sampled tokens.
    """

    nats: float
    share: float | None
    low: float | None
    high: float | None
    plain: float | None = None
    difference_error: float | None = None
    choice: float | None = None
    content: float | None = None
    tokens: float | None = None
    tokens_low: float | None = None
    tokens_high: float | None = None


@dataclass(frozen=True, kw_only=True)
class KlSplit:
    """The split of one log. `total`, `low`, `high`: nats a run. `undefined`: why there are no shares, else `None`."""

    total: float
    low: float
    high: float
    plain: float
    level: float
    runs: int
    tasks: int
    unread: int
    retokenised: int
    conditional: bool
    undefined: str | None
    choice: Part
    content: Part
    by_kind: Mapping[str, Part]
    by_channel: Mapping[str, Part]
    by_turn: Mapping[str, Part]
    by_token_class: Mapping[str, Part]

    @property
    def disagreement(self) -> float | None:
        """How far the two estimators lie apart at most, kind by kind, in standard errors.

        Something else is left out: what no run of the log did has no plain reading.
        """
        far = [abs(part.plain - part.nats) / part.difference_error for kind, part in self.by_kind.items()
               if part.plain is not None and part.difference_error and kind != ELSE]
        return max(far, default=None)


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """A ratio of sums over tasks."""

    estimate: float
    low: float
    high: float


def ratio_of_sums(parts: np.ndarray, wholes: np.ndarray, level: float = 0.95) -> Ratio:
    """`sum(parts) / sum(wholes)` over independent tasks `[tasks]`, by the delta method.

    Two pseudo-tasks enter the variance, so that no interval has width zero. Raises `MissingInput` below two tasks.
    """
    tasks = len(parts)
    if tasks < 2:
        raise MissingInput(f"The log has {tasks} task{'' if tasks == 1 else 's'}, which gives no interval.",
                           "Give runs of more tasks.")
    estimate = float(parts.sum() / wholes.sum())
    rest = parts - estimate * wholes
    size = float(np.abs(parts).mean()) or float(np.abs(wholes).mean())
    jump = seen if (seen := float(np.ptp(rest))) > SAME * size else size
    variance = (float(rest.var(ddof=1)) + PSEUDO_TASKS * jump**2 / (tasks - 1)) / tasks
    half = t_quantile(level, tasks - 1) * variance**0.5 / abs(float(wholes.mean()))
    return Ratio(estimate=estimate, low=estimate - half, high=estimate + half)


def split_of(book: Book, channels: Sequence[Channel] = (), level: float = 0.95, least: float = LEAST) -> KlSplit:
    """What the book says. Raises `MissingInput` where it holds fewer than two tasks."""
    return _Splitter(book, level, least).split(channels)


class _Splitter:
    """Sums by task `[tasks, ...]`, sorted by task so that the order of runs matters for nothing but rounding."""

    def __init__(self, book: Book, level: float, least: float) -> None:
        self.book, self.level = book, level
        sheets = [book.sheets[task] for task in sorted(book.sheets)]
        if len(sheets) < 2:
            raise MissingInput(f"The log has {len(sheets)} task{'' if len(sheets) == 1 else 's'}, which gives no "
                               "interval.", "Give runs of more tasks.")
        self.runs = np.array([sheet.runs for sheet in sheets], float)
        self.choice, self.content, self.turn, self.token_class, self.tokens = (
            np.stack([getattr(sheet, name) for sheet in sheets])
            for name in ("choice", "content", "turn", "token_class", "tokens")
        )
        self.row = CONDITIONAL if book.conditional else PLAIN
        self.wholes = self.turn.sum(2)  # [tasks, 2]
        self.total = ratio_of_sums(self.wholes[:, self.row], self.runs, level)
        self.undefined = self._undefined(least)

    def _undefined(self, least: float) -> str | None:
        if self.total.estimate < least:
            return f"the two policies hardly differ on these runs ({self.total.estimate:.2g} nats a run)"
        if self.total.low <= 0:
            return "the KL of these runs cannot be told from 0; more tasks would tell"
        return None

    def split(self, channels: Sequence[Channel]) -> KlSplit:
        return KlSplit(
            total=self.total.estimate, low=self.total.low, high=self.total.high, level=self.level,
            plain=float(self.wholes[:, PLAIN].sum() / self.runs.sum()), runs=int(self.runs.sum()),
            tasks=len(self.runs), unread=self.book.unread, retokenised=self.book.retokenised,
            conditional=self.book.conditional, undefined=self.undefined,
            choice=self._part(self.choice.sum(2)), content=self._part(self.content.sum(2)),
            by_kind=self._by_kind(), by_channel=self._by_channel(channels), by_turn=self._by_turn(),
            by_token_class=self._by_class(),
        )

    def _by_kind(self) -> dict[str, Part]:
        kinds = self.book.plan.lexicon.kinds
        found = {kind: self._of_kinds([number]) for number, kind in enumerate(kinds)}
        return {kind: part for kind, part in found.items() if kind != ELSE or part.nats or part.tokens}

    def _by_channel(self, channels: Sequence[Channel]) -> dict[str, Part]:
        """The steps that try each channel; two channels that one kind tries both have it."""
        kinds = self.book.plan.lexicon.kinds
        tried = {channel.name: [i for i, kind in enumerate(kinds) if kind in channel.attempts] for channel in channels}
        if not tried:
            return {}
        free = [i for i in range(len(kinds)) if not any(i in numbers for numbers in tried.values())]
        return {name: self._of_kinds(numbers) for name, numbers in {**tried, NO_CHANNEL: free}.items()}

    def _by_turn(self) -> dict[str, Part]:
        used = [number for number in range(MOST_TURNS) if np.abs(self.turn[:, :, number]).sum() > 0]
        last = MOST_TURNS - 1
        return {f"{number} and later" if number == last else str(number): self._part(self.turn[:, :, number])
                for number in used}

    def _by_class(self) -> dict[str, Part]:
        if not np.isfinite(self.token_class[:, self.row]).all():
            return {}
        return {name: self._part(self.token_class[:, :, i]) for i, name in enumerate(CLASSES)}

    def _of_kinds(self, numbers: list[int]) -> Part:
        choice, content = self.choice[:, :, numbers].sum(2), self.content[:, :, numbers].sum(2)
        tokens = ratio_of_sums(self.tokens[:, numbers].sum(1), self.tokens.sum(1), self.level)
        runs = float(self.runs.sum())
        return self._part(
            choice + content, choice=float(choice[:, self.row].sum() / runs),
            content=float(content[:, self.row].sum() / runs), tokens=tokens.estimate, tokens_low=max(0.0, tokens.low),
            tokens_high=min(1.0, tokens.high),
        )

    def _part(self, sums: np.ndarray, **more: Any) -> Part:
        """`sums [tasks, 2]`"""
        share = None if self.undefined else ratio_of_sums(sums[:, self.row], self.wholes[:, self.row], self.level)
        runs = float(self.runs.sum())
        told = (None, None, None) if share is None else (share.estimate, share.low, share.high)
        return Part(
            nats=float(sums[:, self.row].sum() / runs), share=told[0], low=told[1], high=told[2],
            plain=float(sums[:, PLAIN].sum() / runs), difference_error=self._error(sums), **more,
        )

    def _error(self, sums: np.ndarray) -> float | None:
        """The standard error, by task, of the difference of the two estimators of a sum, nats a run."""
        if not self.book.conditional:
            return None
        apart = sums[:, PLAIN] - sums[:, CONDITIONAL]
        rest = apart - apart.sum() / self.runs.sum() * self.runs
        return float(rest.std(ddof=1) * len(rest) ** 0.5 / self.runs.sum())
