"""Both sides of a pair of logs on the tasks that they share, and the plain
interval over these tasks.

Which runs of a pair of logs finished, and which answered in the asked format,
as far as their rows tell it.

1. *In format*, by the first that there is: a reward that is named after the
   format, which every run has (in format: above the middle of its lowest and
   highest value); a form that more than half of the prompts ask for and some answer
   has; a form that more than half of the answers of one side have. A form that
   is not asked in any prompt that we see is the usual one, which mostly is the
   asked one. Where there is a reward and a form in the text, they can differ (a box
   that the grader could not read): the reward counts, and the parts by the form in
   the text are told beside it (`by_text`).
2. *Finished*: the row does not say that the run was cut off. That counts where
   rows say how runs ended: all sides name endings, or none names one and some
   run was cut off. Where they do not, and answers of at least three tasks are the
   longest of all, of one length and each without the form, they stop at a limit.
3. What is not told stays untold: a missing format is not 0.

A pair of logs as if its flagged wins had failed: arithmetic on the outcomes, and no claim that
these runs would have failed.

A win is *flagged* where a shortcut was used in it or is credited with it (`ScoredRun.flagged`).
Where a pair has such wins, what the gain comes with and on which tasks is told of the other wins:
a shortcut is no skill, in whatever form its answer stands.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import fsum

import numpy as np
from numpy.typing import NDArray

from forensics.errors import MissingInput
from forensics.instruments import AnswerMaker
from forensics.layers.bounds import (
    FORMS,
    RunShape,
    ScoredRun,
    ScoredSide,
    halves_of,
    scored_side,
    too_few_shared,
)
from forensics.layers.channels import WIN
from forensics.phrases import point_range, points
from forensics.records import Evidence
from forensics.records.evidence import Scalar
from forensics.statistics import Estimate, mean

GAIN_UNFLAGGED = "pair.gain_unflagged"
THROUGH = "flagged wins through "  # and the channel, and when
WHEN = ("before", "after")
AT_LIMIT = 3  # texts of other tasks that end at the same length by a limit, not by chance
NO_FORM = (
    "No reward is named after the format, and no form of answer (\\boxed{}, <answer> tags, ####,"
    " Answer:) is asked for by most prompts or shown by most answers.",
    "Log a reward named `format` with each run, on both sides.",
)
NO_ENDS = (
    "The rows do not say how runs ended, and no length shows a limit.",
    "Log how each run ended (`finish_reason`, `stop_reason`), on both sides.",
)
IN_IT = " (finishing cannot be told apart from it)"
Sides = Sequence[Sequence[ScoredRun]]


Floats = NDArray[np.float64]
Value = Callable[[ScoredRun], float]


@dataclass(frozen=True, kw_only=True)
class Told:
    """How finishing and format are told. `form`, `ends`: in words. `bit`: the
    form in texts, `floor`: of the reward (`None`: not by it). `limit`: length at which texts stop.
    """

    bit: int = 0
    floor: float | None = None
    by_end: bool = False
    limit: int | None = None

    @property
    def form(self) -> str | None:
        return "a reward named after it" if self.floor is not None else FORMS.get(self.bit)

    @property
    def by_text(self) -> "Told | None":
        """The same by the form in the text, where it goes by a reward and both are there."""
        return replace(self, floor=None) if self.bit and self.floor is not None else None

    @property
    def ends(self) -> str | None:
        if self.by_end:
            return "the ending of each run, as it was read"
        return f"texts that stop at {self.limit:,} characters" if self.limit else None

    @property
    def no_form(self) -> MissingInput | None:
        return None if self.form else MissingInput(*NO_FORM)

    @property
    def no_ends(self) -> MissingInput | None:
        return None if self.ends else MissingInput(*NO_ENDS)

    def words(self, much: str) -> tuple[str, str, str, str]:
        """What each part of the gain comes with; `much`: more or less."""
        form = "in the asked format" if self.floor is not None else f"in the form {self.form}"
        answering = "finishing" if self.no_form else f"finishing {form}"
        outside = "wins of runs that were cut off"
        if self.no_ends:
            answering, outside = f"answering {form}", f"wins that are not {form}"
        elif self.form:
            outside = f"wins of runs that were cut off or are not {form}"
        return (
            f"finishing {much} often",
            f"answering {form} {much} often" + (IN_IT if self.no_ends else ""),
            f"being right {much} often when {answering}",
            outside,
        )

    def finished(self, shape: RunShape) -> bool:
        """Whether the run ended by itself; also where that is not told."""
        if self.limit and shape.characters == self.limit and not shape.forms & self.bit:
            return False
        return shape.finished or not self.by_end

    def in_format(self, shape: RunShape) -> bool:
        """Whether the answer is in the asked format; also where that is not told."""
        if self.floor is not None:
            return shape.format is not None and shape.format > self.floor
        return bool(shape.forms & self.bit) or not self.bit

    def reached(self, shape: RunShape) -> bool:
        """Finished, and in format."""
        return self.finished(shape) and self.in_format(shape)


def told_of(sides: Sides) -> Told:
    """What the rows of all sides tell."""
    rewards = [run.shape.format for side in sides for run in side]
    known = [value for value in rewards if value is not None]
    bit = _form(sides)
    floor = None
    if len(known) == len(rewards):
        low, high = min(known), max(known)
        floor = (low + high) / 2 if low < high else 0.0
    by_end = _ends_told(sides)
    limit = None if by_end else _limit(sides, bit)
    return Told(bit=bit, floor=floor, by_end=by_end, limit=limit)


def _form(sides: Sides) -> int:
    """The form that is asked for, as a bit; 0: none."""
    everything = [run.shape for side in sides for run in side]
    shown = {
        bit: max(_share(run.shape.forms & bit for run in side) for side in sides) for bit in FORMS
    }
    asked = {bit: _share(shape.asked & bit for shape in everything) for bit in FORMS}
    for shares in ({bit: asked[bit] if shown[bit] else 0.0 for bit in FORMS}, shown):
        best = max(FORMS, key=lambda bit: (shares[bit], shown[bit]))
        if shares[best] > 0.5:
            return best
    return 0


def _share(marks: Iterable[int]) -> float:
    values = [bool(mark) for mark in marks]
    return sum(values) / len(values)


def _ends_told(sides: Sides) -> bool:
    named = [any(run.shape.finished and run.shape.end_told for run in side) for side in sides]
    cut = any(not run.shape.finished for side in sides for run in side)
    return all(named) or (cut and not any(named))


def _limit(sides: Sides, bit: int) -> int | None:
    """The length at which answers without the form stop, where several tasks show it and no
    answer with the form has it.
    """
    shapes = [(run.task, run.shape) for side in sides for run in side]
    longest = max(shape.characters for _, shape in shapes)
    there = [(task, shape) for task, shape in shapes if shape.characters == longest]
    if not (bit and longest) or any(shape.forms & bit for _, shape in there):
        return None
    return longest if len({task for task, _ in there}) >= AT_LIMIT else None


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Both sides on the tasks that they share; `told`: what rows tell of finishing and format.
    `unflagged`: the flagged wins are scored as lost.
    """

    before: ScoredSide
    afters: tuple[ScoredSide, ...]
    tasks: tuple[str, ...]
    told: Told
    level: float
    unflagged: bool = False

    @property
    def aside(self) -> str:
        """What a sentence on these scores begins with."""
        return "The flagged wins aside: " if self.unflagged else ""

    @property
    def sides(self) -> tuple[ScoredSide, ...]:
        return self.before, *self.afters

    @property
    def runs(self) -> int:
        """How many runs the shared tasks have."""
        return sum(len(side.runs[task]) for side in self.sides for task in self.tasks)


