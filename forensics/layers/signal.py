"""The signal layer: did the training run still have something to learn from?
Read off its record.

1. Every complete step of the record is read into a few numbers a task
   (`training_columns`).
2. The first tenth of the steps is set against the last tenth. The unit is the
   task: a task's runs are averaged first, and intervals are over tasks. One run
   says nothing about another seed; the report of a case says so.
3. The control of each change is chance: the tasks of both stretches dealt anew.
   P-values are adjusted over all of the layer's questions (Benjamini-Hochberg),
   the adjusted one stands in the diagnostics as `q_value`.
4. Levels are set against the alert lines of the field, each
   with its source.

Sources: 2606.03108 (signals of agentic RL), 2503.14476 (dynamic sampling,
truncation), 2504.20073 (filters, echo trap). Departure: their means over tokens
are means over runs here, since tokens of one run are not independent; and KL is
the plain mean log-ratio of the drawn tokens (unbiased, may be negative), per
token.

How each measure of a training record changed from the first stretch of the run to the last.

Alert lines are levels at which practitioners look at a training run. A line is
a habit of the field with its source, never a test: where the interval of a
value reaches over the line, the table says so. It is written `MEASURE < VALUE
SEVERITY, SOURCE` (or `>`), for example `dead share > 0.3 warning, 2606.03108`,
so that a settings file, the provenance and the report all show the same words.
Measures are read off the last stretch of the run.

A training record as columns: a few numbers a run and a few a group, streamed
shard by shard.

Memory grows by some twenty numbers a run, whatever the length of the runs. Rows
are put in the order of their group and sample, so the order in which a shard
holds them changes no bit.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from forensics.case import Case
from forensics.errors import MissingInput, UserError
from forensics.instruments import AnswerMaker, instrument
from forensics.layers.score_scale import ScoreScale, score_scale
from forensics.phrases import plural
from forensics.records import Control, Evidence, Figure, Series, Table, Undefined, content_hash
from forensics.records.train_tables import TrainingRecord
from forensics.statistics import (
    MeanDifference,
    benjamini_hochberg,
    permutation_test,
    unpaired,
)

Floats = NDArray[np.float64]
PLAIN = (
    *("task", "group", "sample", "reward", "outcome", "advantage", "dropped", "end", "turns"),
    "rewards",
)
OF_TOKENS = ("sampler_logprobs", "old_logprobs", "reference_logprobs", "entropies")


@dataclass(frozen=True, kw_only=True)
class StepNumbers:
    """One step: for each measure, the mean of each task that has it, `{measure: {task: mean}}`."""

    step: int
    means: dict[str, dict[str, float]]
    runs: int

    def mean(self, measure: str) -> float | None:
        """The mean over the step's tasks, `None` where no task has the measure."""
        tasks = self.means.get(measure)
        return float(np.mean(list(tasks.values()))) if tasks else None


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


ALERTS = "signal.alerts"
MOST_POINTS = 200
Known = dict[str, tuple[MeanDifference, Control]]  # what could be measured


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


@instrument(name="signal", layer="signal", questions=(*QUESTIONS, ALERTS), config=SignalConfig())
def signal(case: Case, config: SignalConfig) -> Iterator[Evidence | Undefined]:
    """Answer every question, with `Undefined` for all of them where the case
    has no training record.
    """
    provenance = signal.configured(**vars(config)).provenance(case)
    make = AnswerMaker(layer="signal", method="signal", provenance=provenance)
    try:
        reading = read_record(case, config)
    except MissingInput as missing:
        yield from (make.undefined(question, missing) for question in signal.questions)
        return
    known: Known = {}
    unknown: dict[str, MissingInput] = {}
    for question in QUESTIONS:
        try:
            known[question] = reading.change(question)
        except MissingInput as missing:
            unknown[question] = missing
    p_values = [float(control.p_value or 0.0) for _, control in known.values()]
    q_values = dict(zip(known, map(float, benjamini_hochberg(p_values)), strict=True))
    for question in QUESTIONS:
        if question in unknown:
            yield make.undefined(question, unknown[question])
        else:
            yield _evidence(make, reading, question, *known[question], q_values[question])
    yield _alerts(make, reading, {QUESTIONS[name][0]: one for name, (one, _) in known.items()})


