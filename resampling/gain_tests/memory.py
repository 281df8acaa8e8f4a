"""Memory: what does the gain owe to held-out tasks that repeat trained ones?
No policy is played.

1. *Trained tasks* are those of a training record and of a list that the reader
   gives; where there is neither, of the environment's own `train` split. The first
   two say what was trained on; the split only what may have been.
2. A held-out task has a trained *twin* where it has the name of one, or where its
   prompt is near that of one (`near`). Where runs take several turns and fewer than
   `DISTINCT` of the prompts are met once, prompts do not tell tasks apart: then
   names alone count, the answer says so, and trained tasks that are known by their
   prompts alone are not enough.
3. On the case's own runs in the scrubbed world,

       carried = G0 on all tasks - G0 on tasks without a twin.

   Tasks are the unit. Both parts are means over tasks, the second over the m of
   n that have no twin; the interval is that of the linear part, in which a score
   s of a task counts s - S_m - [no twin] (n / m) (s - S_m).

Where nearly all held-out tasks repeat trained ones nothing is left to measure on
(`not_tested`). Where none does, memory has nothing to carry (`not_applicable`).

Contamination checks count shared n-grams of 8 to 13 words (2005.14165,
2204.02311). Prompts of tasks are often shorter than that, and what tells two of
them apart is one word or one number: so `near` weighs single words.

Not seen: a task in entirely other words, with numbers spelt out, or behind other
numbers and names; what a task shows only when it is played; tasks of an earlier
training, of *before* too, that nobody lists; with the `train` split alone, tasks
that were trained on without being in it. Counted here though it may be
honest: a gain that is larger on tasks with a twin for another reason, such as
that they are easier.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from math import log
from typing import Any, Final

import numpy as np

from forensics.case import Case
from forensics.errors import MissingInput, stop_outside
from forensics.instruments import gain_test
from forensics.phrases import plural, points
from forensics.protocols import Environment
from forensics.records import Evidence, GainTest, Undefined
from resampling.gain_tests.gain_study import (
    Comparison,
    GainAnswers,
    GainStudy,
    Values,
    study_of,
)

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
BY_NAME: Final = " Many tasks have one prompt, so they were compared by their names alone."
LIST_CURE: Final = (
    "Give the tasks of training with `--trained-tasks FILE`, or the folder of the training run with"
    " `--training`."
)
DISTINCT: Final = 0.9
ENOUGH: Final = 100  # trained prompts, to say whether prompts tell tasks apart
NEAR: Final = 0.6
TEMPLATE: Final = 0.8
MOST: Final = 3
MOST_SHARE: Final = 0.05
FEWEST: Final = 10  # texts of a list, below which nothing is known of its wording
SLACK: Final = 1e-9
WORD: Final = re.compile(r"\w+|(?<=[\d\s)])[-+*/=^%<>](?=\s*[\d(])")
Words = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class MemoryConfig:
    """`split_tasks`: so many of a train split are looked through. `fewest`: tasks
    without a twin that it takes.
    """

    split_tasks: int = 4000
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
    told += "" if remembered.by_prompt else BY_NAME
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
                "told_by_prompt": remembered.by_prompt,
                "gain_on_others": on_new,
            },
        )


@dataclass(frozen=True, kw_only=True)
class Memory:
    """The tasks of a study, and those among them that repeat trained ones."""

    study: GainStudy
    config: MemoryConfig

    @cached_property
    def world(self) -> Environment:
        return self.study.case.world(self.study.world)

    @cached_property
    def tasks(self) -> tuple[str, ...]:
        """Those with runs on every side."""
        before, afters = self.study.plain.pair
        return tuple(sorted(set.intersection(*(set(runs.tasks) for runs in (before, *afters)))))

    @cached_property
    def trained(self) -> "TrainedTasks":
        return trained_tasks(self.study.case, self.world, self.config.split_tasks)

    @cached_property
    def by_prompt(self) -> bool:
        """Whether the prompt tells tasks apart, or is all that there is."""
        if self.study.most_turns <= 1:
            return True
        names = self.trained.names
        prompts = [*self._prompts(names)]
        prompts += self._prompts(self.tasks) if len(names) < ENOUGH else ()
        found = Counter(read(text) for text in prompts if text)
        return sum(n == 1 for n in found.values()) >= DISTINCT * max(sum(found.values()), 1)

    @cached_property
    def twins(self) -> frozenset[str]:
        """The held-out tasks that repeat trained ones. Raises `MissingInput` where these
        are known by prompts that do not tell them apart.
        """
        trained, same = self.trained, frozenset(self.tasks) & frozenset(self.trained.names)
        if not self.by_prompt:
            if trained.prompts:
                raise MissingInput(
                    "Of the trained tasks only the prompts are known, and in this world many tasks"
                    " have one prompt.",
                    "Give the names of the trained tasks with `--trained-tasks FILE`.",
                )
            return same
        found = near(self._prompts(self.tasks), [*self._prompts(trained.names), *trained.prompts])
        return same | {task for task, close in zip(self.tasks, found, strict=True) if close}

    def _prompts(self, names: Sequence[str]) -> list[str]:
        """Of these tasks, in their order; empty where the world does not know one."""
        return [_prompt(self.world, name) or "" for name in names]

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


# -- what was trained on -------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class TrainedTasks:
    """`source`: where they are known from, in words. `names`: those that the
    world can be reset to; `prompts`: of the others.
    """

    source: str
    names: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.names) + len(self.prompts)


def trained_tasks(case: Case, world: Environment, most: int) -> TrainedTasks:
    """What is known of the tasks of training; of a split at most so many. Raises
    `MissingInput` where nothing is.
    """
    parts = [_of_record(case, world)] if case.training is not None else []
    parts += [_of_list(case.trained, world)] if case.trained else []
    if not parts:
        try:
            names = tuple(world.tasks("train", most, case.seed))
        except Exception as error:  # it has no such split, and says so in its own way
            stop_outside(error)
            names = ()
        parts = [TrainedTasks(source="the world's own train split", names=names)]
    found = TrainedTasks(
        source=" and ".join(part.source for part in parts),
        names=tuple(dict.fromkeys(name for part in parts for name in part.names)),
        prompts=tuple(dict.fromkeys(prompt for part in parts for prompt in part.prompts)),
    )
    if not len(found):
        raise MissingInput("No task of the training is known.", LIST_CURE)
    return found


def _of_list(lines: Sequence[str], world: Environment) -> TrainedTasks:
    known = {line: len(line.split()) < 2 and _prompt(world, line) is not None for line in lines}
    return TrainedTasks(
        source="the list of trained tasks",
        names=tuple(line for line in lines if known[line]),
        prompts=tuple(line for line in lines if not known[line]),
    )


def _of_record(case: Case, world: Environment) -> TrainedTasks:
    """By the names in the record where it is of this world, else by the prompts in it."""
    record = case.training_record
    source = "the training record"
    if _same_world(record.run.environment, case):
        rows = (row["task"] for step in record.steps() for row in record.values(step, "task"))
        names = tuple(dict.fromkeys(rows))
        if all(_prompt(world, name) is not None for name in names):
            return TrainedTasks(source=source, names=names)
    return TrainedTasks(source=source, prompts=tuple(recorded_prompts(case)))


def _same_world(recorded: Mapping[str, Any], case: Case) -> bool:
    """Whether a name means the same task there, whatever was scrubbed while training."""
    world = case.environment
    assert world is not None
    known, own = dict(recorded.get("options") or {}), dict(world.options)
    known.pop("without", None), own.pop("without", None)
    return bool(recorded.get("name") == world.name and known == own)


def recorded_prompts(case: Case) -> Iterator[str]:
    """What stands before the first token that the policy drew, once for each task; of a
    dump with texts these.
    """
    record, seen = case.training_record, set()
    if texts := record.prompts():
        yield from texts.values()
        return
    policy = case.policy("before")
    if "tokens" not in policy.capabilities:
        raise MissingInput("The prompts in the training record cannot be read.", LIST_CURE)
    for step in record.steps():
        for row in record.values(step, "task", "token_ids", "sampled"):
            if row["task"] not in seen and row["token_ids"]:
                seen.add(row["task"])
                first = row["sampled"].index(True) if True in row["sampled"] else None
                yield policy.tokenizer.decode(row["token_ids"][:first], skip_special_tokens=True)


def _prompt(world: Environment, name: str) -> str | None:
    """The prompt of a task; `None` where the world, a stranger's, does not know it."""
    try:
        return world.spawn().reset(name, 0).text
    except Exception as error:
        stop_outside(error)
        return None


