"""Formats of products, each a table of field names: `products/NAME.toml`, and those that other
packages bring (entry points `forensics.products`: the name is the file's, the value the package
that holds it).

A table names the places of things in the rows of a file, and has a sample that a test
reads. A format is read in these steps:

1. *Known*: one of the conditions `known` holds of one of the first rows.
2. *Entries*: what stands at `entries` in a row (the row itself, its messages, its spans). Of two
   lists of which the second begins with the first, only the second counts. With `run = "file"`
   all rows of a file are one run, else each row is one. `group` tells runs apart, `order` sorts;
   an entry that is written again (`latest`) counts as it was last.
3. Each entry is read by the first `[[entry]]` whose condition (`when`) holds: as a chat message
   (`message`, in any form that `messages` reads; `join`: parts of one answer share this id), as
   text of a `role`, as calls with names, arguments and results (told once for a `call_id`), or
   as the conversation so far (`whole`: the longest counts, where nothing else tells more calls).
   `silent` entries are no steps. An entry that no rule knows is a step `[not understood: ...]`,
   so that nobody takes its run for one that was looked at. What a last answer repeats
   (`closing`) is left out.
4. *What is known of the run*: `id`, `task`, `policy`, `outcome` and so on, the first place that
   has it, in the entries or else in the rows. Of several scores at one place none is the outcome.

The entries of a run as its steps, by the rules of a product's table.

The tables of field names that `product` reads formats by, and where they are found.

Places in JSON values, as tables of field names give them: `found`.

A path is made of keys between slashes: `payload/content`. `*` is every element of a list or
value of an object; `^` the object around the one where the path begins; the empty path is the
value itself. On the way

- a text that holds JSON is read as what it holds;
- a list of `key` and `value` pairs (OTLP attributes) is an object, a `value` of one kind
  (`{"stringValue": ...}`) what it holds;
- `*` of a text is the text.
"""

import json
import logging
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from forensics.actions.unread import NOT_UNDERSTOOD
from forensics.actions.untrusted import first_of, python_literal
from forensics.errors import UserError
from forensics.phrases import printable
from forensics.plugins import plugin_points
from forensics.readers.content import (
    LIMITS,
    MEBIBYTE,
    JsonObject,
    Unreadable,
    log_name,
)
from forensics.readers.json_rows import (
    MALFORMED,
    Row,
    Runs,
    first_row,
    first_value,
    in_words,
    parse_or,
    read_rows,
)
from forensics.readers.log_reader import Reader, numbered
from forensics.readers.messages import message_text, placed, steps_of, tool_call, tool_step
from forensics.readers.values import ending, field_names, number, run_of
from forensics.records import Step, Trajectory
from forensics.records.record import first_error

_OPENS = ("{", "[")
_VALUES = ("stringValue", "intValue", "doubleValue", "boolValue", "arrayValue", "kvlistValue")


class Place(NamedTuple):
    """A value and the objects around it, the nearest first."""

    value: Any
    around: tuple[JsonObject, ...] = ()


def found(place: Place, path: str) -> Iterator[Any]:
    """Every value at a path, in order; null is none."""
    return (one.value for one in places(place, path) if one.value is not None)


def first(place: Place, paths: Sequence[str]) -> Any:
    """The first value at any of the paths, `None` where there is none."""
    return next((value for path in paths for value in found(place, path)), None)


def places(place: Place, path: str) -> list[Place]:
    """Every value at a path with what stands around it."""
    reached = [place]
    for key in path.split("/") if path else ():
        reached = [inner for one in reached for inner in _within(one, key)]
    return reached


def holds(place: Place, conditions: JsonObject) -> bool:
    """Whether some value at each path is the one that is asked for, or one of several; `true` asks
    only that there is one. A text may have `*` for any letters.
    """
    return all(_meets(found(place, path), wanted) for path, wanted in conditions.items())


