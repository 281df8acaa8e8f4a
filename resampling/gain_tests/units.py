"""What needed actions showed, in units: *templates* of texts, and their *fields*.

1. *Texts*: what the case's own runs of both sides read after an action of a
   kind that the environment calls needed; the last one of a run is read by nobody.
2. *Templates* of a kind are mined from some of its texts, evenly spread, as the
   prompts' are (`fields`). A template is what its texts share, in order; what
   stands between is a field. Every text, mined or not, belongs to the first
   template whose shared parts stand in it in their order, each as early as it
   can. What belongs to none is the kind's `rest`, with one field: all of it.
3. A *unit* is some fields of one template or of several. Those of one are called
   `KIND:TEMPLATE`, `KIND:TEMPLATE:FIELD` or `KIND:TEMPLATE:FIRST..LAST`, in words that
   stand before them.

What it cannot see: a text that is the same for every task, and which of several
texts was shown.

What actions of any kind showed is shown on another task, too:

1. *Donors* are observations that the case's own runs read, of either side.
2. A task's donor is the next one in an order drawn by the seed that has an observation of just
   these kinds, so that an episode hears of one other task: the same action's, where that task
   has it. Where no other task has such, one of any kinds with an exchanged one among them
   serves, and else nothing is shown.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Final, Self

import numpy as np

from forensics.protocols import StepResult
from forensics.records import content_hash
from forensics.verdict import JOINED
from resampling.ablation.refused_runs import Kinds, action_kinds, chosen_tasks
from resampling.gain_tests.fields import TOKEN, PromptFields, find_fields

MOST_GIVEN: Final = 4  # texts of one task and kinds that are kept
Row = Mapping[str, Any]
Texts = dict[str, str]  # what each action showed


class Unchanging:
    """What a world holds and never changes: its snapshots share it."""

    def __deepcopy__(self, memo: Any) -> Self:
        return self


@dataclass(frozen=True, kw_only=True, eq=False)
class InOrder(Unchanging):
    """What tasks lend each other, by an `order` of the tasks."""

    order: tuple[str, ...]

    @cached_property
    def _place(self) -> dict[str, int]:
        return {task: number for number, task in enumerate(self.order)}

    def behind(self, task: str) -> Iterator[str]:
        """The other tasks, from the one behind it on."""
        start = self._place.get(task, -1) + 1
        yield from (one for one in (*self.order[start:], *self.order[:start]) if one != task)


def drawn_order(tasks: Iterable[str], seed: int) -> tuple[str, ...]:
    """The tasks in an order drawn by the seed, whatever theirs."""
    names = sorted(tasks)
    return tuple(names[place] for place in np.random.default_rng(seed).permutation(len(names)))


@dataclass(frozen=True, kw_only=True, eq=False)
class Donors(InOrder):
    """What actions showed, by their kinds and the task."""

    texts: Mapping[Kinds, Mapping[str, Texts]]

    @cached_property
    def key(self) -> str:
        told = [
            [list(kinds), sorted((task, sorted(texts.items())) for task, texts in of_kinds.items())]
            for kinds, of_kinds in sorted(self.texts.items())
        ]
        return content_hash([told, list(self.order)], 12)

    def instead(self, task: str, kinds: Kinds, action: str, wanted: frozenset[str]) -> str:
        """What is shown instead of what an action shows on a task."""
        having = self.texts.get(kinds, {})
        for other in self.behind(task):
            if other in having:
                return having[other].get(action, next(iter(having[other].values())))
        near = [one for one in sorted(self.texts) if not wanted.isdisjoint({*one} & {*kinds})]
        for other in self.behind(task):
            for one in near:
                if other in self.texts[one]:
                    return next(iter(self.texts[one][other].values()))
        return ""


def donors_of(rows: Iterable[Row], tasks: Sequence[str], seed: int) -> Donors:
    """The donors among runs, given as plain rows with their steps."""
    texts: dict[Kinds, dict[str, Texts]] = {}
    for row in rows:
        for kinds, action, shown in observed(row):
            of_task = texts.setdefault(kinds, {}).setdefault(row["task"], {})
            if len(of_task) < MOST_GIVEN:
                of_task.setdefault(action, shown)
    return Donors(texts=texts, order=drawn_order(tasks, seed))


def observed(row: Row) -> Iterator[tuple[Kinds, str, str]]:
    """What a run read after each action but its last: kinds, action, text."""
    steps = row["steps"]
    acts = [number for number, step in enumerate(steps) if step["role"] == "assistant"]
    for number, following in pairwise(acts):
        shown = "\n".join(step["text"] for step in steps[number + 1 : following])
        yield step_kinds(steps[number]), steps[number]["text"], shown


def step_kinds(step: Row) -> Kinds:
    """The kinds of a recorded action."""
    called = tuple(call["name"] for call in step["tool_calls"] or ())
    return action_kinds(step["text"], tuple(step["kinds"] or ()) or called)


MINED: Final = 150  # texts of a kind in which templates are looked for
MOST_TEXTS: Final = 16  # of one task and template that are kept
LONGEST: Final = 6000  # characters of a text that is mined
RANGE: Final = ".."
Values = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Form:
    """A template: `shared[0] field shared[1] field ... shared[-1]`."""

    name: str
    shared: tuple[str, ...]
    fields: tuple[str, ...]

    def values(self, text: str) -> Values | None:
        """What stands in its fields, where the text is of this template."""
        first, *inner, last = self.shared
        if not text.startswith(first) or not text.endswith(last):
            return None
        at, end, found = len(first), len(text) - len(last), []
        for one in inner:
            place = text.find(one, at, end)
            if place < 0:
                return None
            found.append(text[at:place])
            at = place + len(one)
        return (*found, text[at:end]) if at <= end else None

    def text(self, values: Sequence[str]) -> str:
        """The text with these values."""
        rest = (value + shared for value, shared in zip(values, self.shared[1:], strict=True))
        return self.shared[0] + "".join(rest)


@dataclass(frozen=True, kw_only=True)
class Part:
    """Some fields of one template of a kind of action, by their `places`."""

    kind: str
    form: Form
    places: tuple[int, ...]

    @property
    def template(self) -> str:
        """The name of the whole template."""
        return f"{self.kind}:{self.form.name}"

    @property
    def name(self) -> str:
        """`KIND:TEMPLATE`, with a colon and its fields where these are not all."""
        if len(self.places) == len(self.form.fields):
            return self.template
        return f"{self.template}:{','.join(self._stretches())}"

    def _stretches(self) -> Iterator[str]:
        inside, names = set(self.places), self.form.fields
        starts = [place for place in self.places if place - 1 not in inside]
        ends = [place for place in self.places if place + 1 not in inside]
        for start, end in zip(starts, ends, strict=True):
            yield names[start] if start == end else f"{names[start]}{RANGE}{names[end]}"

    def without(self, allowed: Iterable[str]) -> "Part":
        """The part without the fields that these names stand for."""
        names, spared = self.form.fields, set[int]()
        for one in allowed:
            if one == self.template:
                spared |= {*self.places}
            elif one.startswith(f"{self.template}:"):
                for stretch in one.removeprefix(f"{self.template}:").split(","):
                    first, _, last = stretch.partition(RANGE)
                    if first in names and (last or first) in names:
                        spared |= {*range(names.index(first), names.index(last or first) + 1)}
        return replace(self, places=tuple(one for one in self.places if one not in spared))

    def of(self, values: Values) -> Values:
        """What stands in these fields."""
        return tuple(values[place] for place in self.places)

    def put(self, into: Values, values: Values) -> str:
        """The text of `into` with these fields as they are in `values`."""
        own = {*self.places}
        return self.form.text(
            [values[place] if place in own else value for place, value in enumerate(into)]
        )


@dataclass(frozen=True, kw_only=True)
class Unit:
    """Fields of one template or of several."""

    parts: tuple[Part, ...]

    @property
    def name(self) -> str:
        return JOINED.join(one.name for one in self.parts)

    @cached_property
    def by_form(self) -> dict[Form, Part]:
        return {one.form: one for one in self.parts}

    @cached_property
    def atoms(self) -> tuple[tuple[int, int], ...]:
        """Its single fields: which part, and its place there."""
        parts = enumerate(self.parts)
        return tuple((number, place) for number, part in parts for place in part.places)

    def but(self, atoms: Iterable[tuple[int, int]]) -> "Unit":
        """The unit without these fields."""
        gone = set(atoms)
        left = [one for one in self.atoms if one not in gone]
        numbers = sorted({number for number, _ in left})
        places = {n: tuple(place for number, place in left if number == n) for n in numbers}
        return Unit(parts=tuple(replace(self.parts[n], places=places[n]) for n in numbers))

    @property
    def halves(self) -> "tuple[Unit, ...]":
        """Its templates in two halves, or the fields of one; none of a single field."""
        if len(self.parts) > 1:
            middle = len(self.parts) // 2
            return Unit(parts=self.parts[:middle]), Unit(parts=self.parts[middle:])
        (one,) = self.parts
        middle = len(one.places) // 2
        places = (one.places[:middle], one.places[middle:]) if middle else ()
        return tuple(Unit(parts=(replace(one, places=some),)) for some in places)


@dataclass(frozen=True, kw_only=True, eq=False)
class ShownTexts(InOrder):
    """What needed kinds showed: their templates, and by template and task the
    values of each text that was shown, in the order of their appearance.
    """

    forms: Mapping[str, tuple[Form, ...]]
    values: Mapping[Form, Mapping[str, tuple[Values, ...]]]
    _known: dict[tuple[str, str], tuple[Form, Values]] = field(default_factory=dict)

    def cut(self, kinds: Kinds, text: str) -> tuple[str, Form, Values] | None:
        """The needed kind, the template and the values of what such an action showed."""
        kind = next((one for one in kinds if one in self.forms), None)
        if kind is None:
            return None
        if (kind, text) not in self._known:
            self._known[kind, text] = _cut(self.forms[kind], text)
        return kind, *self._known[kind, text]

    @cached_property
    def whole(self) -> tuple[Part, ...]:
        """Every template that differs from task to task, all its fields."""
        return tuple(
            Part(kind=kind, form=form, places=tuple(range(len(form.fields))))
            for kind, forms in sorted(self.forms.items())
            for form in forms
            if len(set(self.values[form].values())) > 1
        )

    @cached_property
    def key(self) -> str:
        """Of everything that may be put in the place of something."""
        told = [
            [kind, form.shared, sorted(self.values[form].items())]
            for kind, forms in sorted(self.forms.items())
            for form in forms
        ]
        return content_hash([told, self.order], 12)

    def others(self, task: str, form: Form) -> Iterator[tuple[Values, ...]]:
        """What other tasks' runs were shown of a template, in an order drawn by the seed."""
        of_form = self.values[form]
        yield from (of_form[other] for other in self.behind(task) if other in of_form)


