"""The behaviour layer: how the score was made, read from what the runs did.

1. Stream the open-world logs of both sides once lightly (`survey`: channels,
   control texts) and once in full (`tally`: a few numbers a run). Nothing is
   sampled that the score layer does not sample too.
2. For each channel follow the chain of evidence of every run
   (`evidence_chain`), and give the share of wins whose chain is complete
   (`channels`).
3. Compare the shape of runs: turns, length, degeneracy, and the mix of actions.
4. Decide on the two traps, echo and collapse (`traps`).
5. See how runs end once the channels are scrubbed. A policy trained on a
   shortcut may be thrown off where the shortcut is gone and never hand anything
   in. That is not lost skill, so it is reported apart. So are wins on answers that were
   cut off. A run is unfinished
   where a budget cut it off before it handed anything in; errored runs are left
   out.

The unit is the task: changes are paired by task and crossed with training
seeds, shares are clustered by task.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forensics.case import Case, Rollouts
from forensics.errors import MissingInput
from forensics.instruments import Instrument, instrument
from forensics.layers.channels import ATTEMPTS, WINS, channel_answers, control_of
from forensics.layers.degeneracy import MEASURES
from forensics.layers.evidence_chain import chain_rows, has_side
from forensics.layers.run_columns import BehaviourConfig, CaseColumns, Tallied, read_case
from forensics.layers.tally import Log
from forensics.layers.traps import collapse, echo_trap
from forensics.phrases import percent, printable
from forensics.records import Control, Evidence, Figure, Series, Table, Undefined
from forensics.records.trajectory import LAST_ACTION_CUT, handed_in
from forensics.runs import Condition
from forensics.statistics import Estimate, permutation_test, share_by_task
from forensics.statistics.permutation import jensen_shannon

__all__ = ["BehaviourConfig", "Tallied", "behaviour", "behaviour_of", "chain_rows"]

CUT_OFF = "behaviour.cut_off"
Floats = NDArray[np.float64]
Endings = dict[str, Counter[tuple[str, str]]]  # task -> (end, reason) -> runs


def turns(reading: CaseColumns) -> Evidence:
    """Change of mean turns, with the share of runs by how many turns they took."""
    sides = {"before": [reading.compared()], "after": list(reading.afters)}
    counts = {
        name: Counter(int(n) for log in logs for n in log.columns["turns"])
        for name, logs in sides.items()
    }
    longest = max(max(count) for count in counts.values())
    edges: Floats = np.arange(longest + 2.0)
    x: tuple[float | str, ...] = tuple(edges[:-1].tolist())
    if longest > 100:  # tenths of the longest run
        edges = np.linspace(0, longest, 11)
        x = tuple(f"{low:.0f}-{high:.0f}" for low, high in pairwise(edges))
    series = []
    for name, count in counts.items():
        shares = np.histogram(list(count.elements()), bins=edges)[0] / count.total()
        series.append(Series(name=name, x=x, y=tuple(shares.tolist())))
    figure = Figure(
        title="Turns of a run",
        form="bars",
        x_label="turns",
        y_label="share of runs",
        series=tuple(series),
    )
    return changed(reading, "behaviour.turns", "turns", "turns", "Mean turns", artifacts=(figure,))


def changed(
    reading: CaseColumns,
    question: str,
    column: str,
    unit: str,
    subject: str,
    decimals: int = 1,
    **fields: Any,
) -> Evidence:
    """How a column changed. Raises `MissingInput` where a side does not have it."""
    change = reading.change(column)
    return reading.answers.evidence(
        question,
        change,
        unit=unit,
        n=reading.runs,
        control=Control(
            name="signs of the task differences flipped at random",
            estimate=0.0,
            p_value=change.p_value,
        ),
        diagnostics={"before": change.before, "after": change.after},
        summary=(
            f"{subject} changed by {change.estimate:+.{decimals}f}, from"
            f" {change.before:.{decimals}f} to {change.after:.{decimals}f}."
        ),
        **fields,
    )


def degeneracy_answers(reading: CaseColumns) -> Iterator[Evidence | Undefined]:
    """The change of each degeneracy measure."""
    question = "behaviour.degeneracy"
    for name in MEASURES:
        unit = "bytes per compressed byte" if name == "compression ratio" else "share of a run"
        subject = f"Degeneracy ({name})"
        measure = partial(changed, reading, question, name, unit, subject, 3, about=name)
        yield reading.answers.answer(question, measure, name)


def action_mix(reading: CaseColumns) -> Evidence:
    """Jensen-Shannon divergence of the action kinds of both sides, bits, with a
    permutation p-value by task.
    """
    logs = (reading.compared(), *reading.afters)
    tasks = sorted(set.intersection(*(set(log.kinds) for log in logs)))
    kinds = tuple(sorted({kind for log in logs for count in log.kinds.values() for kind in count}))
    if len(tasks) < 2:
        raise MissingInput(
            "Fewer than two tasks are common to both sides.", "Give logs of the same tasks."
        )
    before, after = _rates(logs[:1], tasks, kinds), _rates(logs[1:], tasks, kinds)
    if not (before.sum() and after.sum()):
        raise MissingInput(
            "One side took no action of a named kind.", "Give logs whose actions have kinds."
        )
    divergences: list[float] = []

    def divergence(first: Floats, second: Floats) -> float:
        found = jensen_shannon(first.sum(axis=0), second.sum(axis=0))
        # a permuted side without actions is as far as can be
        divergences.append(1.0 if found is None else found)
        return divergences[-1]

    generator = reading.generator("action mix")
    p_value = permutation_test(before, after, divergence, generator, repeats=reading.config.repeats)
    estimate, *chance = divergences
    rates = zip(kinds, before.mean(axis=0).tolist(), after.mean(axis=0).tolist(), strict=True)
    rows = sorted(rates, key=lambda row: (-row[2], row[0]))
    table = Table(
        title="Actions a run, by kind",
        columns=("kind", "before", "after", "change"),
        rows=tuple((printable(kind), old, new, new - old) for kind, old, new in rows),
    )
    return reading.answers.evidence(
        "behaviour.action_mix",
        estimate,
        unit="bits",
        n=reading.runs,
        clusters=len(tasks),
        control=Control(
            name="sides swapped at random, task by task (mean)",
            estimate=float(np.mean(chance)) if chance else None,
            p_value=p_value,
        ),
        artifacts=(table,),
        summary=f"The mix of actions moved by {estimate:.3f} bits (p = {p_value:.2g}).",
    )


def _rates(logs: Sequence[Log], tasks: Sequence[str], kinds: Sequence[str]) -> Floats:
    """Actions a run `[tasks, kinds]`, training seeds pooled."""
    totals = [sum((log.kinds[task] for log in logs), Counter[str]()) for task in tasks]
    count = sum((Counter(log.tasks) for log in logs), Counter[str]())
    runs = np.array([count[task] for task in tasks], float)
    rates: Floats = (
        np.array([[count[kind] for kind in kinds] for count in totals], float) / runs[:, None]
    )
    return rates


def breakage_runs(reading: CaseColumns) -> Evidence:
    """Share of the scrubbed runs after training that never hand in; control:
    the policy before training.

    Raises `MissingInput` where there is no channel to scrub, or no scrubbed
    run.
    """
    case = reading.case
    # for logs without an environment the largest set they were scrubbed of
    names = {channel.name for channel in case.channels} or set().union(
        *(without for _, without in case.stored)
    )
    if not names:
        raise MissingInput(
            "There is no scrubbed world, since no shortcut is declared.",
            "Give an environment that declares its channels with `--env`.",
        )
    scrubbed = tuple(sorted(names))
    after = [
        read_endings(case.rollouts(side, Condition(scrubbed=scrubbed))) for side in case.afters
    ]
    has_before = has_side(case, "before", scrubbed)
    before = (
        [read_endings(case.rollouts("before", Condition(scrubbed=scrubbed)))] if has_before else []
    )
    share = _unfinished(after, reading.config.level)
    control = _unfinished(before, reading.config.level) if before else None
    totals = [
        sum((count for endings in side for count in endings.values()), Counter())
        for side in (before, after)
    ]
    rows = tuple(
        (
            end,
            printable(reason),
            *(total[end, reason] / total.total() if total else None for total in totals),
        )
        for end, reason in sorted(set().union(*totals))
    )
    table = Table(
        title="How scrubbed runs end", columns=("end", "reason", "before", "after"), rows=rows
    )
    return reading.answers.evidence(
        "behaviour.breakage_runs",
        share,
        unit="share of scrubbed runs",
        control=control_of(control),
        artifacts=(table,),
        summary=(
            f"With every shortcut scrubbed, {percent(share.estimate)} of the runs after training"
            " never hand in"
        )
        + (f" ({percent(control.estimate)} before)." if control else "."),
    )


def cut_off(reading: CaseColumns) -> Evidence:
    """Share of the wins after training whose last action the limit of a turn cut off, so that
    what stood there so far was graded; control: the policy before training.

    Raises `MissingInput` where there is no win, or logs do not say how an action ended.
    """
    case, win = reading.case, reading.config.chain_rule.win
    rows = ("task", "outcome", "end", "end_reason")
    sides = {
        name: [list(case.rollouts(side).rows(*rows)) for side in members]
        for name, members in (("before", ["before"]), ("after", case.afters))
        if name == "after" or has_side(case, "before")
    }
    told = {name: _cut_wins(logs, win) for name, logs in sides.items()}
    if case.environment is None and not any(cut for cuts in told.values() for _, cut, _ in cuts):
        raise MissingInput(
            "These logs do not say whether a last action was cut off.",
            "Give logs that say why a message ended.",
        )
    if not told["after"]:
        raise MissingInput("There is no win after training.", "Run more held-out tasks.")
    share = share_by_task(told["after"], level=reading.config.level)
    before = told.get("before")
    control = share_by_task(before, level=reading.config.level) if before else None
    return reading.answers.evidence(
        CUT_OFF,
        share,
        unit="share of wins",
        control=control_of(control),
        summary=(
            f"Of the wins after training {percent(share.estimate)} were graded on an answer that"
            " the limit of a turn had cut off"
        )
        + (f" ({percent(control.estimate)} before)." if control else "."),
    )


def _cut_wins(
    logs: Sequence[Sequence[Mapping[str, Any]]], win: float
) -> list[tuple[str, int, int]]:
    """Each win as a row (task, 1 where it was cut, 1)."""
    return [
        (row["task"], int((row["end_reason"] or "").startswith(LAST_ACTION_CUT)), 1)
        for log in logs
        for row in log
        if row["outcome"] is not None and row["outcome"] >= win
    ]


def read_endings(log: Rollouts) -> Endings:
    """How the runs of each task ended, errored ones left out."""
    endings: Endings = {}
    for row in log.rows("task", "end", "end_reason"):
        if row["end"] != "errored":
            endings.setdefault(row["task"], Counter())[row["end"], row["end_reason"] or ""] += 1
    return endings


def _unfinished(sides: Sequence[Endings], level: float) -> Estimate:
    return share_by_task(
        (
            (task, 0 if handed_in(*ending) else runs, runs)
            for endings in sides
            for task, count in endings.items()
            for ending, runs in count.items()
        ),
        level=level,
    )


ONE_ANSWER = {
    "behaviour.turns": turns,
    # raises `MissingInput` where the logs do not mark sampled tokens
    "behaviour.length": lambda reading: changed(
        reading, "behaviour.length", "tokens", "sampled tokens", "Sampled tokens a run"
    ),
    "behaviour.action_mix": action_mix,
    "behaviour.echo_trap": echo_trap,
    "behaviour.collapse": collapse,
    "behaviour.breakage_runs": breakage_runs,
    CUT_OFF: cut_off,
}
QUESTIONS = (WINS, ATTEMPTS, "behaviour.degeneracy", *ONE_ANSWER)


@instrument(name="behaviour", layer="behaviour", questions=QUESTIONS, config=BehaviourConfig())
def behaviour(case: Case, config: BehaviourConfig) -> Iterator[Evidence | Undefined]:
    """Answer every question, with `Undefined` where its input is missing."""
    yield from _answers(case, config)


def _answers(
    case: Case, config: BehaviourConfig, tallied: Tallied | None = None
) -> Iterator[Evidence | Undefined]:
    provenance = behaviour.configured(**vars(config)).provenance(case)
    reading = read_case(case, config, provenance, tallied)
    yield from channel_answers(reading)
    yield from degeneracy_answers(reading)
    for question, measure in ONE_ANSWER.items():
        yield reading.answers.answer(question, partial(measure, reading))


def behaviour_of(tallied: Tallied) -> Instrument:
    """The same instrument with its own settings, for logs that were read along
    with something else.
    """
    return replace(behaviour, measure=partial(_answers, tallied=tallied))
