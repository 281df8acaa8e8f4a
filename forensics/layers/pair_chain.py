"""A gain taken apart along the chain of a win: finished, in the asked format,
right. Pure arithmetic on tables of rates.

1. Per side and task the three links of the chain: the share of runs that
   *finished*, of those the share *in format*, of those the mean score (*right*).
   Their product is what the task scored by such runs. What other runs scored
   stands apart (*outside*), so that the parts add up to the gain.
2. The change of the product is shared out among the links by Shapley's value,
   task by task: the mean over the orders in which links could have changed. It
   is exact, and swapping the sides flips every sign.
3. A link has no rate where no run reached it (nobody in format: nobody there can
   be right). There it is taken from the other side less the mean change of that
   link over the tasks that have it on both sides, so that an unseen rate counts
   neither as a change nor as none. Taking the other side's rate as it is would
   credit the format with skill, where runs are few.
4. That mean change is estimated too. Each part is linear in it, so its doubt
   goes into each task's value by the delta method: per task the part, plus the
   part's slope times how far this task lies from the mean change. The values
   keep their mean, and per task they still add up to the task's gain.

Ours: Kitagawa (1955) and Shapley (1953) are the known pieces, step 3 and 4 are
made for few runs a task.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from forensics.errors import MissingInput
from forensics.statistics.shapley import shapley_weights

Floats = NDArray[np.float64]
LINKS = ("finished", "format", "right")
WEIGHTS = shapley_weights(LINKS)
WHAT = {
    "finished": "a run",  # always there
    "format": "a run that finished",
    "right": "a run that finished in the asked format",
}


class Rates(NamedTuple):
    """One side. `links [links, tasks]` (NaN: no run reached it), `outside [tasks]`."""

    links: Floats
    outside: Floats


def rates_of(counts: Floats) -> Rates:
    """The rates of `counts [5, tasks]`: runs, finished, in format, what these scored, what
    all scored.
    """
    runs, finished, formed, won, all_won = counts
    with np.errstate(invalid="ignore"):
        links: Floats = np.array([finished / runs, formed / finished, won / formed])
    return Rates(links=links, outside=(all_won - won) / runs)


def split(before: Rates, after: Rates) -> Floats:
    """The parts of each task's gain `[links and outside, tasks]`, whose means are the parts of
    the gain.

    Raises `MissingInput` where a link is seen on both sides of fewer than two
    tasks, and needed.
    """
    both = ~np.isnan(before.links) & ~np.isnan(after.links)
    changes = np.where(both, after.links - before.links, 0.0)
    one_sided = np.isnan(before.links) != np.isnan(after.links)
    for link, seen, needed in zip(LINKS, both, one_sided, strict=True):
        if needed.any() and seen.sum() < 2:
            raise MissingInput(
                f"Fewer than two tasks have {WHAT[link]} on both sides, so what changed beside it"
                " cannot be told.",
                "Give more runs of each task, on both sides.",
            )
    means = changes.sum(axis=1) / np.maximum(both.sum(axis=1), 1)
    parts = _shares(before.links, after.links, means)
    for place in np.flatnonzero(one_sided.any(axis=1)):
        step = np.eye(len(LINKS))[place]
        more = _shares(before.links, after.links, means + step)
        less = _shares(before.links, after.links, means - step)
        slopes = ((more - less) / 2).mean(axis=1)  # exact: every part is linear in each of them
        far = np.where(both[place], changes[place] - means[place], 0.0) / both[place].mean()
        parts = parts + slopes[:, None] * far
    return np.vstack([parts, after.outside - before.outside])


def _shares(before: Floats, after: Floats, means: Floats) -> Floats:
    """Shapley's value of each link, task by task, with unseen rates filled in by `means`."""
    first = np.where(np.isnan(before), after - means[:, None], before)
    last = np.where(np.isnan(after), before + means[:, None], after)
    sides = [np.nan_to_num(side) for side in (first, last)]  # seen on neither side: times zero
    worth = {
        world: np.prod([sides[link in world][i] for i, link in enumerate(LINKS)], axis=0)
        for weights in WEIGHTS.values()
        for world in weights
    }
    return np.array(
        [sum(weight * worth[world] for world, weight in WEIGHTS[link].items()) for link in LINKS]
    )