def shown_texts(
    rows: Iterable[Row], needed: Sequence[str], tasks: Sequence[str], seed: int
) -> ShownTexts:
    """What actions of the needed kinds showed in these runs."""
    read: dict[str, dict[tuple[str, str], None]] = {}
    for row in rows:
        for kinds, _, text in observed(row):
            kind = next((one for one in kinds if one in needed), None)
            if kind is not None:
                read.setdefault(kind, {})[row["task"], text] = None
    forms = {kind: _forms(sorted(texts)) for kind, texts in read.items()}
    values: dict[Form, dict[str, list[Values]]] = {
        form: {} for of_kind in forms.values() for form in of_kind
    }
    for kind, texts in read.items():
        for task, text in texts:
            form, found = _cut(forms[kind], text)
            kept = values[form].setdefault(task, [])
            if len(kept) < MOST_TEXTS:
                kept.append(found)
    return ShownTexts(
        forms=forms,
        values={
            form: {task: tuple(texts) for task, texts in of_form.items()}
            for form, of_form in values.items()
        },
        order=drawn_order(tasks, seed),
    )


def _cut(forms: Sequence[Form], text: str) -> tuple[Form, Values]:
    """The first template of a text; the last one takes any."""
    return next((form, found) for form in forms if (found := form.values(text)) is not None)


