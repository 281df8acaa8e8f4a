"""The reward-dimension backtest: how many dead groups would a further reward
term have revived?

1. Cached groups of a training record are given the reward `recorded total +
   weight * term`, run by run.
2. *Revived*: a group that was dead under the recorded total and has a spread
   under the new one.
3. The required control is a random tie-breaker of equal variance: normal noise
   with the term's standard deviation within groups. It revives dead groups too,
   so the share alone proves nothing. Beside it the term's own values dealt out
   to other runs at random (equal distribution, ties included).
4. What could prove something stands beside it: the correlation of the term with
   the true outcome within groups, that is whether the advantages it makes point
   the right way; its control is that of the tie-breaker.

Source: 2606.03108 proposes the share; 3 and 4 are ours. The unit is the task:
shares and the correlation are clustered by task. Dead groups have one outcome,
so 4 is measured on the groups whose outcomes differ, and says of the dead ones
what holds for the living.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import SupportsFloat

import numpy as np
from numpy.typing import NDArray

from forensics.errors import MissingInput, UserError
from forensics.instruments import AnswerMaker
from forensics.layers.train_columns import is_dead
from forensics.phrases import percent, plural, printable
from forensics.records import (
    Control,
    Evidence,
    Provenance,
    TrainingRow,
    Undefined,
    content_hash,
)
from forensics.records.train_tables import TrainingRecord
from forensics.statistics import Estimate, share_by_task, t_quantile

Floats = NDArray[np.float64]
Term = Callable[[TrainingRow], float | None]
REVIVED, CORRELATION = "signal.revived", "signal.revived_correlation"
TIE_BREAKER = "random tie-breaker of equal variance"


@dataclass(frozen=True, kw_only=True)
class BacktestConfig:
    """`weight` of the term in the new total; `draws` of the tie-breaker;
    `tolerance`: rewards of a group this close count as equal (`None`: the run's
    own).
    """

    weight: float = 0.1
    draws: int = 20
    tolerance: float | None = None
    level: float = 0.95


@dataclass(frozen=True, kw_only=True)
class CachedGroup:
    """What a group's rows say: `rewards`, `term`, `outcomes` `[runs]`; outcomes
    are NaN where unknown.
    """

    task: str
    rewards: Floats
    term: Floats
    outcomes: Floats

    def dead(self, tolerance: float, extra: Floats | None = None) -> bool:
        """Whether the group has no spread, with an extra reward or without."""
        return is_dead(list(self.rewards if extra is None else self.rewards + extra), tolerance)


def cached_groups(record: TrainingRecord, term: Term) -> list[CachedGroup]:
    """The record's groups, step by step. Runs without a reward or a term take
    no part, nor do groups below two.

    Raises `UserError` where the term gives neither one finite number nor
    `None`.
    """
    groups = []
    for step in record.steps():
        rows: dict[str, list[tuple[TrainingRow, float]]] = {}
        for row in record.rows(step):
            value = None if row.reward is None else term(row)
            if value is None:
                continue
            if not (isinstance(value, SupportsFloat) and np.isfinite(float(value))):
                raise UserError(
                    f"the term gave {value!r} for run {row.trajectory} of step {row.step}; give one"
                    " finite number, or None where it cannot be measured"
                )
            rows.setdefault(row.group, []).append((row, float(value)))
        for name in sorted(rows):
            members = sorted(rows[name], key=lambda member: member[0].sample)
            if len(members) > 1:
                groups.append(
                    CachedGroup(
                        task=members[0][0].task,
                        rewards=np.array([row.reward for row, _ in members], float),
                        term=np.array([value for _, value in members], float),
                        # `None` becomes NaN
                        outcomes=np.array([row.outcome for row, _ in members], float),
                    )
                )
    return groups


def backtest(
    record: TrainingRecord, term: Term, name: str, config: BacktestConfig, seed: int = 0
) -> Iterator[Evidence | Undefined]:
    """Two answers about the term `name`: the share of dead groups it revives,
    and its correlation with the outcome.

    Raises `UserError` where the term gives neither one finite number nor
    `None`.
    """
    groups = cached_groups(record, term)
    tolerance = config.tolerance
    if tolerance is None:
        tolerance = float(record.run.estimator.get("dead_tolerance", 0.0))
    make = AnswerMaker(
        layer="signal",
        method="backtest",
        provenance=Provenance(
            instrument="backtest",
            config={**vars(config), "term": name},
            seed=seed,
            inputs={"training": record.key},
            code=record.run.code,
        ),
    )
    generator = np.random.default_rng([seed, int(content_hash(name, 8), 16)])
    noises = [tie_breaker(groups, generator) for _ in range(config.draws)]
    dealt = [shuffled(groups, generator) for _ in range(config.draws)]

    own = [group.term for group in groups]
    revived = partial(_revived, make, name, groups, [[own], noises, dealt], tolerance, config)
    correlation = partial(_correlation, make, name, groups, [own, noises[0]], config.level)
    yield make.answer(REVIVED, revived, name)
    yield make.answer(CORRELATION, correlation, name)


def _revived(
    make: AnswerMaker,
    name: str,
    groups: Sequence[CachedGroup],
    extras: Sequence[Sequence[Sequence[Floats]]],
    tolerance: float,
    config: BacktestConfig,
) -> Evidence:
    """`extras`: draws of the term, of the tie-breaker, of the term's values dealt out anew."""
    found, null, shuffled_values = (
        revived_share(
            groups,
            [[config.weight * part for part in draw] for draw in draws],
            tolerance,
            config.level,
        )
        for draws in extras
    )
    return make.evidence(
        REVIVED,
        found,
        about=name,
        method="backtest on cached groups",
        unit="share of dead groups",
        control=Control(name=TIE_BREAKER, estimate=null.estimate, interval=null.interval),
        diagnostics={
            "groups": len(groups),
            "dead_groups": int(found.n),
            "weight": config.weight,
            "own_values_shuffled": shuffled_values.estimate,
        },
        summary=(
            f"{printable(name)} would have revived {percent(found.estimate)} of "
            f"{plural(int(found.n), 'dead group')}; a random tie-breaker of equal variance"
            f" revives {percent(null.estimate)}."
        ),
    )


