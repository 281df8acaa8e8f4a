"""How each measure of a training record changed from the first stretch of the run to the last.

Alert lines are levels at which practitioners look at a training run. A line is
a habit of the field with its source, never a test: where the interval of a
value reaches over the line, the table says so. It is written `MEASURE < VALUE
SEVERITY, SOURCE` (or `>`), for example `dead share > 0.3 warning, 2606.03108`,
so that a settings file, the provenance and the report all show the same words.
Measures are read off the last stretch of the run.
"""

import re
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np

from forensics.case import Case
from forensics.errors import MissingInput, UserError
from forensics.layers.score_scale import ScoreScale, score_scale
from forensics.layers.train_columns import StepNumbers, read_step
from forensics.phrases import plural
from forensics.records import Control, content_hash
from forensics.statistics import (
    MeanDifference,
    permutation_test,
    unpaired,
)

LINES = (
    "dead share > 0.3 warning, 2606.03108",
    "dead share > 0.5 critical, 2606.03108",
    "reward spread < 0.05 warning, 2606.03108",
    "mean log-probability > -0.1 warning, 2606.03108",
    "mean log-probability > -0.05 critical, 2606.03108",
    "truncated share > 0.2 warning, 2503.14476",
    "kept share < 0.3 warning, 2504.20073",
    "turns < 5 warning, 2606.03108",
    "turns > 50 warning, 2606.03108",
    "turns of failed runs: ratio > 1.5 warning, 2606.03108",
)
_LINE = re.compile(
    r"(?P<measure>[^<>]+?)\s*(?P<relation>[<>])\s*(?P<value>-?\d+(?:\.\d+)?)\s+(?P<severity>warning|critical),"
    r"\s*(?P<source>.+)"
)


@dataclass(frozen=True, kw_only=True)
class AlertLine:
    """A level of a measure beyond which (`relation`: `<` below, `>` above) the
    run deserves a look.
    """

    measure: str
    relation: str
    value: float
    severity: str  # "warning" or "critical"
    source: str

    @property
    def words(self) -> str:
        return (
            f"{self.severity} {'above' if self.relation == '>' else 'below'} {self.value:g}"
            f" ({self.source})"
        )

    def crossed(self, value: float) -> bool:
        return value > self.value if self.relation == ">" else value < self.value


def parse_line(text: str) -> AlertLine:
    """Raises `UserError` for a text that is not an alert line."""
    match = _LINE.fullmatch(text.strip())
    if match is None:
        raise UserError(
            f"'{text}' is not an alert line; write for example 'dead share > 0.3 warning,"
            " 2606.03108'"
        )
    parts: dict[str, Any] = match.groupdict()
    return AlertLine(**parts | {"value": float(match["value"])})


SHARE, TOKENS = (
    "share of groups",
    "Record token ids; a trainer that hands over texts alone cannot tell.",
)
QUESTIONS = {  # question -> measure, unit, cure where no row tells
    "signal.dead_share": ("dead share", SHARE, "Train with at least two rewarded samples a group."),
    "signal.dead_successes": ("dead, all successes", SHARE, "Record the outcome of each run."),
    "signal.dead_failures": ("dead, all failures", SHARE, "Record the outcome of each run."),
    "signal.reward_spread": (
        "reward spread",
        "reward",
        "Train with at least two rewarded samples a group.",
    ),
    "signal.reward": ("reward", "reward", "Record the reward of each run."),
    "signal.success": ("success", "score", "Record the outcome of each run."),
    "signal.entropy": (
        "token entropy",
        "nats a token",
        "Record the entropies of the drawn tokens.",
    ),
    "signal.logprob": (
        "mean log-probability",
        "nats a token",
        "Record the sampler's log-probabilities.",
    ),
    "signal.kl_to_start": (
        "KL to the start",
        "nats a token",
        'Record reference log-probabilities: set `kl = "k3"` under [objective].',
    ),
    "signal.truncated": ("truncated share", "share of runs", "Record how each run ended."),
    "signal.kept": ("kept share", SHARE, "Record the dropped groups too."),
    "signal.diversity": ("diversity", "share of a group's runs", TOKENS),
    "signal.length": ("length", "sampled tokens", TOKENS),
    "signal.turns": ("turns", "turns", "Record the turns of each run."),
}
SHARES = ("share of", "score")
OF_SUCCESS = ("success", "dead, all successes", "dead, all failures")
CHANCE = "tasks of both stretches dealt anew (mean size of the change)"


