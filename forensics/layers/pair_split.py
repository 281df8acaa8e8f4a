"""What a pair of logs says beyond the gain: how the score changed, from the runs
that both logs hold.

1. The tasks that are scored on both sides, runs without an error and with a
   score. Each task gives one number per question: after less before, several
   sides after training averaged. Intervals are plain t intervals over tasks,
   without the pseudo-tasks of the decision (`statistics.intervals`): what a
   reader would work out by hand. They hold for these training seeds.
2. Which answers are *in format*, and which runs *finished*, is told by
   `pair_form`; where rows do not tell it, the part is `Undefined`.
3. The gain is split along finished, in format, right (`pair_chain`), and what
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
   failed, which is told, too (`pair_flagged`).

Control for the gain and its parts: the same between two halves of the before
policy's own runs.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import fsum
from statistics import median

import numpy as np

from forensics.errors import MissingInput
from forensics.instruments import AnswerMaker
from forensics.layers.bounds import ScoredRun, ScoredSide
from forensics.layers.pair_chain import rates_of, split
from forensics.layers.pair_changed import QUESTIONS as CHANGED, changed
from forensics.layers.pair_flagged import gain_unflagged, has_flagged, without_flagged
from forensics.layers.pair_sides import (
    Floats,
    Pair,
    Value,
    both_means,
    halves,
    outcome,
    paired,
    plain,
    points_told,
)
from forensics.phrases import MINUS, plural
from forensics.records import Control, Evidence, Provenance
from forensics.records.evidence import EvidenceRow, Scalar

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
