"""Which words of a world are names, found in what was played, without its author.

1. A prompt's words are split: `anchors` stand in nearly every task's prompt,
   numbers and marks are neither here nor there. A single other word between them
   is *aligned* where the anchors before it (or behind it) are the same in nearly
   every task. Words of one place are a role, `fail _`; roles that share words
   are one. Log-template mining, made small.
2. Vocabulary is left out: what a run writes without having been shown it, what
   observations show in more than half of the tasks that do not speak of it (but
   for a Name with a capital), and kinds of action. So are words that are inflected
   (`goat`, `goats`): one form without the other would break what a skill needs. So
   is a role with less than two words left.
3. A role is *linked* where observations repeat the word of the prompt, more than
   that of other prompts (or where those stand there too, more than half as often
   as they could), and no action had said it before. A word that the
   prompt alone holds may be the question itself; only the environment's `fields`
   can say that it is not.
4. Ids (hex hashes, uuids, tickets) and ISO dates are found by their shape,
   wherever they stand, if several tasks show several of them.

Not seen: names of several words, free text, one letter, bare numbers, plurals,
places that only some tasks have.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from forensics.case import Case
from forensics.layers import World
from forensics.protocols import Fielded
from forensics.runs import Condition
from resampling.ablation.refused_runs import action_kinds

NEARLY_ALL, ORDINARY, SEVERAL, LINKED = 0.9, 0.5, 0.05, 0.2  # shares of the tasks
FEWEST_IDS = 5
ENDINGS = (1, 2, 3)  # letters
WORD = re.compile(r"[^\W\d_](?:[\w-]*\w)?")
_NAME = re.compile(r"[^\W\d_a-z][^\W\d_A-Z]+")
_TOKEN = re.compile(r"[^\W\d_](?:[\w-]*\w)?|\d[\w.]*|[^\w\s]|\n")
_IDS = (
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    r"(?=[a-f]*[0-9])(?=[0-9]*[a-f])[0-9a-f]{7,64}",
    r"[A-Z]{2,10}-\d{2,6}",
)
ID = re.compile(rf"(?<![\w.#-])(?:{'|'.join(_IDS)}|#\d{{2,5}})(?![\w-])")
DATE = re.compile(r"(?<![\w-])\d{4}-[01]\d-[0-3]\d(?!\d)")
LISTED = re.compile(  # three words and more between commas, or under bullets
    rf"{WORD.pattern}(?:(?:[ \t]*,[ \t]*|\s*\n[ \t]*[-*•][ \t]+){WORD.pattern}){{2,}}"
)
STEP = "steps.list.element."
READ = ("task", f"{STEP}role", f"{STEP}text", f"{STEP}kinds")
Place = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Role:
    """Names that stand in one place of the prompts. `linked`: observations repeat
    them; `asked`: they stand in what the environment calls the question.
    """

    name: str
    words: tuple[str, ...]
    linked: bool = False
    asked: bool = False


@dataclass(frozen=True, kw_only=True)
class Identifiers:
    """What can be renamed. `question`: roles of the declared question that nothing
    links. `lists`: whether prompts list names of a role. `ids`, `dates`: whether
    there are any; `fixed`: those that stay. `declared`: the environment says what
    the question is. `left_out`: places that vary and stay, and why.
    """

    roles: tuple[Role, ...] = ()
    question: tuple[Role, ...] = ()
    lists: bool = False
    ids: bool = False
    dates: bool = False
    fixed: frozenset[str] = frozenset()
    declared: bool = False
    left_out: tuple[str, ...] = ()


@dataclass
class Told:
    """What the runs of one task say: its prompts, the words that observations
    showed first and those that an action wrote first, ids and dates.
    """

    prompts: set[str] = field(default_factory=set)
    shown: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)
    ids: set[str] = field(default_factory=set)
    dates: set[str] = field(default_factory=set)
    own_ids: bool = False  # an action wrote an id that nothing had shown


def identifiers(case: Case, world: World) -> Identifiers:
    """The names of a case, from its plain runs of both sides."""
    told: dict[str, Told] = defaultdict(Told)
    kinds: set[str] = set()
    for side in ("before", *case.afters):
        for row in case.rollouts(side, Condition(scrubbed=world)).rows(*READ):
            kinds |= _read(row["steps"], told[row["task"]])
    question = question_of(case)
    roles, left_out = _roles(told, {w for kind in kinds for w in parts_of(kind)}, question)
    ids, dates = _several(told, lambda one: one.ids), _several(told, lambda one: one.dates)
    if ids and sum(one.own_ids for one in told.values()) > SEVERAL * len(told):
        ids, left_out = None, [*left_out, "ids, which runs work out themselves"]
    names = tuple(role for role in roles if role.linked or not role.asked)
    return Identifiers(
        roles=names,
        question=tuple(role for role in roles if role not in names),
        lists=any(_lists(one, names) for one in told.values()),
        ids=ids is not None,
        dates=dates is not None,
        fixed=frozenset((ids or set()) | (dates or set())),
        declared=question is not None,
        left_out=tuple(left_out),
    )


def _read(steps: Sequence[Mapping[str, Any]], told: Told) -> set[str]:
    """Take in one run; the kinds of its actions."""
    start = next((i for i, s in enumerate(steps) if s["role"] == "assistant"), len(steps))
    prompt = "\n".join(step["text"] for step in steps[:start])
    told.prompts.add(prompt)
    seen, ids, kinds = set(words_in(prompt)), set(ID.findall(prompt)), set[str]()
    told.ids |= ids
    told.dates |= set(DATE.findall(prompt))
    for step in steps[start:]:
        new = words_in(step["text"]) - seen
        found = set(ID.findall(step["text"]))
        if step["role"] == "assistant":
            told.written |= new
            told.own_ids |= bool(found - ids)
            kinds |= set(action_kinds(step["text"], step["kinds"] or ()))
            told.shown -= new  # an echo links nothing
        else:
            told.shown |= words_in(step["text"]) - told.written
            told.ids |= found
            told.dates |= set(DATE.findall(step["text"]))
        seen |= new
        ids |= found
    return kinds


@lru_cache(maxsize=16_384)
def words_in(text: str) -> frozenset[str]:
    """Every word of a text, and the parts of words that are put together."""
    return frozenset(part for word in WORD.findall(text) for part in (word, *parts_of(word)))


def parts_of(word: str) -> list[str]:
    """What stands between dashes and underscores."""
    return re.split(r"[_\W]+", word)


# -- roles -----------------------------------------------------------------------------


def _roles(
    told: Mapping[str, Told], kinds: set[str], question: Callable[[str], str] | None
) -> tuple[tuple[Role, ...], list[str]]:
    """The roles, and the places that are left out."""
    places = _places(told)
    asked = {place: _in_question(by_task, question) for place, by_task in places.items()}
    roles, left_out = [], []
    for group in _sharing(places):
        by_task: dict[str, set[str]] = defaultdict(set)
        for place in group:
            for task, found in places[place].items():
                by_task[task] |= {word for word, _ in found}
        name = " / ".join(sorted({_named(place) for place in group}))
        known = _folded({word for words in by_task.values() for word in words})
        free = {w for w in known if w not in kinds and not _ordinary(w, by_task, told)}
        inflected = _inflected(free, by_task, told)
        words = tuple(sorted(free - inflected))
        if len(known) < 2:
            continue
        if inflected:
            left_out.append(f"{name}: {len(inflected)} of its words are inflected")
        if len(free) < 2:
            left_out.append(f"{name}: its words are used elsewhere too")
        if len(words) < 2:
            continue
        linked = _linked(words, by_task, told)
        in_question = all(asked[place] for place in group)
        if in_question and not linked:
            left_out.append(f"{name}: the question itself")
        roles.append(Role(name=name, words=words, linked=linked, asked=in_question))
    return tuple(sorted(roles, key=lambda role: role.name)), sorted(left_out)


def _lists(one: Told, roles: Sequence[Role]) -> bool:
    """Whether a prompt lists names of one role."""
    lists = (
        set(WORD.findall(found[0])) for prompt in one.prompts for found in LISTED.finditer(prompt)
    )
    return any(words <= set(role.words) for words in lists for role in roles)


def _places(told: Mapping[str, Told]) -> dict[Place, dict[str, set[tuple[str, str]]]]:
    """Of each aligned place and task: the words there, each with its prompt."""
    least = NEARLY_ALL * len(told)
    counts = Counter(w for one in told.values() for w in set().union(*map(words_in, one.prompts)))
    anchors = {word for word, count in counts.items() if count >= least}
    found: dict[Place, dict[str, set[tuple[str, str]]]] = defaultdict(lambda: defaultdict(set))
    for task, one in told.items():
        for prompt in one.prompts:
            for word, before, behind in _singles(prompt, anchors):
                found["left", *before][task].add((word, prompt))
                found["right", *behind][task].add((word, prompt))
    aligned = {place: tasks for place, tasks in found.items() if len(tasks) >= least}
    twice = {
        place
        for place, tasks in aligned.items()
        if place[0] == "right"
        and any(_same(tasks, aligned[other]) for other in aligned if other[0] == "left")
    }
    return {place: tasks for place, tasks in sorted(aligned.items()) if place not in twice}


def _same(one: Mapping[str, set[Any]], other: Mapping[str, set[Any]]) -> bool:
    return all(words <= other.get(task, set()) for task, words in one.items())


def _singles(prompt: str, anchors: set[str]) -> Iterator[tuple[str, Place, Place]]:
    """The single words between anchors, marks and numbers, with the anchors on either side."""
    tokens = _TOKEN.findall(prompt)
    free = [t not in anchors and len(t) > 1 and bool(WORD.fullmatch(t)) for t in tokens]
    standing = [i for i, token in enumerate(tokens) if token in anchors]
    names = tuple(tokens[i] for i in standing)
    behind = 0
    for i, token in enumerate(tokens):
        behind += behind < len(standing) and standing[behind] < i
        alone = not (i and free[i - 1]) and not (i + 1 < len(free) and free[i + 1])
        if free[i] and alone and not ID.fullmatch(token):
            yield token, names[:behind], names[behind:]


def _named(place: Place) -> str:
    """A place as a reader knows it: `fail _`."""
    side, *anchors = place
    if side == "left":
        return " ".join((*anchors[-2:], "_"))
    return " ".join(("_", *anchors[:2]))


def _sharing(places: Mapping[Place, Mapping[str, set[tuple[str, str]]]]) -> list[list[Place]]:
    """Places that have words in common, together."""
    groups: list[tuple[set[str], list[Place]]] = []
    for place, by_task in places.items():
        words = {word.lower() for found in by_task.values() for word, _ in found}
        joined = [group for group in groups if not words.isdisjoint(group[0])]
        groups = [group for group in groups if group not in joined]
        members = [one for _, group in joined for one in group]
        groups.append((words.union(*(group[0] for group in joined)), [*members, place]))
    return [sorted(group) for _, group in groups]


def _folded(words: set[str]) -> set[str]:
    """Without capitals of what stands in small letters too, and without words
    that are made of other ones: so renaming can be undone.
    """
    words = {w for w in words if w == w.lower() or w.lower() not in words}
    return {w for w in words if not (set(parts_of(w)) - {w}) & words}


def _ordinary(word: str, by_task: Mapping[str, set[str]], told: Mapping[str, Told]) -> bool:
    """Whether a word is vocabulary rather than a name."""
    without = [one for task, one in told.items() if word not in by_task.get(task, ())]
    written = sum(word in one.written for one in told.values())
    shown = 0 if _NAME.fullmatch(word) else sum(word in one.shown for one in without)
    return written > SEVERAL * len(told) or shown > ORDINARY * max(len(without), 1)


def _inflected(
    words: set[str], by_task: Mapping[str, set[str]], told: Mapping[str, Told]
) -> set[str]:
    """Words that stand beside themselves with an ending, and words that are such,
    in several of the tasks whose prompts have them.
    """
    counts, found = Counter[str](), Counter[str]()
    for task, here in by_task.items():
        texts = {w for prompt in told[task].prompts for w in words_in(prompt)} | told[task].written
        stems = {(word[:-cut], word) for word in texts for cut in ENDINGS if len(word) > cut + 1}
        pairs = {pair for pair in stems if pair[0] in texts and pair[1].isalpha()}
        counts.update(here)
        found.update({word for pair in pairs for word in pair} & here)
    return {word for word in words if found[word] > SEVERAL * counts[word]}


def _linked(
    words: Sequence[str], by_task: Mapping[str, set[str]], told: Mapping[str, Told]
) -> bool:
    """Whether observations repeat the prompt's own name more than others."""
    own = [w in told[task].shown for task, here in by_task.items() for w in here if w in words]
    other = [
        w in told[task].shown for task, here in by_task.items() for w in words if w not in here
    ]
    more = _share(own) - _share(other)
    return more >= LINKED or more > ORDINARY * (1 - _share(other)) > 0


