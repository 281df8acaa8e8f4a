"""Gains with a kind of action refused, against the gain with nothing refused:
contrasts over one table of runs.

`S` are scores, `G = S_after - S_before`, `(-c)` the same with kind c refused to
both policies. All cells rest on the same tasks, so that differences are paired.

1. (a) The gain runs through c if `G - G(-c) > G/2`. We also ask that the
   *after* policy itself loses that much, `S_after - S_after(-c) > G/2`: what
   the before policy gains by turning to something else is no loss of the gain.
   Ours; a policy that was refused `open` read the history more, and its gap to
   *after* closed from below.
2. (b) The before policy hardly needs c: `S_before(-c) >= 0.8 S_before`, taken
   to hold unless the interval of the difference excludes it.
3. The p-value of (a) is the largest of three one-sided ones (for `G > 0` too):
   an intersection-union test.
4. What c *carries* is the larger of `G - G(-c)` and, where (b) holds, of
   *after*'s own loss `S_after - S_after(-c)`: a policy before training that
   fails too would hide that loss. It is weighed against a fifth of G. Of kinds
   refused together, its upper end is that of the worst case: runs that turned
   to kinds nobody had tried, and runs that ended because they insisted, all
   lost after training, all won before it.
5. *Usage certificate*, without any play: refusing c changes only runs that try
   c, so it carries at most the score of *after*'s runs that tried c plus what
   *before*'s runs that tried c fell short of. Its upper end is the sum of both
   shares' upper ends (the largest over training seeds).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from forensics.errors import MissingInput
from forensics.layers import (
    AFTER,
    BEFORE,
    GENUINE_BAR,
    OPEN,
    Panel,
    Runs,
    Weights,
    World,
    add,
    gain,
    paired,
)
from forensics.statistics import Contrast, Estimate, largest, share
from resampling.ablation.refused_runs import Kinds, Played, Side

METHOD = "both policies with the action refused, step-level rejection"
CERTIFICATE = "usage certificate: refusing changes only runs that try it"
HALVINGS = 24  # of the level, when an interval is inverted: p-values are known to 1e-7


@dataclass(frozen=True, kw_only=True)
class Carried:
    """What refused kinds carry of the gain, and that minus a fifth of the gain;
    `played`: measured, not bounded.
    """

    carried: Estimate
    over_bar: Estimate
    played: bool
    runs: int
    clusters: int
    whole: Contrast

    @property
    def method(self) -> str:
        return METHOD if self.played else CERTIFICATE

    @property
    def cleared(self) -> bool:
        """Whether it is at most a fifth of the gain."""
        return self.over_bar.high <= 0

    @property
    def found(self) -> bool:
        """Whether it is more."""
        return self.over_bar.low > 0

    def at_worst(self, worst: "Carried", missing: float) -> "Carried":
        """The same up to the upper ends of the worst case, and beyond them by
        `missing`, a share of the runs that ended without a score and could all
        have gone against the gain.
        """
        carried, over_bar = self.carried, self.over_bar
        return replace(
            self,
            carried=replace(
                carried, high=min(max(carried.high, worst.carried.high) + missing, 1.0)
            ),
            over_bar=replace(over_bar, high=max(over_bar.high, worst.over_bar.high) + missing),
        )


@dataclass(frozen=True, kw_only=True)
class Gains:
    """The numbers of one kind. `p_value`: that the gain does *not* run through it."""

    gain: Contrast
    gain_without: Contrast
    before: Contrast
    before_without: Contrast
    after_without: Contrast
    # S_before(-c) - kept * S_before: below zero where the before policy needs c
    needed: Contrast
    p_value: float
    carried: Carried

    @property
    def dispensable(self) -> bool:
        """(b): nothing shows that the before policy needs the kind."""
        return self.needed.high >= 0


@dataclass(frozen=True, kw_only=True)
class Bars:
    """`half`: share of the gain that must vanish (more than). `kept`: of the
    before policy's score (at least).
    """

    level: float = 0.95
    half: float = 0.5
    kept: float = 0.8


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What was found on the way: what each kind carries, by itself or with
    others, and why some cannot be judged.

    `not_refusable`: kinds that cannot be judged by themselves, `not_jointly`:
    kinds that cannot be refused all together, and why. `runs_through`: kinds
    through which the gain runs. `objects`: what carries by itself, `KIND OBJECT`,
    and its kind, which then means the other ones.
    """

    carried: dict[Kinds, Carried] = field(default_factory=dict)
    not_refusable: dict[str, str] = field(default_factory=dict)
    not_jointly: dict[Kinds, str] = field(default_factory=dict)
    runs_through: set[Kinds] = field(default_factory=set)
    objects: dict[str, str] = field(default_factory=dict)

    def found(self) -> dict[Kinds, Carried]:
        """Whatever was shown to carry more than a fifth."""
        return {
            kinds: one
            for kinds, one in self.carried.items()
            if one.found or kinds in self.runs_through
        }

    def named(self) -> set[str]:
        """The fewest kinds that the reader would have to allow: found ones, and
        those that cannot be judged.
        """
        found = self.found()
        fewest = [
            kinds for kinds in found if not any(set(one) < self._within(kinds) for one in found)
        ]
        unknown = set(self.not_refusable) or {kind for kinds in self.not_jointly for kind in kinds}
        return {kind for kinds in fewest for kind in kinds} | unknown

    def _within(self, kinds: Kinds) -> set[str]:
        """Kinds refused together, with the objects that were refused with them."""
        objects = {name for name, kind in self.objects.items() if kind in kinds}
        return {*kinds, *objects} if len(kinds) > 1 else set(kinds)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the test is open, each once."""
        return tuple(dict.fromkeys((*self.not_refusable.values(), *self.not_jointly.values())))


def compare(
    plain: tuple[Runs, tuple[Runs, ...]], refused: tuple[Runs, tuple[Runs, ...]], bars: Bars
) -> Gains:
    """The numbers of one kind from the runs `(before, afters)` with nothing and
    with that kind refused.

    Raises `MissingInput` with fewer than two common tasks.
    """
    world: World = ("refused",)
    panel = paired({OPEN: plain, world: refused}, None)
    whole, without = gain(OPEN), gain(world)
    fall: Weights = {(AFTER, OPEN): 1.0, (AFTER, world): -1.0}
    tests = (
        whole,
        add((1 - bars.half, whole), (-1.0, without)),
        add((1.0, fall), (-bars.half, whole)),
    )
    needed: Weights = {(BEFORE, world): 1.0, (BEFORE, OPEN): -bars.kept}

    def estimate(weights: Weights) -> Contrast:
        return panel.estimate(weights, bars.level)

    losses = [add((1.0, whole), (-1.0, without))]
    if estimate(needed).high >= 0:  # (b)
        losses.append(fall)
    carried = Carried(
        carried=largest(map(estimate, losses)),
        over_bar=largest(estimate(add((1.0, loss), (-GENUINE_BAR, whole))) for loss in losses),
        played=True,
        runs=panel.runs_behind(add((1, whole), (1, without))),
        clusters=len(panel.tasks),
        whole=estimate(whole),
    )
    return Gains(
        carried=carried,
        gain=estimate(whole),
        gain_without=estimate(without),
        before=estimate({(BEFORE, OPEN): 1.0}),
        before_without=estimate({(BEFORE, world): 1.0}),
        after_without=estimate({(AFTER, world): 1.0}),
        needed=estimate(needed),
        p_value=max(p_above_zero(panel, weights) for weights in tests),
    )


def certificate(plain: Played, kinds: Sequence[str], gain: Contrast) -> Carried:
    """What these kinds carry at most, from who tried them. Raises
    `MissingInput` with fewer than two tasks.
    """
    wanted, runs, most, high = frozenset(kinds), 0, 0.0, 0.0
    if wanted:  # else no kind is left that could carry anything
        lost = [_tried(side, wanted, gain.level, wins=True) for side in plain.afters]
        short = _tried(plain.before, wanted, gain.level, wins=False)
        runs = sum(len(side.scored) for side in (plain.before, *plain.afters))
        high = min(max(one.high for one in lost) + short.high, 1.0)
        most = min(sum(one.estimate for one in lost) / len(lost) + short.estimate, high)
    return Carried(
        carried=Estimate(estimate=most, low=0.0, high=high, level=gain.level),
        over_bar=Estimate(
            estimate=most - GENUINE_BAR * gain.estimate,
            low=-GENUINE_BAR * gain.high,
            high=high - GENUINE_BAR * gain.low,
            level=gain.level,
        ),
        played=False,
        whole=gain,
        runs=runs,
        clusters=gain.clusters,
    )


def _tried(side: Side, wanted: frozenset[str], level: float, *, wins: bool) -> Estimate:
    """Of the runs that tried a kind, the score (or what was missing to 1), as a
    share of all runs.
    """
    sums: dict[str, list[float]] = {}
    for task, score, kinds in side.scored:
        row = sums.setdefault(task, [0.0, 0.0])
        row[0] += (score if wins else 1 - score) if wanted & kinds else 0.0
        row[1] += 1
    table = np.array([sums[task] for task in sorted(sums)], dtype=float).reshape(-1, 2)
    weights = table[:, 1].mean() / table[:, 1]  # tasks count alike, as in the gain
    return share(table[:, 0] * weights, table[:, 1] * weights, level=level)


def before_needs(plain: Runs, refused: Runs, bars: Bars) -> Contrast:
    """`S_before(-c) - kept * S_before` alone, for a pilot without *after*."""
    world: World = ("refused",)
    panel = paired({OPEN: (plain, (plain,)), world: (refused, (refused,))}, None)
    return panel.estimate({(BEFORE, world): 1.0, (BEFORE, OPEN): -bars.kept}, bars.level)


def p_above_zero(panel: Panel, weights: Weights) -> float:
    """One-sided p-value that a contrast is not above zero: the interval that
    just touches zero, inverted.
    """
    if panel.estimate(weights, 0.5).estimate <= 0:
        return 1.0
    # tails: an interval with the tail `high` on each side is narrow enough to exclude zero
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        tail = (low + high) / 2
        excluded = panel.estimate(weights, 1 - tail).low > 0
        low, high = (low, tail) if excluded else (tail, high)
    return high / 2


def require_gain(estimate: Contrast, world: World) -> None:
    """Raises `MissingInput` where there is no gain that could run through anything."""
    if estimate.low <= 0:
        where = " with the declared channels scrubbed" if world else ""
        raise MissingInput(
            f"The gain{where} is not surely above zero, so there is nothing that could run through"
            " an action.",
            "Run more held-out tasks, if a smaller gain matters.",
        )


MOST_TURNS = 3  # to kinds that no run had tried


@dataclass(frozen=True, kw_only=True)
class AblationConfig:
    """`tasks` on which each kind is refused by itself, `pilot`: first so many
    of them, with *before* alone.

    `level` of intervals and tests; `half`: share of the gain that must vanish
    for a kind to be named; `kept`: of the before policy's score. `max_redraws`
    of an episode; `most_missing`: share of runs that may end because every draw
    was refused. `most_kinds` and `most_pairs` that are refused by themselves;
    `most_objects` on which a share of `recur` more runs act after training than
    before; `turned`: so many more, where the kind is a needed one.
    `control_tasks` whose output is the control of (c). `scrubbed`: play with
    the declared channels scrubbed, else with all of them open. `each`: refuse
    each kind by itself that its certificate does not clear, even where all
    together are cleared.
    """

    tasks: int = 200
    pilot: int = 16
    level: float = 0.95
    half: float = 0.5
    kept: float = 0.8
    max_redraws: int = 12
    most_missing: float = 0.2
    most_kinds: int = 12
    most_pairs: int = 4
    most_objects: int = 3
    recur: float = 0.05
    turned: float = 0.25
    control_tasks: int = 16
    scrubbed: bool = True
    each: bool = False

    @property
    def bars(self) -> Bars:
        return Bars(level=self.level, half=self.half, kept=self.kept)