def _forms(texts: Sequence[tuple[str, str]]) -> tuple[Form, ...]:
    """The templates of a kind's texts, what shares most first, and its `rest`."""
    spread = sorted({text for _, text in texts if len(text) <= LONGEST})
    stream = np.random.default_rng(len(spread))
    mixed = [spread[place] for place in stream.permutation(len(spread))]
    mined = find_fields({str(n): text for n, text in enumerate(chosen_tasks(mixed, MINED))})
    shapes = {shape for number in set(mined.template.values()) for shape in _shapes(mined, number)}
    taken: Counter[str] = Counter({"rest": 1})
    found: list[Form] = []
    for shared, fields in sorted(shapes, key=lambda one: (-len("".join(one[0])), one)):
        if not "".join(shared).strip():
            continue
        name = _name(shared)
        taken[name] += 1
        name = name if taken[name] == 1 else f"{name}-{taken[name]}"
        found.append(Form(name=name, shared=shared, fields=fields))
    return (*found, Form(name="rest", shared=("", ""), fields=("text",)))


def _shapes(mined: PromptFields, number: int) -> Iterator[tuple[Values, Values]]:
    """What the texts of a mined template share, and the names of its fields: as
    it stands in the text with the fewest empty fields. Texts that are the same are
    a template without fields.
    """
    members = [key for key, template in sorted(mined.template.items()) if template == number]
    best = min(members, key=lambda key: sum(not p.text for p in mined.pieces[key] if p.field))
    shared, fields = [""], []
    for piece in mined.pieces[best]:
        if piece.field:
            fields.append(piece.field)
            shared.append("")
        else:
            shared[-1] += piece.text
    if fields:
        yield tuple(shared), tuple(fields)


