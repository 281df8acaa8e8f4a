"""Policies acting in their world under interventions, each part stored when it
is done.

Every condition of one policy draws from the same random streams, task by task;
the two policies draw from different ones. Results are kept by content address
in parts of a few tasks, so that a run that was killed goes on, and a control
that two questions share is played once.

What a policy did is told task by task, and as differences between two ways of
running it:

1. A run's measures: `success`, `turns`, `handed-in`, `channel:NAME` (an action
   that tries it, or a message that shows its content), `kind:NAME` (an action
   of that kind).
2. Runs of a task are averaged; the task is the unit. Tasks without a single run
   that has the measure are left out.
3. Two conditions of one policy are played on the same tasks with the same
   random streams, so differences are paired.
4. `moved`: the share of the way from this policy unsteered to the other
   unsteered that an effect covers; 1 means that the difference between the
   checkpoints is gone. A ratio of paired means with a linearised interval.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from crosscoders.activations.outlier_positions import Limits
from crosscoders.steering.activation_edits import SIDES, Change, Side, other_side
from crosscoders.steering.interventions import Position, Seen, Steps, intervention, policy_alongside
from forensics.errors import UserError
from forensics.progress import Progress, counted, part_of, silent
from forensics.protocols import Channel, Constraint, Environment, Policy, SamplingSettings
from forensics.records import Trajectory, content_hash, handed_in, read_json, write_json
from forensics.statistics import Estimate, paired, ratio
from forensics.world import environment_key

Floats = NDArray[np.float64]
ALWAYS = ("success", "turns", "handed-in")


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """Means by task `[tasks]`; NaN where no run of a task has the measure.
    `runs`: how many there were in all.
    """

    tasks: tuple[str, ...]
    runs: int
    measures: Mapping[str, Floats]

    def of(self, measure: str) -> Floats:
        """A measure by task. A kind or a channel that nobody used is 0 in every
        task; `UserError` for other names.
        """
        if measure in self.measures:
            return self.measures[measure]
        if measure.partition(":")[0] in ("kind", "channel"):
            return np.zeros(len(self.tasks))
        raise UserError(
            f"there is no measure '{measure}'; use success, turns, handed-in, channel:NAME or"
            " kind:NAME"
        )

    def plain(self) -> dict[str, Any]:
        """As JSON; a missing value is null."""
        return {
            "tasks": list(self.tasks),
            "runs": self.runs,
            "measures": {
                name: [None if isnan(value) else float(value) for value in values]
                for name, values in sorted(self.measures.items())
            },
        }


def from_plain(content: Mapping[str, Any]) -> Outcomes:
    """What `plain` wrote."""
    measures = {
        name: np.array([np.nan if value is None else value for value in values])
        for name, values in content["measures"].items()
    }
    return Outcomes(tasks=tuple(content["tasks"]), runs=content["runs"], measures=measures)


def joined(parts: Sequence[Outcomes]) -> Outcomes:
    """Outcomes on further tasks as one."""
    names = sorted({name for part in parts for name in part.measures})
    return Outcomes(
        tasks=tuple(task for part in parts for task in part.tasks),
        runs=sum(part.runs for part in parts),
        measures={name: np.concatenate([part.of(name) for part in parts]) for name in names},
    )


def outcomes_of(
    runs: Iterable[Trajectory], tasks: Sequence[str], channels: Sequence[Channel]
) -> Outcomes:
    """Means by task, in the order of `tasks`."""
    by_task: dict[str, list[dict[str, float | None]]] = {task: [] for task in tasks}
    for run in runs:
        by_task[run.task].append(measures_of(run, channels))
    names = {name for rows in by_task.values() for row in rows for name in row} | set(ALWAYS)
    return Outcomes(
        tasks=tuple(tasks),
        runs=sum(map(len, by_task.values())),
        measures={name: np.array([_mean(name, by_task[task]) for task in tasks]) for name in names},
    )


def measures_of(run: Trajectory, channels: Sequence[Channel]) -> dict[str, float | None]:
    """The measures of one run; a run that errored has none."""
    if run.end == "errored":
        return dict.fromkeys((*ALWAYS, *(f"channel:{channel.name}" for channel in channels)))
    kinds = {kind for _, step in run.actions for kind in step.kinds}
    shown = {name for step in run.steps for name in step.channels}
    tried = {
        f"channel:{channel.name}": float(
            channel.name in shown or not kinds.isdisjoint(channel.attempts)
        )
        for channel in channels
    }
    return {
        "success": run.outcome,
        "turns": float(run.turns),
        "handed-in": float(handed_in(run.end, run.end_reason)),
        **tried,
        **{f"kind:{kind}": 1.0 for kind in sorted(kinds)},
    }


def _mean(name: str, rows: Sequence[Mapping[str, float | None]]) -> float:
    """The mean over a task's runs that have the measure; a kind that a run does
    not name was not used.
    """
    if name.startswith("kind:"):
        rows = [row for row in rows if row["turns"] is not None]
        return sum(row.get(name) or 0.0 for row in rows) / len(rows) if rows else np.nan
    values = [value for row in rows if (value := row[name]) is not None]
    return sum(values) / len(values) if values else np.nan


def mean_of(values: Floats) -> Estimate | None:
    """The mean over tasks; `None` where fewer than two tasks have it."""
    return _contrast([values], [1.0])


def difference_of(values: Floats, base: Floats) -> Estimate | None:
    """`values - base`, paired by task."""
    return _contrast([values, base], [1.0, -1.0])


def _contrast(cells: Sequence[Floats], weights: Sequence[float]) -> Estimate | None:
    table = np.stack(cells)
    table = table[:, ~np.isnan(table).any(0)]
    if table.shape[1] < 2:
        return None
    span = max(1.0, float(table.max()))  # turns are no shares
    return paired(table[None] / span, np.array(weights)).scaled(span)


def moved(values: Floats, base: Floats, goal: Floats) -> Estimate | str:
    """`(values - base) / (goal - base)` of the means, or the reason why it says nothing."""
    table = np.stack([values, base, goal])
    table = table[:, ~np.isnan(table).any(0)]
    gap = difference_of(table[2], table[1]) if table.shape[1] else None
    if gap is None:
        return "fewer than two tasks have all three numbers"
    if gap.low <= 0 <= gap.high:
        return "the two models do not differ in this measure, so there is no way to go"
    reach = max(1.0, float(table.max()))
    return ratio(table[0] - table[1], table[2] - table[1], reach=reach)


TASKS_PER_PART: Final = 64
FOLDER: Final = "steering"


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One way of running one policy. `change`: `None` is unsteered. `strength`,
    `features`, `draw` (which of several random controls), `directions` (of a
    subspace), `dictionary` (its hash) and `of` (the set of features that it stands
    beside) say which change it is. `constraint`: actions that are refused.
    """

    role: str
    acting: Side
    change: Change | None = None
    mode: str | None = None
    strength: float | None = None
    features: tuple[int, ...] = ()
    draw: int | None = None
    directions: int | None = None
    dictionary: str | None = None
    of: str | None = None
    constraint: Constraint | None = None

    def content(self) -> dict[str, Any]:
        """What identifies it."""
        refused = None if self.constraint is None else self.constraint.name
        later = {"of": self.of, "constraint": refused}  # not there from the start
        known = {key: value for key, value in vars(self).items() if key not in ("change", *later)}
        return known | {key: value for key, value in later.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Two policies, a world, and how often it is played. `identity`: whatever
    else decides a change, hashed. `limits`: of the norm, by model; no change touches what
    is beyond them.
    """

    before: Policy
    after: Policy
    environment: Environment
    site: str
    position: Position
    settings: SamplingSettings
    samples: int
    seed: int
    folder: Path
    identity: str = ""
    limits: Limits | None = None
    progress: Progress = silent

    def policy(self, side: Side) -> Policy:
        return self.before if side == "before" else self.after

    def limit(self, side: Side) -> float | None:
        """Of the norm in one policy; what is beyond it stays."""
        return None if self.limits is None else self.limits[SIDES.index(side)]

    def steps(self) -> Steps:
        """How tokens are read as actions in this world."""
        renderer = self.after.rendered_for(self.environment).renderer
        return Steps(
            kinds=lambda ids: self.environment.kinds(renderer.action_text(ids)),
            stops=renderer.stops,
            most=self.settings.max_turn_tokens,
        )

    def play(self, condition: Condition, tasks: Sequence[str]) -> Outcomes:
        """The outcomes of a condition on these tasks, from the folder where they are there."""
        acting, change = self.policy(condition.acting), condition.change
        other = self.policy(other_side(condition.acting))
        request = {
            "condition": condition.content(),
            "policy": acting.identity,
            "environment": environment_key(self.environment),
            "samples": self.samples,
            "settings": self.settings.content(),
            "seed": self.seed,
        }
        if change is not None:
            request |= {
                "other": other.identity,
                "site": self.site,
                "position": self.position.name,
                "identity": self.identity,
                **({} if self.limits is None else {"limits": list(self.limits)}),
            }
        outcomes = []
        starts = range(0, len(tasks), TASKS_PER_PART)
        for number, first in enumerate(starts):
            part = list(tasks[first : first + TASKS_PER_PART])
            name = f"{condition.role}-{content_hash(request)}-{content_hash(part, 8)}.json"
            path = self.folder / FOLDER / name
            if not path.exists():
                told = part_of(self.progress, f"playing, {condition.role}", number, len(starts))
                write_json(path, replace(self, progress=told)._played(condition, part).plain())
            outcomes.append(from_plain(read_json(path)))
        return joined(outcomes)

    def _played(self, condition: Condition, tasks: Sequence[str]) -> Outcomes:
        policy, change, steered = self.policy(condition.acting), condition.change, []
        if change is not None:
            seen = Seen()
            companion = self.policy(other_side(condition.acting)) if change.needs_other else None
            steered.append(
                intervention(
                    change.to(policy.model.device),
                    site=self.site,
                    name=condition.role,
                    position=self.position,
                    seen=seen,
                    steps=self.steps(),
                    limit=self.limit(condition.acting),
                )
            )
            policy = policy_alongside(policy, companion, self.site, seen)
        seed = int(content_hash([self.seed, condition.acting], 15), 16)
        runs = policy.play(
            self.environment,
            tasks,
            self.samples,
            self.settings,
            seed,
            constraint=condition.constraint,
            interventions=steered,
        )
        runs = counted(runs, self.progress, "playing", len(tasks) * self.samples)
        return outcomes_of(runs, tasks, self.environment.channels)


def choose_measure(before: Outcomes, after: Outcomes, channels: Sequence[Channel]) -> str:
    """The channel whose use differs most between the policies; `success` where there is
    none, or none whose use differs (a prompt shows its cue to both).
    """
    names = [f"channel:{channel.name}" for channel in channels]
    gaps = {
        name: found for name in names if (found := difference_of(after.of(name), before.of(name)))
    }
    gaps = {name: gap for name, gap in gaps.items() if gap.estimate != 0}
    return max(gaps, key=lambda name: abs(gaps[name].estimate)) if gaps else "success"


def row_of(
    condition: Condition,
    split: str,
    measure: str,
    outcomes: Outcomes,
    base: Outcomes,
    goal: Outcomes,
) -> dict[str, Any]:
    """What was run with what came of it, as plain values. `base`, `goal`: of this policy and of
    the other one, unsteered.
    """
    values, start, end = (part.of(measure) for part in (outcomes, base, goal))
    effect: Estimate | None = None
    way: Estimate | str = "nothing was changed"
    if condition.change is not None or condition.constraint is not None:
        effect = difference_of(values, start)
        way = moved(values, start, end)

    def mean(name: str) -> dict[str, float] | None:
        return plain_estimate(mean_of(outcomes.of(name)))

    channels = sorted(name for name in outcomes.measures if name.startswith("channel:"))
    row = condition.content()
    return row | {
        "in": row.pop("acting"),
        "features": list(condition.features),
        "split": split,
        "n": len(outcomes.tasks),
        "runs": outcomes.runs,
        "channel_use": {name.partition(":")[2]: mean(name) for name in channels},
        "success": mean("success"),
        "turns": mean("turns"),
        "handed_in": mean("handed-in"),
        "measured": mean(measure),
        "effect": plain_estimate(effect),
        "moved": plain_estimate(way) if isinstance(way, Estimate) else None,
        "moved_missing": None if isinstance(way, Estimate) else way,
    }


def plain_estimate(found: Estimate | None) -> dict[str, float] | None:
    """As JSON: `estimate`, `low`, `high`."""
    return dict(zip(("estimate", "low", "high"), found.ends, strict=True)) if found else None
