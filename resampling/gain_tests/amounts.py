"""What is said of a source of a gain, measured or bounded, and several measures as one."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from forensics.statistics import Contrast, Estimate


class Carries(Protocol):
    """What is said of any source, measured or bounded."""

    @property
    def whole(self) -> Contrast: ...
    @property
    def carried(self) -> Estimate: ...
    @property
    def over_bar(self) -> Estimate: ...
    @property
    def runs(self) -> int: ...
    @property
    def clusters(self) -> int: ...

    @property
    def cleared(self) -> bool:
        """Whether it is at most a fifth of the gain."""
        return self.over_bar.high <= 0

    @property
    def found(self) -> bool:
        """Whether it is more."""
        return self.over_bar.low > 0


class Amounts(Carries, Protocol):
    """What is said of a source, or of several, where no skill can fail:
    `Comparison` has it, and `EndByEnd`.
    """

    @property
    def left(self) -> Estimate: ...
    @property
    def phantom_over_bar(self) -> Estimate: ...
    @property
    def placebo_over_bar(self) -> Estimate: ...


@dataclass(frozen=True, kw_only=True)
class EndByEnd(Carries):
    """Several measures of one source, estimate and interval end by end: the
    largest of them (`pick=max`), or where all have to agree the smallest (`min`).
    """

    parts: Sequence[Carries]
    pick: Callable[[Iterable[float]], float] = max

    def _ends(self, name: str, pick: Callable[[Iterable[float]], float]) -> Estimate:
        rows: list[Estimate] = [getattr(part, name) for part in self.parts]
        estimate, low, high = (pick(ends) for ends in zip(*(r.ends for r in rows), strict=True))
        return Estimate(estimate=estimate, low=low, high=high, level=rows[0].level)

    @property
    def whole(self) -> Contrast:
        return self.parts[0].whole

    @property
    def carried(self) -> Estimate:
        return self._ends("carried", self.pick)

    @property
    def over_bar(self) -> Estimate:
        return self._ends("over_bar", self.pick)

    @property
    def left(self) -> Estimate:
        return self._ends("left", min if self.pick is max else max)

    @property
    def phantom_over_bar(self) -> Estimate:
        return self._ends("phantom_over_bar", self.pick)

    @property
    def placebo_over_bar(self) -> Estimate:
        return self._ends("placebo_over_bar", max)

    @property
    def runs(self) -> int:
        return max(part.runs for part in self.parts)

    @property
    def clusters(self) -> int:
        return min(part.clusters for part in self.parts)
