"""What a pair of logs says beyond the gain: how the score changed, from the runs
that both logs hold.

1. The tasks that are scored on both sides, runs without an error and with a
   score. Each task gives one number per question: after less before, several
   sides after training averaged. Intervals are plain t intervals over tasks,
   without the pseudo-tasks of the decision (`statistics.intervals`): what a
   reader would work out by hand. They hold for these training seeds.
2. Which answers are *in format*, and which runs *finished*, is told by
   `pair_sides`; where rows do not tell it, the part is `Undefined`.
3. The gain is split along finished, in format, right, and what
   other runs scored. Where one of the first two is not told, the next link holds
   it too, which its sentence says. The parts add up to the gain. They say with
   what the score changed, not what would have happened otherwise.
4. Of the tasks whose score rose, how much of the rise is on tasks that were never
   won before (*newly solved*), how much on others (*sharpened*). A rate that is
   small can stay unseen; below five tries even one of a half can, and the
   question stays open. What other tasks lost is told beside it, since chance
   alone moves tasks both ways.
5. Length is in characters that the policy wrote, the mean over tasks.
6. Where a win is flagged (a shortcut was used in it, or is credited with it), steps 3 and 4 are
   of the wins that are not, and their parts add up to the gain as if the flagged wins had
   failed, which is told, too.

Control for the gain and its parts: the same between two halves of the before
policy's own runs.

On which tasks the score of a pair of logs rose and fell: newly solved,
sharpened, lost (step 4 of `pair_split`).

A gain taken apart along the chain of a win: finished, in the asked format,
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

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import fsum
from statistics import median
from typing import NamedTuple

import numpy as np

from forensics.errors import MissingInput
from forensics.instruments import AnswerMaker
from forensics.layers.bounds import ScoredRun, ScoredSide
from forensics.layers.pair_sides import (
    Floats,
    Pair,
    Value,
    both_means,
    gain_unflagged,
    halves,
    has_flagged,
    outcome,
    paired,
    plain,
    points_told,
    without_flagged,
)
from forensics.phrases import MINUS, percent, plural
from forensics.records import Control, Evidence, Provenance, Undefined
from forensics.records.evidence import EvidenceRow, Scalar
from forensics.statistics import share
from forensics.statistics.shapley import shapley_weights

CHANGED = ("pair.newly_solved", "pair.sharpened", "pair.lost")
FEWEST_TRIES = 5  # half of all runs won, and none of four: more than 1 in 20
UNSEEN = 0.05
LINKS = ("finished", "format", "right")
WEIGHTS = shapley_weights(LINKS)
WHAT = {
    "finished": "a run",  # always there
    "format": "a run that finished",
    "right": "a run that finished in the asked format",
}
GAIN = "pair.gain_plain"
PARTS = ("pair.finishing", "pair.format", "pair.correctness", "pair.outside_format")
LENGTH = "pair.length"
QUESTIONS = (GAIN, *PARTS, *CHANGED, LENGTH)
METHOD = "plain paired differences over tasks"


def pair_answers(
    before: Iterable[ScoredRun],
    afters: Sequence[Iterable[ScoredRun]],
    provenance: Provenance,
    level: float = 0.95,
) -> Iterator[EvidenceRow]:
    """Every answer on a pair of logs; `Undefined` with the reason for each that it cannot give."""
    make = AnswerMaker(layer="score", method=METHOD, provenance=provenance)
    try:
        pair = paired(before, afters, level)
    except MissingInput as missing:
        yield from (make.undefined(question, missing) for question in QUESTIONS)
        return
    yield make.answer(GAIN, lambda: _gain(make, pair))
    rest = pair
    if has_flagged(pair):
        yield gain_unflagged(make, pair)
        rest = without_flagged(pair)
    yield from _parts(make, rest)
    yield from changed(make, rest)
    yield make.answer(LENGTH, lambda: _length(make, pair))


def _gain(make: AnswerMaker, pair: Pair) -> Evidence:
    before, after = both_means(pair, outcome)
    found = plain(after - before, pair.level)
    own = halves(pair)
    null = None if own is None else both_means(own, outcome)
    return make.evidence(
        GAIN,
        found,
        unit="score difference",
        n=pair.runs,
        control=null and _control(null[1] - null[0], pair.level),
        diagnostics={
            "before": float(before.mean()),
            "after": float(after.mean()),
            "seeds": len(pair.afters),
        },
        summary=f"The score changed by {points_told(found)} over {plural(len(pair.tasks), 'task')},"
        " without the two pseudo-tasks that the decision adds.",
    )


def _control(values: Floats, level: float) -> Control:
    found = plain(values, level)
    name = "A/A: the same between two halves of the before policy's own runs"
    return Control(name=name, estimate=found.estimate, interval=found.interval)


def split_gain(pair: Pair) -> Floats:
    """The parts of each task's gain `[PARTS, tasks]`, training seeds averaged. Raises
    `MissingInput`.
    """
    before = rates_of(_counts(pair.before, pair))
    parts = [split(before, rates_of(_counts(after, pair))) for after in pair.afters]
    return np.asarray(np.mean(parts, axis=0))


def _counts(side: ScoredSide, pair: Pair) -> Floats:
    """`[5, tasks]`: runs, finished, in format, what these scored, what all scored."""
    rows = []
    for task in pair.tasks:
        runs = side.runs[task]
        finished = [run for run in runs if pair.told.finished(run.shape)]
        formed = [run for run in finished if pair.told.in_format(run.shape)]
        won, all_won = (fsum(run.outcome for run in some) for some in (formed, runs))
        rows.append((len(runs), len(finished), len(formed), won, all_won))
    return np.array(rows, float).T


def _parts(make: AnswerMaker, pair: Pair) -> Iterator[EvidenceRow]:
    """The parts of the gain, each with its interval."""
    try:
        if pair.told.no_form and pair.told.no_ends:
            raise pair.told.no_form
        table = split_gain(pair)
    except MissingInput as missing:
        own = {"pair.finishing": pair.told.no_ends, "pair.format": pair.told.no_form}
        yield from (make.undefined(part, own.get(part) or missing) for part in PARTS)
        return
    null, second, links = _null(pair), _by_text(pair), _links(pair)
    reasons = (pair.told.no_ends, pair.told.no_form, None, None)
    for row, (question, untold) in enumerate(zip(PARTS, reasons, strict=True)):
        if untold is not None:
            yield make.undefined(question, untold)
            continue
        found = plain(table[row], pair.level)
        words = pair.told.words("less" if found.estimate < 0 else "more")
        yield make.evidence(
            question,
            found,
            unit="score difference",
            n=pair.runs,
            control=None if null is None else _control(null[row], pair.level),
            diagnostics=links | {"comes with": words[row], **(second[row] if second else {})},
            summary=f"{pair.aside}{points_told(found)} of the change come with {words[row]}.",
        )


def _by_text(pair: Pair) -> tuple[dict[str, Scalar], ...]:
    """The parts by the form in the text, beside those by a reward; `()` where there is one way."""
    told = pair.told.by_text
    try:
        table = None if told is None else split_gain(replace(pair, told=told))
    except MissingInput:
        return ()
    if told is None or table is None:
        return ()
    name = f"by the form {told.form} in the text"
    return tuple({name: float(row.mean())} for row in table)


def _null(pair: Pair) -> Floats | None:
    """The parts between two halves of the before policy's runs, where they can be told."""
    own = halves(pair)
    try:
        return None if own is None else split_gain(own)
    except MissingInput:
        return None