def paired(
    before: Iterable[ScoredRun], afters: Sequence[Iterable[ScoredRun]], level: float
) -> Pair:
    """The tasks that are scored on all sides. Raises `MissingInput` with fewer than two."""
    first, *others = (scored_side(side) for side in (before, *afters))
    tasks = sorted(set(first.runs).intersection(*(side.runs for side in others)))
    if len(tasks) < 2 or not others:
        raise too_few_shared(first, others, len(tasks))
    runs = [[run for task in tasks for run in side.runs[task]] for side in (first, *others)]
    return Pair(
        before=first, afters=tuple(others), tasks=tuple(tasks), told=told_of(runs), level=level
    )


def plain(values: Floats, level: float) -> Estimate:
    """The mean over tasks with its plain t interval."""
    return mean(values, reach=0.0, level=level)


def task_means(side: ScoredSide, tasks: Sequence[str], value: Value) -> Floats:
    """The mean of something over the runs of each task."""
    return np.array([fsum(map(value, side.runs[task])) / len(side.runs[task]) for task in tasks])


def outcome(run: ScoredRun) -> float:
    """The score of a run."""
    return run.outcome


def both_means(pair: Pair, value: Value) -> tuple[Floats, Floats]:
    """The task means before and after, training seeds averaged."""
    first, *others = (task_means(side, pair.tasks, value) for side in pair.sides)
    return first, np.asarray(np.mean(others, axis=0))


