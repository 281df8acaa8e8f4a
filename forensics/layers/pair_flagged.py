"""A pair of logs as if its flagged wins had failed: arithmetic on the outcomes, and no claim that
these runs would have failed.

A win is *flagged* where a shortcut was used in it or is credited with it (`ScoredRun.flagged`).
Where a pair has such wins, what the gain comes with (`pair_chain`) and on which tasks
(`pair_changed`) is told of the other wins: a shortcut is no skill, in whatever form its answer
stands.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from forensics.instruments import AnswerMaker
from forensics.layers.bounds import ScoredRun, ScoredSide
from forensics.layers.channels import WIN
from forensics.layers.pair_sides import Pair, both_means, outcome, plain, points_told
from forensics.records import Evidence
from forensics.records.evidence import Scalar

GAIN_UNFLAGGED = "pair.gain_unflagged"
THROUGH = "flagged wins through "  # and the channel, and when
WHEN = ("before", "after")


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
