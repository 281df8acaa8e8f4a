"""Memory: what does the gain owe to held-out tasks that repeat trained ones?
No policy is played.

1. What was trained on, and what each task shows, as `trained_tasks` has it.
2. Held-out tasks with a trained *twin*: the same name, texts that are near
   (`trained_tasks.nearness`), or a question that is asked again (`repeated_questions`).
3. On the case's own runs in the scrubbed world,

       carried = G0 on all tasks - G0 on tasks without a twin.

   Tasks are the unit. Both parts are means over tasks, the second over the m of
   n that have no twin; the interval is that of the linear part, in which a score
   s of a task counts s - S_m - [no twin] (n / m) (s - S_m).

Where nearly all held-out tasks repeat trained ones nothing is left to measure on
(`not_tested`). Where none does, memory has nothing to carry (`not_applicable`).

Not seen: a task that was remembered in other words; tasks of an earlier
training, of *before* too, that nobody lists; and with the `train` split alone,
tasks that were trained on without being in it. Counted here though it may be
honest: a gain that is larger on tasks with a twin for another reason, such as
that they are easier.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from forensics.case import Case
from forensics.instruments import gain_test
from forensics.phrases import plural, points
from forensics.records import Evidence, GainTest, Undefined
from resampling.gain_tests.gain_study import (
    Comparison,
    GainAnswers,
    GainStudy,
    Values,
    study_of,
)
from resampling.gain_tests.hand_ins import Recorded
from resampling.gain_tests.repeated_questions import repeated_questions
from resampling.gain_tests.trained_tasks import Showing, TrainedTasks, openings, trained_tasks

MEMORY = GainTest(
    name="memory",
    kind="needed",
    excludes="remembered tasks",
    place=100,
    held="are on tasks that training saw",
    found="is on tasks that training saw or nearly saw{names}",
    todo="measure on tasks that training has not seen",
)
METHOD = "the gain on held-out tasks with and without a trained twin"
ABOUT = "tasks that repeat trained ones"


@dataclass(frozen=True, kw_only=True)
class MemoryConfig:
    """`split_tasks`: so many of a train split are looked through. `openings`: so
    many actions show what a task is. `fewest`: tasks without a twin that it
    takes.
    """

    split_tasks: int = 4000
    openings: int = 3
    fewest: int = 10


@gain_test(MEMORY, config=MemoryConfig())
def memory(case: Case, config: MemoryConfig) -> Iterator[Evidence | Undefined]:
    """What the gain owes to tasks that repeat trained ones; raises `MissingInput`
    for what the case cannot give.
    """
    say = GainAnswers.of(memory, case, config, METHOD)
    remembered = Memory(study=study_of(case), config=config)
    tasks, twins, trained = remembered.tasks, remembered.twins, remembered.trained
    told = (
        f"{len(twins):,} of {plural(len(tasks), 'held-out task')} repeat one of"
        f" {plural(len(trained), 'task')} of {trained.source}."
    )
    if len(tasks) - len(twins) < config.fewest:
        yield from say.not_tested(
            told, "Give a held-out split whose tasks do not repeat trained ones."
        )
    elif not twins:
        yield from say.not_applicable(told, remembered.study.gain)
    else:
        found, on_new = remembered.carried, remembered.on_new
        yield say.carried(ABOUT, found)
        yield from say.whole(
            found,
            f"{told} The gain on the others is {points(on_new, 1)} points.",
            diagnostics={
                "twins": len(twins),
                "trained_tasks": len(trained),
                "known_from": trained.source,
                "told_by_prompt": remembered.showing.by_prompt,
                "gain_on_others": on_new,
            },
        )


@dataclass(frozen=True, kw_only=True)
class Memory:
    """The tasks of a study, and those among them that repeat trained ones."""

    study: GainStudy
    config: MemoryConfig

    @cached_property
    def recorded(self) -> Recorded:
        return Recorded(study=self.study)

    @cached_property
    def tasks(self) -> tuple[str, ...]:
        """Those with runs on every side."""
        before, afters = self.study.plain.pair
        return tuple(sorted(set.intersection(*(set(runs.tasks) for runs in (before, *afters)))))

    @cached_property
    def trained(self) -> TrainedTasks:
        world = self.recorded.replays.world
        return trained_tasks(self.study.case, world, self.config.split_tasks)

    @cached_property
    def showing(self) -> Showing:
        world, wanted = self.recorded.replays.world, frozenset(self.tasks)
        runs = (run for side in self.recorded.sides for run in side if run.task in wanted)
        taken = (action for run in runs for action in dict.fromkeys(run.actions))
        chosen = openings(world, self.tasks[0], taken, self.config.openings)
        return Showing(world=world, trained=self.trained, held_out=self.tasks, openings=chosen)

    @cached_property
    def twins(self) -> frozenset[str]:
        """The held-out tasks that repeat trained ones."""
        runs = [run for side in self.recorded.sides for run in side]
        names = self.trained.names
        asked = repeated_questions(self.recorded.replays, self.tasks, names, runs)
        return self.showing.twins | asked

    @cached_property
    def _new(self) -> Values:
        return np.array([task not in self.twins for task in self.tasks], dtype=float)

    @cached_property
    def _scores(self) -> Sequence[Values]:
        """Of each side, task by task."""
        before, afters = self.study.plain.pair
        return [runs.score[runs.places(self.tasks)] for runs in (before, *afters)]

    def _on_new(self, scores: Values) -> float:
        return float((scores * self._new).sum() / self._new.sum())

    @property
    def on_new(self) -> float:
        """The gain on tasks without a twin."""
        before, *afters = map(self._on_new, self._scores)
        return float(np.mean(afters)) - before

    @property
    def carried(self) -> Comparison:
        """Step 3."""
        weights = self._new / self._new.mean()
        before, *afters = ((1 - weights) * (one - self._on_new(one)) for one in self._scores)
        return self.study.amount_by_task(self.tasks, before, afters)
