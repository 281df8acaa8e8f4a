"""What a grading leaves in its folder for machines.

`grades.parquet` (a row a step), `scores.parquet` (a row a run), `grades.json`
(the table with intervals), `kl_split.json`, `step_rewards.jsonl`.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

import pyarrow as pa

from forensics.records.feedback import write_step_rewards
from forensics.records.record import SCHEMA_VERSION
from forensics.study import Folder
from forensics.version import code_version
from probes.grades.comparison import table_rows
from probes.grades.grade_result import Grading, sentences
from probes.grades.step_grades import CONFIDENCE, DEFAULT, step_rewards
from probes.kl.kl_figures import write_split
from probes.linear.instrument import (
    Probed,
)
from probes.linear.probe_evaluation import ProbeReport

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
    names = grading.runs[0].scores if grading.runs else ()
    columns = [("trajectory", pa.string()), ("task", pa.string()), ("outcome", pa.float64())]
    runs = (
        {"trajectory": run.trajectory, "task": run.task, "outcome": run.outcome, **run.scores}
        for run in grading.runs
    )
    schema = pa.schema([*columns, *((name, pa.float64()) for name in names)])
    folder.table("scores.parquet", runs, schema)
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
        "sampler_agreement": None if grading.agreement is None else asdict(grading.agreement),
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