def _links(pair: Pair) -> dict[str, Scalar]:
    """What counts as finished and in format, and the share of runs that are, over tasks."""
    rows: dict[str, Scalar] = {"asked format": pair.told.form, "ends by": pair.told.ends}
    sides: dict[str, Value] = {
        "finished": lambda run: pair.told.finished(run.shape),
        "finished in format": lambda run: pair.told.reached(run.shape),
    }
    for name, value in sides.items():
        before, after = both_means(pair, value)
        rows |= {f"{name}, before": float(before.mean()), f"{name}, after": float(after.mean())}
    return rows


def _length(make: AnswerMaker, pair: Pair) -> Evidence:
    before, after = both_means(pair, lambda run: run.shape.characters)
    if not (before.any() or after.any()):
        raise MissingInput("The runs hold no text of the policy.", "Give logs with the answers.")
    found = plain(after - before, pair.level)
    turns = [float(side.mean()) for side in both_means(pair, lambda run: run.shape.turns)]
    facts: dict[str, Scalar] = {
        "before": float(before.mean()),
        "after": float(after.mean()),
        "median before": _median_length([pair.before], pair.tasks),
        "median after": _median_length(pair.afters, pair.tasks),
        "turns before": turns[0],
        "turns after": turns[1],
    }
    change, low, high = _whole(found.estimate, "+"), _whole(found.low), _whole(found.high)
    told = f" in {turns[0]:.1f} and {turns[1]:.1f} turns" if max(turns) > 1 else ""
    return make.evidence(
        LENGTH,
        found,
        unit="characters",
        n=pair.runs,
        diagnostics=facts,
        summary=f"A run wrote {before.mean():,.0f} characters before and {after.mean():,.0f} after"
        f"{told}, a change of {change} ({100 * found.level:g} % interval {low} to {high}).",
    )


def _whole(number: float, plus: str = "") -> str:
    return f"{round(number):{plus},}".replace("-", MINUS)


def _median_length(sides: Iterable[ScoredSide], tasks: Iterable[str]) -> float:
    shapes = [run.shape for side in sides for task in tasks for run in side.runs[task]]
    return median(shape.characters for shape in shapes)


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
