"""The behaviour layer's reading of a case: the settings, the logs as columns,
and how answers are made of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from forensics.case import Case
from forensics.errors import MissingInput
from forensics.instruments import AnswerMaker
from forensics.layers.evidence_chain import CONTROL_TASKS, ChainRule, Survey, has_side, survey
from forensics.layers.tally import Log, read_log
from forensics.phrases import plural
from forensics.records import Evidence, Provenance, Undefined, content_hash
from forensics.statistics import Estimate, paired, sign_flip_test

Answers = Iterator[Evidence | Undefined]


@dataclass(frozen=True, kw_only=True)
class BehaviourConfig:
    """Settings of the behaviour layer.

    Chains: `win` outcome from which a run is a win; `gram` words; `line`,
    `overlap` and `control_ratio` shares; `control_tasks` tasks whose output is
    the control. Echo trap: `level_margin` score points that still count as
    level; `turns_factor` how many times the turns; `least_rise` points by which
    repetition rises at least; `idle_growth` share of the added turns that must
    be idle repeats; `kept_wins` share of wins that must fit under the turn cap.
    Collapse: `collapsed_turns` at most after and `turns_before` at least
    before; `dead_share` at least; `mastered` score from which it is mastery
    instead.
    """

    level: float = 0.95
    win: float = 0.5
    gram: int = 3
    line: float = 0.85
    overlap: float = 0.5
    control_ratio: float = 0.5
    control_tasks: int = CONTROL_TASKS
    examples: int = 3
    repeats: int = 999
    level_margin: float = 0.02
    turns_factor: float = 2.0
    least_rise: float = 0.05
    idle_growth: float = 0.5
    kept_wins: float = 0.95
    collapsed_turns: float = 1.5
    turns_before: float = 2.0
    dead_share: float = 0.5
    mastered: float = 0.9

    @property
    def chain_rule(self) -> ChainRule:
        return ChainRule(
            win=self.win,
            gram=self.gram,
            line=self.line,
            overlap=self.overlap,
            control_ratio=self.control_ratio,
        )


@dataclass(frozen=True, kw_only=True)
class Change(Estimate):
    """`after - before` of a task mean, with a sign-flip p-value over tasks."""

    before: float
    after: float
    p_value: float


def change(
    before: Mapping[str, float],
    afters: Sequence[Mapping[str, float]],
    generator: np.random.Generator,
    level: float,
) -> Change:
    """The change of task means `{task: value}` over the tasks that every side
    has; any unit.

    The sides' values are brought to [0, 1] by their own range for the interval,
    which needs a bounded range. Raises `MissingInput` with fewer than two
    common tasks.
    """
    tasks = sorted(set(before).intersection(*afters)) if afters else []
    if len(tasks) < 2:
        raise MissingInput(
            f"It is known for {plural(len(tasks), 'task')} of both sides, which gives no spread.",
            "Give logs of at least two common tasks that record it on both sides.",
        )
    table = np.array(
        [[[before[task] for task in tasks], [after[task] for task in tasks]] for after in afters]
    )
    floor, reach = float(table.min()), float(np.ptp(table)) or 1.0
    contrast = paired((table - floor) / reach, np.array([-1.0, 1.0]), level=level)
    differences = (table[:, 1] - table[:, 0]).mean(axis=0)
    estimate, low, high = (end * reach for end in contrast.ends)
    return Change(
        before=float(table[:, 0].mean()),
        after=float(table[:, 1].mean()),
        estimate=estimate,
        low=low,
        high=high,
        level=level,
        p_value=sign_flip_test(differences, generator),
        clusters=len(tasks),
    )


@dataclass(frozen=True, kw_only=True)
class CaseColumns:
    """Everything the layer's questions are answered from. `before` is `None`
    where the case has no such log.

    `_changes` remembers what was worked out, since several questions rest on
    the same change.
    """

    case: Case
    config: BehaviourConfig
    answers: AnswerMaker
    survey: Survey
    before: Log | None
    afters: tuple[Log, ...]
    _changes: dict[str, Change] = field(default_factory=dict, repr=False)

    @property
    def logs(self) -> tuple[Log, ...]:
        """The logs of every side."""
        return self.afters if self.before is None else (self.before, *self.afters)

    @property
    def runs(self) -> int:
        """How many runs of both sides were read."""
        return sum(len(log.tasks) for log in self.logs)

    def compared(self) -> Log:
        """The log of the before policy. Raises `MissingInput` where there is none, or no run of it
        counts.
        """
        if self.before is None:
            raise MissingInput(
                "There is no log of the policy before training.", "Give one with `--before`."
            )
        self.before.require_runs("before")
        return self.before

    def change(self, column: str) -> Change:
        """How a column changed. Raises `MissingInput` where a side does not have it."""
        if column not in self._changes:
            before = self.compared().task_means(column)
            afters = [log.task_means(column) for log in self.afters]
            self._changes[column] = change(
                before, afters, self.generator(column), self.config.level
            )
        return self._changes[column]

    def known_change(self, column: str) -> Change | None:
        """The same, `None` where a side does not have it."""
        try:
            return self.change(column)
        except MissingInput:
            return None

    def generator(self, purpose: str) -> np.random.Generator:
        """A random stream of its own for each purpose, from the case's seed."""
        return np.random.default_rng([self.case.seed, int(content_hash(purpose, 8), 16)])


@dataclass(frozen=True, kw_only=True)
class Tallied:
    """The open-world logs of a case as they were read along with something
    else, by the settings' own rules.
    """

    survey: Survey
    logs: Mapping[str, Log]


def read_case(
    case: Case, config: BehaviourConfig, provenance: Provenance, tallied: Tallied | None = None
) -> CaseColumns:
    """Read the open-world logs of both sides, where they were not read already
    (`tallied`).

    Raises `MissingInput` where there is no log after training, or one in which every run errored.
    """
    if not case.afters:
        raise MissingInput(
            "There is no log of a policy after training.", "Give at least one `--after`."
        )
    if tallied is None:
        sides = ("before", *case.afters) if has_side(case, "before") else case.afters
        found = survey(case, sides, config.control_tasks)
        logs: Mapping[str, Log] = {
            side: read_log(case.rollouts(side), found, config.chain_rule, config.examples)
            for side in sides
        }
    else:
        found, logs = tallied.survey, tallied.logs
    for side in case.afters:
        logs[side].require_runs(side)
    return CaseColumns(
        case=case,
        config=config,
        answers=AnswerMaker(layer="behaviour", method="behaviour", provenance=provenance),
        survey=found,
        before=logs.get("before"),
        afters=tuple(logs[side] for side in case.afters),
    )
