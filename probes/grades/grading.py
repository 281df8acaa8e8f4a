"""Progress advantage (2606.26080): how much likelier a step became through RL, and the baselines beside it.

1. Of each sampled token the log-ratio of the policy to its reference is known (`probes.scored`).
2. A step's grade aggregates them over its own sampled tokens; a trajectory's grade aggregates its steps. The default
   is fixed beforehand (`aggregation`).
3. The same tokens give the baselines: each log-probability alone, entropy, self-certainty (2502.18581), confidence
   over the top tokens and its lowest group (2508.15260), and length.

A step that the policy wrote nothing in, or that was not read whole, has no grade: `None`, with the reason. A grade is
the policy's mean minus the reference's, so exchanged checkpoints flip its sign and identical ones give exactly 0.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from forensics.records import Trajectory
from probes.grades.aggregation import DEFAULT, Aggregation
from probes.grades.confidence import CONFIDENCE, TopConfidence, lowest_group
from probes.scored import Scored

if TYPE_CHECKING:
    from forensics.protocols import Policy, SamplingSettings

ADVANTAGE: Final = "progress advantage"
LOWEST_GROUP: Final = "lowest-group confidence"
LENGTH: Final = "length"
BASELINES: Final[Mapping[str, str]] = {  # name -> column of the scored log
    "log-probability, policy": "policy", "log-probability, reference": "reference", "entropy": "entropy",
    "self-certainty": "self_certainty",
}
KEPT: Final = frozenset({*BASELINES.values(), CONFIDENCE, "kl"})  # columns that a step's grade tells the means of
TURNED: Final = frozenset({"entropy", LENGTH})  # where less should mean success
NOT_DRAWN: Final = "the policy drew no token in it"
NOT_READ: Final = "not all of its tokens were read: the text is longer than the checkpoints can see"
NO_REFERENCE: Final = "no reference was scored"
NO_CHANCE: Final = "one of the checkpoints gives a token of it no chance"


@dataclass(frozen=True, kw_only=True)
class StepGrade:
    """One step. `step`: its number in the trajectory. `tokens`: how many the policy drew.

    `grade` and `columns` (means over the step's sampled tokens, nats) are `None` where `reason` says why.
    `ratio_sum`: the sum of log-ratios, which at the optimum is the advantage over the KL weight.
    """

    step: int
    kinds: tuple[str, ...]
    tokens: int
    grade: float | None
    ratio_sum: float | None
    columns: Mapping[str, float | None] = field(default_factory=dict)
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class Graded:
    """One trajectory. `steps`: its assistant steps, in order. `scores`: of the whole, by name; higher should mean
    success (entropy and length are turned round), `None` where it cannot be told."""

    trajectory: str
    task: str
    outcome: float | None
    steps: tuple[StepGrade, ...]
    scores: Mapping[str, float | None]
    retokenised: bool = False

    @property
    def grade(self) -> float | None:
        """The progress advantage of the trajectory."""
        return self.scores[ADVANTAGE]


def progress_advantage(
    policy: "Policy", reference: "Policy", trajectories: Iterable[Trajectory], *, aggregation: Aggregation = DEFAULT,
    settings: "SamplingSettings | None" = None, most_tokens: int | None = None,
) -> Iterator[Graded]:
    """Each trajectory with its graded steps, in order; one streaming pass of both models.

    `settings`: the distribution that log-probabilities are stated under (default: the model's own).
    Raises `UserError` for checkpoints, or a log, of other tokenizers.
    """
    from probes.scoring import score_log

    readouts = readouts_for(policy, reference)
    scored = score_log(policy, reference, trajectories, settings=settings, readouts=readouts, most_tokens=most_tokens)
    for one in scored:
        yield grade(one, aggregation)


def readouts_for(*policies: Any) -> tuple[TopConfidence, ...]:
    """What the grades want to be taken down beside the standard columns; nothing where a server tells too little."""
    return (TopConfidence(),) if all(hasattr(policy, "model") for policy in policies) else ()


def grade(scored: Scored, aggregation: Aggregation = DEFAULT) -> Graded:
    """The grades of one scored trajectory."""
    steps = step_grades(scored, aggregation)
    means = _means(steps)
    scores = {ADVANTAGE: aggregation.of_steps([step.grade for step in steps])}
    scores |= {name: DEFAULT.of_steps(means[column]) for name, column in BASELINES.items()}
    scores[LOWEST_GROUP] = lowest_group(scored.columns.get(CONFIDENCE))
    scores[LENGTH] = float(len(scored.token)) if len(scored.token) else None
    run = scored.trajectory
    turned = {name: -value if value is not None and name in TURNED else value for name, value in scores.items()}
    return Graded(trajectory=run.id, task=run.task, outcome=run.outcome, steps=steps, scores=turned,
                  retokenised=scored.retokenised)


def step_grades(scored: Scored, aggregation: Aggregation = DEFAULT) -> tuple[StepGrade, ...]:
    """Every assistant step, graded or with the reason why not."""
    return tuple(_step(scored, number, step.kinds, aggregation) for number, step in scored.trajectory.actions)


def _step(scored: Scored, number: int, kinds: tuple[str, ...], aggregation: Aggregation) -> StepGrade:
    here = scored.step == number
    reason = _reason(scored, number, here)
    columns = {name: None if reason in (NOT_DRAWN, NOT_READ) else DEFAULT.of_tokens(values[here])
               for name, values in scored.columns.items() if name in KEPT}
    # token by token; for means this is the policy's mean minus the reference's
    told = None if reason else aggregation.of_tokens(scored.ratio[here])
    total = None if reason else float(scored.ratio[here].sum())
    return StepGrade(step=number, kinds=kinds, tokens=int(here.sum()), grade=told, ratio_sum=total, columns=columns,
                     reason=reason)


def _reason(scored: Scored, number: int, here: np.ndarray) -> str | None:
    if not here.any():
        return NOT_DRAWN
    if number in scored.unread:
        return NOT_READ
    if "reference" not in scored.columns:
        return NO_REFERENCE
    return None if np.isfinite(scored.ratio[here]).all() else NO_CHANCE


def _means(steps: Sequence[StepGrade]) -> Mapping[str, list[float | None]]:
    """Of each column of the baselines, the steps' means."""
    return {column: [step.columns.get(column) for step in steps] for column in BASELINES.values()}
