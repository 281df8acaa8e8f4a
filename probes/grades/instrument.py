"""Do the grades of steps tell success, and do they reward a shortcut? An
instrument on a pair of policies.

1. Some runs of the first checkpoint after training (the score layer has played
   them) are graded (`step_grades`), from the one pass of both checkpoints that this
   room's instruments share (`probes.grades.step_grades`).
2. `grades.auroc`: how well the progress advantage tells successes from
   failures, with every baseline in the table. Its control is the same score on
   outcomes dealt anew among the runs.
3. `grades.shortcut`: for each declared channel, the mean grade of the steps
   that try it minus that of the other steps of the same tasks. Its control is
   as many steps drawn at random. A grade that rewards a shortcut measures what
   RL rewarded, so here it is evidence of what the training was after.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from forensics.case import Case
from forensics.errors import MissingInput
from forensics.instruments import AnswerMaker, instrument
from forensics.phrases import plural, printable
from forensics.protocols import Channel
from forensics.records import Control, Evidence, Scalar, Table, Undefined, content_hash
from forensics.statistics import auroc
from probes.grades.comparison import (
    BOTH,
    ScoreTable,
    columns_of,
    compare_scores,
    contrast,
    shuffled_contrast,
)
from probes.grades.step_grades import ADVANTAGE, GradedRun, case_scores, grade

AUROC: Final = "grades.auroc"
SHORTCUT: Final = "grades.shortcut"
LAYER: Final = "behaviour"
METHOD: Final = "mean log-ratio of after to before over a step's tokens, mean over steps"


@dataclass(frozen=True, kw_only=True)
class GradesConfig:
    """`tasks`: of how many tasks the runs are graded (all samples of each)."""

    tasks: int = 150


@instrument(name="grades", layer=LAYER, questions=(AUROC, SHORTCUT), config=GradesConfig())
def grades(case: Case, config: GradesConfig) -> Iterator[Evidence | Undefined]:
    """Answers both questions; raises `MissingInput` for what the case cannot give."""
    if not case.runs_models:
        raise MissingInput(
            "Logs alone do not say how likely another policy was to do the same.",
            "Give the checkpoints to `forensics investigate`, or the log to `forensics grade`.",
        )
    case.require_afters()
    answers = grades.answers(case, config, METHOD)
    _, scores = case_scores(case, config.tasks)
    runs = sorted((grade(scored) for scored in scores), key=lambda run: run.trajectory)
    yield answers.answer(AUROC, lambda: _ranking(runs, case, answers))
    if not case.channels:
        missing = MissingInput(
            "The environment declares no channel.",
            "Look at `kl.split`: it tells every kind of step apart, declared or not.",
        )
        yield answers.undefined(SHORTCUT, missing)
    for channel in case.channels:
        yield answers.answer(
            SHORTCUT, partial(_shortcut, runs, channel, case, answers), channel.name
        )


def _generator(case: Case, what: str) -> np.random.Generator:
    return np.random.default_rng(int(content_hash([case.seed, "grades", what], 12), 16))


def _ranking(runs: Sequence[GradedRun], case: Case, answers: AnswerMaker) -> Evidence:
    comparison = compare_scores(runs, seed=case.seed)
    first = comparison.rows[0]
    if first.auroc is None:
        raise MissingInput(
            first.missing or "No run has a grade.",
            "Grade runs of which some succeed and some fail.",
        )
    columns = columns_of(runs)
    scores = columns.scores[ADVANTAGE]
    known = ~np.isnan(scores)
    permuted = _generator(case, "outcomes").permutation(columns.success[known])
    control = None
    with suppress(MissingInput):  # then there is none
        chance = auroc(scores[known], permuted, columns.tasks[known])
        control = Control(
            name="outcomes dealt anew among the runs",
            estimate=chance.estimate,
            interval=chance.interval,
        )
    # the policy's own log-probability is the baseline that needs no reference
    alone = next((row.auroc for row in comparison.rows if row.score == BOTH[0]), None)
    beside = f"; the log-probability alone has {alone.estimate:.2f}" if alone else ""
    diagnostics: dict[str, Scalar] = {}
    if (best := first.best) is not None:
        diagnostics = {
            "best_of": best.n,
            "best_of_success": best.chosen.estimate,
            "mean_success": best.mean.estimate,
            "oracle_success": best.oracle.estimate,
        }
    return answers.evidence(
        AUROC,
        first.auroc,
        unit="AUROC",
        control=control,
        artifacts=(table(comparison),),
        diagnostics=diagnostics,
        summary=(
            "The progress advantage tells a success from a failure with an AUROC of"
            f" {first.auroc.estimate:.2f} ({first.auroc.low:.2f} to {first.auroc.high:.2f}) on"
            f" {plural(int(first.auroc.n), 'run')} after training{beside}."
        ),
    )


def table(comparison: ScoreTable) -> Table:
    """Every score with its intervals."""
    best = f"success, best of {comparison.n}"
    unknown = (None,) * 3
    return Table(
        title="Scores of runs, by what they tell of success",
        columns=("score", "runs", "AUROC of success", "low", "high", best, "low", "high"),
        rows=tuple(
            (
                row.score,
                row.runs,
                *(row.auroc.ends if row.auroc else unknown),
                *(row.best.chosen.ends if row.best else unknown),
            )
            for row in comparison.rows
        ),
    )


def _shortcut(
    runs: Sequence[GradedRun], channel: Channel, case: Case, answers: AnswerMaker
) -> Evidence:
    effect = contrast(runs, channel.attempts)
    control = shuffled_contrast(runs, channel.attempts, _generator(case, channel.name))
    direction = "no clear difference"
    if effect.low > 0 or effect.high < 0:
        direction = "RL rewarded them" if effect.low > 0 else "RL turned away from them"
    return answers.evidence(
        SHORTCUT,
        effect,
        about=channel.name,
        unit="nats a token",
        control=Control(
            name="as many steps drawn at random",
            estimate=control.estimate,
            interval=control.interval,
        ),
        diagnostics={"inside": effect.inside, "outside": effect.outside},
        summary=(
            f"Steps that try {printable(channel.name)} have a grade of {effect.inside:.2f} nats a"
            f" token, the other steps of the same {plural(effect.clusters, 'task')}"
            f" {effect.outside:.2f}: {direction}."
        ),
    )
