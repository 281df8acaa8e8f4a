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
4. Levels are set against the alert lines of the field (`signal_changes`), each
   with its source.

Sources: 2606.03108 (signals of agentic RL), 2503.14476 (dynamic sampling,
truncation), 2504.20073 (filters, echo trap). Departure: their means over tokens
are means over runs here, since tokens of one run are not independent; and KL is
the plain mean log-ratio of the drawn tokens (unbiased, may be negative), per
token.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from forensics.case import Case
from forensics.errors import MissingInput
from forensics.instruments import AnswerMaker, instrument
from forensics.layers.signal_changes import (
    QUESTIONS,
    AlertLine,
    RecordSteps,
    SignalConfig,
    read_record,
    task_means,
)
from forensics.layers.train_columns import StepNumbers
from forensics.records import Control, Evidence, Figure, Series, Table, Undefined
from forensics.statistics import MeanDifference, benjamini_hochberg

__all__ = ["SignalConfig", "signal"]

ALERTS = "signal.alerts"
MOST_POINTS = 200
Known = dict[str, tuple[MeanDifference, Control]]  # what could be measured


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
