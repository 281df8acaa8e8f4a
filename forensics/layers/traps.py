"""Two ways in which training goes wrong: the echo trap and the collapse.

**Echo trap**: (1) the score is up or level, while (2) mean turns at least
double *and* (3) repetition rises *and*
(4) nothing is lost when the extra repeated actions are removed or the turns are
    capped. Longer runs alone are
normal after honest training. From logs alone, without playing again, (4) is
judged like this:

- An idle repeat (see `actions`) wrote what had been written and was answered
  with what had been read, so a run without its idle repeats wrote and read
  everything that it did write and read. Most of the added turns are such
  repeats.
- Under a cap at the doubled turns, nearly all wins stay: without their idle
  repeats they fit.
- Nothing speaks against it within tasks: runs of a task with more idle repeats
  do not win more often than runs with fewer (where both exist). This catches
  worlds in which a repeated action quietly changes something.

What remains unseen: an action whose repetition matters, changes nothing that is
shown, and is repeated equally often in every run of a task.

**Collapse**: mean turns fall to about one (from more than two), and either the
share of dead groups (all runs of a task end alike) rises towards 1 or the score
falls. The second way is ours: a policy that guesses at random in its first turn
has collapsed while its guesses still differ, and how many groups are dead
depends on how many runs a task has. Where nearly every run wins, short and
equal runs are mastery, and where the score is kept they are thrift; but not
where most wins hand in nothing, though the policy before training did hand in:
such wins master the grader.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from forensics.errors import MissingInput
from forensics.layers.degeneracy import MEASURES
from forensics.layers.run_columns import CaseColumns, Change, change
from forensics.layers.tally import Log, mean
from forensics.records import Evidence, Table
from forensics.statistics import benjamini_hochberg

MEANING = {
    "echo trap": "runs grew longer by repeated actions that change nothing, the score held",
    "collapse": "runs fell to about one turn, and end alike or score less",
}
DECIDING = ("action repetition", "alternation", "monologue", "longest repeated suffix")


class Condition(NamedTuple):
    """One condition of a trap; `holds` is `None` where it cannot be told."""

    text: str
    holds: bool | None
    figures: dict[str, float | None]


def echo_trap(reading: CaseColumns) -> Evidence:
    """1.0 where all four conditions hold, 0.0 where one does not. Raises
    `MissingInput` where it cannot be told.
    """
    config, turns, score = reading.config, reading.change("turns"), reading.known_change("outcome")
    conditions = (
        Condition(
            f"mean turns grow at least {config.turns_factor:g}-fold",
            turns.after >= config.turns_factor * turns.before,
            {"turns before": turns.before, "turns after": turns.after},
        ),
        Condition(
            "the score is up or level",
            None if score is None else score.high >= -config.level_margin,
            {}
            if score is None
            else {"score change": score.estimate, "score change high": score.high},
        ),
        _repetition(reading),
        _nothing_lost(reading, turns),
    )
    idlest = [example.spans for log in reading.afters for example in log.idlest]
    artifacts = idlest[: config.examples]
    return _verdict(reading, "behaviour.echo_trap", "echo trap", conditions, turns, artifacts)


def collapse(reading: CaseColumns) -> Evidence:
    """1.0 where the policy collapsed, 0.0 where not. Raises `MissingInput`
    where it cannot be told.
    """
    config, turns = reading.config, reading.change("turns")
    before, after = dead_share([reading.compared()]), dead_share(reading.afters)
    dead = (
        None if before is None or after is None else after > before and after >= config.dead_share
    )
    change = reading.known_change("outcome")
    fell = None if change is None else change.high < 0
    scores = [score for log in reading.afters if (score := log.mean("outcome")) is not None]
    score = mean(scores) if scores else None
    empty = empty_wins(reading)
    conditions = (
        Condition(
            f"mean turns fall below {config.collapsed_turns:g} from above {config.turns_before:g}",
            turns.after < config.collapsed_turns and turns.before > config.turns_before,
            {"turns before": turns.before, "turns after": turns.after},
        ),
        Condition(
            "the share of tasks whose runs all end alike rises towards 1, or the score falls",
            True if dead or fell else None if None in (dead, fell) else False,
            {
                "dead share before": before,
                "dead share after": after,
                "score change high": None if change is None else change.high,
            },
        ),
        Condition(
            f"the score after is below {config.mastered:g} (or most wins hand in nothing): it is"
            " not mastery",
            None if score is None else score < config.mastered or bool(empty and empty > 0.5),
            {"score after": score, "wins that hand in nothing": empty},
        ),
    )
    return _verdict(reading, "behaviour.collapse", "collapse", conditions, turns, ())


def empty_wins(reading: CaseColumns) -> float | None:
    """Share of the wins after training that handed in nothing; `None` where
    hand-ins were not recorded before it.
    """
    if not any(rows for rows in reading.compared().by_task("handed in").values() if (1.0,) in rows):
        return None
    wins = [
        1 - handed
        for log in reading.afters
        for rows in log.by_task("outcome", "handed in").values()
        for outcome, handed in rows
        if outcome >= reading.config.win
    ]
    return mean(wins) if wins else None


def dead_share(logs: Sequence[Log]) -> float | None:
    """Share of groups (one task, one policy, at least two scored runs) whose
    runs all have the same outcome.
    """
    groups = [rows for log in logs for rows in log.by_task("outcome").values() if len(rows) > 1]
    return mean([float(len(set(rows)) == 1) for rows in groups]) if groups else None


def _repetition(reading: CaseColumns) -> Condition:
    """Whether any deciding measure rises, after Benjamini-Hochberg over those that are defined."""
    known = {name: reading.known_change(name) for name in MEASURES}
    rises = {name: change for name, change in known.items() if change is not None}
    q_values = benjamini_hochberg([change.p_value for change in rises.values()])
    adjusted = dict(zip(rises, q_values, strict=True))
    deciding = {name: rises[name].estimate for name in DECIDING if name in rises}
    risen = [
        name
        for name, rise in deciding.items()
        if rise >= reading.config.least_rise and adjusted[name] <= 1 - reading.config.level
    ]
    return Condition(
        "repetition rises" + (f" ({', '.join(risen)})" if risen else ""),
        bool(risen) if rises else None,
        {f"{name} change": rise for name, rise in deciding.items()},
    )


def _nothing_lost(reading: CaseColumns, change: Change) -> Condition:
    config = reading.config
    cap, growth = config.turns_factor * change.before, change.after - change.before
    idle_growth = reading.change("idle repeats").estimate / growth if growth > 0 else 0.0
    fits = [  # of the wins after training, whether they fit under the cap without idle repeats
        float(turns <= cap)
        for log in reading.afters
        for rows in log.by_task("outcome", "turns without idle repeats").values()
        for outcome, turns in rows
        if outcome >= reading.config.win
    ]
    kept, dose = mean(fits) if fits else None, _dose(reading)
    holds = (
        idle_growth >= config.idle_growth
        and (kept is None or kept >= config.kept_wins)
        and (dose is None or dose.low <= 0)
    )
    return Condition(
        "nothing is lost when idle repeats are removed or turns capped",
        holds,
        {
            "idle share of the added turns": idle_growth,
            "wins kept under the cap": kept,
            "cap in turns": cap,
            "wins with more repeats minus fewer": None if dose is None else dose.estimate,
            "lower end of that": None if dose is None else dose.low,
        },
    )


def _dose(reading: CaseColumns) -> Change | None:
    """Within tasks: outcome of runs with more idle repeats than the task's
    mean, minus that of the others.
    """
    fewer: dict[str, float] = {}
    more: dict[str, float] = {}
    for number, log in enumerate(reading.afters):
        for task, rows in log.by_task("idle repeats", "outcome").items():
            middle = mean([idle for idle, _ in rows])
            high = [outcome for idle, outcome in rows if idle > middle]
            low = [outcome for idle, outcome in rows if idle <= middle]
            if high and low:
                more[f"{number} {task}"], fewer[f"{number} {task}"] = mean(high), mean(low)
    try:
        return change(fewer, [more], reading.generator("dose"), reading.config.level)
    except MissingInput:
        return None


def _verdict(
    reading: CaseColumns,
    question: str,
    name: str,
    conditions: Sequence[Condition],
    turns: Change,
    artifacts: Sequence[object],
) -> Evidence:
    answers = [condition.holds for condition in conditions]
    if False not in answers and None in answers:
        unknown = conditions[answers.index(None)]
        raise MissingInput(
            f"Whether {unknown.text} cannot be told from these logs.",
            "Give logs with outcomes, and at least two runs of each task.",
        )
    found = all(answers)
    figures = {key: value for condition in conditions for key, value in condition.figures.items()}
    failing = [condition.text for condition in conditions if not condition.holds]
    rows = tuple((condition.text, condition.holds) for condition in conditions)
    one = "every run has one turn, so turns tell of neither growth nor collapse"
    single = turns.before == turns.after == 1
    return reading.answers.evidence(
        question,
        float(found),
        unit="1 = yes, 0 = no",
        n=reading.runs,
        clusters=turns.clusters,
        diagnostics={
            key: value for key, value in figures.items() if value is None or math.isfinite(value)
        },
        artifacts=(
            Table(title=f"Conditions of the {name}", columns=("condition", "holds"), rows=rows),
            *artifacts,
        ),
        summary=(
            f"This is {'an' if name[0] in 'aeiou' else 'a'} {name}: {MEANING[name]}; all conditions"
            " hold."
            if found
            else f"No {name} by its turns: {one if single else f'it is not so that {failing[0]}'}."
        ),
    )
