"""The signal layer: did the training run still have something to learn from?
Read off its record.

1. Every complete step of the record is read into a few numbers a task
   (`signal_reading`).
2. The first tenth of the steps is set against the last tenth. The unit is the
   task: a task's runs are averaged first, and intervals are over tasks. One run
   says nothing about another seed; the report of a case says so.
3. The control of each change is chance: the tasks of both stretches dealt anew.
   P-values are adjusted over all of the layer's questions (Benjamini-Hochberg),
   the adjusted one stands in the diagnostics as `q_value`.
4. Levels are set against the alert lines of the field (`signal_alerts`), each
   with its source.

Sources: 2606.03108 (signals of agentic RL), 2503.14476 (dynamic sampling,
truncation), 2504.20073 (filters, echo trap). Departure: their means over tokens
are means over runs here, since tokens of one run are not independent; and KL is
the plain mean log-ratio of the drawn tokens (unbiased, may be negative), per
token.
"""

from collections.abc import Iterator

from forensics.case import Case
from forensics.errors import MissingInput
from forensics.instruments import instrument
from forensics.layers.signal_alerts import Alert, alert_table, alerts_of
from forensics.layers.signal_changes import (
    QUESTIONS,
    Change,
    Reading,
    SignalConfig,
    adjusted,
    read_record,
    task_means,
)
from forensics.layers.signal_figures import series_figure
from forensics.layers.training_columns import StepNumbers
from forensics.records import Control, Evidence, Interval, Provenance, Undefined
from forensics.statistics import MeanDifference

__all__ = ["SignalConfig", "signal"]

CHANCE = "tasks of both stretches dealt anew (mean size of the change)"
ALERTS = "signal.alerts"


@instrument(name="signal", layer="signal", questions=(*QUESTIONS, ALERTS), config=SignalConfig())
def signal(case: Case, config: SignalConfig) -> Iterator[Evidence | Undefined]:
    """Answer every question, with `Undefined` for all of them where the case
    has no training record.
    """
    provenance = signal.configured(**vars(config)).provenance(case)
    try:
        reading = read_record(case, config, provenance)
    except MissingInput as missing:
        yield from (_undefined(provenance, question, missing) for question in signal.questions)
        return
    q_values = adjusted(reading)
    for question, (measure, unit, _) in QUESTIONS.items():
        change = reading.changes[measure]
        if isinstance(change, MissingInput):
            yield _undefined(provenance, question, change)
        else:
            yield _evidence(reading, question, measure, unit, change, q_values[measure])
    yield _alerts(reading)


def _evidence(
    reading: Reading, question: str, measure: str, unit: str, change: Change, q_value: float
) -> Evidence:
    found, lines = change.found, [line for line in reading.lines if line.measure == measure]
    crossed = [line.words for line in lines if line.crossed(found.last)]
    first, last = reading.stretches()
    return Evidence(
        question=question,
        layer="signal",
        method="first against last stretch of the training record, by task",
        provenance=reading.provenance,
        estimate=found.estimate,
        unit=unit,
        interval=Interval(low=found.low, high=found.high, level=found.level),
        n=reading.runs(),
        clusters=found.clusters,
        control=Control(name=CHANCE, estimate=change.chance, p_value=change.p_value),
        diagnostics={
            "first": found.first,
            "last": found.last,
            "q_value": q_value,
            "first_steps": _range(first),
            "last_steps": _range(last),
            "missing_steps": len(reading.missing),
            "alert_lines": "; ".join(line.words for line in lines) or None,
            "alerts": "; ".join(crossed) or None,
            "training_noise_measured": False,
        },
        artifacts=(series_figure(measure, unit, reading.steps, lines),),
        summary=(
            f"{measure[0].upper()}{measure[1:]} went from {found.first:.3g} to {found.last:.3g}"
            " over the run"
        )
        + (f"; {crossed[-1]}." if crossed else "."),
    )


def _range(stretch: tuple[StepNumbers, ...]) -> str:
    return f"{stretch[0].step} to {stretch[-1].step}"


def _alerts(reading: Reading) -> Evidence:
    """How many alert lines the end of the run lies beyond. A habit of the field
    is not a test: no interval.
    """
    known = {
        name: change.found for name, change in reading.changes.items() if isinstance(change, Change)
    }
    made = alerts_of(reading.lines, known, {"turns of failed runs: ratio": _failed_ratio(reading)})
    rules = compound(known, reading.config)
    crossed = [alert for alert in made if alert.crossed]
    names = [f"{alert.line.measure} {alert.line.words}" for alert in crossed] + [
        n for n, on in rules.items() if on
    ]
    return Evidence(
        question=ALERTS,
        layer="signal",
        method="levels of the last stretch against lines of the field",
        provenance=reading.provenance,
        estimate=len(names),
        unit="alert lines crossed",
        n=reading.runs(),
        clusters=max((found.clusters for found in known.values()), default=0),
        diagnostics={
            "lines": len(made) + len(rules),
            "not_measured": _unknown(made, rules),
            "critical": sum(alert.line.severity == "critical" for alert in crossed),
            **rules,
        },
        artifacts=(alert_table(made),),
        summary=(
            ("Beyond a line of the field: " + "; ".join(names) + ".")
            if names
            else "No alert line was crossed."
        ),
    )


def _unknown(made: list[Alert], rules: dict[str, bool | None]) -> int:
    return sum(alert.value is None for alert in made) + sum(on is None for on in rules.values())


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


def _failed_ratio(reading: Reading) -> tuple[float | None, float | None]:
    """Mean turns of failed runs over those of successful ones, in each stretch."""
    ratios: list[float | None] = []
    for stretch in reading.stretches():
        failed, won = (
            task_means(stretch, f"turns of {which} runs") for which in ("failed", "successful")
        )
        ratios.append(
            float(failed.mean() / won.mean()) if len(failed) and len(won) and won.mean() else None
        )
    return ratios[0], ratios[1]


def _undefined(provenance: Provenance, question: str, missing: MissingInput) -> Undefined:
    return Undefined(
        question=question,
        layer="signal",
        method="signal",
        provenance=provenance,
        reason=missing.reason,
        cure=missing.cure,
    )