# -- near texts ----------------------------------------------------------------------------


def read(text: str) -> Words:
    """The words and signs of a text, in order."""
    return tuple(WORD.findall(unicodedata.normalize("NFKC", text).lower()))


def figures(words: Words) -> Words:
    """Those of which another one would make another task."""
    return tuple(w for w in words if not w.isalpha() and (len(w) == 1 or any(map(str.isdigit, w))))


def near(texts: Sequence[str], others: Sequence[str]) -> list[tuple[int, ...]]:
    """For each of `texts` the places of the `others` that are near it.

    1. A text is read as words, in lower case; letters that look alike count as one
       (NFKC), punctuation and blanks count nothing. Words with a digit in them, and
       signs of arithmetic between numbers, are *figures*.
    2. A word that stands in at least `TEMPLATE` of one of the two lists belongs to
       their wording and weighs nothing (figures stay: any of them may be the task).
       Any other weighs log(texts / texts with it).
    3. Two texts are near where their figures are the same, in the same order (a task
       with another number is another task), and the words that they share make up
       at least `NEAR` of the weight of each.
    4. A text that is near more than `MOST_SHARE` of the other list, and more than
       `MOST` of its texts, is near to none: who reads it cannot tell which of them
       it stands for.
    """
    lists = [read(text) for text in texts], [read(text) for text in others]
    wording = {
        word
        for part in lists
        if len(part) >= FEWEST
        for word, count in _texts_with(part).items()
        if count >= TEMPLATE * len(part)
    }
    known, number = _texts_with((*lists[0], *lists[1])), 1 + sum(map(len, lists))
    weight = {word: log(number / known[word]) for word in known if word not in wording}

    def weigh(words: AbstractSet[str]) -> float:
        return sum(weight[word] for word in words)

    same: dict[Words, list[tuple[int, AbstractSet[str], float]]] = defaultdict(list)
    for place, words in enumerate(lists[1]):
        telling = weight.keys() & words
        same[figures(words)].append((place, telling, weigh(telling)))
    found = []
    for words in lists[0]:
        own = weight.keys() & words
        bar, close = weigh(own), []
        for place, other, worth in same.get(figures(words), ()):
            if weigh(own & other) >= NEAR * max(bar, worth) - SLACK:
                close.append(place)
        found.append(tuple(close))
    most = max(MOST, MOST_SHARE * len(others))
    return [close if len(close) <= most else () for close in found]


def _texts_with(texts: Sequence[Words]) -> Counter[str]:
    return Counter(word for words in texts for word in set(words))
