"""What tests demand, and how two states of them are compared.

1. A *demand* is one assertion: its text without formatting, its literals, the names it
   uses, how strict it is, and what stands between it and being reached.
2. A demand of before is *kept* where it stands anywhere after, no harder to reach; or where
   an assertion at least as strict holds its literals and speaks of the same names (alone,
   or with a row of a table); or where a loose one gave way to a stricter one of that test.
3. What is left is told: removed, weakened, not reached any more, skipped.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

from forensics.shortcuts.vocabulary import Vocabulary

_FORMS = Vocabulary(__name__)


CHANGED = "changed"


@dataclass(frozen=True)
class Demand:
    """One assertion. `strict`: 3 an exact value, 2 a range, 1 only that there is something,
    0 nothing at all. `guards`: conditions, swallowed errors and returns before it.
    """

    text: str
    literals: tuple[str, ...] = ()
    names: frozenset[str] = frozenset()
    guards: tuple[str, ...] = ()
    tolerance: float | None = None

    @property
    def strict(self) -> int:
        """How much it demands."""
        return strictness(self.text)

    @property
    def counted(self) -> Counter[str]:
        """Its literals, each as often as it stands there."""
        return Counter(self.literals)

    @property
    def negated(self) -> bool:
        """Whether it demands that something is not so."""
        return _FORMS.not_.search(_FORMS.absent.sub("absent", _bare(self.text))) is not None


@dataclass
class Test:
    """A test: `collected` is whether the runner would find it. `rows`: the items of
    each row of its tables. `values`: names with the values that they are given, no calls of
    what is tested. `inputs`: names with the literals of the calls that they are given.
    `fakes`: names that it replaces. `limits`: of time. `calls`: of functions,
    which are assertions if the function asserts.
    """

    name: str
    collected: bool = True
    demands: list[Demand] = field(default_factory=list)
    rows: list[tuple[str, ...]] = field(default_factory=list)
    values: list[tuple[str, str]] = field(default_factory=list)
    skips: set[str] = field(default_factory=set)
    only: bool = False
    fakes: set[str] = field(default_factory=set)
    inputs: list[tuple[str, tuple[str, ...], frozenset[str]]] = field(default_factory=list)
    limits: list[float] = field(default_factory=list)
    calls: list[tuple[str, Demand]] = field(default_factory=list)

    def add(self, other: "Test") -> None:
        """Take over what another test of the name holds."""
        for one in fields(self)[2:]:
            mine, theirs = getattr(self, one.name), getattr(other, one.name)
            setattr(self, one.name, mine + theirs if isinstance(mine, list) else mine | theirs)


class Scope(NamedTuple):
    """Where a statement stands: the test that holds it, what guards it, and the names around."""

    test: Test
    guards: tuple[str, ...] = ()
    within: str = ""

    def behind(self, *guards: str) -> "Scope":
        """The same place behind more guards."""
        return self._replace(guards=(*self.guards, *guards))

    def joined(self, name: str) -> str:
        """A name with those around it."""
        return f"{self.within}.{name}" if self.within else name


class Told(NamedTuple):
    """One thing that a file no longer demands: its kind, path, the test, and in words. `now`:
    the literals that came instead, where it demands as much as before, but something else.
    """

    kind: str
    path: str
    test: str
    what: str
    now: tuple[str, ...] = ()

    def sentence(self) -> str:
        """In one sentence, without its end."""
        who = f"{self.test} in {self.path}" if self.test else self.path
        return f"{who} {self.what}"


def strictness(text: str) -> int:
    """See `Demand`."""
    text = _bare(text)
    if _FORMS.nothing.search(text):
        return 0
    text = re.sub(r"->|=>|<[\w, .?]+>", "", text)
    if _FORMS.exact.search(text) and not re.search(r"\.not\.|any\(|anything\(", text):
        return 3
    if _FORMS.negated.search(text) or _FORMS.tolerant.search(text):
        return 2
    if "==" in text:
        return 3
    if _FORMS.loose.search(text):
        return 1
    if _FORMS.between.search(text):
        return 2
    return 1 if re.match(r"assert [^=]*$", text) else 3


def _bare(text: str) -> str:
    """Without what stands in strings."""
    return re.sub(r"\.isNotNull\(\)(?=\.)", "", _FORMS.string.sub('""', text))


def merged(tests: Iterable[Test]) -> list[Test]:
    """Tests of one name as one, in order; a function of a test's name is no part of it."""
    found: dict[tuple[str, bool], Test] = {}
    for test in tests:
        first = found.setdefault((test.name, test.collected), test)
        if first is not test:
            first.add(test)
    return list(found.values())