def _meets(values: Iterator[Any], wanted: Any) -> bool:
    options = wanted if isinstance(wanted, list) else [wanted]
    return any(wanted is True or _equals(value, one) for value in values for one in options)


def _equals(value: Any, wanted: Any) -> bool:
    if isinstance(value, str) and isinstance(wanted, str):
        return value == wanted or fnmatchcase(value, wanted)
    return type(value) is type(wanted) and bool(value == wanted)


def _within(place: Place, key: str) -> list[Place]:
    if key == "^":
        return [Place(place.around[0], place.around[1:])] if place.around else []
    value = _opened(place.value)
    if not isinstance(value, Mapping):
        return [Place(inner, place.around) for inner in _elements(value, key)]
    inside = value.values() if key == "*" else [value[key]] if key in value else []
    return [Place(inner, (value, *place.around)) for inner in inside]


def _elements(value: Any, key: str) -> list[Any]:
    """What a list holds, or the text itself; of attributes the values under a key."""
    if key == "*":
        return value if isinstance(value, list) else [value] if isinstance(value, str) else []
    pairs = value if isinstance(value, list) else []
    return [_plain(one["value"]) for one in pairs if _is_pair(one, key)]


def _is_pair(value: Any, key: str) -> bool:
    return isinstance(value, Mapping) and value.get("key") == key and "value" in value


def _plain(value: Any) -> Any:
    """An attribute's value without its kind."""
    if isinstance(value, Mapping) and len(value) == 1:
        kind, held = next(iter(value.items()))
        if kind in _VALUES:
            values = held.get("values") if isinstance(held, Mapping) else None
            return [_plain(one) for one in values] if isinstance(values, list) else held
    return value


def _opened(value: Any) -> Any:
    """What a text that is JSON holds."""
    if not isinstance(value, str) or not value.lstrip().startswith(_OPENS):
        return value
    return parse_or(value, value)


LONGEST = 200_000  # characters of a text that may be a Python dictionary


class Part(NamedTuple):
    place: Place
    where: str


Paths = tuple[str, ...]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Entry(_Table):
    """How entries of one kind are read; every value but `role`, `tool` and `argument` is a path."""

    when: JsonObject = {}
    silent: bool = False
    unread: bool = False  # it did something in a form that is not read
    message: str | None = None
    join: Paths = ()
    whole: Paths = ()
    role: Literal["system", "user", "assistant", "tool"] = "assistant"
    role_at: str | None = None
    text: Paths = ()
    thought: Paths = ()
    calls: str = ""
    tool: str | None = None
    name: Paths = ()
    arguments: Paths = ()
    argument: str | None = None
    call_id: Paths = ()
    result: Paths = ()
    closing: Paths = ()


