"""The tasks that a policy was trained on, and what each task shows.

1. Known from a training record and a list that the reader gives; where there is
   neither, from the environment's own `train` split. The first two say what was
   trained on; the split only what may have been.
2. A task is told by its prompt where that tells tasks apart (`DISTINCT` of the
   prompts are met once). Else, as where each has files of its own, by the prompt
   and what the commonest actions of the case's runs show of it: taken one by
   one, each in a fresh episode, in trained and held-out tasks alike. Tasks with
   near prompts, but not the same, have to show near things there as well.
3. A trained task whose name the world does not know is told by its prompt alone;
   where prompts do not tell tasks apart, that is not enough.

Not seen: a task that shows what it is only late in a run; one whose prompt is met
often and whose observations differ from episode to episode.

Which texts of one list repeat, or nearly repeat, texts of another (`near`):

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

Contamination checks count shared n-grams of 8 to 13 words (2005.14165,
2204.02311). Prompts of tasks are often shorter than that, and what tells two of
them apart is one word or one number: so here single words are weighed.

Not seen: the same task in entirely other words, numbers spelt out, figures that
mean nothing and were drawn anew.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any, Final

import numpy as np

from forensics.case import Case
from forensics.errors import MissingInput, stop_outside
from forensics.protocols import Environment

NEAR: Final = 0.6
TEMPLATE: Final = 0.8
MOST: Final = 3
MOST_SHARE: Final = 0.05
FEWEST: Final = 10  # texts of a list, below which nothing is known of its wording
SLACK: Final = 1e-9
WORD: Final = re.compile(r"\w+|(?<=[\d\s)])[-+*/=^%<>](?=\s*[\d(])")
Words = tuple[str, ...]


def read(text: str) -> Words:
    """The words and signs of a text, in order."""
    return tuple(WORD.findall(unicodedata.normalize("NFKC", text).lower()))


def figures(words: Words) -> Words:
    """Those of which another one would make another task."""
    return tuple(w for w in words if not w.isalpha() and (len(w) == 1 or any(map(str.isdigit, w))))


def near(texts: Sequence[str], others: Sequence[str]) -> list[tuple[int, ...]]:
    """For each of `texts` the places of the `others` that are near it."""
    lists = [read(text) for text in texts], [read(text) for text in others]
    wording = {
        word
        for part in lists
        if len(part) >= FEWEST
        for word, count in _texts_with(part).items()
        if count >= TEMPLATE * len(part)
    }
    known = _texts_with((*lists[0], *lists[1]))
    places = {word: place for place, word in enumerate(w for w in known if w not in wording)}
    weights = np.log((1 + sum(map(len, lists))) / np.array([known[word] for word in places]))
    own, other = (_table(part, places) for part in lists)
    bars = NEAR * (other @ weights) - SLACK
    same: dict[Words, list[int]] = defaultdict(list)
    for place, words in enumerate(lists[1]):
        same[figures(words)].append(place)
    found = []
    for number, words in enumerate(lists[0]):
        weighed = own[[number]].toarray()[0] * weights
        at = np.array(same.get(figures(words), ()), dtype=int)
        close = at[other[at] @ weighed >= np.maximum(bars[at], NEAR * weighed.sum() - SLACK)]
        found.append(tuple(close.tolist()))
    most = max(MOST, MOST_SHARE * len(others))
    return [close if len(close) <= most else () for close in found]


def _texts_with(texts: Sequence[Words]) -> Counter[str]:
    return Counter(word for words in texts for word in set(words))


def _table(texts: Sequence[Words], places: Mapping[str, int]) -> Any:
    """`[texts, words]`, one where a text has a word."""
    from scipy.sparse import csr_array

    rows = [sorted({places[word] for word in words if word in places}) for words in texts]
    ends = np.cumsum([0, *map(len, rows)])
    columns = np.array([*chain(*rows)], dtype=int)
    return csr_array((np.ones(len(columns)), columns, ends), shape=(len(rows), len(places)))


DISTINCT: Final = 0.9
ENOUGH: Final = 100  # trained prompts, to say whether prompts tell tasks apart
LIST_CURE: Final = (
    "Give the tasks of training with `--trained-tasks FILE`, or the folder of the training run with"
    " `--training`."
)
Pair = tuple[int, int]  # places of a held-out and of a trained task


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
    parts = parts or [_of_split(world, most, case.seed)]
    found = TrainedTasks(
        source=" and ".join(part.source for part in parts),
        names=tuple(dict.fromkeys(name for part in parts for name in part.names)),
        prompts=tuple(dict.fromkeys(prompt for part in parts for prompt in part.prompts)),
    )
    if not len(found):
        raise MissingInput("No task of the training is known.", LIST_CURE)
    return found


def _of_split(world: Environment, most: int, seed: int) -> TrainedTasks:
    """None where the world has no such split, and says so in its own way."""
    try:
        names = tuple(world.tasks("train", most, seed))
    except Exception as error:
        stop_outside(error)
        names = ()
    return TrainedTasks(source="the world's own train split", names=names)


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


def _episode(world: Environment, name: str, *actions: str) -> list[Any]:
    """What a task says at its start and to these actions; `[]` where the world, a
    stranger's, does not know the task or take the actions.
    """
    episode = world.spawn()
    try:
        return [episode.reset(name, 0), *map(episode.step, actions)]
    except Exception as error:
        stop_outside(error)
        return []


def _prompt(world: Environment, name: str) -> str | None:
    """The prompt of a task; `None` where the world does not know it."""
    return next((start.text for start in _episode(world, name)), None)


@dataclass(frozen=True, kw_only=True)
class Showing:
    """What tasks show. `openings`: the commonest actions of the case's runs;
    `prompts`: those that were asked for.
    """

    world: Environment
    trained: TrainedTasks
    held_out: tuple[str, ...]
    openings: tuple[str, ...]
    prompts: dict[str, str | None] = field(default_factory=dict)

    @cached_property
    def by_prompt(self) -> bool:
        """Whether the prompt tells tasks apart, or is all that there is."""
        if not self.openings:
            return True
        names = self.trained.names
        if len(names) < ENOUGH:
            names = (*names, *self.held_out)
        found = Counter(read(text) for name in names if (text := self._asked(name)))
        return sum(n == 1 for n in found.values()) >= DISTINCT * max(sum(found.values()), 1)

    @cached_property
    def twins(self) -> frozenset[str]:
        """The held-out tasks that a trained one repeats, or is near to. Raises
        `MissingInput` where tasks are known by prompts that do not tell them apart.
        """
        trained, held_out = self.trained, self.held_out
        if trained.prompts and not self.by_prompt:
            raise MissingInput(
                "Of the trained tasks only the prompts are known, and in this world many tasks have"
                " one prompt.",
                "Give the names of the trained tasks with `--trained-tasks FILE`.",
            )
        own = [self._shown(name, not self.by_prompt) for name in held_out]
        other = [self._shown(name, not self.by_prompt) for name in trained.names]
        found = near(own, [*other, *trained.prompts])
        pairs = {(task, place) for task, close in enumerate(found) for place in close}
        if self.by_prompt and self.openings:
            unlike = {
                (task, place)
                for task, place in pairs
                if place < len(other) and read(own[task]) != read(other[place])
            }
            pairs -= unlike - self._shown_alike(unlike)
        names = {held_out[task] for task, _ in pairs}
        return frozenset(names | (set(held_out) & set(trained.names)))

    def _shown_alike(self, pairs: AbstractSet[Pair]) -> set[Pair]:
        """Of these pairs those whose openings show near things, too."""
        own, other = (
            (sorted(set(places)) for places in zip(*pairs, strict=True)) if pairs else ((), ())
        )
        found = near(
            [self._shown(self.held_out[task], True) for task in own],
            [self._shown(self.trained.names[place], True) for place in other],
        )
        alike = {
            (task, other[place]) for task, close in zip(own, found, strict=True) for place in close
        }
        return alike & pairs

    def _asked(self, name: str) -> str | None:
        """The prompt of a task, asked for once."""
        if name not in self.prompts:
            self.prompts[name] = _prompt(self.world, name)
        return self.prompts[name]

    def _shown(self, name: str, opened: bool) -> str:
        shown = [self._asked(name) or ""]
        for action in self.openings if opened else ():
            met = _episode(self.world, name, action)
            shown.append(met[1].observation if met else "")
        return "\n".join(shown)


def openings(world: Environment, task: str, taken: Iterable[str], most: int) -> tuple[str, ...]:
    """The commonest actions that do not end a fresh episode of a task."""
    often = Counter(taken)
    chosen = sorted(often, key=lambda action: (-often[action], action))[: 3 * most]
    met = {action: _episode(world, task, action) for action in chosen}
    kept = [
        one for one in chosen if met[one] and not (met[one][1].terminated or met[one][1].truncated)
    ]
    return tuple(kept[:most])