def with_helpers(tests: Sequence[Test]) -> None:
    """Calls of functions that assert become assertions."""
    helpers = {t.name.rsplit(".", 1)[-1]: t for t in tests if not t.collected and t.demands}
    found = []
    for test in tests:
        for name, demand in test.calls:
            if (helper := helpers.get(name)) and helper is not test:
                names = demand.names.union(*(d.names for d in helper.demands))
                found.append((test, replace(demand, names=names)))
    for test, demand in found:
        test.demands.append(demand)


def number(text: str) -> float | None:
    """A literal as a number, if it is one."""
    try:
        return float(text.replace("_", "").rstrip("fFdDlL"))
    except ValueError:
        return None


def words(names: Iterable[str]) -> frozenset[str]:
    """Names that say what an assertion is about."""
    return frozenset(name for name in names if not _FORMS.assert_words.match(name))


def about_environment(skip: str) -> bool:
    """Whether a skip asks for what the machine has."""
    return _FORMS.environment.search(skip) is not None


def compared(
    path: str,
    old: Sequence[Test],
    new: Sequence[Test],
    before: Sequence[Test],
    after: Sequence[Test],
) -> list[Told]:
    """What the tests of a file no longer demand. `before`, `after`: of every file, for what
    moved elsewhere.
    """
    pool = [demand for test in after if test.collected for demand in test.demands]
    stood = Counter(demand.text for test in before for demand in test.demands)
    fresh = [demand for demand in pool if not _taken(stood, demand.text)]
    spare = Counter(demand.text for demand in pool)
    rows = [row for test in after for row in test.rows]
    known = Counter(row for test in before for row in test.rows)
    fresh_rows = [row for row in rows if not _taken(known, row)]
    told: list[Told] = []
    speaks: set[str] = set()
    for test in old:
        twin = _twin(test, old, new)
        told += _head(path, test, twin)
        speaks |= {name for demand in test.demands for name in demand.names}
        told += _rows(path, test, rows, fresh)
        if test.collected:
            told += _gone(path, test, twin, pool, fresh, spare, fresh_rows)
            told += _values(path, test, twin)
            told += _inputs(path, test, twin)
            told += _limits(path, test, twin)
        elif any(other.name == test.name for other in new):
            own = twin.demands if twin else []
            left = Counter(demand.text for demand in own)
            told += _gone(path, test, twin, own, [*fresh, *own], left, fresh_rows)
    faked = {n for t in old for n in t.fakes}
    told += [
        Told("hooked", path, "", f"tests a stand-in of `{name}`, not the thing itself")
        for test in new
        if not test.name
        for name in sorted((test.fakes - faked) & speaks)
    ][:1]
    if old and not any(test.only for test in old) and told == []:
        told += [
            Told("deselected", path, test.name, "is the only test of its file that runs")
            for test in new
            if test.only
        ]
    return told


def _taken(left: Counter[Any], one: Any) -> bool:
    """Whether there was one of these left, which is taken."""
    left[one] -= 1
    return left[one] >= 0


def _twin(test: Test, old: Sequence[Test], new: Sequence[Test]) -> Test | None:
    """The same test after: by name, else by what it demands. A function of its name that was
    there before is another.
    """
    others = {(one.name, one.collected) for one in old if one.collected != test.collected}
    named = [one for one in new if one.name == test.name]
    named = [one for one in named if (one.name, one.collected) not in others]
    if named:
        return named[0]
    texts = {demand.text for demand in test.demands}
    shared = [(len(texts & {d.text for d in other.demands}), other) for other in new]
    best = max(shared, key=lambda pair: pair[0], default=(0, None))
    return best[1] if best[0] else None