def _correlation(
    make: AnswerMaker,
    name: str,
    groups: Sequence[CachedGroup],
    extras: Sequence[Sequence[Floats]],
    level: float,
) -> Evidence:
    """`extras`: the term, and one draw of the tie-breaker."""
    found, null = (outcome_correlation(groups, extra, level) for extra in extras)
    return make.evidence(
        CORRELATION,
        found,
        about=name,
        method="within-group correlation with the outcome",
        unit="correlation",
        control=Control(name=TIE_BREAKER, estimate=null.estimate, interval=null.interval),
        summary=(
            f"Within groups, {printable(name)} correlates {found.estimate:+.2f} with the true"
            f" outcome ({found.low:+.2f} to {found.high:+.2f})."
        ),
    )


def tie_breaker(groups: Sequence[CachedGroup], generator: np.random.Generator) -> list[Floats]:
    """Normal noise for each run, with the term's standard deviation within groups."""
    scale = deviation_within(groups)
    return [scale * generator.standard_normal(len(group.term)) for group in groups]


def deviation_within(groups: Sequence[CachedGroup]) -> float:
    """The term's standard deviation within groups, pooled (0 without groups)."""
    freedom = sum(len(group.term) - 1 for group in groups)
    squares = sum(float(((group.term - group.term.mean()) ** 2).sum()) for group in groups)
    return float(np.sqrt(squares / freedom)) if freedom else 0.0


def shuffled(groups: Sequence[CachedGroup], generator: np.random.Generator) -> list[Floats]:
    """The term's values dealt out anew over all runs."""
    if not groups:
        return []
    values = generator.permutation(np.concatenate([group.term for group in groups]))
    return np.split(values, np.cumsum([len(group.term) for group in groups])[:-1])


def revived_share(
    groups: Sequence[CachedGroup],
    extras: Sequence[Sequence[Floats]],
    tolerance: float,
    level: float = 0.95,
) -> Estimate:
    """Share of the dead groups that live with one of `extras` (a mean over
    several draws), clustered by task.

    Raises `MissingInput` where fewer than two tasks had a dead group.
    """
    rows = [
        (group.task, float(np.mean([not group.dead(tolerance, extra[i]) for extra in extras])), 1)
        for i, group in enumerate(groups)
        if group.dead(tolerance)
    ]
    tasks = len({task for task, _, _ in rows})
    if tasks < 2:
        raise MissingInput(
            f"The record has dead groups of {plural(tasks, 'task')}, so there is nothing to"
            " revive.",
            "Take a longer record, or one of a run whose reward gives out.",
        )
    return share_by_task(rows, level=level)


def outcome_correlation(
    groups: Sequence[CachedGroup], extras: Sequence[Floats], level: float = 0.95
) -> Estimate:
    """Correlation of an extra reward with the outcome within groups; `n` are runs.

    Both are centred by their group. The interval is linearised over tasks.
    Raises `MissingInput` where fewer than two tasks have outcomes that differ,
    or the extra reward never differs within a group.
    """
    sums: dict[str, Floats] = {}
    runs = 0
    for group, extra in zip(groups, extras, strict=True):
        known = ~np.isnan(group.outcomes)
        y = group.outcomes[known]
        if len(y) < 2 or np.ptp(y) == 0:
            continue
        x, y = extra[known] - extra[known].mean(), y - y.mean()
        sums[group.task] = sums.get(group.task, np.zeros(3)) + np.array(
            [(x * y).sum(), (x**2).sum(), (y**2).sum()]
        )
        runs += len(y)
    if len(sums) < 2:
        raise MissingInput(
            f"Outcomes differ within groups of {plural(len(sums), 'task')} only.",
            "Take a record with groups that both succeed and fail.",
        )
    parts = np.array([sums[task] for task in sorted(sums)])
    cross, own, outcome = parts.sum(axis=0)
    if own <= 0:
        raise MissingInput(
            "The term never differs within a group.", "Choose a term that tells runs apart."
        )
    found = float(cross / np.sqrt(own * outcome))
    influence = (
        parts[:, 0] / np.sqrt(own * outcome)
        - found * (parts[:, 1] / own + parts[:, 2] / outcome) / 2
    )
    count = len(parts)
    half = t_quantile(level, count - 1) * float(np.sqrt(count / (count - 1) * (influence**2).sum()))
    return Estimate(
        estimate=found,
        low=max(-1.0, found - half),
        high=min(1.0, found + half),
        level=level,
        n=runs,
        clusters=count,
    )
