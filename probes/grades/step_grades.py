"""Progress advantage (2606.26080): how much likelier a step became through RL,
the baselines beside it, and the same as dense rewards.

1. Of each sampled token the log-ratio of the policy to its reference is known
   (`forensics.policies.sampled_tokens`).
2. A step's grade aggregates them over its own sampled tokens; a trajectory's
   grade aggregates its steps. The default is fixed beforehand: mean over a
   step's tokens, mean over steps (2606.26080, section 3). The paper picks
   another one per task on the data it reports on; here any other goes through
   `comparison.select`.
3. The same tokens give the baselines: each log-probability alone, entropy,
   self-certainty (2502.18581), lowest-group confidence (2508.15260), length.
4. As a reward for training a step has the *sum* of its log-ratios: by the
   identity `A* = beta * log-ratio` this is its advantage, where the
   length-normalised grade is not. `beta` is the weight of the KL term in the
   training that made the policy; where it is not known, 1 leaves the reward in
   nats. How it is combined with the outcome is for who trains.

A step that the policy wrote nothing in, or that was not read whole, has no
grade: `None`, with the reason. A grade is the policy's mean minus the
reference's, so exchanged checkpoints flip its sign and identical ones give
exactly 0.

Confidence of a token is minus the mean log-probability of the `TOP` likeliest
tokens at its place: high where one token has nearly all the probability. It is
averaged over a window of `GROUP` tokens that slides over all sampled tokens,
and the lowest window is the score of the trajectory. Departure: the paper's
windows of 1024 and 2048 tokens suit chains of thought of tens of thousands;
runs of agents in small steps would have one window, so ours is shorter. A run
shorter than a window is one group, as in the paper.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from forensics.case import Case, Rollouts
from forensics.errors import MissingInput, refused_as_missing
from forensics.policies import PolicyRef, TokenScores, policy_ref, stored_scores
from forensics.protocols import Policy, SamplingSettings
from forensics.records import Provenance, StepRewards, Trajectory, content_hash, drawn_key
from probes.kl.kl_split import KlPlan, plan_kl

REDUCTIONS: Final[Mapping[str, Callable[[np.ndarray], float]]] = {
    "mean": lambda values: float(values.mean()),
    "sum": lambda values: float(values.sum()),
    "min": lambda values: float(values.min()),
    "max": lambda values: float(values.max()),
    "last": lambda values: float(values[-1]),
}
CONFIDENCE: Final = "top_confidence"
TOP: Final = 20
GROUP: Final = 32
ADVANTAGE: Final = "progress advantage"
LOWEST_GROUP: Final = "lowest-group confidence"
LENGTH: Final = "length"
BASELINES: Final[Mapping[str, str]] = {  # name -> column of the scored log
    "log-probability, policy": "policy",
    "log-probability, reference": "reference",
    "entropy": "entropy",
    "self-certainty": "self_certainty",
}
KEPT: Final = frozenset(
    {*BASELINES.values(), CONFIDENCE, "kl"}
)  # columns that a step's grade tells the means of
TURNED: Final = frozenset({"entropy", LENGTH})  # where less should mean success
NOT_DRAWN: Final = "the policy drew no token in it"
NOT_READ: Final = "not all of its tokens were read: the text is longer than the checkpoints can see"
NO_REFERENCE: Final = "no reference was scored"
NO_CHANCE: Final = "one of the checkpoints gives a token of it no chance"
BETA: Final = 1.0
SUCCESS: Final = 0.5  # the outcome from which a run is a success


@dataclass(frozen=True, kw_only=True)
class Aggregation:
    """`tokens`: over the sampled tokens of a step; `steps`: over the steps of a
    trajectory. Each one of `REDUCTIONS`.
    """

    tokens: str = "mean"
    steps: str = "mean"

    def __post_init__(self) -> None:
        for name in (self.tokens, self.steps):
            if name not in REDUCTIONS:
                raise ValueError(
                    f"there is no aggregation '{name}'; use one of {', '.join(REDUCTIONS)}"
                )

    @property
    def name(self) -> str:
        return f"{self.tokens} of tokens, {self.steps} of steps"

    def of_tokens(self, values: np.ndarray) -> float | None:
        """`values [tokens]`; `None` where there are none, or one is not finite
        (not read, or without any chance).
        """
        return _known(values, self.tokens)

    def of_steps(self, values: Sequence[float | None]) -> float | None:
        """Steps that are `None` take no part; `None` where none is left."""
        return _known(np.array([value for value in values if value is not None], float), self.steps)


DEFAULT: Final = Aggregation()
ALL: Final = tuple(
    Aggregation(tokens=tokens, steps=steps) for tokens in REDUCTIONS for steps in REDUCTIONS
)


def _known(values: np.ndarray, way: str) -> float | None:
    return REDUCTIONS[way](values) if len(values) and np.isfinite(values).all() else None


@dataclass(frozen=True)
class TopConfidence:
    """A readout: minus the mean log-probability of the `top` likeliest tokens,
    nats.

    Tokens without any chance (shut out by the settings) are left out of the
    mean.
    """

    top: int = TOP

    @property
    def identity(self) -> str:
        """What its numbers depend on."""
        return f"top confidence of {self.top}"

    @property
    def names(self) -> Sequence[str]:
        return (CONFIDENCE,)

    def __call__(self, policy: Any, reference: Any, at: Any) -> Any:
        likeliest = policy.topk(min(self.top, policy.shape[-1]), dim=-1).values
        some = likeliest.isfinite()
        return -(likeliest.where(some, 0.0).sum(-1) / some.sum(-1).clamp(min=1))


def lowest_group(confidence: np.ndarray | None, group: int = GROUP) -> float | None:
    """The least mean over `group` tokens in a row of `confidence [tokens]`;
    `None` where one was not read.
    """
    if confidence is None or not len(confidence) or np.isnan(confidence).any():
        return None
    window = min(group, len(confidence))
    sums = np.cumsum(np.concatenate([[0.0], confidence]))
    return float((sums[window:] - sums[:-window]).min() / window)


@dataclass(frozen=True, kw_only=True)
class StepGrade:
    """One step. `step`: its number in the trajectory. `tokens`: how many the
    policy drew.

    `grade` and `columns` (means over the step's sampled tokens, nats) are
    `None` where `reason` says why.
    `ratio_sum`: the sum of log-ratios, which at the optimum is the advantage
    over the KL weight.
    """

    step: int
    kinds: tuple[str, ...]
    tokens: int
    grade: float | None
    ratio_sum: float | None
    columns: Mapping[str, float | None] = field(default_factory=dict)
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class GradedRun:
    """One trajectory. `steps`: its assistant steps, in order. `scores`: of the
    whole, by name; higher should mean success (entropy and length are turned
    round), `None` where it cannot be told.
    """

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
    policy: Policy,
    reference: Policy,
    trajectories: Iterable[Trajectory],
    *,
    aggregation: Aggregation = DEFAULT,
    settings: SamplingSettings | None = None,
    most_tokens: int | None = None,
) -> Iterator[GradedRun]:
    """Each trajectory with its graded steps, in order; one streaming pass of
    both models.

    `settings`: the distribution that log-probabilities are stated under
    (default: the model's own). Raises `UserError` for checkpoints, or a log, of
    other tokenizers.
    """
    from forensics.policies import score_log

    # what the grades want beside the standard columns; nothing where a server tells too little
    whole = all("weights" in one.capabilities for one in (policy, reference))
    scored = score_log(
        policy,
        reference,
        trajectories,
        settings=settings,
        readouts=(TopConfidence(),) if whole else (),
        most_tokens=most_tokens,
    )
    for one in scored:
        yield grade(one, aggregation)


def grade(scored: TokenScores, aggregation: Aggregation = DEFAULT) -> GradedRun:
    """The grades of one scored trajectory."""
    steps = step_grades(scored, aggregation)
    scores = {ADVANTAGE: aggregation.of_steps([step.grade for step in steps])}
    for name, column in BASELINES.items():
        scores[name] = DEFAULT.of_steps([step.columns.get(column) for step in steps])
    scores[LOWEST_GROUP] = lowest_group(scored.columns.get(CONFIDENCE))
    scores[LENGTH] = float(len(scored.token)) if len(scored.token) else None
    run = scored.trajectory
    turned = {
        name: -value if value is not None and name in TURNED else value
        for name, value in scores.items()
    }
    return GradedRun(
        trajectory=run.id,
        task=run.task,
        outcome=run.outcome,
        steps=steps,
        scores=turned,
        retokenised=scored.retokenised,
    )


def step_grades(scored: TokenScores, aggregation: Aggregation = DEFAULT) -> tuple[StepGrade, ...]:
    """Every assistant step, graded or with the reason why not."""
    grades = []
    for number, step in scored.trajectory.actions:
        here = scored.step == number
        reason = None
        if not here.any():
            reason = NOT_DRAWN
        elif number in scored.unread:
            reason = NOT_READ
        elif "reference" not in scored.columns:
            reason = NO_REFERENCE
        elif not np.isfinite(scored.ratio[here]).all():
            reason = NO_CHANCE
        columns = {
            name: None if reason in (NOT_DRAWN, NOT_READ) else DEFAULT.of_tokens(values[here])
            for name, values in scored.columns.items()
            if name in KEPT
        }
        grades.append(
            StepGrade(
                step=number,
                kinds=step.kinds,
                tokens=int(here.sum()),
                # token by token; for means this is the policy's mean minus the reference's
                grade=None if reason else aggregation.of_tokens(scored.ratio[here]),
                ratio_sum=None if reason else float(scored.ratio[here].sum()),
                columns=columns,
                reason=reason,
            )
        )
    return tuple(grades)


def step_rewards(
    graded: GradedRun,
    trajectory: Trajectory,
    *,
    policy: str,
    reference: str,
    code: str = "",
    beta: float = BETA,
) -> StepRewards:
    """The record of one run. `policy`, `reference`: identities of the two checkpoints."""
    return StepRewards(
        trajectory=graded.trajectory,
        task=graded.task,
        outcome=graded.outcome,
        tokens=drawn_key(trajectory),
        steps=tuple(step.step for step in graded.steps),
        rewards=tuple(
            None if step.ratio_sum is None else beta * step.ratio_sum for step in graded.steps
        ),
        provenance=Provenance(
            instrument="grade",
            config={"beta": beta, "tokens": "sum"},
            code=code,
            inputs={"policy": policy, "reference": reference},
        ),
    )


# -- the runs of a case ------------------------------------------------------------------

TASKS: Final = 300


def case_scores(case: Case, tasks: int) -> tuple[KlPlan, Iterator[TokenScores]]:
    """One pass of both checkpoints over a case's runs, from which every instrument
    of this room reads.

    1. The runs of the first checkpoint after training (the score layer has played
       them), on the first `TASKS` tasks by name, or on more where an instrument
       asks for more.
    2. Everything that any of the instruments wants is taken down by the one that
       comes first, and kept beside the case (`forensics.policies.score_store`). The next one
       reads it back, and no model does anything.
    3. Log-probabilities are stated at the sampling temperature without top-k and
       top-p: what a truncated policy shuts out has no ratio. Greedy sampling is
       looked at as temperature 1.

    Gives the plan of the KL split, learnt from all runs of the pass, and the
    scored runs of the first `tasks` tasks.

    Raises `MissingInput`, at once or while they are read.
    """
    side = case.afters[0]
    log = case.rollouts(side)
    names = sorted({row["task"] for row in log.rows("task")})
    read, wanted = frozenset(names[: max(TASKS, tasks)]), frozenset(names[:tasks])
    policy, cannot = case.policy(side), f"The runs of `{side}` cannot be scored"
    with refused_as_missing(cannot):
        plan = plan_kl(RunsOfTasks(log=log, tasks=read), policy)
    readouts = (TopConfidence(), plan.readout)
    settings = untruncated(case.budget.settings)

    def scores() -> Iterator[TokenScores]:
        with refused_as_missing(cannot):
            sides = [_policy_ref(case, name) for name in (side, "before")]
            for scored in stored_scores(
                case.folder / "scores",
                Rollouts(key=content_hash([_digest(path) for path in log.paths]), paths=log.paths),
                *sides,
                settings=settings,
                readouts=readouts,
                tasks=read,
                progress=lambda done, of: case.progress(
                    f"scoring runs {case.said(side)}", done, of
                ),
            ):
                if scored.trajectory.task in wanted:
                    yield scored

    return plan, scores()


def _policy_ref(case: Case, name: str) -> PolicyRef:
    """A side of the case. Both models are wanted at once, so only *after* is
    the one that the case keeps.
    """
    if not case.opens(name, "logprobs"):
        raise MissingInput(f"There is no policy `{name}` to score with.", "Give its checkpoint.")
    subject = case.subject(name)
    if subject.stated is None:
        return policy_ref(subject.open())
    load = subject.open if name == "before" else lambda: case.policy(name)
    return PolicyRef(identity=subject.identity, load=load)


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True, kw_only=True)
class RunsOfTasks:
    """The runs of some tasks; can be read again and again."""

    log: Rollouts
    tasks: frozenset[str]

    def __iter__(self) -> Iterator[Trajectory]:
        return (run for run in self.log if run.task in self.tasks)


def untruncated(settings: SamplingSettings) -> SamplingSettings:
    """The settings without what shuts tokens out; greedy sampling is looked at as temperature 1."""
    return replace(settings, top_k=0, top_p=1.0, temperature=settings.temperature or 1.0)
