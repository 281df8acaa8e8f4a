"""On which tasks the score of a pair of logs rose and fell: newly solved,
sharpened, lost (step 4 of `pair_split`).
"""

from collections.abc import Iterator
from math import fsum
from statistics import median
from typing import NamedTuple

import numpy as np

from forensics.errors import MissingInput
from forensics.instruments import AnswerMaker
from forensics.layers.pair_sides import Floats, Pair, both_means, outcome, plain, points_told
from forensics.phrases import percent
from forensics.records import Evidence, Undefined
from forensics.records.evidence import Scalar
from forensics.statistics import share

QUESTIONS = ("pair.newly_solved", "pair.sharpened", "pair.lost")
FEWEST_TRIES = 5  # half of all runs won, and none of four: more than 1 in 20
UNSEEN = 0.05


class Risen(NamedTuple):
    """The tasks whose score rose: by how much `[tasks]`, and of how many tries before."""

    make: AnswerMaker
    pair: Pair
    rise: Floats
    tries: float
    facts: dict[str, Scalar]

    def share(self, question: str, part: Floats) -> Evidence:
        """What part of the rise it is. Raises `MissingInput` where too few runs tell it."""
        if self.tries < FEWEST_TRIES:
            raise MissingInput(
                f"A task has {self.tries:g} runs before training, too few to tell one that is"
                " never won from one that is won now and then.",
                f"Give at least {FEWEST_TRIES} runs of each task.",
            )
        found = share(part, self.rise, level=self.pair.level)
        which = "were never won" if question == "pair.newly_solved" else "had been won"
        unseen = percent(1 - UNSEEN ** (1 / self.tries))
        return self.make.evidence(
            question,
            found,
            unit="share",
            n=self.pair.runs,
            diagnostics=self.facts,
            summary=f"{self.pair.aside}Tasks that {which} in {self.tries:g} tries before give"
            f" {percent(found.estimate)} of what tasks gained ({percent(found.low)} to"
            f" {percent(found.high)}); one that is won in less than {unseen} of its runs may show"
            " no win.",
        )


def changed(make: AnswerMaker, pair: Pair) -> Iterator[Evidence | Undefined]:
    """On which tasks the score rose and fell."""
    before, after = both_means(pair, outcome)
    rise, fall = np.maximum(after - before, 0), np.minimum(after - before, 0)
    fresh = np.where(before == 0, rise, 0)
    tries = median(len(pair.before.runs[task]) for task in pair.tasks)
    facts: dict[str, Scalar] = {"tries": tries, "unseen rate": 1 - UNSEEN ** (1 / tries)}
    facts |= _wins(pair, rise, fresh, fall)
    told = Risen(make, pair, rise, tries, facts)
    yield make.answer("pair.newly_solved", lambda: told.share("pair.newly_solved", fresh))
    yield make.answer("pair.sharpened", lambda: told.share("pair.sharpened", rise - fresh))
    found = plain(fall, pair.level)
    fallen, lost = int((fall < 0).sum()), int(((before > 0) & (after == 0)).sum())
    yield make.evidence(
        "pair.lost",
        found,
        unit="score difference",
        n=pair.runs,
        diagnostics=facts | {"tasks that fell": fallen, "tasks never won after": lost},
        summary=f"{pair.aside}Tasks whose score fell ({fallen}, {lost} of them never won any more)"
        f" give {points_told(found)} of the change.",
    )


def _wins(pair: Pair, rise: Floats, fresh: Floats, fall: Floats) -> dict[str, Scalar]:
    """The same as counts of wins, where runs are won or lost, as many of each task."""
    counts = {len(side.runs[task]) for side in pair.sides for task in pair.tasks}
    outcomes = {run.outcome for side in pair.sides for runs in side.runs.values() for run in runs}
    if len(counts) > 1 or not outcomes <= {0.0, 1.0} or len(pair.afters) > 1:
        return {}
    (runs,) = counts
    named = (("new wins", rise), ("on tasks never won before", fresh), ("wins lost", -fall))
    return {name: round(runs * fsum(values)) for name, values in named}
