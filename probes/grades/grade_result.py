"""What a grading found."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from forensics.rollout_logs import OpenedLog
from probes.grades.comparison import ScoreTable
from probes.grades.step_checks import Attribution, StepContrast
from probes.grades.step_grades import GradedRun
from probes.grades.task_halves import Selected
from probes.kl.kl_split import KlSplit
from probes.linear.instrument import Probed
from probes.scores.token_scores import Agreement


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