def _name(shared: Sequence[str]) -> str:
    """The first words that a template shares."""
    words = [word for part in shared for word in TOKEN.findall(part) if word.isalpha()]
    return "-".join(word.lower() for word in words[:3]) or "text"


Met = tuple[Part, Values]  # the part of the unit that a text has, and all values of the text


@dataclass(frozen=True, kw_only=True, eq=False)
class Shown(Unchanging):
    """One unit among what was shown."""

    texts: ShownTexts
    unit: Unit

    def met(self, action: str, result: StepResult) -> Met | None:
        """What of the unit a step showed."""
        found = self.texts.cut(action_kinds(action, result.kinds), result.observation)
        part = self.unit.by_form.get(found[1]) if found else None
        return (part, found[2]) if found and part else None

    def own(self, task: str, form: Form, number: int) -> Values | None:
        """The n-th text of a template that the runs of a task were shown."""
        known = self.texts.values[form].get(task)
        return known[number % len(known)] if known else None

    def read(self, task: str, met: Met) -> bool:
        """Whether the task's runs were shown this text, as far as they are kept."""
        return met[1] in self.texts.values[met[0].form].get(task, (met[1],))

    def another(self, task: str, part: Part, number: int, but: Values) -> Values | None:
        """The n-th of another task that differs in the unit, if there is one."""
        every = (of[number % len(of)] for of in self.texts.others(task, part.form))
        return next((one for one in every if part.of(one) != part.of(but)), None)


def number_of(seen: list[tuple[Form, Values]], form: Form, values: Values) -> int:
    """The place of a text among those of its template that an episode showed."""
    if (form, values) not in seen:
        seen.append((form, values))
    return [one for of, one in seen if of == form].index(values)