@dataclass
class Talk:
    """The steps of a run, entry by entry."""

    path: Path
    steps: list[Step] = field(default_factory=list)
    problems: list[Unreadable] = field(default_factory=list)
    closing: str = ""
    whole: list[Any] = field(default_factory=list)
    _messages: list[tuple[Any, Any, str]] = field(default_factory=list)  # value, id, where
    _called: set[Any] = field(default_factory=set)  # ids of calls
    _order: list[str | None] = field(default_factory=list)  # ... of the last answer
    _waiting: list[tuple[str | None, Step]] = field(default_factory=list)  # results of these

    def add(self, part: Part, rule: Entry | None) -> None:
        """One more entry."""
        place = part.place
        if rule is None:
            self._flush()
            self.steps.append(_unknown(place))
            return
        if rule.silent:
            return
        if rule.unread:
            self._flush()
            self.steps.append(_unknown(place))
            return
        for path in rule.closing:
            self.closing = next((text_of(value) for value in found(place, path)), self.closing)
        whole = _conversation(place, rule.whole)
        self.whole = whole if len(whole) >= len(self.whole) else self.whole
        if rule.message is not None:
            for value in found(place, rule.message):
                self._messages.append((value, first(place, rule.join), part.where))
        elif rule.name or rule.tool or rule.text or rule.thought or rule.result:
            if self._messages:
                self._flush()
            self._add(place, rule)

    def _add(self, place: Place, rule: Entry) -> None:
        """An entry that is no chat message; its results wait for those of the same calls."""
        if not (rule.name or rule.tool or rule.text or rule.thought):
            for one in places(place, rule.calls):
                key, text = _key(one, rule), _results(one, rule) or ""
                calls = len(self.steps[-1].tool_calls) if self.steps else 0
                if key is None and self._waiting and len(self._waiting) >= max(calls, 1):
                    text = f"{self._waiting.pop()[1].text}\n{text}"  # more of the same answer
                self._waiting.append((key, tool_step(text)))
            return
        order: list[str | None] = []
        if steps := list(_spoken(place, rule, self._called, order)):
            self._settle()
            self._order = order
            self.steps += steps

    def _settle(self) -> None:
        """Put what came back in the order of the calls."""
        empty = tool_step("")
        order = [key for key in self._order if key is not None]
        self.steps += placed(self._waiting, order, empty)
        self._waiting = []

    def finished(self) -> list[Step]:
        """The steps of all entries."""
        self._flush()
        if self.whole:
            problems = list(self.problems)
            told = self._steps_of([(value, None, "the conversation") for value in self.whole])
            calls = [sum(len(step.tool_calls) for step in steps) for steps in (told, self.steps)]
            silent = not any(calls) and len(told) > len(self.steps)
            if calls[0] > calls[1] or silent:
                self.steps = told
            else:
                self.problems = problems
        if self.closing and not any(self.closing in step.text for step in self.steps[-1:]):
            self.steps.append(Step(role="assistant", text=self.closing))
        return self.steps

    def _flush(self) -> None:
        self._settle()
        self.steps += self._steps_of(self._messages)
        self._messages = []

    def _steps_of(self, messages: Sequence[tuple[Any, Any, str]]) -> list[Step]:
        whole: list[tuple[Any, str]] = []
        last: Any = None
        for value, key, where in messages:
            message = {"role": "user", "content": value} if isinstance(value, str) else value
            if key is None or key != last:
                own = message if key is None else {**message, "content": [*_parts(message)]}
                whole.append((own, where))
            else:  # parts of one answer
                whole[-1][0]["content"] += _parts(message)
            last = key
        try:
            return list(steps_of(message for message, _ in whole))
        except MALFORMED:
            return [step for message, where in whole for step in self._one(message, where)]

    def _one(self, message: Any, where: str) -> Iterable[Step]:
        try:
            return steps_of([message])
        except MALFORMED as error:
            reason = in_words(error)
            self.problems.append(Unreadable(self.path, reason, where))
            return ()


def _conversation(place: Place, paths: Sequence[str]) -> list[Any]:
    """The messages at all paths; a list that begins with those before takes their place."""
    told: list[Any] = []
    for path in paths:
        values = list(found(place, path))
        more = [one for value in values for one in (value if isinstance(value, list) else [value])]
        told = more if told and more[: len(told)] == told else [*told, *more]
    return told


def _parts(message: Any) -> list[Any]:
    content = message.get("content")
    return content if isinstance(content, list) else [content or ""]


def _unknown(place: Place) -> Step:
    value = place.value if isinstance(place.value, Mapping) else {}
    kind = printable(first_of(value, field_names("product").kinds, str) or "an entry", 40)
    return Step(role="assistant", text=f"{NOT_UNDERSTOOD}{kind}]")


def _key(place: Place, rule: Entry) -> str | None:
    """The id of the call that is made or answered."""
    key = first(place, rule.call_id)
    return key if isinstance(key, str) else None


