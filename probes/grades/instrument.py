"""Do the grades of steps tell success, and do they reward a shortcut? An
instrument on a pair of policies.

1. Some runs of the first checkpoint after training (the score layer has played
   them) are graded (`step_grades`), from the one pass of both checkpoints that this
   room's instruments share (`probes.scores.case_scores`).
2. `grades.auroc`: how well the progress advantage tells successes from
   failures, with every baseline in the table. Its control is the same score on
   outcomes dealt anew among the runs.
3. `grades.shortcut`: for each declared channel, the mean grade of the steps
   that try it minus that of the other steps of the same tasks. Its control is
   as many steps drawn at random. A grade that rewards a shortcut measures what
   RL rewarded, so here it is evidence of what the training was after.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from forensics.case import Case
from forensics.errors import MissingInput
from forensics.instruments import instrument
from forensics.protocols import Channel
from forensics.records import (
    Control,
    Evidence,
    Interval,
    Provenance,
    Table,
    Undefined,
    content_hash,
)
from forensics.records.evidence import Scalar
from forensics.wording import plural, printable
from probes.grades.auroc import Ranked, auroc
from probes.grades.comparison import BOTH, ScoreTable, columns_of, compare_scores
from probes.grades.step_checks import Contrast, contrast, shuffled_contrast
from probes.grades.step_grades import ADVANTAGE, GradedRun, grade
from probes.scores.case_scores import case_scores

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
    if not case.policies:
        raise MissingInput(
            "Logs alone do not say how likely another policy was to do the same.",
            "Give the checkpoints to `forensics investigate`, or the log to `forensics grade`.",
        )
    if not case.afters:
        raise MissingInput("The case has no runs after training.", "Give at least one `--after`.")
    provenance = grades.configured(**vars(config)).provenance(case)
    runs = graded_runs(case, config)
    yield _ranking(runs, case, provenance)
    if not case.channels:
        yield _undefined(
            SHORTCUT,
            None,
            provenance,
            "The environment declares no channel.",
            "Look at `kl.split`: it tells every kind of step apart, declared or not.",
        )
    for channel in case.channels:
        yield _shortcut(runs, channel, case, provenance)


def graded_runs(case: Case, config: GradesConfig) -> list[GradedRun]:
    """Runs of the first after, in the order of their ids. Raises `MissingInput`
    where they cannot be scored.
    """
    _, scores = case_scores(case, config.tasks)
    return sorted((grade(scored) for scored in scores), key=lambda run: run.trajectory)


def _generator(case: Case, what: str) -> np.random.Generator:
    return np.random.default_rng(int(content_hash([case.seed, "grades", what], 12), 16))


def _ranking(runs: Sequence[GradedRun], case: Case, provenance: Provenance) -> Evidence | Undefined:
    comparison = compare_scores(runs, seed=case.seed)
    first = comparison.rows[0]
    if first.auroc is None:
        return _undefined(
            AUROC,
            None,
            provenance,
            first.missing or "No run has a grade.",
            "Grade runs of which some succeed and some fail.",
        )
    columns = columns_of(runs)
    scores = columns.scores[ADVANTAGE]
    known = ~np.isnan(scores)
    permuted = _generator(case, "outcomes").permutation(columns.success[known])
    control = None
    try:
        chance = auroc(scores[known], permuted, columns.tasks[known].tolist())
        control = Control(
            name="outcomes dealt anew among the runs",
            estimate=chance.estimate,
            interval=_interval(chance),
        )
    except MissingInput:
        pass  # then there is none
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
    return Evidence(
        question=AUROC,
        layer=LAYER,
        method=METHOD,
        provenance=provenance,
        estimate=first.auroc.estimate,
        unit="AUROC",
        interval=_interval(first.auroc),
        n=first.auroc.runs,
        clusters=first.auroc.tasks,
        control=control,
        artifacts=(table(comparison),),
        diagnostics=diagnostics,
        summary=(
            "The progress advantage tells a success from a failure with an AUROC of"
            f" {first.auroc.estimate:.2f} ({first.auroc.low:.2f} to {first.auroc.high:.2f}) on"
            f" {plural(first.auroc.runs, 'run')} after training{beside}."
        ),
    )


def table(comparison: ScoreTable) -> Table:
    """Every score with its intervals."""
    columns = (
        "score",
        "runs",
        "AUROC of success",
        "low",
        "high",
        f"success, best of {comparison.n}",
        "low",
        "high",
    )
    rows = []
    for row in comparison.rows:
        ranked = (
            (None,) * 3
            if row.auroc is None
            else (row.auroc.estimate, row.auroc.low, row.auroc.high)
        )
        chosen = None if row.best is None else row.best.chosen
        rows.append(
            (
                row.score,
                row.runs,
                *ranked,
                *((None,) * 3 if chosen is None else (chosen.estimate, chosen.low, chosen.high)),
            )
        )
    return Table(
        title="Scores of runs, by what they tell of success", columns=columns, rows=tuple(rows)
    )


def _shortcut(
    runs: Sequence[GradedRun], channel: Channel, case: Case, provenance: Provenance
) -> Evidence | Undefined:
    try:
        effect = contrast(runs, channel.attempts)
        control = shuffled_contrast(runs, channel.attempts, _generator(case, channel.name))
    except MissingInput as missing:
        return _undefined(SHORTCUT, channel.name, provenance, missing.reason, missing.cure)
    direction = "no clear difference"
    if effect.low > 0 or effect.high < 0:
        direction = "RL rewarded them" if effect.low > 0 else "RL turned away from them"
    return Evidence(
        question=SHORTCUT,
        about=channel.name,
        layer=LAYER,
        method=METHOD,
        provenance=provenance,
        estimate=effect.estimate,
        unit="nats a token",
        interval=_interval(effect),
        n=effect.steps,
        clusters=effect.tasks,
        control=Control(
            name="as many steps drawn at random",
            estimate=control.estimate,
            interval=_interval(control),
        ),
        diagnostics={"inside": effect.inside, "outside": effect.outside},
        summary=(
            f"Steps that try {printable(channel.name)} have a grade of {effect.inside:.2f} nats a"
            f" token, the other steps of the same {plural(effect.tasks, 'task')}"
            f" {effect.outside:.2f}: {direction}."
        ),
    )


def _interval(estimate: Ranked | Contrast) -> Interval:
    return Interval(low=estimate.low, high=estimate.high, level=estimate.level)


def _undefined(
    question: str, about: str | None, provenance: Provenance, reason: str, cure: str
) -> Undefined:
    return Undefined(
        question=question,
        about=about,
        layer=LAYER,
        method=METHOD,
        provenance=provenance,
        reason=reason,
        cure=cure,
    )
