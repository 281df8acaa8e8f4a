"""Variants: does the gain carry over to the same skill asked anew?

1. Where the environment has `variant(task, seed)` (`Varying`), both policies play
   one variant of each held-out task, in the world that is scrubbed of every
   declared channel. `VariantWorld` asks for the variant under the task's own name,
   so a run draws the random numbers of the plain run of its task and sample: equal
   luck, another content. The runs that the content decides are what differs.
2. What does not carry over is

       carried = G0 on the tasks - G0 on their variants,

   paired by task.
3. How much the shared numbers help is the policy's affair. One that does the same
   on a variant loses nothing but what it remembered. The words of a model differ
   from the first token on that another text makes likelier, and from there on its
   luck is new: then the difference is as wide as that of two sets of tasks. So
   where the first round settles nothing a second and a third variant of each task
   are played, and scores of a task's variants are averaged; after that the rule's
   gap says how many tasks would do. Looking up to three times makes both errors a
   little likelier than the level says (2.5 % becomes some 5 %).

A world without `variant` is `not_applicable`, not `not_tested`. Whether a gain is
remembered is asked by `memory` in every world, of the tasks that stand there;
variants ask it more sharply where an author can draw tasks anew, and an author
who cannot is not to be blamed. A task that is drawn from a name alone, as
`mini-repo` draws it, has no variant that would not be one more held-out task.

Not seen: what the author's variants leave as it was. A variant that is harder
than its task looks like memory; so the policy before training is shown too.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from forensics.case import Case
from forensics.instruments import Plays, gain_test
from forensics.layers import Runs
from forensics.phrases import points
from forensics.protocols import Alteration, Environment, Observation, Varying
from forensics.records import Evidence, GainTest, Undefined, content_hash
from resampling.gain_tests.altered_worlds import AlteredWorld, alteration
from resampling.gain_tests.gain_study import (
    GainAnswers,
    Pair,
    require_known_gain,
    study_of,
)

VARIANTS = GainTest(
    name="variants",
    kind="needed",
    excludes="remembered tasks",
    place=90,
    held="do not carry over to tasks drawn anew",
    found="does not carry over to tasks that were drawn anew{names}",
    todo="measure on tasks that are drawn anew",
)
METHOD = "both policies play variants of the held-out tasks, coupled with their runs of the tasks"
ABOUT = "features that a variant draws anew"
NO_VARIANTS = (
    "The world has no variants of its tasks; held-out tasks that repeat trained ones are looked"
    " for by the memory test."
)


@dataclass(frozen=True, kw_only=True)
class VariantsConfig:
    """`rounds`: at most so many variants of each task are played."""

    rounds: int = 3


def plays(case: Case, config: VariantsConfig) -> Plays:
    """Likely one round; none where the world has no variants."""
    if not isinstance(case.environment, Varying):
        return Plays(0, 0)
    require_known_gain(case)
    a_round = len(case.tasks) * case.budget.samples * (1 + len(case.afters))
    return Plays(1, config.rounds).times(a_round)


@gain_test(VARIANTS, config=VariantsConfig(), episodes=plays)
def variants(case: Case, config: VariantsConfig) -> Iterator[Evidence | Undefined]:
    """What of the gain is lost on variants; raises `MissingInput` for what the
    case cannot give.
    """
    say = GainAnswers.of(variants, case, config, METHOD)
    study = study_of(case)
    world = case.environment
    if not isinstance(world, Varying):
        yield from say.not_applicable(NO_VARIANTS, study.gain)
        return
    rounds: list[Pair] = []
    for seed in range(1, config.rounds + 1):
        names = {task: world.variant(task, seed) for task in case.tasks}
        if any(name == task for task, name in names.items()):
            yield from say.not_tested(
                "A variant of a task has the name of the task itself.",
                "Let `variant` of the environment give another task for each seed.",
            )
            return
        rounds.append(study.altered(varied(names)).pair)
        found = study.compare(together(rounds))
        if found.cleared or found.found:
            break
    yield say.carried(ABOUT, found)
    lost = found.placebo_over_bar.estimate + found.whole.estimate / 5
    yield from say.whole(
        found,
        f"On {len(rounds)} of at most {config.rounds} variants of each task the policy before"
        f" training loses {points(lost, 1)} points.",
        diagnostics={"rounds": len(rounds), "lost_before": lost},
    )


class VariantWorld(AlteredWorld):
    """Asks for another task under the name of the one that was meant."""

    def __init__(self, inner: Environment, alteration: str, names: dict[str, str]) -> None:
        super().__init__(inner, alteration)
        self._names = names

    def reset(self, task: str, seed: int) -> Observation:
        self.task = task
        return self._inner.reset(self._names[task], seed)


def varied(names: dict[str, str]) -> Alteration:
    """The alteration that asks for the task of each name instead."""
    told = content_hash(sorted(names.items()), 12)
    return alteration(
        f"variants {told}",
        lambda inner, name: VariantWorld(inner, name, names),
        "variants of the tasks",
    )


def together(rounds: Sequence[Pair]) -> Pair:
    """Several rounds as one: the mean score of each task that all of them have."""
    sides = [[pair[0], *pair[1]] for pair in rounds]
    before, *afters = (_mean(runs) for runs in zip(*sides, strict=True))
    return before, tuple(afters)


def _mean(rounds: Sequence[Runs]) -> Runs:
    tasks = tuple(sorted(set.intersection(*(set(runs.tasks) for runs in rounds))))
    score = np.mean([runs.score[runs.places(tasks)] for runs in rounds], axis=0)
    counts = np.sum([runs.counts[runs.places(tasks)] for runs in rounds], axis=0)
    none = np.zeros(len(tasks))
    return replace(
        rounds[0],
        tasks=tasks,
        counts=counts,
        score=score,
        unfinished=none,
        product=none,
        dropped=sum(runs.dropped for runs in rounds),
        halves=None,
    )
