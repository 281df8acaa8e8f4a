"""Fields of prompts: where the texts of many tasks differ, and what stands there.

1. *Declared.* `Environment.fields(task)` may name the exact texts that stand in
   a prompt; the one called `question` is the question itself. They come first.
2. *Tokens*: words, numbers, line breaks, punctuation marks. A declared text is
   one token.
3. *Templates* (log-template mining as in Drain, ICWS 2017, but aligned by the
   longest common subsequence): what all texts share at both ends is set aside;
   then each text joins the template with which it shares most, and what all
   texts of a template share are its *anchors*.
4. What stands between two anchors, and is not the same everywhere, is a field.
   It is named after the word before it, so the same names mean the same places.

What it cannot see: a field that is the same in every task; where one ends and
the next begins with nothing but a blank between them (they are one field); a
value of several tokens that shares some with all others (its parts are fields).
A text that aligns with no other has only the fields that were declared, and one
in between what all texts share at their ends.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, cycle, product
from typing import Final, NamedTuple

import numpy as np

from forensics.errors import MissingInput
from forensics.phrases import ordinal, printable
from forensics.protocols import Environment

QUESTION: Final = "question"
PREFIX: Final = "prompt:"  # of a field, where it stands beside kinds of action
TOKEN: Final = re.compile(r"\d+|[^\W\d_]+|\n|[^\S\n]+|.", re.DOTALL)
SYSTEM_ENDS: Final = "\x1e"  # between the system text and the prompt
FIRST_SHARED, SHARED = 0.3, 0.5  # of the tokens, to join one text, or a template
MOST = 180  # texts that may found a template
NEARLY_ALL = 0.98  # of the tasks must be what is said of them all: the rest could carry 2 points
START: Final = "start"  # names a field with no word before it
QUOTED = 60  # characters of a question


class Piece(NamedTuple):
    """A stretch of a prompt; `field`: the field that it is the value of."""

    text: str
    field: str | None = None


Pieces = tuple[Piece, ...]


class Token(NamedTuple):
    """A stretch `start` to `end` of a text; `key` is equal where two tokens match;
    `field`: the field that it is the value of.
    """

    start: int
    end: int
    key: str = ""
    field: str | None = None


@dataclass(eq=False)
class Template:
    """What the middles of its texts share, in order."""

    anchors: list[str]
    members: list[str]


@dataclass(frozen=True, kw_only=True, eq=False)
class PromptFields:
    """The prompts of some tasks in pieces.

    `template`: of each task that aligns with others. `names`: of the fields that
    vary, in the order of their appearance; `declared`: of those that the environment names.
    """

    pieces: Mapping[str, Pieces]
    template: Mapping[str, int]
    names: tuple[str, ...]
    declared: frozenset[str] = frozenset()

    def said(self, name: str) -> str:
        """A field in words: `the fifth number after 'of'`; a number only where every one is."""
        if name == QUESTION or name in self.declared:
            return "the question" if name == QUESTION else f"the field '{printable(name)}'"
        word = name.partition("-")[0]
        known = [one for one in self.names if one not in self.declared]
        row = [one for one in known if one.partition("-")[0] == word]
        if name not in row:
            return f"the field '{printable(name)}'"
        before = row[: row.index(name) + 1]
        values = (of[one] for of in self.values.values() for one in before if of.get(one))
        what = "number" if all(value.isdigit() for value in values) else "value"
        place = f"{ordinal(len(before))} " if len(row) > 1 else ""
        where = "at the start" if word == START else f"after '{printable(word)}'"
        return f"the {place}{what} {where}"

    @cached_property
    def values(self) -> dict[str, dict[str, str]]:
        """The value of each field, by task; of one that stands twice, the first."""
        return {
            task: {piece.field: piece.text for piece in reversed(pieces) if piece.field}
            for task, pieces in self.pieces.items()
        }

    @cached_property
    def asked(self) -> tuple[str, ...]:
        """The tasks whose question is named."""
        return tuple(task for task, values in self.values.items() if QUESTION in values)

    @cached_property
    def beside(self) -> bool:
        """Whether anything beside the question varies."""
        rest = {
            "".join(piece.text for piece in pieces if piece.field != QUESTION)
            for pieces in self.pieces.values()
        }
        return len(rest) > 1

    @property
    def named(self) -> bool:
        """Whether the question of nearly every task is named, and is one of its own."""
        return len(self.asked) >= NEARLY_ALL * len(self.pieces) and not self.alike

    @cached_property
    def alike(self) -> bool:
        """Whether one text is the named question of more than half of the tasks: what they
        ask must stand beside it.
        """
        most = max(Counter(self.values[task][QUESTION] for task in self.asked).values(), default=0)
        return most > max(1, len(self.asked) / 2)

    @property
    def aligns(self) -> bool:
        """Whether nearly every prompt has fields that others have too."""
        return len(self.aligned) >= NEARLY_ALL * len(self.pieces)

    @property
    def aligned(self) -> tuple[str, ...]:
        """The tasks that have others with the same template."""
        return tuple(task for task in self.pieces if task in self.template)

    def donors(self, tasks: Sequence[str], seed: int, apart: bool = False) -> dict[str, str]:
        """For each task another one of the same template (`apart`: of any); each gives once."""
        groups: dict[int, list[str]] = {}
        for task in sorted(tasks):
            groups.setdefault(0 if apart else self.template[task], []).append(task)
        stream = np.random.default_rng(seed)
        found: dict[str, str] = {}
        for _, members in sorted(groups.items()):
            order = [members[place] for place in stream.permutation(len(members))]
            found |= dict(zip(order, (*order[1:], order[0]), strict=True))
        return found


def by_the_author(question: str) -> str:
    """Whose word it is that this is a question."""
    return f"By the environment's word a question is such as '{printable(question, QUOTED)}'."


def whole_text(text: str, system: str | None) -> str:
    """A prompt with its system text as one text."""
    return text if system is None else f"{system}{SYSTEM_ENDS}{text}"


def parted(whole: str) -> tuple[str, str | None]:
    """The prompt and its system text."""
    system, between, text = whole.partition(SYSTEM_ENDS)
    return (text, system) if between else (whole, None)


def prompt_fields(
    world: Environment, tasks: Sequence[str], but: Collection[str] = ()
) -> PromptFields:
    """The fields of these tasks' prompts in this world; `but`: of those that are
    declared not these. Raises `MissingInput` where a task has several prompts.
    """
    declare: Callable[[str], Mapping[str, str]] | None = getattr(world, "fields", None)
    running, texts = world.spawn(), {}
    for task in tasks:
        starts = [running.reset(task, seed) for seed in (0, 1)]
        texts[task], again = (whole_text(start.text, start.system) for start in starts)
        if texts[task] != again:
            raise MissingInput(
                f"The prompt of {printable(task)} changes with the seed, so its fields cannot be"
                " told.",
                "Let a task's name alone decide its prompt.",
            )
    known = {task: dict(declare(task)) for task in tasks} if declare else {}
    for name, values in product(but, known.values()):
        values.pop(name, None)
    return find_fields(texts, known)


def find_fields(
    texts: Mapping[str, str], declared: Mapping[str, Mapping[str, str]] | None = None
) -> PromptFields:
    """The fields of texts, by task. Raises `MissingInput` for a declared value not in its text."""
    known = {task: _located(task, texts[task], values) for task, values in (declared or {}).items()}
    tokens = {task: list(_tokens(text, known.get(task, ()))) for task, text in texts.items()}
    ends = _ends([[one.key for one in found] for found in tokens.values()])
    pieces: dict[str, Pieces] = {}
    template: dict[str, int] = {}
    for number, one in enumerate(_templates(tokens, *ends)):
        cut = _cut(texts, tokens, one, *ends)
        pieces |= cut
        template |= dict.fromkeys(cut, number)
    ordered = {
        task: pieces.get(task) or _pieces(text, known.get(task, ())) for task, text in texts.items()
    }
    seen: dict[str, set[str]] = defaultdict(set)
    for piece in chain(*ordered.values()):
        if piece.field:
            seen[piece.field].add(piece.text)
    return PromptFields(
        pieces=ordered,
        template=template,
        names=tuple(name for name, values in seen.items() if len(values) > 1),
        declared=frozenset(
            token.field for found in known.values() for token in found if token.field
        ),
    )


# -- tokens ------------------------------------------------------------------------------


def _located(task: str, text: str, values: Mapping[str, str]) -> list[Token]:
    """Where the declared values stand, the longest first; names that share a
    value take its places in turn.
    """
    taken: list[Token] = []
    for value in sorted({*values.values()} - {""}, key=lambda one: (-len(one), one)):
        names = [name for name in values if values[name] == value]
        part = re.escape(value)  # by itself, not in a word; else anywhere
        places = [met.span() for met in re.finditer(rf"(?<!\w){part}(?!\w)", text)]
        places = places or [met.span() for met in re.finditer(part, text)]
        if not places:
            raise MissingInput(
                f"The field `{printable(names[0])}` of {printable(task)} does not stand in its"
                " prompt as `fields` says.",
                "Let the environment's `fields` give the exact text, as it stands in the prompt.",
            )
        free = [one for one in places if all(one[1] <= t.start or t.end <= one[0] for t in taken)]
        taken += [
            Token(*place, f"\0{name}", name)
            for place, name in zip(free, cycle(names), strict=False)
        ]
    return sorted(taken)


def _tokens(text: str, known: Iterable[Token]) -> Iterator[Token]:
    """The tokens of a text without its blanks, declared values whole."""
    at = 0
    for token in known:
        yield from _plain_tokens(text, at, token.start)
        yield token
        at = token.end
    yield from _plain_tokens(text, at, len(text))


def _plain_tokens(text: str, start: int, end: int) -> Iterator[Token]:
    for match in TOKEN.finditer(text, start, end):
        if match[0] == "\n" or not match[0].isspace():
            yield Token(*match.span(), match[0])


# -- templates ---------------------------------------------------------------------------


def _templates(texts: Mapping[str, list[Token]], head: int, tail: int) -> list[Template]:
    """Templates of what stands between the first `head` and the last `tail` tokens
    of texts; each text is in at most one, and not alone unless its ends are shared.
    """
    found: list[Template] = []
    for task, tokens in texts.items():
        _join(found, task, [one.key for one in tokens[head : len(tokens) - tail]])
    found = [one for one in found if len(one.members) > 1]
    placed = {task for one in found for task in one.members}
    rest = [task for task in texts if task not in placed]
    return [*found, Template([], rest)] if head + tail and len(rest) > 1 else found


def _ends(texts: Sequence[list[str]]) -> tuple[int, int]:
    """How many tokens all texts share at their start, and after those at their end."""
    least = min(map(len, texts), default=0)
    head = next((n for n in range(least) if len({keys[n] for keys in texts}) > 1), least)
    left = least - head
    tail = next((n for n in range(left) if len({keys[-1 - n] for keys in texts}) > 1), left)
    return head, tail


def _join(templates: list[Template], task: str, keys: list[str]) -> None:
    """Put a text into the template with which it shares most, if it is enough."""
    best: tuple[float, Template, list[str]] | None = None
    for one in templates:
        least = FIRST_SHARED if len(one.members) == 1 else SHARED
        common = longest_common(one.anchors, keys)
        shared, of = _weight(common), _weight(one.anchors)
        if shared and shared >= least * of and (best is None or shared / of > best[0]):
            best = shared / of, one, common
    if best:
        best[1].anchors = best[2]
        best[1].members.append(task)
    elif len(templates) < MOST:
        templates.append(Template(keys, [task]))


def _weight(keys: Sequence[str]) -> int:
    """How many tokens tell that two texts are of one kind: numbers do not."""
    return sum(not key.isdigit() for key in keys)


def longest_common(first: list[str], second: list[str]) -> list[str]:
    """The longest common subsequence, by bit-parallel rows (Hyyro 2004)."""
    if _places(first, second):
        return first
    masks: dict[str, int] = {}
    for place, key in enumerate(first):
        masks[key] = masks.get(key, 0) | 1 << place
    full = (1 << len(first)) - 1
    rows = [full]  # a zero at place p: the first p + 1 keys share one more than the first p
    for key in second:
        row = rows[-1]
        met = row & masks.get(key, 0)
        rows.append((row + met | row - met) & full)
    found: list[str] = []
    column, line = len(first), len(second)
    while column and line:
        bit = 1 << column - 1
        if rows[line] & bit:
            column -= 1
            continue
        line -= 1
        if rows[line] & bit:
            column -= 1
            found.append(first[column])
    return found[::-1]


def _places(anchors: Sequence[str], keys: Sequence[str]) -> list[int]:
    """Where the anchors stand among the keys, each as early as it can; `[]`
    where they do not.
    """
    places, at = [], 0
    for anchor in anchors:
        try:
            at = keys.index(anchor, at) + 1
        except ValueError:
            return []
        places.append(at - 1)
    return places


# -- pieces ------------------------------------------------------------------------------


def _cut(
    texts: Mapping[str, str],
    tokens: Mapping[str, list[Token]],
    template: Template,
    head: int,
    tail: int,
) -> dict[str, Pieces]:
    """The texts of a template in pieces; those that lose a declared value are left out."""
    met, gaps = {}, {}
    for task in template.members:
        own = tokens[task]
        last = len(own) - tail
        inside = _places(template.anchors, [one.key for one in own[head:last]])
        met[task] = [*own[:head], *(own[head + at] for at in inside), *own[last:]]
        gaps[task] = list(_gaps(texts[task], met[task]))
    stretches = zip(
        *([texts[task][slice(*gap)] for gap in gaps[task]] for task in gaps), strict=True
    )
    first = met[template.members[0]]
    names = _names([one.key for one in first], [len(set(one)) > 1 for one in stretches])
    found: dict[str, Pieces] = {}
    for task, between in gaps.items():
        slots = [Token(*gap, field=name) for gap, name in zip(between, names, strict=True) if name]
        slots += [one for one in met[task] if one.field]
        if {one.field for one in tokens[task]} <= {None, *(slot.field for slot in slots)}:
            found[task] = _pieces(texts[task], sorted(slots))
    return found


def _gaps(text: str, met: Sequence[Token]) -> Iterator[tuple[int, int]]:
    """Where the stretch before each anchor starts and ends, and the last one,
    without the blanks around them.
    """
    starts, ends = [0, *(one.end for one in met)], [*(one.start for one in met), len(text)]
    for start, end in zip(starts, ends, strict=True):
        inside = text[start:end]
        yield (
            (end - len(inside.lstrip()), start + len(inside.rstrip()))
            if inside.strip()
            else (start, start)
        )


def _names(anchors: Sequence[str], varies: Sequence[bool]) -> list[str | None]:
    """A name for each stretch that varies: the last word before it."""
    taken = Counter({QUESTION, *(one[1:] for one in anchors if one[0] == "\0")})
    names: list[str | None] = []
    word = START
    for number, differs in enumerate(varies):
        if differs:
            taken[word] += 1
            names.append(word if taken[word] == 1 else f"{word}-{taken[word]}")
        else:
            names.append(None)
        if number < len(anchors) and anchors[number].isalpha():
            word = anchors[number].lower()
    return names


def _pieces(text: str, slots: Sequence[Token]) -> Pieces:
    pieces, at = [], 0
    for slot in slots:
        pieces += [Piece(text[at : slot.start]), Piece(text[slot.start : slot.end], slot.field)]
        at = slot.end
    return tuple(one for one in (*pieces, Piece(text[at:])) if one.text or one.field)
