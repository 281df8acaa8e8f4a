"""Asking a sampler in rounds: fresh numbers for every request, a budget, and the bill for each trace."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from resampling.rollouts import Request, Rollout, Sampler


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The most that may be spent on a whole log; `None`: no limit. Tokens are overrun by at most one round."""

    rollouts: int | None = None
    tokens: int | None = None

    def share(self, part: float) -> "Budget":
        """A part of it."""
        return Budget(
            rollouts=None if self.rollouts is None else int(self.rollouts * part),
            tokens=None if self.tokens is None else int(self.tokens * part),
        )


@dataclass(kw_only=True)
class Bill:
    """What was drawn: rollouts, the tokens they generated, and how many came back without an outcome."""

    rollouts: int = 0
    tokens: int = 0
    missing: int = 0

    def add(self, rollout: Rollout) -> None:
        self.rollouts += 1
        self.tokens += len(rollout.tokens)
        self.missing += rollout.outcome is None


@dataclass(kw_only=True)
class Drawing:
    """A sampler with a memory of the numbers it has given: the same prefix asked again gives new rollouts."""

    sampler: Sampler
    total: Bill = field(default_factory=Bill)
    bills: dict[str, Bill] = field(default_factory=dict)
    used: Counter[tuple[str, int, tuple[int, ...], bool]] = field(default_factory=Counter)

    def draw(self, requests: Iterable[Request], budget: Budget | None = None) -> list[Rollout]:
        """The rollouts of these requests (their `first` is set here), in an order that does not vary.

        Requests that the budget no longer covers are cut or left out, the last ones first.
        """
        numbered = [self._numbered(request) for request in self._affordable(list(requests), budget or Budget())]
        rollouts = list(self.sampler.draw(numbered))
        rollouts.sort(key=lambda rollout: (rollout.trace, rollout.kept, rollout.avoid, rollout.append, rollout.number))
        for rollout in rollouts:
            self.total.add(rollout)
            self.bills.setdefault(rollout.trace, Bill()).add(rollout)
        return rollouts

    def spent(self, budget: Budget) -> bool:
        """Whether nothing is left."""
        return (budget.rollouts is not None and self.total.rollouts >= budget.rollouts) or (
            budget.tokens is not None and self.total.tokens >= budget.tokens
        )

    def _numbered(self, request: Request) -> Request:
        key = (request.trace, request.kept, request.append, request.avoid)
        first = self.used[key]
        self.used[key] += request.n
        return replace(request, first=first)

    def _affordable(self, requests: Sequence[Request], budget: Budget) -> list[Request]:
        if self.spent(budget):
            return []
        if budget.rollouts is None:
            return list(requests)
        left, kept = budget.rollouts - self.total.rollouts, []
        for request in requests:
            if left > 0:
                kept.append(replace(request, n=min(request.n, left)))
            left -= request.n
        return kept