def _evidence(
    make: AnswerMaker,
    reading: RecordSteps,
    question: str,
    change: MeanDifference,
    control: Control,
    q_value: float,
) -> Evidence:
    measure, unit, _ = QUESTIONS[question]
    lines = [line for line in reading.lines if line.measure == measure]
    crossed = [line.words for line in lines if line.crossed(change.last)]
    first, last = (f"{steps[0].step} to {steps[-1].step}" for steps in reading.stretches())
    return make.evidence(
        question,
        change,
        method="first against last stretch of the training record, by task",
        unit=unit,
        n=reading.runs(),
        control=control,
        diagnostics={
            "first": change.first,
            "last": change.last,
            "q_value": q_value,
            "first_steps": first,
            "last_steps": last,
            "missing_steps": len(reading.missing),
            "alert_lines": "; ".join(line.words for line in lines) or None,
            "alerts": "; ".join(crossed) or None,
            "training_noise_measured": False,
        },
        artifacts=(series_figure(measure, unit, reading.steps, lines),),
        summary=(
            f"{measure[0].upper()}{measure[1:]} went from {change.first:.3g} to {change.last:.3g}"
            " over the run"
        )
        + (f"; {crossed[-1]}." if crossed else ".")
        + f" {reading.reading(measure)}".rstrip(),
    )


def series_figure(
    measure: str, unit: str, steps: Sequence[StepNumbers], lines: Sequence[AlertLine]
) -> Figure:
    """Means over the tasks of each step (of blocks of steps where there are
    very many), and the lines.
    """
    blocks = np.array_split(np.arange(len(steps)), min(len(steps), MOST_POINTS))
    x = tuple(float(steps[block[0]].step) for block in blocks)
    y = []
    for block in blocks:
        means = [mean for i in block if (mean := steps[i].mean(measure)) is not None]
        y.append(float(np.mean(means)) if means else None)
    drawn = [Series(name=line.words, x=(x[0], x[-1]), y=(line.value, line.value)) for line in lines]
    return Figure(
        title=f"{measure[0].upper()}{measure[1:]} by training step",
        form="lines",
        x_label="training step",
        y_label=unit,
        series=(Series(name=measure, x=x, y=tuple(y)), *drawn),
    )


def _alerts(make: AnswerMaker, reading: RecordSteps, known: dict[str, MeanDifference]) -> Evidence:
    """How many alert lines the end of the run lies beyond. A habit of the field
    is not a test: no interval.
    """
    ratios: list[float | None] = []  # turns of failed runs over those of successful ones
    for stretch in reading.stretches():
        failed, won = (
            task_means(stretch, f"turns of {which} runs") for which in ("failed", "successful")
        )
        measured = len(failed) and len(won) and won.mean()
        ratios.append(float(failed.mean() / won.mean()) if measured else None)
    levels: dict[str, tuple[float | None, float | None]] = {
        name: (change.first, change.last) for name, change in known.items()
    }
    levels["turns of failed runs: ratio"] = ratios[0], ratios[1]
    alerts = [(line, *levels.get(line.measure, (None, None))) for line in reading.lines]
    rules = compound(known, reading.config)
    crossed = [line for line, _, end in alerts if end is not None and line.crossed(end)]
    names = [f"{line.measure} {line.words}" for line in crossed]
    names += [name for name, on in rules.items() if on]
    values = [*(end for _, _, end in alerts), *rules.values()]
    table = Table(
        title="Alert lines of the field, at the beginning and at the end of the run",
        columns=("measure", "line", "beginning", "end", "crossed", "source"),
        rows=tuple(
            (
                line.measure,
                line.words.partition(" (")[0],
                start,
                end,
                None if end is None else line.crossed(end),  # not measured is shown as such
                line.source,
            )
            for line, start, end in alerts
        ),
    )
    return make.evidence(
        ALERTS,
        len(names),
        method="levels of the last stretch against lines of the field",
        unit="alert lines crossed",
        n=reading.runs(),
        clusters=max((change.clusters for change in known.values()), default=0),
        diagnostics={
            "lines": len(values),
            "not_measured": values.count(None),
            "critical": sum(line.severity == "critical" for line in crossed),
            **rules,
        },
        artifacts=(table,),
        summary=(
            ("Beyond a line of the field: " + "; ".join(names) + ".")
            if names
            else "No alert line was crossed."
        ),
    )


def compound(known: dict[str, MeanDifference], config: SignalConfig) -> dict[str, bool | None]:
    """Rules over two measures; `None` where one was not measured."""
    diversity, logprob = known.get("diversity"), known.get("mean log-probability")
    reward, success = known.get("reward"), known.get("success")
    collapse = alone = None
    if diversity is not None and logprob is not None:
        nearer = logprob.estimate >= config.logprob_rise * abs(logprob.first)
        collapse = -diversity.estimate >= config.diversity_drop and nearer
    if reward is not None and success is not None:
        alone = reward.low > 0 and success.estimate < config.flat
    return {"exploration collapse": collapse, "reward up, success flat": alone}


