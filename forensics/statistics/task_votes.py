"""An exact test of two groups of runs, task by task: does one group show a thing more often?

1. A task votes for the group that shows it more often than that group's share of the task's
   runs lets expect; a task where it is as expected does not vote. However many runs a task
   has, it has one vote.
2. Where the runs of a stratum (a part of a task) are exchangeable, how many of those that
   show it are in the first group is hypergeometric. So the chance of each vote is known, for
   groups of any sizes.
3. Votes of tasks are independent, so those for the first group are Poisson-binomial. With as
   many runs in both groups this is the sign test over the tasks that differ.
4. What cannot reach a level even if all votes agree need not be tested (`reachable`). The
   margins alone decide that, so it costs no level (Gilbert 2005, after Tarone 1990).
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
TIES = 1e-9


@dataclass(frozen=True, kw_only=True)
class Votes:
    """The votes on each thing `[things]`: tasks for the first group and for the second, and
    the smallest p-value that so many votes can reach. `chances`: of each vote, thing by
    thing, that it goes to the first group; those of thing `i` start at `starts[i]`.
    """

    first: Ints
    second: Ints
    least: Floats
    chances: Floats
    starts: Ints

    def p_value(self, thing: int) -> float:
        """Two-sided and exact; 1 for what chance brings in a third of all cases."""
        from scipy.stats import poisson_binom

        votes = int(self.first[thing])
        chances = self.chances[self.starts[thing] : self.starts[thing + 1]]
        if abs(votes - chances.sum()) ** 2 <= (chances * (1 - chances)).sum():
            return 1.0
        tails = poisson_binom.cdf(votes, chances), poisson_binom.sf(votes - 1, chances)
        return min(1.0, max(float(self.least[thing]), 2 * float(min(tails))))


def task_votes(
    held: Any, first: NDArray[np.bool_], stratum: Ints, task: Ints, fewest: int = 1
) -> Votes:
    """The votes on each column of `held`, a sparse `[runs, things]` of ones.

    `first [runs]`: who is in the first group; `stratum [runs]`: among whom a run is
    comparable (-1: left out); `task [strata]`: of which task a stratum is. Where fewer than
    `fewest` tasks vote, nothing is reachable.
    """
    from scipy.sparse import csr_array

    used = np.flatnonzero(stratum >= 0)
    stratum, first = stratum[used], first[used]
    size, many = len(task), len(used) + 1
    sums = csr_array((1 + many * first, (stratum, np.arange(len(used)))), shape=(size, len(used)))
    table = (sums @ held.tocsr()[used]).tocoo()
    place, thing = (np.asarray(axis, np.int64) for axis in table.coords)
    in_first, having = np.divmod(table.data, many)
    all_runs = np.bincount(stratum, minlength=size)
    all_first = np.bincount(stratum[first], minlength=size)
    told = (having > 0) & (having < all_runs[place])
    place, thing, in_first, having = (values[told] for values in (place, thing, in_first, having))
    margins = np.stack([all_runs[place], all_first[place], having])
    above = in_first - margins[1] * margins[2] / margins[0]
    votes = _summed(thing, task[place], above, margins, held.shape[1])
    votes.least[votes.first + votes.second < fewest] = 1.0
    return votes


def _summed(thing: Ints, task: Ints, above: Floats, margins: Ints, size: int) -> Votes:
    """One vote for each thing and task, from all strata of that task."""
    order = np.lexsort((*margins, task, thing))
    thing, task, above = thing[order], task[order], above[order]
    base = int(margins.max(initial=0)) + 1
    codes, kind = np.unique(
        (margins[0] * base + margins[1]) * base + margins[2], return_inverse=True
    )
    kinds = [(code // base**2, code // base % base, code % base) for code in codes.tolist()]
    kind = kind[order]
    new = np.flatnonzero(np.diff(thing, prepend=-1) | np.diff(task, prepend=-1))
    surplus = np.add.reduceat(above, new) if len(new) else above
    chance = np.array([_chance((one,)) for one in kinds])[kind[new]] if len(new) else above
    ends = np.append(new[1:], len(thing))
    for at in np.flatnonzero(ends - new > 1).tolist():
        chance[at] = _chance(tuple(kinds[i] for i in kind[new[at] : ends[at]].tolist()))
    differs = np.abs(surplus) > TIES
    owner, plus, chance = thing[new][differs], surplus[differs] > 0, chance[differs]
    first = np.bincount(owner[plus], minlength=size)
    second = np.bincount(owner[~plus], minlength=size)
    logs = [np.bincount(owner, np.log(side), size) for side in (chance, 1 - chance)]
    least = np.minimum(1.0, 2 * np.exp(np.minimum(*logs)))
    starts = np.searchsorted(owner, np.arange(size + 1))
    return Votes(first=first, second=second, least=least, chances=chance, starts=starts)


@lru_cache(maxsize=1 << 16)
def _chance(strata: tuple[tuple[int, int, int], ...]) -> float:
    """The chance that a task which differs votes for the first group. `strata`: runs, of these
    in the first group, and runs that have the thing; deals are hypergeometric.
    """
    from scipy.stats import hypergeom

    deal, expected = np.ones(1), 0.0
    for runs, first, having in strata:
        deal = np.convolve(deal, hypergeom.pmf(np.arange(having + 1), runs, first, having))
        expected += first * having / runs
    counts = np.arange(len(deal))
    up, down = deal[counts > expected + TIES].sum(), deal[counts < expected - TIES].sum()
    return float(np.clip(up / (up + down), TIES, 1 - TIES))


def reachable(least: Floats, level: float) -> list[int]:
    """The tests that can reach `level` among so many as they are: of the smallest K that
    leaves at most K tests, those whose smallest p-value is at most `level / K`.
    """
    sizes = np.arange(1, len(least) + 1)
    counts = np.searchsorted(np.sort(least), level / sizes, side="right")
    fitting = np.flatnonzero(counts <= sizes)
    most = level / sizes[fitting[0]] if len(fitting) else 0.0
    return [int(number) for number in np.flatnonzero(least <= most)]