def halves(pair: Pair) -> Pair | None:
    """The before policy's runs against themselves; `None` where fewer than two tasks have two."""
    own = halves_of(pair.before, pair.tasks)
    if own is None:
        return None
    return replace(pair, before=own[0], afters=own[1:], tasks=tuple(own[0].runs), unflagged=False)


def points_told(found: Estimate) -> str:
    """`+17.5 points (95 % interval 9.1 to 25.9)`."""
    level = f"{100 * found.level:g} % interval"
    return f"{points(found.estimate, 1)} points ({level} {point_range(found.low, found.high, 1)})"


def is_flagged(run: ScoredRun) -> bool:
    """Whether a run is a win that a shortcut was used in, or is credited with."""
    return bool(run.flagged) and run.outcome >= WIN


def has_flagged(pair: Pair) -> bool:
    """Whether any win of the shared tasks is flagged."""
    return any(is_flagged(run) for side in pair.sides for run in _runs(pair, side))


def without_flagged(pair: Pair) -> Pair:
    """The same runs, the flagged wins scored 0."""
    before, *afters = (
        ScoredSide(
            runs={
                task: [replace(run, outcome=0.0) if is_flagged(run) else run for run in runs]
                for task, runs in side.runs.items()
            },
            dropped=side.dropped,
        )
        for side in pair.sides
    )
    return replace(pair, before=before, afters=tuple(afters), unflagged=True)


def gain_unflagged(make: AnswerMaker, pair: Pair) -> Evidence:
    """The gain as if the flagged wins had failed, and how many wins each side has, all and flagged;
    `wins left out`: wins on tasks that the sides do not share.
    """
    before, after = both_means(without_flagged(pair), outcome)
    found = plain(after - before, pair.level)
    facts: dict[str, Scalar] = {"before": float(before.mean()), "after": float(after.mean())}
    facts |= dict(_counts(pair))
    return make.evidence(
        GAIN_UNFLAGGED,
        found,
        unit="score difference",
        n=pair.runs,
        diagnostics=facts,
        summary=f"Had the flagged wins failed ({facts['flagged wins before']:,} of"
        f" {facts['wins before']:,} before, {facts['flagged wins after']:,} of"
        f" {facts['wins after']:,} after), the score would have changed by {points_told(found)}.",
    )


def _counts(pair: Pair) -> Iterator[tuple[str, int]]:
    left_out = 0
    for when, sides in zip(WHEN, ((pair.before,), pair.afters), strict=True):
        runs = [run for side in sides for run in _runs(pair, side)]
        wins = [run for run in runs if run.outcome >= WIN]
        flagged = [run for run in wins if run.flagged]
        yield f"wins {when}", len(wins)
        yield f"flagged wins {when}", len(flagged)
        through = Counter(channel for run in flagged for channel in run.flagged)
        for channel, count in sorted(through.items()):
            yield f"{THROUGH}{channel}, {when}", count
        every = (run for side in sides for runs in side.runs.values() for run in runs)
        left_out += sum(run.outcome >= WIN for run in every) - len(wins)
    yield "wins left out", left_out


def _runs(pair: Pair, side: ScoredSide) -> Iterator[ScoredRun]:
    return (run for task in pair.tasks for run in side.runs[task])