def _share(values: Sequence[bool]) -> float:
    return sum(values) / max(len(values), 1)


def question_of(case: Case) -> Callable[[str], str] | None:
    """The question of a task, where the environment's fields name one."""
    world = case.environment
    if not isinstance(world, Fielded) or "question" not in world.fields(case.tasks[0]):
        return None
    return lambda task: str(world.fields(task).get("question", ""))


def _in_question(
    by_task: Mapping[str, set[tuple[str, str]]], question: Callable[[str], str] | None
) -> bool:
    """Whether the words of a place belong to the question."""
    if question is None:
        return False
    inside = [
        word in words_in(question(task)) for task, found in by_task.items() for word, _ in found
    ]
    return _share(inside) > ORDINARY


# -- ids -------------------------------------------------------------------------------


def _several(told: Mapping[str, Told], of: Callable[[Told], Iterable[str]]) -> set[str] | None:
    """The values that are the same in nearly every task or have few of their
    kind (`UTF-16`); `None` where there are not several others.
    """
    counts = Counter(value for one in told.values() for value in of(one))
    stems = Counter(stem_of(value) for value in counts)
    fixed = {
        value
        for value, count in counts.items()
        if count > ORDINARY * len(told) or stems[stem_of(value)] < FEWEST_IDS
    }
    with_one = sum(any(value not in fixed for value in of(one)) for one in told.values())
    if len(counts) - len(fixed) < FEWEST_IDS or with_one < SEVERAL * len(told):
        return None
    return fixed


def stem_of(value: str) -> str:
    """What stays of an id: the letters of a ticket, `#` of a number."""
    return re.match(r"(?:[A-Z]+-|#)?", value)[0]  # type: ignore[index]
