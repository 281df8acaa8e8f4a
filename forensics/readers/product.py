"""Formats of products, each a table of field names: `products/NAME.toml`, and those that other
packages bring (entry points `forensics.products`: the name is the file's, the value the package
that holds it).

A table names the places of things (`paths`) in the rows of a file, and has a sample that a test
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
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

from forensics.readers.content import LIMITS, MEBIBYTE, Unreadable, log_name
from forensics.readers.json_rows import (
    MALFORMED,
    Row,
    Runs,
    first_row,
    first_value,
    read_rows,
)
from forensics.readers.log_reader import Reader, numbered
from forensics.readers.messages import steps_of
from forensics.readers.paths import Place, first, found, holds, places
from forensics.readers.product_table import Product, products
from forensics.readers.product_talk import Part, Talk, text_of
from forensics.readers.values import ending, field_names, number, run_of
from forensics.records import Step, Trajectory

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
