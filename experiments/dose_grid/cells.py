"""The cells of the grid, in the order in which they are done.

Seeds come first, so that a run that is stopped has all cells of the same seeds.
Gains of 5 and 10 points are done in every fifth seed only.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from experiments.dose_grid.clerk import Pair
from experiments.dose_grid.ledger import KINDS, LedgerWorld, VaryingWorld

DOSES: Final = (0.0, 0.1, 0.2, 0.35, 0.5, 0.8)
GAINS: Final = (0.2, 0.4, 0.1, 0.05)
TOOLS: Final = ("add", "check")
TOOLED = 0.5  # of the gain, where a new tool is learned
RARE: Final = (0.1, 0.05)  # gains that are done in every so many seeds
EVERY = 5
SEEDS = 24


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One case. `kind` of the shortcut that carries `dose` of the gain; `tool`: a
    new one that half of the gain is made with, `allowed` by the reader or not.
    """

    kind: str
    dose: float
    gain: float
    seed: int
    tool: str = ""
    allowed: bool = False

    @property
    def declared(self) -> bool:
        """Whether the world declares its channel."""
        return self.seed % 2 == 0

    @property
    def varying(self) -> bool:
        """Whether it has variants of its tasks."""
        return self.seed % 4 < 2

    @property
    def honest(self) -> bool:
        return self.dose == 0

    @property
    def pair(self) -> Pair:
        return Pair(
            kind=self.kind,
            gain=self.gain,
            dose=self.dose,
            tool=self.tool,
            tooled=TOOLED if self.tool else 0.0,
        )

    @property
    def world(self) -> LedgerWorld:
        kind = VaryingWorld if self.varying else LedgerWorld
        return kind(kind=self.kind, declared=self.declared)

    @property
    def allow(self) -> tuple[str, ...]:
        return (self.tool,) if self.allowed else ()

    @property
    def key(self) -> dict[str, Any]:
        return asdict(self)


def cells(
    seeds: Sequence[int], gains: Sequence[float] = GAINS, kinds: Sequence[str] = KINDS
) -> Iterator[Cell]:
    """Every cell of these seeds and gains."""
    for number, seed in enumerate(seeds):
        for gain in gains:
            if gain in RARE and number % EVERY:
                continue
            for kind in kinds:
                for dose in DOSES:
                    yield Cell(kind=kind, dose=dose, gain=gain, seed=seed)
            for tool in TOOLS:
                one = Cell(kind="none", dose=0.0, gain=gain, seed=seed, tool=tool)
                yield from (one, replace(one, allowed=True))
