"""Do the grades of steps tell success, and do they reward a shortcut? An instrument on a pair of policies.

1. Some runs of the first checkpoint after training (the score layer has played them) are graded (`grading`), from the
   one pass of both checkpoints that this room's instruments share (`probes.case_pass`).
2. `grades.auroc`: how well the progress advantage tells successes from failures, with every baseline in the table. Its
   control is the same score on outcomes dealt anew among the runs.
3. `grades.shortcut`: for each declared channel, the mean grade of the steps that try it minus that of the other steps
   of the same tasks. Its control is as many steps drawn at random. A grade that rewards a shortcut measures what RL
   rewarded, so here it is evidence of what the training was after.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from forensics.case import Case
from forensics.errors import MissingInput
from forensics.instruments import instrument
from forensics.protocols import Channel
from forensics.records import Control, Evidence, Interval, Provenance, Table, Undefined, content_hash
from forensics.wording import plural, printable
from probes.case_pass import case_pass
from probes.grades.comparing import Comparison, columns_of, compare
from probes.grades.grading import ADVANTAGE, Graded, grade
from probes.grades.ranking import Ranked, auroc
from probes.grades.shortcuts import Contrast, contrast, shuffled_contrast

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
        raise MissingInput("Logs alone do not say how likely another policy was to do the same.",
                           "Give the checkpoints to `forensics investigate`, or the log to `forensics grade`.")
    if not case.afters:
        raise MissingInput("The case has no runs after training.", "Give at least one `--after`.")
    provenance = grades.configured(**vars(config)).provenance(case)
    runs = graded_runs(case, config)
    yield _ranking(runs, case, provenance)
    if not case.channels:
        yield _undefined(SHORTCUT, None, provenance, "The environment declares no channel.",
                         "Look at `kl.split`: it tells every kind of step apart, declared or not.")
    for channel in case.channels:
        yield _shortcut(runs, channel, case, provenance)


def graded_runs(case: Case, config: GradesConfig) -> list[Graded]:
    """Runs of the first after, in the order of their ids. Raises `MissingInput` where they cannot be scored."""
    return sorted((grade(scored) for scored in case_pass(case, config.tasks)), key=lambda run: run.trajectory)


def _generator(case: Case, what: str) -> np.random.Generator:
    return np.random.default_rng(int(content_hash([case.seed, "grades", what], 12), 16))


def _ranking(runs: Sequence[Graded], case: Case, provenance: Provenance) -> Evidence | Undefined:
    comparison = compare(runs, seed=case.seed)
    first = comparison.rows[0]
    if first.auroc is None:
        return _undefined(AUROC, None, provenance, first.missing or "No run has a grade.",
                          "Grade runs of which some succeed and some fail.")
    dealt = _on_dealt_outcomes(runs, case)
    return Evidence(
        question=AUROC, layer=LAYER, method=METHOD, provenance=provenance, estimate=first.auroc.estimate, unit="AUROC",
        interval=_interval(first.auroc), n=first.auroc.runs, clusters=first.auroc.tasks,
        control=None if dealt is None else Control(name="outcomes dealt anew among the runs", estimate=dealt.estimate,
                                                   interval=_interval(dealt)),
        artifacts=(table(comparison),), diagnostics=_best(comparison),
        summary=f"The progress advantage tells a success from a failure with an AUROC of {first.auroc.estimate:.2f} "
        f"({first.auroc.low:.2f} to {first.auroc.high:.2f}) on {plural(first.auroc.runs, 'run')} after training"
        f"{_beside(comparison)}.",
    )


def _on_dealt_outcomes(runs: Sequence[Graded], case: Case) -> Ranked | None:
    columns = columns_of(runs)
    scores = columns.scores[ADVANTAGE]
    known = ~np.isnan(scores)
    dealt = _generator(case, "outcomes").permutation(columns.success[known])
    try:
        return auroc(scores[known], dealt, columns.tasks[known].tolist())
    except MissingInput:
        return None


def _beside(comparison: Comparison) -> str:
    """The policy's own log-probability, the baseline that needs no reference."""
    row = next((row for row in comparison.rows if row.score == "log-probability, policy"), None)
    return "" if row is None or row.auroc is None else f"; the log-probability alone has {row.auroc.estimate:.2f}"


def _best(comparison: Comparison) -> dict[str, Any]:
    best = comparison.rows[0].best
    if best is None:
        return {}
    return {"best_of": best.n, "best_of_success": best.chosen.estimate, "mean_success": best.mean.estimate,
            "oracle_success": best.oracle.estimate}


def table(comparison: Comparison) -> Table:
    """Every score with its intervals."""
    columns = ("score", "runs", "AUROC of success", "low", "high", f"success, best of {comparison.n}", "low", "high")
    rows = []
    for row in comparison.rows:
        ranked = (None,) * 3 if row.auroc is None else (row.auroc.estimate, row.auroc.low, row.auroc.high)
        chosen = None if row.best is None else row.best.chosen
        rows.append((row.score, row.runs, *ranked,
                     *((None,) * 3 if chosen is None else (chosen.estimate, chosen.low, chosen.high))))
    return Table(title="Scores of runs, by what they tell of success", columns=columns, rows=tuple(rows))


def _shortcut(
    runs: Sequence[Graded], channel: Channel, case: Case, provenance: Provenance
) -> Evidence | Undefined:
    try:
        found = contrast(runs, channel.attempts)
        control = shuffled_contrast(runs, channel.attempts, _generator(case, channel.name))
    except MissingInput as missing:
        return _undefined(SHORTCUT, channel.name, provenance, missing.reason, missing.cure)
    return Evidence(
        question=SHORTCUT, about=channel.name, layer=LAYER, method=METHOD, provenance=provenance,
        estimate=found.estimate, unit="nats a token", interval=_interval(found), n=found.steps, clusters=found.tasks,
        control=Control(name="as many steps drawn at random", estimate=control.estimate, interval=_interval(control)),
        diagnostics={"inside": found.inside, "outside": found.outside},
        summary=f"Steps that try {printable(channel.name)} have a grade of {found.inside:.2f} nats a token, the other "
        f"steps of the same {plural(found.tasks, 'task')} {found.outside:.2f}: {_direction(found)}.",
    )


def _direction(found: Contrast) -> str:
    if found.low > 0:
        return "RL rewarded them"
    return "RL turned away from them" if found.high < 0 else "no clear difference"


def _interval(found: Ranked | Contrast) -> Interval:
    return Interval(low=found.low, high=found.high, level=found.level)


def _undefined(question: str, about: str | None, provenance: Provenance, reason: str, cure: str) -> Undefined:
    return Undefined(question=question, about=about, layer=LAYER, method=METHOD, provenance=provenance, reason=reason,
                     cure=cure)