def _spoken(place: Place, rule: Entry, called: set[Any], order: list[str | None]) -> Iterator[Step]:
    """The steps of one entry that speaks or calls. `called`: the ids of calls so far; a call that
    is told again is none. `order`: takes the ids of these calls.
    """
    calls, results = [], []
    for one in places(place, rule.calls) if rule.name or rule.tool else ():
        name = first(one, rule.name) or rule.tool
        key = _key(one, rule)
        if name is not None and (key is None or key not in called):
            called |= {key} if key is not None else set()
            order.append(key)
            given = _object(first(one, rule.arguments))
            calls.append(tool_call(name, {rule.argument: given} if rule.argument else given))
            results.append(_results(one, rule))
    text, thought = ("\n".join(_all(place, paths)) for paths in (rule.text, rule.thought))
    told = (f"<think>\n{thought}\n</think>\n" if thought else "") + text
    if told or calls:
        role = _role(place, rule)
        yield Step(role=role, text=told, tool_calls=tuple(calls) if role == "assistant" else ())
    if any(result is not None for result in results):
        yield from (tool_step(result or "") for result in results)


def _object(value: Any) -> Any:
    """What a text that is a Python dictionary holds (LangSmith)."""
    if isinstance(value, str) and value.startswith("{'") and len(value) < LONGEST:
        return python_literal(value) or value
    return value


def _role(place: Place, rule: Entry) -> Any:
    if rule.role_at is None:
        return rule.role
    name = next(found(place, rule.role_at), rule.role)
    return steps_of([{"role": name, "content": ""}])[0].role


def _results(place: Place, rule: Entry) -> str | None:
    texts = _all(place, rule.result)
    return "\n".join(texts) if texts else None


def _all(place: Place, paths: Sequence[str]) -> list[str]:
    """The texts at the first of the paths that has any; `a + b` is both together."""
    for path in paths:
        values = [value for one in path.split(" + ") for value in found(place, one)]
        if values:
            return [text_of(value) for value in values]
    return []


def text_of(value: Any) -> str:
    """The text of a value; of a text that is JSON of a text, that."""
    if isinstance(value, str) and value[:1] == '"' == value[-1:]:
        with suppress(ValueError):
            value = told if isinstance(told := json.loads(value), str) else value
    return message_text(value if isinstance(value, str | list) else [value])


GROUP = "forensics.products"


class Sample(_Table):
    """A file of the format and the steps that it holds: role and, of a call, its tool."""

    file: str
    text: str
    steps: tuple[tuple[str, str], ...]


class Product(_Table):
    """One format; values are paths, the first that holds something counts."""

    shows: str
    source: str
    run: Literal["file", "row"]
    known: tuple[JsonObject, ...]
    beside: str | None = None  # a file in the same folder that holds the same run
    skip: JsonObject = {}  # rows that are parts of other rows
    entries: Paths = ("",)
    group: Paths = ()
    order: Paths = ()
    latest: Paths = ()  # of entries with the same value here the last counts
    prompt: Paths = ()
    answer: Paths = ()
    id: Paths = ()
    task: Paths = ()
    policy: Paths = ()
    environment: Paths = ()
    sample_number: Paths = ()
    outcome: Paths = ()
    ended: Paths = ()
    error: Paths = ()
    entry: tuple[Entry, ...]
    sample: Sample


def products() -> Mapping[str, Product]:
    """The tables that are installed, ours and those of other packages, by name; a table of
    another package that is none is named in a warning.
    """
    ours = files(f"{__package__}.products")
    names = sorted(one.name for one in ours.iterdir() if one.name.endswith(".toml"))
    tables = {name.removesuffix(".toml"): product(name, ours / name) for name in names}
    for point in plugin_points(GROUP):
        if point.name in tables:
            raise UserError(f"{point.value} brings a second product {point.name}; rename its file")
        name = f"{point.name}.toml"
        try:
            tables[point.name] = product(f"{name} of {point.value}", files(point.value) / name)
        except UserError as error:  # logs of others are read without it
            logging.getLogger("forensics").warning("%s; it is left out", error)
    return tables


