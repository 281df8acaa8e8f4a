"""The behaviour layer: how the score was made, read from what the runs did.

1. Stream the open-world logs of both sides once lightly (`survey`: channels,
   control texts) and once in full (`tally`: a few numbers a run). Nothing is
   sampled that the score layer does not sample too.
2. For each channel follow the chain of evidence of every run (`chains`), and
   give the share of wins whose chain is complete (`channels`).
3. Compare the shape of runs: turns, length and degeneracy (`shape`), the mix of
   actions (`mix`).
4. Decide on the two traps, echo and collapse (`traps`).
5. See how runs end once the channels are scrubbed (`endings`).

The unit is the task: changes are paired by task and crossed with training
seeds, shares are clustered by task.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from forensics.case import Case
from forensics.instruments import Instrument, instrument
from forensics.layers.channels import ATTEMPTS, WINS, channel_answers
from forensics.layers.endings import breakage_runs
from forensics.layers.mix import action_mix
from forensics.layers.run_columns import BehaviourConfig, Tallied, read_case
from forensics.layers.shape import degeneracy_answers, length, turns
from forensics.layers.survey import chain_rows
from forensics.layers.traps import collapse, echo_trap
from forensics.records import Evidence, Undefined

__all__ = ["BehaviourConfig", "Tallied", "behaviour", "behaviour_of", "chain_rows"]

ONE_ANSWER = {
    "behaviour.turns": turns,
    "behaviour.length": length,
    "behaviour.action_mix": action_mix,
    "behaviour.echo_trap": echo_trap,
    "behaviour.collapse": collapse,
    "behaviour.breakage_runs": breakage_runs,
}
QUESTIONS = (WINS, ATTEMPTS, "behaviour.degeneracy", *ONE_ANSWER)


@instrument(name="behaviour", layer="behaviour", questions=QUESTIONS, config=BehaviourConfig())
def behaviour(case: Case, config: BehaviourConfig) -> Iterator[Evidence | Undefined]:
    """Answer every question, with `Undefined` where its input is missing."""
    yield from _answers(case, config)


def behaviour_of(tallied: Tallied) -> Instrument:
    """The same instrument with its own settings, for logs that were read along
    with something else.
    """
    return replace(behaviour, measure=partial(_answers, tallied=tallied))


def _answers(
    case: Case, config: BehaviourConfig, tallied: Tallied | None = None
) -> Iterator[Evidence | Undefined]:
    provenance = behaviour.configured(**vars(config)).provenance(case)
    reading = read_case(case, config, provenance, tallied)
    yield from channel_answers(reading)
    yield from degeneracy_answers(reading)
    for question, measure in ONE_ANSWER.items():
        yield reading.answer(question, partial(measure, reading))
