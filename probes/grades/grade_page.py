"""The page of a grading: the table beside its baselines, what activations
announce, where the KL went, and each run with the grade under every step.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, zip_longest
from typing import Final

import numpy as np

from forensics.phrases import plural
from forensics.records import Figure, Series, Table, Trajectory
from forensics.records.evidence import Scalar
from forensics.records.page import Fold, Page, Section, TextSpans, estimate_cell, step_text
from forensics.records.verdict import Estimate
from forensics.report.numbers import plain
from probes.grades.comparison import ScoreTable
from probes.grades.grade_result import Grading, facts, probe_name, sentences, title
from probes.grades.step_grades import SUCCESS, GradedRun, StepGrade
from probes.kl.kl_figures import figures
from probes.linear.instrument import Probed, table

MOST_RUNS: Final = 40
FULL_BAR: Final = 0.95  # quantile of the grades' sizes that fills a bar


def grading_page(grading: Grading) -> Page:
    """The page; beyond `MOST_RUNS` it says how many runs it leaves out."""
    graded = {run.trajectory: run for run in shown_first(grading.runs)}
    runs = {run.id: run for run in grading.log.rollouts if run.id in graded}
    scale = full_bar(list(graded.values()))
    shortcuts = frozenset(chain.from_iterable(grading.attempts.values()))
    folds = [
        run_fold(one, runs[name], scale, shortcuts, f"run-{i}")
        for i, (name, one) in enumerate(graded.items())
    ]
    left_out = len(grading.runs) - len(graded)
    more = [f"{left_out:,} more runs are in the tables beside this page."] if left_out else []
    curve = (
        [calibration_figure(grading.comparison)] if len(grading.comparison.calibration) > 1 else []
    )
    split = tuple(figures(grading.split)) if grading.split is not None else ()
    probes = tuple(probe_tables(grading.probes))
    return Page(
        eyebrow="Which steps did RL make likelier",
        title=title(grading),
        sentences=tuple(sentences(grading)),
        facts=tuple(facts(grading)),
        sections=(
            Section(
                title="Against its baselines",
                hint="95 % intervals by task. Higher should mean success; entropy and length are"
                " turned round. The logistic model is fitted on one half of the tasks and reported"
                " on the other.",
                blocks=(score_table(grading.comparison), *curve),
            ),
            *([Section(title="Where RL spent its KL", blocks=split)] if split else []),
            *(
                [Section(title="What activations announce", hint=PROBED, blocks=probes)]
                if probes
                else []
            ),
            Section(
                title="Runs",
                hint="Under each step: its grade, the mean log-ratio of its tokens, nats. To the"
                " right, RL made the step likelier; to the left, less likely. A full bar is"
                f" {plain(scale, 2)}. A grade says what RL rewarded, not what is right.",
                blocks=(*folds, *more),
                empty="No run has a grade.",
            ),
        ),
    )


PROBED: Final = (
    "Linear probes at the last token before an action, on tasks they were not fitted to; site and"
    " strength are chosen inside. A probe that beats the text says that the answer is there, not"
    " that the policy uses it."
)


def shown_first(runs: Sequence[GradedRun], most: int = MOST_RUNS) -> list[GradedRun]:
    """Lost runs with the lowest step first, and won ones with the highest
    grade, in turns; each task once on a side.
    """
    sides: tuple[dict[str, GradedRun], ...] = ({}, {})  # lost, won: the first run of each task
    lowest = {
        run.trajectory: min(grades)
        for run in runs
        if (grades := [step.grade for step in run.steps if step.grade is not None])
    }
    known = sorted(
        (run for run in runs if run.trajectory in lowest), key=lambda run: run.trajectory
    )
    for run in sorted(known, key=lambda run: lowest[run.trajectory]):
        if run.outcome is None or run.outcome < SUCCESS:
            sides[0].setdefault(run.task, run)
    for run in sorted(known, key=lambda run: -(run.grade or 0.0)):
        if run.outcome is not None and run.outcome >= SUCCESS:
            sides[1].setdefault(run.task, run)
    lost, won = (list(side.values()) for side in sides)
    rounds = zip_longest(lost, won)
    return [run for pair in rounds for run in pair if run is not None][:most]


def full_bar(runs: Sequence[GradedRun]) -> float:
    """The size of grade that fills a bar."""
    sizes = [abs(step.grade) for run in runs for step in run.steps if step.grade is not None]
    return float(np.quantile(sizes, FULL_BAR)) or 1.0 if sizes else 1.0


def run_fold(
    graded: GradedRun, run: Trajectory, scale: float, shortcuts: frozenset[str], anchor: str
) -> Fold:
    """A run with the grade under every step that the policy wrote."""
    known = {step.step: step for step in graded.steps}
    grades = {number: step.grade for number, step in known.items() if step.grade is not None}
    lowest = min(grades, key=grades.__getitem__) if grades else None
    steps: list[TextSpans] = []
    total = 0.0
    for number, step in enumerate(run.steps):
        total += grades.get(number, 0.0)
        value = grades.get(number)
        lowest_here = ", lowest of this run" if number == lowest else ""
        steps.append(
            step_text(
                number,
                step,
                marks=("shortcut",) if shortcuts & {*step.kinds} else (),
                value=None if value is None else max(-1.0, min(1.0, value / scale)),
                note=_told(known[number], total) + lowest_here if number in known else "",
            )
        )
    outcome = "no outcome" if run.outcome is None else f"outcome {plain(run.outcome)}"
    grade = "no grade" if graded.grade is None else f"grade {plain(graded.grade, 2, plus=True)}"
    return Fold(
        title=run.task,
        facts=(f"trajectory {run.id}", outcome, grade),
        blocks=tuple(steps),
        open=True,
        anchor=anchor,
    )


def _told(step: StepGrade, total: float) -> str:
    if step.grade is None:
        return f"no grade: {step.reason}"
    policy, reference = (plain(step.columns[side] or 0.0, 2) for side in ("policy", "reference"))
    return (
        f"grade {plain(step.grade, 2, plus=True)}: policy {policy}, reference {reference},"
        f" {plural(step.tokens, 'token')}, running sum {plain(total, 2, plus=True)}"
    )


def score_table(comparison: ScoreTable) -> Table:
    """A row a score, the progress advantage first, then drawing at random and the oracle."""
    area, best = "AUROC of success", f"best of {comparison.n}"
    lead = "lead of the progress advantage, AUROC"
    rows: list[tuple[Scalar | Estimate, ...]] = [
        (
            row.score,
            f"{row.runs:,}",
            estimate_cell(row.auroc),
            estimate_cell(row.best and row.best.chosen),
            estimate_cell(row.advantage_auroc) or "",
        )
        for row in comparison.rows
    ]
    if (first := comparison.rows[0].best) is not None:
        rows.append(("a run at random", "", "", estimate_cell(first.mean), ""))
        rows.append(("any of them (oracle)", "", "", estimate_cell(first.oracle), ""))
    units = {area: "AUROC", best: "share", lead: "AUROC difference"}
    columns = ("score", "runs", area, best, lead)
    return Table(title="Scores", columns=columns, rows=tuple(rows), units=units)


def probe_tables(probes: Sequence[Probed]) -> Iterator[Table]:
    """One for each question that was answered: readings, their AUROC and the probe's lead."""
    for one in probes:
        if one.measured is not None:
            rows = []
            for name, *values in table(one.measured).rows:
                area, lead = (
                    estimate_cell(dict(zip(("estimate", "low", "high"), ends, strict=True)))
                    if ends[0] is not None
                    else ""
                    for ends in (values[:3], values[3:])
                )
                rows.append((name, area, lead))
            yield Table(
                title=f"{probe_name(one)}, announced before the action",
                columns=("reading", "AUROC", "probe minus this"),
                rows=tuple(rows),
                units={"AUROC": "AUROC", "probe minus this": "AUROC difference"},
            )


def calibration_figure(comparison: ScoreTable) -> Figure:
    """The rate of success in groups of runs by grade."""
    bins = comparison.calibration
    series = Series(
        name="rate of success",
        x=tuple(one.mean for one in bins),
        y=tuple(one.rate for one in bins),
        low=tuple(one.low for one in bins),
        high=tuple(one.high for one in bins),
    )
    return Figure(
        title="Success by grade of the run",
        form="lines",
        x_label="progress advantage of the run",
        y_label="success",
        series=(series,),
    )