def _head(path: str, test: Test, twin: Test | None) -> list[Told]:
    if twin is None or not test.collected:
        return []
    told = [
        Told("skipped", path, test.name, f"is skipped ({_short(skip)})")
        for skip in sorted(twin.skips - test.skips)
        if not about_environment(skip)
    ]
    if not twin.collected and (test.demands or test.name == twin.name):
        told.append(Told("deselected", path, test.name, "is no longer found by the runner"))
    if twin.only and not test.only:
        told.append(Told("deselected", path, test.name, "is the only test of its file that runs"))
    used = {name for demand in test.demands for name in demand.names}
    told += [
        Told("hooked", path, test.name, f"tests a stand-in of `{name}`, not the thing itself")
        for name in sorted((twin.fakes - test.fakes) & used)
    ]
    return told


def _gone(
    path: str,
    test: Test,
    twin: Test | None,
    pool: Sequence[Demand],
    fresh: Sequence[Demand],
    spare: Counter[str],
    rows: Sequence[tuple[str, ...]],
) -> list[Told]:
    told: list[Told] = []
    for demand in test.demands:
        if spare[demand.text] > 0:
            spare[demand.text] -= 1
            if blocked := _blocked(demand, [twin] if twin else [], pool):
                what = f"no longer always reaches {_short(demand.text)} ({blocked})"
                told.append(Told("unreachable", path, test.name, what))
        elif demand.strict and not _replaced(demand, twin, fresh, rows):
            told.append(_lost(path, test, demand, twin))
    return told


def _blocked(demand: Demand, twins: Sequence[Test], pool: Sequence[Demand]) -> str:
    """What keeps every place where the demand stands from being reached."""
    near = [d for twin in twins for d in twin.demands if d.text == demand.text]
    there = near or [d for d in pool if d.text == demand.text]
    new = [
        tuple(g for g in d.guards if g not in demand.guards and not about_environment(g))
        for d in there
    ]
    if not new or any(not guards for guards in new) or len(there) > 1:
        return ""
    return _short(new[0][0])


def _replaced(
    demand: Demand, twin: Test | None, fresh: Sequence[Demand], rows: Sequence[tuple[str, ...]]
) -> bool:
    near = set(map(id, twin.demands)) if twin else set()
    wanted = demand.literals
    for other in fresh:
        shared = demand.names & other.names
        hidden = {g for g in other.guards if g not in demand.guards and not about_environment(g)}
        if not hidden and id(other) in near and _narrows(demand, other):
            return True
        if hidden or not (shared or not demand.names):
            continue
        if tightened(demand, other) or re.match(r"(?i)(?:self\.|t\.)?fail\(\)$", demand.text):
            return True
        if other.strict > demand.strict and id(other) in near:
            return True
        if other.strict < demand.strict or demand.negated != other.negated:
            continue
        gone = demand.names - other.names
        called = any(f".{name}()" in demand.text for name in gone)
        if demand.tolerance is not None or (called and other.names < demand.names):
            continue
        if wanted and _within(wanted, other.literals):
            return True
        if _first(demand.text) != _first(other.text) and _turned(wanted, other.literals):
            return True
        if wanted and any(_by_row(wanted, row, other.literals) for row in rows):
            return True
        if not wanted and (len(shared) * 2 >= len(demand.names) > 0):
            return True
    return False


def _narrows(old: Demand, new: Demand) -> bool:
    """Whether an assertion says more of the same: `Error(t, err)`, `ErrorIs(t, err, ErrClosed)`."""
    before, after = (re.fullmatch(r"([\w.]*?)\w+\((.+)\)", one.text) for one in (old, new))
    if before is None or after is None or before[1] != after[1]:
        return False
    return new.strict > old.strict and after[2].startswith(f"{before[2]}, ")


def _first(text: str) -> str:
    return re.split(r"\W", text, maxsplit=1)[0]


def _turned(wanted: Sequence[str], others: Sequence[str]) -> bool:
    """Whether the expected value stands at the other end."""
    last = _within([*wanted[1:], *wanted[:1]], others)
    return len(wanted) > 1 and (last or _within([*wanted[-1:], *wanted[:-1]], others))


def _within(items: Sequence[str], others: Sequence[str]) -> bool:
    """Whether all items stand among the others, in the same order."""
    left = iter(others)
    return all(item in left for item in items)


