"""How many runs of a log are degenerate: limits on what the behaviour layer tallied.

What was done decides first: idle repeats, alternation, monologue (changing line numbers in an
error are the same answer, polling whose answer changes is no repeat). A loop (`layers.loops`)
is an event: it counts however short it is beside the whole run. Of what was written only a
loop at the very end and a text that is nearly all repeats count, since longer healthy runs
repeat more words.

The measures of each run are there already, so nothing is read again. The unit
is the task; training seeds are pooled, runs that errored are left out.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from forensics.errors import MissingInput
from forensics.instruments import AnswerMaker
from forensics.layers.behaviour import Tallied
from forensics.layers.channels import control_of
from forensics.layers.tally import Log
from forensics.phrases import capital, percent
from forensics.records import Evidence, Provenance, Undefined
from forensics.records.case_file import LoopRow
from forensics.records.evidence import Scalar
from forensics.statistics import Estimate, share_by_task
from forensics.verdict.sentences import DEGENERATE

ACTING = {"action repetition": 0.5, "alternation": 0.5, "monologue": 0.5}
FEWEST_TURNS = 4  # of a run whose actions are measured
LIMITS = {  # shares of a run; the compression ratio in bytes per compressed byte
    **ACTING,
    "loop": 0.0,
    "longest repeated suffix": 0.5,
    "repeated n-grams": 0.9,
    "echoed observation": 0.8,
    "compression ratio": 25.0,
}
LONGEST_ACTION = 500  # characters of a repeated action as it is listed
TOLD = {  # what one run does, and what several do
    "action repetition": ("repeats its actions", "repeat their actions"),
    "alternation": ("goes back and forth between two", "go back and forth between two"),
    "monologue": ("talks instead of acting", "talk instead of acting"),
    "loop": ("loops", "loop"),
    "longest repeated suffix": ("repeats the end of its text", "repeat the end of their text"),
    "repeated n-grams": ("says most things again", "say most things again"),
    "echoed observation": ("echoes what came back", "echo what came back"),
    "compression ratio": ("writes the same throughout", "write the same throughout"),
}
METHOD = "limits on each run's measures of degeneracy"


def above(measures: Mapping[str, float | None], turns: float) -> tuple[str, ...]:
    """The names of those measures of a run with so many turns that are above their limit."""
    return tuple(
        name
        for name, limit in LIMITS.items()
        if (turns >= FEWEST_TURNS or name not in ACTING)
        and (measured := measures[name]) is not None
        and measured > limit
    )


def degenerate_answer(tallied: Tallied, provenance: Provenance) -> Evidence | Undefined:
    """The share of degenerate runs after training, with the log before
    training, where there is one, as control.
    """
    before = tallied.logs.get("before")
    afters = [log for side, log in sorted(tallied.logs.items()) if side != "before"]
    answers = AnswerMaker(layer="behaviour", method=METHOD, provenance=provenance)

    def measured() -> Evidence:
        found = _share(afters)
        control = None
        if before is not None:
            with suppress(MissingInput):
                control = _share([before])
        counts = Counter(name for log in afters for names in _above(log) for name in names)
        named = ", ".join(_told(name, count) for name, count in counts.most_common())
        counted: dict[str, Scalar] = {name: counts[name] for name in LIMITS}
        counted["errored"] = sum(log.errored for log in afters)
        return answers.evidence(
            DEGENERATE,
            found,
            unit="share of runs",
            control=control_of(control),
            diagnostics=counted,
            summary=capital(percent(found.estimate))
            + f" of the runs{'' if before is None else ' after training'} are degenerate"
            + (f" ({percent(control.estimate)} before)" if control else "")
            + (f": {named}." if named else "."),
        )

    return answers.answer(DEGENERATE, measured)


def _told(name: str, count: int) -> str:
    one, several = TOLD[name]
    return f"{count:,} {one if count == 1 else several}"


def loop_rows(tallied: Tallied) -> Iterator[LoopRow]:
    """Every run that loops, side by side in the order of the runs."""
    for side, log in sorted(tallied.logs.items(), key=lambda pair: (pair[0] != "before", pair[0])):
        for run in log.loops:
            yield LoopRow(
                trajectory=run.trajectory,
                side=side,
                task=run.task,
                policy=run.policy,
                file=run.file,
                first_step=run.loop.first,
                last_step=run.loop.last,
                turns=run.loop.turns,
                times=run.loop.times,
                actions=tuple(action[:LONGEST_ACTION] for action in run.loop.actions),
            )


def _share(logs: Sequence[Log]) -> Estimate:
    """Of degenerate runs, clustered by task. Raises `MissingInput` for fewer than two tasks."""
    rows = [
        (task, names) for log in logs for task, names in zip(log.tasks, _above(log), strict=True)
    ]
    if not rows:
        raise MissingInput("Every run errored.", "Give logs of runs that ended.")
    return share_by_task((task, float(bool(names)), 1.0) for task, names in rows)


def _above(log: Log) -> Iterator[tuple[str, ...]]:
    """Of each run, the measures above their limit."""
    if not log.tasks:
        return
    for turns, *values in zip(*(log.columns[name] for name in ("turns", *LIMITS)), strict=True):
        measures = {
            name: None if math.isnan(value) else value
            for name, value in zip(LIMITS, values, strict=True)
        }
        yield above(measures, turns)