def read_step(
    record: TrainingRecord, step: int, tolerance: float, win: float, scale: ScoreScale | None
) -> StepNumbers:
    """All measures of one complete step. `tolerance`: rewards this close count
    as equal; `win`: score of a success; `scale`: of the scores of the whole record.
    """
    runs = sorted(_runs(record, step), key=lambda run: (run["group"], run["sample"], run["task"]))
    if scale is not None:
        runs = [run | {"outcome": scale.outcome(run)} for run in runs]
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for run in runs:
        groups[run["group"]].append(run)
    numbers = [(run["task"], run_numbers(run, win)) for run in runs]
    numbers += [
        (members[0]["task"], group_numbers(members, tolerance, win)) for members in groups.values()
    ]
    values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for task, measures in numbers:
        for name, value in measures.items():
            if value is not None:
                values[name][task].append(value)
    means = {
        name: {task: float(np.mean(of_task)) for task, of_task in sorted(tasks.items())}
        for name, tasks in values.items()
    }
    return StepNumbers(step=step, means=means, runs=len(runs))


def run_numbers(run: dict[str, Any], win: float) -> dict[str, float | None]:
    """The measures of one run; `None` where its row does not tell. Errored
    runs say nothing of the policy.
    """
    if run["end"] == "errored":
        return {}
    own = run["old_logprobs"] if run["old_logprobs"] is not None else run["sampler_logprobs"]
    won = None if run["outcome"] is None else run["outcome"] >= win
    turns = None if run["turns"] is None else float(run["turns"])
    return {
        "reward": run["reward"],
        "success": run["outcome"],
        "token entropy": run["entropies"],
        "mean log-probability": run["sampler_logprobs"],
        "KL to the start": None
        if None in (own, run["reference_logprobs"])
        else own - run["reference_logprobs"],
        "truncated share": None if run["end"] is None else float(run["end"] == "truncated"),
        "length": run["length"],
        "turns": turns,
        "turns of failed runs": turns if won is False else None,
        "turns of successful runs": turns if won else None,
    }


def group_numbers(
    members: Sequence[dict[str, Any]], tolerance: float, win: float
) -> dict[str, float | None]:
    """The measures of one group. Without two known rewards its spread is
    not known, and neither is its life; without an advantage or the reason why
    there is none, neither is whether it was trained on.
    """
    rewards = [run["reward"] for run in members if run["reward"] is not None]
    outcomes = [run["outcome"] for run in members if run["outcome"] is not None]
    told = [run["dropped"] for run in members if run["dropped"] or run["advantage"] is not None]
    drawn = [run["drawn"] for run in members if run["drawn"] is not None]
    numbers: dict[str, float | None] = {
        "kept share": float(None in told) if told else None,
        "diversity": len(set(drawn)) / len(drawn) if len(drawn) > 1 else None,
    }
    if len(rewards) < 2:
        return numbers
    dead = is_dead(rewards, tolerance)
    numbers |= {"dead share": float(dead), "reward spread": float(np.std(rewards))}
    if outcomes:
        numbers["dead, all successes"] = float(dead and all(value >= win for value in outcomes))
        numbers["dead, all failures"] = float(dead and all(value < win for value in outcomes))
    return numbers


def is_dead(rewards: Sequence[float], tolerance: float) -> bool:
    """Whether all rewards of a group are equal, within a tolerance of the whole group."""
    return max(rewards) - min(rewards) <= tolerance


def _runs(record: TrainingRecord, step: int) -> Iterator[dict[str, Any]]:
    for batch in record.batches(step, *PLAIN, *OF_TOKENS, "token_ids", "sampled"):
        columns = {name: batch.column(name).to_pylist() for name in PLAIN}
        columns |= {name: _row_means(batch.column(name)) for name in OF_TOKENS}
        columns["drawn"], columns["length"] = _drawn(batch)
        for index in range(batch.num_rows):
            yield {name: values[index] for name, values in columns.items()}


def _row_means(column: Any) -> list[float | None]:
    """The mean of each row's list; `None` for a missing or empty one."""
    rows = pc.list_parent_indices(column).to_numpy(zero_copy_only=False)
    numbers = column.flatten().to_numpy(zero_copy_only=False).astype(np.float64)
    sizes = np.bincount(rows, minlength=len(column))
    sums = np.bincount(rows, weights=numbers, minlength=len(column))
    return [float(total / size) if size else None for total, size in zip(sums, sizes, strict=True)]


def _drawn(batch: pa.RecordBatch) -> tuple[list[bytes | None], list[float | None]]:
    """What the policy drew in each row, as bytes to compare, and how many tokens it is."""
    texts: list[bytes | None] = []
    for ids, mask in zip(batch.column("token_ids"), batch.column("sampled"), strict=True):
        if ids.values is None or mask.values is None:
            texts.append(None)
            continue
        flags = mask.values.to_numpy(zero_copy_only=False).astype(bool)
        texts.append(ids.values.to_numpy(zero_copy_only=False)[flags].astype(np.int32).tobytes())
    return texts, [None if text is None else len(text) / 4 for text in texts]