def _by_row(wanted: Sequence[str], row: Sequence[str], rest: Sequence[str]) -> bool:
    """Whether a row of a table, with the assertion that reads it, holds the literals."""
    if not set(wanted) & set(row):
        return False
    return _within(wanted, (*row, *rest)) or _within(wanted, (*rest, *row))


def tightened(old: Demand, new: Demand) -> bool:
    """Whether only the tolerance differs, and it is smaller."""
    if old.tolerance is None or new.tolerance is None or new.tolerance > old.tolerance:
        return False
    gone, come = old.counted - new.counted, new.counted - old.counted
    return gone.total() <= 1 and come.total() <= 1 and old.names == new.names


def _lost(path: str, test: Test, demand: Demand, twin: Test | None) -> Told:
    shared = [
        other
        for other in (twin.demands if twin else [])
        if other.names & demand.names and other.text not in {d.text for d in test.demands}
    ]
    if not shared:
        return Told("removed", path, test.name, f"no longer asserts {_short(demand.text)}")
    best = max(shared, key=lambda other: len(other.names & demand.names))
    what = f"no longer asserts {_short(demand.text)} but {_short(best.text)}"
    looser = best.strict < demand.strict or demand.negated != best.negated
    looser |= None not in (best.tolerance, demand.tolerance) and not tightened(demand, best)
    if looser or set(best.guards) - set(demand.guards):
        return Told("weakened", path, test.name, what)
    come = tuple((best.counted - demand.counted).elements())
    return Told(CHANGED, path, test.name, what, come)


def _rows(
    path: str, test: Test, rows: Sequence[tuple[str, ...]], fresh: Sequence[Demand]
) -> list[Told]:
    there = [*rows, *(demand.literals for demand in fresh)]
    told = []
    for row in test.rows:
        if any(_within(row, other) for other in there):
            continue
        what = f"no longer tests the case ({_short(', '.join(row))})"
        twins = [r for r in rows if len(r) == len(row) and r not in test.rows and set(r) & set(row)]
        come = tuple(item for item in (twins[0] if twins else ()) if item not in row)
        told.append(Told(CHANGED if come else "weakened", path, test.name, what, come))
    return told


def _values(path: str, test: Test, twin: Test | None) -> list[Told]:
    """Values that assertions are made with, and that are others now."""
    new = twin.values if twin else []
    told = []
    for name, value in test.values:
        others = [other for there, other in new if there == name]
        if (
            others
            and value not in others
            and (name, value) not in new
            and not _FORMS.around.search(name)
        ):
            what = f"now asserts with {name} = {_short(others[0])}, not {_short(value)}"
            told.append(Told(CHANGED, path, test.name, what, (others[0],)))
    return told


def _inputs(path: str, test: Test, twin: Test | None) -> list[Told]:
    """Calls that give a name its value, with other literals now, where assertions that
    speak of the name stay as they were.
    """
    if twin is None:
        return []
    kept = {d.text for d in test.demands} & {d.text for d in twin.demands}
    spoken = {name for d in test.demands if d.text in kept for name in d.names}
    told = []
    for name, literals, called in test.inputs:
        there = [one for one in twin.inputs if one[0] == name]
        if name not in spoken or _FORMS.around.search(name) or not there:
            continue
        if any(_within(literals, other) or called != how for _, other, how in there):
            continue
        if len(there[0][1]) == len(literals):
            now = there[0][1]
            what = f"{_short(', '.join(now))}, not {_short(', '.join(literals))}"
            told.append(Told(CHANGED, path, test.name, f"now tests {name} of {what}", now))
    return told


def _limits(path: str, test: Test, twin: Test | None) -> list[Told]:
    """A limit of time that is ten times what it was."""
    before, now = (max(one.limits, default=0.0) if one else 0.0 for one in (test, twin))
    if not before or now < 10 * before or now in test.limits:
        return []
    return [Told("weakened", path, test.name, f"may take {now:g}, not {before:g}")]


def _short(text: str) -> str:
    text = re.sub(r"\s+", " ", text).strip().removeprefix("assert ")
    return text if len(text) <= 120 else text[:117] + "..."