@dataclass(frozen=True, kw_only=True)
class SignalConfig:
    """`stretch`: share of the steps that is the first (and the last) stretch.
    `win`: score from which a run is a success. `alerts`: lines as
    the module writes them. Exploration collapse: diversity down by
    `diversity_drop` and log-probability nearer to 0 by `logprob_rise` of its
    size. Reward up alone: the reward rose (interval above 0) while the success
    rate rose by less than `flat`.
    """

    level: float = 0.95
    stretch: float = 0.1
    win: float = 0.5
    repeats: int = 999
    alerts: tuple[str, ...] = LINES
    diversity_drop: float = 0.10
    logprob_rise: float = 0.5
    flat: float = 0.02


@dataclass(frozen=True, kw_only=True)
class RecordSteps:
    """The steps of a record. `dump`: the trainer, where it is one that another trainer wrote.
    `scale`: of its scores, where they are no outcomes.
    """

    steps: tuple[StepNumbers, ...]
    missing: tuple[int, ...]
    config: SignalConfig
    seed: int
    lines: tuple[AlertLine, ...]
    dump: str | None = None
    scale: ScoreScale | None = None

    def reading(self, measure: str) -> str:
        """How success is read for a measure that asks for it; `""` where outcomes say it."""
        return self.scale.reading if self.scale and measure in OF_SUCCESS else ""

    @property
    def size(self) -> int:
        """Steps of a stretch."""
        return ceil(self.config.stretch * len(self.steps))

    def stretches(self) -> tuple[tuple[StepNumbers, ...], tuple[StepNumbers, ...]]:
        """The first and the last stretch of the run."""
        return self.steps[: self.size], self.steps[-self.size :]

    def runs(self) -> int:
        return sum(step.runs for stretch in self.stretches() for step in stretch)

    def change(self, question: str) -> tuple[MeanDifference, Control]:
        """A measure's change from the first to the last stretch, and what chance
        would make of it: the tasks of both stretches dealt anew.

        Raises `MissingInput` where no row tells it, or too few tasks.
        """
        measure, unit, cure = QUESTIONS[question]
        first, last = (task_means(stretch, measure) for stretch in self.stretches())
        if not len(first) or not len(last):
            told = f": a {self.dump} dump does not hold it." if self.dump else "."
            told = f". {reading}" if (reading := self.reading(measure)) else told
            raise MissingInput(
                f"No row of one of the two stretches tells the {measure}{told}", cure
            )
        reach = 1.0 if unit.startswith(SHARES) else None
        found = unpaired(first, last, reach=reach, level=self.config.level)
        sizes: list[float] = []

        def size(first: np.ndarray, last: np.ndarray) -> float:
            sizes.append(abs(float(last.mean() - first.mean())))
            return sizes[-1]

        generator = np.random.default_rng([self.seed, int(content_hash(measure, 8), 16)])
        p_value = permutation_test(
            first, last, size, generator, repeats=self.config.repeats, paired=False
        )
        chance = float(np.mean(sizes[1:]))
        return found, Control(name=CHANCE, estimate=chance, p_value=p_value)


def read_record(case: Case, config: SignalConfig) -> RecordSteps:
    """Read the case's training record. Raises `MissingInput` where there is
    none, or fewer than two steps of it.
    """
    record = case.training_record
    steps = record.steps()
    if len(steps) < 2:
        raise MissingInput(
            f"The training record has {plural(len(steps), 'complete step')}; a change needs two.",
            "Train on.",
        )
    tolerance = float(record.run.estimator.get("dead_tolerance", 0.0))
    scored = ("outcome", "rewards", "end")
    scale = score_scale(row for step in steps for row in record.values(step, *scored))
    return RecordSteps(
        steps=tuple(read_step(record, step, tolerance, config.win, scale) for step in steps),
        missing=record.missing(),
        config=config,
        seed=case.seed,
        lines=tuple(map(parse_line, config.alerts)),
        dump=record.run.recipe["trainer"] if record.run.recipe.get("record") == "dump" else None,
        scale=scale,
    )


def task_means(stretch: tuple[StepNumbers, ...], measure: str) -> np.ndarray:
    """Means `[tasks]` over a stretch, in the order of task names."""
    tasks: dict[str, list[float]] = {}
    for step in stretch:
        for task, value in step.means.get(measure, {}).items():
            tasks.setdefault(task, []).append(value)
    return np.array([np.mean(tasks[task]) for task in sorted(tasks)], float)
