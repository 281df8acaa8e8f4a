"""Gains with a kind of action refused, against the gain with nothing refused: contrasts over one table of runs.

`S` are scores, `G = S_after - S_before`, `(-c)` the same with kind c refused to both policies. All cells rest on the
same tasks, so that differences are paired.

1. (a) The gain runs through c if `G - G(-c) > G/2`. We also ask that the *after* policy itself loses that much,
   `S_after - S_after(-c) > G/2`: what the before policy gains by turning to something else is no loss of the gain.
   Ours; a policy that was refused `open` read the history more, and its gap to *after* closed from below.
2. (b) The before policy hardly needs c: `S_before(-c) >= 0.8 S_before`, taken to hold unless the interval of the
   difference excludes it.
3. The p-value of (a) is the largest of three one-sided ones (for `G > 0` too): an intersection-union test.
"""

from dataclasses import dataclass

from forensics.errors import MissingInput
from forensics.layers.decomposition import AFTER, BEFORE, OPEN, Panel, Runs, Weights, World, add, gain, paired
from forensics.statistics import ContrastEstimate

HALVINGS = 24  # of the level, when an interval is inverted: p-values are known to 1e-7


@dataclass(frozen=True, kw_only=True)
class Gains:
    """The numbers of one kind. `p_value`: that the gain does *not* run through it."""

    gain: ContrastEstimate
    gain_without: ContrastEstimate
    before: ContrastEstimate
    before_without: ContrastEstimate
    after: ContrastEstimate
    after_without: ContrastEstimate
    needed: ContrastEstimate  # S_before(-c) - kept * S_before: below zero where the before policy needs c
    p_value: float
    runs: int

    @property
    def dispensable(self) -> bool:
        """(b): nothing shows that the before policy needs the kind."""
        return self.needed.high >= 0


@dataclass(frozen=True, kw_only=True)
class Bars:
    """`half`: share of the gain that must vanish (more than). `kept`: of the before policy's score (at least)."""

    level: float = 0.95
    half: float = 0.5
    kept: float = 0.8


def compare(plain: tuple[Runs, tuple[Runs, ...]], refused: tuple[Runs, tuple[Runs, ...]], bars: Bars) -> Gains:
    """The numbers of one kind from the runs `(before, afters)` with nothing and with that kind refused.

    Raises `MissingInput` with fewer than two common tasks.
    """
    world: World = ("refused",)
    panel = paired({OPEN: plain, world: refused}, None)
    whole, without = gain(OPEN), gain(world)
    fall: Weights = {(AFTER, OPEN): 1.0, (AFTER, world): -1.0}
    tests = (whole, add((1 - bars.half, whole), (-1.0, without)), add((1.0, fall), (-bars.half, whole)))
    needed: Weights = {(BEFORE, world): 1.0, (BEFORE, OPEN): -bars.kept}

    def estimate(weights: Weights) -> ContrastEstimate:
        return panel.estimate(weights, bars.level)

    return Gains(
        gain=estimate(whole), gain_without=estimate(without), before=estimate({(BEFORE, OPEN): 1.0}),
        before_without=estimate({(BEFORE, world): 1.0}), after=estimate({(AFTER, OPEN): 1.0}),
        after_without=estimate({(AFTER, world): 1.0}), needed=estimate(needed),
        p_value=max(p_above_zero(panel, weights) for weights in tests),
        runs=panel.runs_behind(add((1, whole), (1, without))),
    )


def before_needs(plain: Runs, refused: Runs, bars: Bars) -> ContrastEstimate:
    """`S_before(-c) - kept * S_before` alone, for a pilot without *after*."""
    world: World = ("refused",)
    panel = paired({OPEN: (plain, (plain,)), world: (refused, (refused,))}, None)
    return panel.estimate({(BEFORE, world): 1.0, (BEFORE, OPEN): -bars.kept}, bars.level)


def p_above_zero(panel: Panel, weights: Weights) -> float:
    """One-sided p-value that a contrast is not above zero: the interval that just touches zero, inverted."""
    if panel.estimate(weights, 0.5).estimate <= 0:
        return 1.0
    low, high = 0.0, 1.0  # tails: an interval with the tail `high` on each side is narrow enough to exclude zero
    for _ in range(HALVINGS):
        tail = (low + high) / 2
        excluded = panel.estimate(weights, 1 - tail).low > 0
        low, high = (low, tail) if excluded else (tail, high)
    return high / 2


def require_gain(estimate: ContrastEstimate) -> None:
    """Raises `MissingInput` where there is neither a gain nor a loss that could run through anything."""
    if estimate.low <= 0 <= estimate.high:
        raise MissingInput(
            "The interval of the gain contains zero, so there is nothing that could run through an action.",
            "Run more held-out tasks, if a smaller gain matters.",
        )
