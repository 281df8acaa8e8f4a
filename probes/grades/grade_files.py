"""What a grading leaves in its folder, for machines and as a page.

`grades.parquet` (a row a step), `scores.parquet` (a row a run), `grades.json`
(the table with intervals), `kl_split.json`, `step_rewards.jsonl`.

The page: the table beside its baselines, what activations announce, where the KL
went, and each run with the grade under every step.

What a grading found, and that in plain sentences, each with the figure that
proves it and what it is held against.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, zip_longest
from typing import Any, Final

import numpy as np
import pyarrow as pa

from forensics.phrases import capital, percent, plural, point_range, points, printable
from forensics.policies import (
    Agreement,
)
from forensics.records import (
    SCHEMA_VERSION,
    Estimate,
    Figure,
    Fold,
    Page,
    Scalar,
    Section,
    Series,
    Table,
    TextSpans,
    Trajectory,
    estimate_cell,
    step_text,
    write_step_rewards,
)
from forensics.report import plain
from forensics.rollout_logs import OpenedLog
from forensics.study import Folder
from forensics.version import code_version
from probes.grades.comparison import Attribution, ScoreTable, Selected, StepContrast, table_rows
from probes.grades.step_grades import (
    CONFIDENCE,
    DEFAULT,
    SUCCESS,
    GradedRun,
    StepGrade,
    step_rewards,
)
from probes.kl.instrument import figures, write_split
from probes.kl.kl_split import KlSplit
from probes.linear.instrument import Probed, summary, table
from probes.linear.probe_evaluation import ProbeReport

NAMED_KINDS: Final = 3
UNNAMED: Final = "server "  # begins the name of what has no weights here
FAR: Final = 0.05  # nats a token between sampler and scorer that are told


@dataclass(frozen=True, kw_only=True)
class Grading:
    """What was found. What could not be told is `None`, with its reason in
    `missing`.

    `attempts`: of each declared channel the kinds of steps that try it.
    `agreement`: of the log-probabilities that the sampler told with the
    scorer's, where the policy made the runs.
    """

    log: OpenedLog
    runs: tuple[GradedRun, ...]
    policy: str
    reference: str
    beta: float
    attempts: Mapping[str, tuple[str, ...]]
    comparison: ScoreTable
    split: KlSplit | None
    shortcuts: Mapping[str, StepContrast]
    attribution: tuple[Attribution, ...]
    selected: Selected | None
    missing: tuple[str, ...]
    inputs: Mapping[str, Any]
    agreement: Agreement | None = None
    probes: tuple[Probed, ...] = ()


def facts(grading: Grading) -> list[str]:
    """Short ones."""
    steps = sum(len(run.steps) for run in grading.runs)
    without = sum(step.grade is None for run in grading.runs for step in run.steps)
    again = sum(run.retokenised for run in grading.runs)
    return [
        plural(grading.comparison.tasks, "task"),
        plural(steps, "step"),
        *([f"{without:,} without a grade"] if without else []),
        *([f"{again:,} runs without token ids, tokenised again"] if again else []),
        "mean over a step's tokens, mean over steps",
    ]


def sentences(grading: Grading) -> list[str]:
    """What was found, then what could not be told."""
    return [
        *_ranking(grading),
        *_shortcuts(grading),
        *_split(grading),
        *_attributed(grading),
        *_selected(grading),
        *_agreement(grading),
        *probe_sentences(grading.probes),
        *grading.missing,
    ]


def _ranking(grading: Grading) -> Iterator[str]:
    first, *others = grading.comparison.rows
    if first.auroc is None:
        yield (
            "How well the grade tells successes from failures is not known:"
            f" {printable(first.missing or '', 200)}"
        )
        return
    rival = max(others, key=lambda row: row.auroc.estimate if row.auroc else -1.0, default=None)
    against = ""
    if rival is not None and rival.auroc is not None:
        lead = f", a difference of {_value(rival.advantage_auroc)}" if rival.advantage_auroc else ""
        against = f"; the highest baseline here, {rival.score}, has {_value(rival.auroc)}{lead}"
    yield (
        "The progress advantage tells a success from a failure with an AUROC of"
        f" {_value(first.auroc)}{against}."
    )
    best = first.best
    if best is not None:
        yield (
            f"The run it chooses among {best.n} of a task succeeds in"
            f" {percent(best.chosen.estimate)}, against {percent(best.mean.estimate)} at random"
            f" ({points(best.gain.estimate)} points, {point_range(best.gain.low, best.gain.high)})"
            f" and {percent(best.oracle.estimate)} where any of them succeeds."
        )


def _shortcuts(grading: Grading) -> Iterator[str]:
    for name, effect in grading.shortcuts.items():
        verb = (
            "rewards"
            if effect.low > 0
            else "punishes"
            if effect.high < 0
            else "does not clearly tell apart"
        )
        yield (
            f"The grade {verb} steps that try {printable(name)}: {plain(effect.inside, 2)} nats a"
            f" token there, {plain(effect.outside, 2)} elsewhere (difference {_value(effect)},"
            f" {plural(effect.clusters, 'task')}). It measures what RL rewarded, not what is right."
        )


def _split(grading: Grading) -> Iterator[str]:
    split = grading.split
    if split is None:
        return
    sentence = f"KL(policy || reference) is {split.total.estimate:.2f} nats a run"
    if not grading.log.own:
        unknown = grading.policy.startswith(UNNAMED)  # no weights here say which runs are its own
        whose = (
            "of which no one here knows who made them"
            if unknown
            else "which the policy did not make"
        )
        sentence = f"At the tokens of these runs, {whose}, {sentence}"
    shares = sorted(
        (
            (part.share.estimate, kind)
            for kind, part in split.by_kind.items()
            if part.share and part.share.estimate
        ),
        reverse=True,
    )
    most = ", ".join(
        f"{percent(share)} on `{printable(kind)}`"
        for share, kind in shares[:NAMED_KINDS]
        if share > 0
    )
    yield (
        f"{sentence}; most of it went to: {most}."
        if most
        else f"{sentence}; no shares: {split.undefined}."
    )


def _attributed(grading: Grading) -> Iterator[str]:
    parts = [
        f"{one.predictor} {percent(one.at.estimate)} ({percent(one.near.estimate)} within one)"
        for one in grading.attribution
    ]
    if parts:
        yield (
            f"{capital('the')} step that lost a run is found in"
            f" {plural(grading.attribution[0].runs, 'run')} by: {', '.join(parts)}."
        )


def _selected(grading: Grading) -> Iterator[str]:
    selected = grading.selected
    if selected is not None:
        yield (
            f"Of the aggregations, {selected.aggregation.name} does best on half of the tasks"
            f" (AUROC {selected.selecting.estimate:.2f}); on the other half it has"
            f" {_value(selected.reported)}, the default {_value(selected.default)}."
        )


def _agreement(grading: Grading) -> Iterator[str]:
    agreement = grading.agreement
    if agreement is not None and agreement.mean is not None and agreement.mean > FAR:
        yield (
            f"The sampler told log-probabilities that lie {agreement.mean:.2f} nats a token from"
            f" these (at most {agreement.largest:.2f}): the runs were drawn at another temperature,"
            " with a cut-off or in another precision."
        )


def _value(estimate: Any) -> str:
    return f"{plain(estimate.estimate, 2)} ({plain(estimate.low, 2)} to {plain(estimate.high, 2)})"


def probe_sentences(probes: Sequence[Probed]) -> Iterator[str]:
    """What the probes tell, what the text does, and where their directions lie."""
    for one in probes:
        if one.measured is None:
            reason = one.missing.reason if one.missing else ""
            yield f"{probe_name(one)} cannot be probed: {reason.rstrip('.')}."
            continue
        yield summary(one.about, one.measured)
        if one.measured.unread:
            yield f"That leaves out {plural(one.measured.unread, 'step')} that could not be read."
        if one.measured.transfer is not None:
            moved = _value(one.measured.transfer.auroc)
            yield f"Fitted to the reference's own runs, the same probe has {moved} there."
        if one.decoders is not None:
            (latent, cosine), p_value = one.decoders.nearest[0], one.decoders.p_value
            chance = f"; p = {p_value:.2g} against probes of shuffled labels"
            yield (
                f"Its direction at {one.decoders.site} lies nearest to latent {latent} of the diff"
                f" (cosine {plain(cosine, 2)}{'' if p_value is None else chance})."
            )


def probe_name(one: Probed) -> str:
    """What a probe was asked."""
    return "A run's success" if one.about is None else f"A step that tries {printable(one.about)}"


NUMBERS: Final = {  # column of the table -> column of a step's means
    "logprob_policy": "policy",
    "logprob_reference": "reference",
    "entropy": "entropy",
    "kl": "kl",
    "self_certainty": "self_certainty",
    "confidence": CONFIDENCE,
}
SELECTED: Final = ("selecting", "reported", "default", "lead")
STEPS: Final = pa.schema(
    [
        ("trajectory", pa.string()),
        ("step", pa.int32()),
        ("task", pa.string()),
        ("kinds", pa.list_(pa.string())),
        ("tokens", pa.int32()),
        ("grade", pa.float64()),
        ("ratio_sum", pa.float64()),
        *((name, pa.float64()) for name in NUMBERS),
        ("reason", pa.string()),
    ]
)


def write_tables(folder: Folder, grading: Grading) -> None:
    """Every file but `grades.json` and the page."""
    steps = (
        {
            "trajectory": run.trajectory,
            "task": run.task,
            "step": step.step,
            "kinds": list(step.kinds),
            "tokens": step.tokens,
            "grade": step.grade,
            "ratio_sum": step.ratio_sum,
            "reason": step.reason,
            **{name: step.columns.get(column) for name, column in NUMBERS.items()},
        }
        for run in grading.runs
        for step in run.steps
    )
    folder.table("grades.parquet", steps, STEPS)
    columns = [("trajectory", pa.string()), ("task", pa.string()), ("outcome", pa.float64())]
    columns += [(name, pa.float64()) for run in grading.runs[:1] for name in run.scores]
    runs = (
        {"trajectory": run.trajectory, "task": run.task, "outcome": run.outcome, **run.scores}
        for run in grading.runs
    )
    folder.table("scores.parquet", runs, pa.schema(columns))
    # the log is read once more: a record says of which tokens it speaks
    checkpoints, code = {"policy": grading.policy, "reference": grading.reference}, code_version()
    rewards = (
        step_rewards(graded, run, **checkpoints, code=code, beta=grading.beta)
        for graded, run in zip(grading.runs, grading.log.rollouts, strict=True)
    )
    write_step_rewards(folder.path / "step_rewards.jsonl", rewards)
    if grading.split is not None:
        write_split(folder.path, grading.split)


def summary_of(grading: Grading) -> dict[str, Any]:
    """Everything but the steps, as plain data."""
    comparison = grading.comparison
    best = comparison.rows[0].best
    reasons = Counter(step.reason for run in grading.runs for step in run.steps if step.reason)
    return {
        "schema_version": SCHEMA_VERSION,
        "inputs": dict(grading.inputs),
        "code": code_version(),
        "aggregation": asdict(DEFAULT),
        "runs": len(grading.runs),
        "judged_runs": comparison.runs,
        "tasks": comparison.tasks,
        "best_of": comparison.n,
        "table": list(table_rows(comparison)),
        "mean_success": best and best.mean.row(),
        "oracle": best and best.oracle.row(),
        "calibration": [asdict(one) for one in comparison.calibration],
        "shortcuts": {
            name: one.row()
            | {"inside": one.inside, "outside": one.outside, "steps": one.n, "tasks": one.clusters}
            for name, one in grading.shortcuts.items()
        },
        "attribution": [
            {
                "predictor": one.predictor,
                "at_the_step": one.at.row(),
                "within_one": one.near.row(),
                "runs": one.runs,
            }
            for one in grading.attribution
        ],
        "selected": grading.selected
        and {
            "aggregation": asdict(grading.selected.aggregation),
            **{name: getattr(grading.selected, name).row() for name in SELECTED},
        },
        "ungraded_steps": dict(reasons),
        "retokenised_runs": sum(run.retokenised for run in grading.runs),
        "sampler_agreement": grading.agreement and grading.agreement.row(),
        "linear_probes": probe_rows(grading.probes) if grading.probes else None,
        "missing": list(grading.missing),
        "sentences": sentences(grading),
    }


def probe_rows(probes: Sequence[Probed]) -> list[dict[str, Any]]:
    """Plain data for `grades.json`."""
    return [
        {
            "about": one.about,
            "missing": one.missing and one.missing.reason,
            **(_measured_row(one.measured) if one.measured else {}),
            "decoders": one.decoders
            and {
                "site": one.decoders.site,
                "p_value": one.decoders.p_value,
                "nearest": [
                    {"latent": latent, "cosine": cosine} for latent, cosine in one.decoders.nearest
                ],
            },
        }
        for one in probes
    ]


def _measured_row(measured: ProbeReport) -> dict[str, Any]:
    probe, permuted = measured.logistic, sorted(measured.logistic.shuffled)
    return {
        "auroc": probe.auroc.row(),
        "rows": probe.rows,
        "positives": probe.positives,
        "tasks": probe.tasks,
        "unread_steps": measured.unread,
        "difference_of_means": measured.mean_difference.auroc.row(),
        "by_site": {site: one.row() for site, one in probe.by_site.items()},
        "text": {
            name: {"auroc": one.auroc.row(), "probe_minus_this": one.advantage.row()}
            for name, one in probe.baselines.items()
        },
        "shuffled_labels": (
            {
                "times": len(permuted),
                "mean": sum(permuted) / len(permuted),
                "least": permuted[0],
                "most": permuted[-1],
                "p_value": probe.p_value,
            }
            if permuted
            else None
        ),
        "before_to_after": measured.transfer and measured.transfer.auroc.row(),
        "before_to_after_missing": measured.no_transfer,
    }


MOST_RUNS: Final = 40
FULL_BAR: Final = 0.95  # quantile of the grades' sizes that fills a bar


def grading_page(grading: Grading) -> Page:
    """The page; beyond `MOST_RUNS` it says how many runs it leaves out."""
    graded = {run.trajectory: run for run in shown_first(grading.runs)}
    runs = {run.id: run for run in grading.log.rollouts if run.id in graded}
    steps = chain.from_iterable(run.steps for run in graded.values())
    sizes = [abs(step.grade) for step in steps if step.grade is not None]
    scale = float(np.quantile(sizes, FULL_BAR)) or 1.0 if sizes else 1.0
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
        title=f"{plural(len(grading.runs), 'run')} graded by what RL made likelier",
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
