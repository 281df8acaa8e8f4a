"""The page of grades: each run with the grade under every step, the table with
its baselines, and where the KL went.

One self-contained file without any script. Bars have classes instead of styles,
and nothing that a model wrote can act in it (see `forensics.report.pages`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import numpy as np
from markupsafe import Markup

from forensics.records import Figure, Series, Trajectory
from forensics.report import charts, numbers
from forensics.report.pages import COMMON, content_policy, templates
from probes.grades.auroc import SUCCESS
from probes.grades.comparison import ScoreRow, ScoreTable
from probes.grades.step_grades import GradedRun, StepGrade
from probes.kl.kl_figures import figures
from probes.kl.kl_split import KlSplit

FOLDER: Final = Path(__file__).parent / "templates"
MOST_RUNS: Final = 40
LONGEST: Final = 4000  # characters of one step
LEVELS: Final = 20  # lengths of a bar
FULL_BAR: Final = 0.95  # quantile of the grades' sizes that fills a bar


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One step of a run. `grade`: `None` for what the policy did not write.
    `running`: the sum of grades so far.
    """

    step: int
    role: str
    kinds: tuple[str, ...]
    text: str
    shortcut: bool = False
    grade: StepGrade | None = None
    running: float | None = None
    level: int = 0

    @property
    def side(self) -> str:
        """The class of the bar: to the right, or to the left."""
        return "up" if self.grade is not None and (self.grade.grade or 0) >= 0 else "down"


@dataclass(frozen=True, kw_only=True)
class RunView:
    """One run. `lowest`: the step with the least grade."""

    id: str
    task: str
    outcome: float | None
    grade: float | None
    turns: tuple[Turn, ...]
    lowest: int | None


def grades_page(
    title: str,
    summary: Sequence[str],
    runs: Sequence[tuple[GradedRun, Trajectory]],
    comparison: ScoreTable,
    *,
    split: KlSplit | None = None,
    facts: Sequence[str] = (),
    left_out: int = 0,
    shortcuts: frozenset[str] = frozenset(),
    probes: Sequence[tuple[str, Sequence[tuple[str, str, str]]]] = (),
) -> str:
    """The page. `summary`: sentences under the title; `facts`: short ones
    beside it. `shortcuts`: kinds of steps that try a declared shortcut.
    `left_out`: runs that are in the tables only. `probes`: tables with their
    titles.
    """
    scale = full_bar([graded for graded, _ in runs])
    views = [run_view(graded, run, scale, shortcuts) for graded, run in runs]
    curve = [calibration_figure(comparison)] if len(comparison.calibration) > 1 else []
    drawings = [
        (figure.title, Markup(charts.draw(figure, prefix=f"figure-{i}")))
        for i, figure in enumerate([*curve, *(figures(split) if split is not None else ())])
    ]
    lengths = [f".l{level}{{--long:{50 * level / LEVELS:g}%}}" for level in range(LEVELS + 1)]
    style = (COMMON / "report.css").read_text(encoding="utf-8") + "".join(lengths)
    style += (FOLDER / "grades.css").read_text(encoding="utf-8")
    return (
        templates(FOLDER)
        .get_template("grades.html.j2")
        .render(
            title=title,
            summary=summary,
            facts=facts,
            runs=views,
            table=[_row(row) for row in comparison.rows],
            drawings=drawings,
            left_out=left_out,
            longest=LONGEST,
            n=comparison.n,
            style=Markup(style),
            policy=content_policy(style, ""),
            plain=numbers.plain,
            scale=scale,
            probes=probes,
        )
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


def run_view(
    graded: GradedRun, run: Trajectory, scale: float, shortcuts: frozenset[str] = frozenset()
) -> RunView:
    """A run and its grades brought together."""
    grades = {step.step: step for step in graded.steps}
    turns, total = [], 0.0
    for number, step in enumerate(run.steps):
        step_grade = grades.get(number)
        known = None if step_grade is None else step_grade.grade
        total += known or 0.0
        turns.append(
            Turn(
                step=number,
                role=step.role,
                kinds=step.kinds,
                text=step.text,
                shortcut=bool(shortcuts & {*step.kinds}),
                grade=step_grade,
                running=None if known is None else total,
                # what is not 0 shows
                level=min(LEVELS, max(1, round(LEVELS * abs(known) / scale))) if known else 0,
            )
        )
    known_steps = [step for step in graded.steps if step.grade is not None]
    lowest = min(known_steps, key=lambda step: step.grade or 0.0).step if known_steps else None
    return RunView(
        id=run.id,
        task=run.task,
        outcome=run.outcome,
        grade=graded.grade,
        turns=tuple(turns),
        lowest=lowest,
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


def _row(row: ScoreRow) -> tuple[str, ...]:
    def cell(estimate: Any, scaled: bool, plus: bool = False) -> str:
        if estimate is None:
            return "not measured"
        parts = [
            numbers.plain(100 * v if scaled else v, 1 if scaled else 2, plus=plus and i == 0)
            for i, v in enumerate((estimate.estimate, estimate.low, estimate.high))
        ]
        return f"{parts[0]}{' %' if scaled else ''} ({parts[1]} to {parts[2]})"

    best = row.best.chosen if row.best else None
    lead = "" if row.advantage_auroc is None else cell(row.advantage_auroc, False, plus=True)
    return row.score, f"{row.runs:,}", cell(row.auroc, False), cell(best, True), lead