def product(name: str, source: Any) -> Product:
    """The table in a file. Raises `UserError` where it is none."""
    try:
        return Product.model_validate(tomllib.loads(source.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"the product table {name} cannot be read ({error})") from error
    except ValidationError as error:
        raise UserError(f"the product table {name} has a wrong {first_error(error)}") from error


RANK = 5  # before readers of shapes that many tools write
LINES = 20  # of a head, in which a format is looked for


def product_readers() -> tuple[Reader, ...]:
    """A reader for each table that is installed."""
    return tuple(_reader(name, table) for name, table in products().items())


def _reader(name: str, table: Product) -> Reader:
    return Reader(
        name=name,
        version=f"1 ({table.shows})",
        recognises=partial(_recognises, table),
        reads=partial(reads, name, table),
        rank=RANK,
        accompanies=None if table.beside is None else partial(_goes_along, table),
    )


def _goes_along(table: Product, path: Path) -> bool:
    """Whether another file holds the same run."""
    other = path.with_name(table.beside or "")
    return path.name == table.sample.file and other.is_file()


def _recognises(table: Product, path: Path, head: bytes) -> bool:
    return any(holds(place, condition) for place in _firsts(head) for condition in table.known)


@lru_cache(maxsize=2)
def _firsts(head: bytes) -> tuple[Place, ...]:
    """The first rows of a head, as far as they can be read."""
    lines = head.lstrip().split(b"\n", LINES)[:LINES]
    values = [first_row(head), *(first_value(line) for line in lines if line.startswith(b"{"))]
    return tuple(Place(value) for value in values if isinstance(value, Mapping))


def reads(name: str, table: Product, path: Path) -> Runs:
    """Every run of a file by a table, and what could not be read."""
    runs = _runs(name, table, path)
    return numbered(runs) if not table.sample_number else runs


def _runs(name: str, table: Product, path: Path) -> Runs:
    rows: list[Row] = []
    skipped = read = 0
    if table.run == "file" and path.stat().st_size > LIMITS.document:
        size = LIMITS.document // MEBIBYTE
        reason = f"its runs stand all over the file, and it has more than {size} MB; split it"
        yield Unreadable(path, reason)
        return
    for row in read_rows(path):
        if isinstance(row, Unreadable):
            yield row
        elif table.skip and holds(Place(row.value), table.skip):
            skipped += 1
        elif table.run == "row":
            read += 1
            yield from _of_rows(name, table, path, [row])
        else:
            rows.append(row)
    if rows:
        yield from _of_rows(name, table, path, rows)
    elif skipped and not read:
        reason = "it holds parts of runs without the runs that they belong to"
        yield Unreadable(path, reason)


def _of_rows(name: str, table: Product, path: Path, rows: Sequence[Row]) -> Runs:
    groups: dict[str, list[Part]] = {}
    for row in rows:
        for place in _entries(table, Place(row.value)):
            groups.setdefault(_group(place, table.group), []).append(Part(place, row.where))
    if not groups and table.run == "row":
        groups[""] = []
    for key, parts in groups.items():
        parts = _latest(parts, table.latest)
        talk = Talk(path)
        parts = _in_order(parts, table.order)
        rules = [
            next((rule for rule in table.entry if holds(part.place, rule.when)), None)
            for part in parts
        ]
        for part, rule in zip(parts, rules, strict=True):
            talk.add(part, rule)
        around, own = [Place(row.value) for row in rows], [part.place for part in parts]
        known = [*around, *own] if table.run == "row" else [*own, *around]
        run = _run(name, table, rows[0], key, talk, known)
        yield from talk.problems
        if run is not None:
            yield run
        elif len(groups) == 1 or any(rule is None or not rule.silent for rule in rules):
            where = parts[0].where if table.run == "file" else rows[0].where
            reason = f"it holds nothing that was said or done, as {table.shows} are read"
            yield Unreadable(path, reason, where)


def _group(place: Place, paths: Sequence[str]) -> str:
    """Which run of its file an entry is of: by the first path whose parts all hold something."""
    for path in paths:
        parts = {one: next(found(place, one), None) for one in path.split(" + ")}
        if all(parts.values()):
            return "/".join(one if part is True else str(part) for one, part in parts.items())
    return ""


def _entries(table: Product, top: Place) -> list[Place]:
    entries: list[Place] = []
    for path in table.entries:
        more = list(places(top, path))
        before = [place.value for place in entries]
        again = before and [place.value for place in more[: len(before)]] == before
        entries = more if again else [*entries, *more]
    return entries


def _latest(parts: list[Part], paths: Sequence[str]) -> list[Part]:
    """The parts; one that is written again stands where it stood first."""
    last: dict[Any, Part] = {}
    for at, part in enumerate(parts if paths else ()):
        key = first(part.place, paths)
        last[key if isinstance(key, str) else at] = part
    return list(last.values()) if paths else parts


def _in_order(parts: list[Part], order: Sequence[str]) -> list[Part]:
    """The parts by what is at `order`; one that does not say it stays behind the one before it."""
    told: list[tuple[float, str]] = []
    for part in parts if order else ():
        value = first(part.place, order)
        if value is None:
            told.append(told[-1] if told else (float("-inf"), ""))
        else:
            place = number(value)
            told.append((float("inf"), str(value)) if place is None else (place, ""))
    ranks = sorted(range(len(told)), key=told.__getitem__)
    return [parts[rank] for rank in ranks] if order else parts


def _run(
    name: str, table: Product, row: Row, key: str, talk: Talk, known: Sequence[Place]
) -> Trajectory | None:
    """The run, `None` where nothing in it is a step."""

    def told(paths: Sequence[str]) -> Any:
        return next((value for place in known if (value := first(place, paths)) is not None), None)

    def last(paths: Sequence[str]) -> Any:
        backwards = (first(place, paths) for place in reversed(known))
        return next((value for value in backwards if value is not None), None)

    steps = talk.finished()
    asked, answered = told(table.prompt), told(table.answer)
    if asked is not None and not any(step.role == "user" for step in steps):
        steps = [*_said(asked, "user"), *steps]
    if answered is not None and (not steps or steps[-1].text != text_of(answered)):
        steps = [*steps, *_said(answered, "assistant")]
    if not steps:
        return None
    given = told(table.id)
    own = key if key and table.group and not given else ""
    file = (
        talk.path.parent.name
        if log_name(talk.path) in field_names("product").plain
        else log_name(talk.path)
    )
    place = row.place if table.run == "row" else None
    run_id = given or own or place or file or log_name(talk.path)
    scores = dict(score for path in table.outcome for score in _scores(known, path))
    task = told(table.task)
    if task is None and not any(step.role == "user" for step in steps):
        task = run_id  # nothing says what it was asked
    return run_of(
        steps,
        ending(last(table.ended), field_names("cut_off").product, error=last(table.error)),
        id=run_id,
        task=task,
        policy=told(table.policy),
        environment=told(table.environment) or name,
        sample=told(table.sample_number),
        rewards=scores,
        outcome=next(iter(scores.values()), None),
    )


def _said(value: Any, role: Literal["user", "assistant"]) -> list[Step]:
    """A prompt or an answer, be it a text or messages."""
    try:
        return list(steps_of(value if isinstance(value, list) else [value]))
    except MALFORMED:
        return [Step(role=role, text=text_of(value))]


def _scores(known: Sequence[Place], path: str) -> Iterator[tuple[str, float]]:
    """The score at a path, by the last key of it; of several none is."""
    for place in known:
        numbers = [told for value in found(place, path) if (told := number(value)) is not None]
        if len(numbers) == 1:
            yield path.removesuffix("/*").rsplit("/", 1)[-1], numbers[0]
            return
