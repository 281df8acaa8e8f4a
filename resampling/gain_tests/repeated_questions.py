"""Held-out tasks that ask what a trained one asked, behind other names and numbers.

Texts that differ in an order number are not near (`trained_tasks`), and yet the task can
be the same: a bank of 150 tunes, each met by ever new pupils.

1. The environment's `fields` name the question. A held-out task is *paired* with a
   trained one that has the same question, word for word.
2. The same question may be asked of other things (who leads this project?). So what won
   on the held-out task is taken again on the trained one, action by action (`replay`).
   `same`: the share of pairs where it wins again; `other`: of as many trained tasks with
   another question, where it wins by chance.
3. The question fixes the answer where (same - other) / (1 - other) is at least `FIXES`
   (Cohen's kappa with one rater certain). Then all paired tasks are repeated, else none.

Not seen: a question that nobody named; one that is repeated in other words; runs that name
the incidental parts in what they do; less than `FEWEST` pairs that were won.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import cycle, islice
from typing import Final

from forensics.errors import stop_outside
from forensics.protocols import Environment, Fielded
from resampling.gain_tests.fields import QUESTION
from resampling.gain_tests.hand_ins import PlayedRun, Replays, by_task
from resampling.gain_tests.trained_tasks import read

FIXES: Final = 0.8
FEWEST: Final = 10
MOST: Final = 100  # pairs that are played again


def repeated_questions(
    replays: Replays, held_out: Sequence[str], trained: Sequence[str], runs: Sequence[PlayedRun]
) -> frozenset[str]:
    """Those of the held-out tasks; `runs`: the case's own, in the same world."""
    asked = _questions(replays.world, trained)
    by_question: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for task, question in asked.items():
        by_question[question].append(task)
    paired = {
        task: question
        for task, question in _questions(replays.world, held_out).items()
        if question in by_question
    }
    won = {task: found for task, found in by_task(runs).items() if task in paired}
    pairs = [
        (task, next((run.actions for run in found if run.won), None)) for task, found in won.items()
    ]
    same, other = [], []  # type: list[bool], list[bool]
    others = cycle(asked.items())
    for task, actions in sorted((task, done) for task, done in pairs if done is not None)[:MOST]:
        question = paired[task]
        strange = next((t for t, q in islice(others, len(asked)) if q != question), None)
        again = replays.wins(by_question[question][0], [actions])
        chance = replays.wins(strange, [actions]) if strange is not None else None
        if again is not None and chance is not None:
            same.append(again)
            other.append(chance)
    if len(same) < FEWEST:
        return frozenset()
    by_chance = sum(other) / len(other)
    fixed = sum(same) / len(same) - by_chance >= FIXES * (1 - by_chance) > 0
    return frozenset(paired) if fixed else frozenset()


def _questions(world: Environment, tasks: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    """The words of each task's question, where the world names it."""
    if not isinstance(world, Fielded):
        return {}
    found = {}
    for task in tasks:
        try:
            question = world.fields(task).get(QUESTION)
        except Exception as error:  # somebody else's world, which may not know this name
            stop_outside(error)
            continue
        if question:
            found[task] = read(question)
    return found
