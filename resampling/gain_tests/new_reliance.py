"""What the policy after training needs of a source newly, beyond what the policy
before training needed of it as well.

Both lose wins when what a source shows comes from another task, since a skill
needs what the task says. `L(x)` is what a side loses with `x` exchanged, points.

1. `q = L_before(source) / L_before(everything)`: of the wins before training
   that are no luck (those lost where everything comes from another task), the
   share that needs the source.
2. If after training `N` points of the wins are won in a new way that always needs
   the source, and of all others the share `q` does, then `L_after(source) = N + q
   (L_after(everything) - N)`: *newly carried* is

       N = (L_after(source) - q L_after(everything)) / (1 - q).

   Where every win before training needs the source (`q` near 1), so does every
   other way to win: the exchange tells them not apart, and the interval says so.
3. Where `q` may be near 1, as with what an action shows that has to be read, the
   same is not divided (`divided=False`): *after* may need the source as many times more as
   it wins more. That is smaller; it says that a source is newly needed, not for how much.
4. `alone`: the same of wins that a source is *enough* for, where all else comes from
   another task: with `W(x)` what is won there beyond the world where everything does,
   `q = W_before(source) / W_before(plain)`, and `W_after(source) - q W_after(plain)` is
   newly won by the source alone. Where every win before training needs the source, so
   that 2 tells nothing (`by_all`), this does.
5. The interval is the linear one, in both measures of *after* and in `q`.
6. `told`: whether it can be told at all. Before training the wins that are no
   luck, those of them that need the source (not with `alone`) and those that do not have
   all to be surely there, the first with at least `SURE` of their number.

Ours. It cannot see a shortcut that the policy before training used for the same
share of its wins, or a new way to win that needs the source as seldom as skill.
"""

from dataclasses import dataclass

from forensics.layers import AFTER, BEFORE, GENUINE_BAR, OPEN, Panel, Weights, add, gain, paired
from forensics.statistics import Contrast, Estimate
from resampling.gain_tests.amounts import Carries
from resampling.gain_tests.gain_study import ALTERED, CONTROL, Comparison, GainStudy, Pair

SURE = 0.5
NEARLY_ALL = 0.8


def new_reliance(study: GainStudy, source: Pair, everything: Pair, **how: bool) -> "NewReliance":
    """From the runs of both sides with one source exchanged, and with everything;
    `divided`, `alone`: as in `NewReliance`.
    """
    worlds = {OPEN: study.plain.pair, ALTERED: source, CONTROL: everything}
    return NewReliance(panel=paired(worlds, None), level=study.level, **how)


@dataclass(frozen=True, kw_only=True, eq=False)
class NewReliance(Carries):
    """See the module's text; reads like a comparison. `panel`: the plain world, the one
    with the source exchanged (`alone`: kept), the one with everything exchanged.
    """

    panel: Panel
    level: float
    divided: bool = True
    alone: bool = False

    def _estimate(self, weights: Weights) -> Contrast:
        return self.panel.at_worst(weights, self.level)

    def _by(self, side: str) -> Weights:
        """The wins of a side by the source."""
        if self.alone:
            return {(side, ALTERED): 1.0, (side, CONTROL): -1.0}
        return {(side, OPEN): 1.0, (side, ALTERED): -1.0}

    @property
    def told(self) -> bool:
        """Whether the wins before training are enough to tell what they need."""
        wins, needing = self._estimate(_every(BEFORE)), self._estimate(self._by(BEFORE))
        others = self._estimate(add((1, _every(BEFORE)), (-1, self._by(BEFORE))))
        some = self.alone or needing.low > 0
        return wins.low > SURE * wins.estimate > 0 and some and others.low > 0

    @property
    def by_all(self) -> bool:
        """Whether nearly all wins before training that are no luck are surely by the source."""
        share = add((1, self._by(BEFORE)), (-NEARLY_ALL, _every(BEFORE)))
        return self.known and self._estimate(share).low >= 0

    @property
    def shared(self) -> float:
        """q: of the wins before training, how many need the source."""
        return self._estimate(self._by(BEFORE)).estimate / self._estimate(_every(BEFORE)).estimate

    @property
    def known(self) -> bool:
        """Whether *before* surely wins something that is no luck."""
        return self._estimate(_every(BEFORE)).low > 0

    @property
    def weights(self) -> Weights:
        """Of what is newly carried."""
        q, wins = self.shared, self._estimate(_every(BEFORE)).estimate
        every = _every(AFTER)
        others = add((1, self._by(AFTER)), (-1, every)) if self.divided else every
        scale = 1 / (1 - q) if self.divided else 1.0
        # how it changes with q:
        in_q = self._estimate(others).estimate * (scale**2 if self.divided else -1)
        after, before = (add((1, self._by(side)), (-q, _every(side))) for side in (AFTER, BEFORE))
        return add((scale, after), (in_q / wins, before))  # the second is 0 in all

    @property
    def whole(self) -> Contrast:
        return self._estimate(gain(OPEN))

    @property
    def carried(self) -> Estimate:
        """Not divided, what *before* needs more than its share of carries nothing."""
        found = self._estimate(self.weights)
        if self.divided:
            return found
        estimate, low, high = (max(end, 0.0) for end in found.ends)
        return Estimate(estimate=estimate, low=low, high=high, level=self.level)

    @property
    def over_bar(self) -> Contrast:
        return self._estimate(add((1, self.weights), (-GENUINE_BAR, gain(OPEN))))

    @property
    def cleared(self) -> bool:
        """Whether it can be told, and is at most a fifth of the gain."""
        return self.told and super().cleared

    @property
    def runs(self) -> int:
        return self.panel.runs_behind(
            add(*((1, gain(world)) for world in (OPEN, ALTERED, CONTROL)))
        )

    @property
    def clusters(self) -> int:
        return len(self.panel.tasks)


def _every(side: str) -> Weights:
    """The wins of a side that are no luck."""
    return {(side, OPEN): 1.0, (side, CONTROL): -1.0}


@dataclass(frozen=True, kw_only=True, eq=False)
class NewlySufficient(Comparison):
    """What a source that is kept alone carries beyond what it was enough for before training."""

    @property
    def newly(self) -> NewReliance:
        return NewReliance(panel=self.panel, level=self.level, alone=True)

    @property
    def _carried(self) -> Weights:
        return self.newly.weights
