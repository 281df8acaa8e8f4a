"""A number with its interval: what every room says of what it measured."""

from dataclasses import dataclass

from forensics.records import Interval


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """An estimate and the ends of its interval at `level`, in the unit of the
    estimate.

    `n` counts the observations, `clusters` the independent units behind them:
    tasks, or training seeds.
    """

    estimate: float
    low: float
    high: float
    level: float = 0.95
    n: float = 0
    clusters: int = 0

    @property
    def interval(self) -> Interval:
        """The interval, as evidence holds it."""
        return Interval(low=self.low, high=self.high, level=self.level)

    @property
    def ends(self) -> tuple[float, float, float]:
        """`(estimate, low, high)`: three cells of a table."""
        return self.estimate, self.low, self.high

    def row(self) -> dict[str, float]:
        """As JSON: `estimate`, `low`, `high`, `level`."""
        return {name: getattr(self, name) for name in ("estimate", "low", "high", "level")}

    def scaled(self, factor: float) -> "Estimate":
        """The same, times a factor."""
        low, high = sorted((factor * self.low, factor * self.high))
        return Estimate(
            estimate=factor * self.estimate,
            low=low,
            high=high,
            level=self.level,
            n=self.n,
            clusters=self.clusters,
        )
