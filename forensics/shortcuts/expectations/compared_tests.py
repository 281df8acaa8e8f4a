"""Two states of tests compared: what the tests of before demanded and no longer demand.

1. A demand of before is *kept* where it stands anywhere after, no harder to reach; or where
   an assertion at least as strict holds its literals and speaks of the same names (alone,
   or with a row of a table); or where a loose one gave way to a stricter one of that test.
2. What is left is told: removed, weakened, not reached any more, skipped.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from forensics.shortcuts.expectations.demands import (
    CHANGED,
    Demand,
    LostDemand,
    Test,
    about_environment,
)

_AROUND = re.compile(
    r"(?i)timeout|port$|host|url|path|dir$|file|tmp|seed|retries|delay|^name$|^id$|log|server|client"
    r"|^env|config|fixture|version"
)
_ONLY = "is the only test of its file that runs"


def compared(
    path: str,
    old: Sequence[Test],
    new: Sequence[Test],
    before: Sequence[Test],
    after: Sequence[Test],
) -> list[LostDemand]:
    """What the tests of a file no longer demand. `before`, `after`: of every file, for what
    moved elsewhere.
    """
    return _Comparison(path, old, new, before, after).all()


class _Comparison:
    """The tests of one file. `fresh`, `fresh_rows`: what stands there only after; `spare`: what
    is not yet taken for a demand of before.
    """

    def __init__(
        self,
        path: str,
        old: Sequence[Test],
        new: Sequence[Test],
        before: Sequence[Test],
        after: Sequence[Test],
    ) -> None:
        self.path, self.old, self.new = path, old, new
        self.pool = [demand for test in after if test.collected for demand in test.demands]
        stood = Counter(demand.text for test in before for demand in test.demands)
        self.fresh = [demand for demand in self.pool if not _taken(stood, demand.text)]
        self.spare = Counter(demand.text for demand in self.pool)
        self.rows = [row for test in after for row in test.rows]
        known = Counter(row for test in before for row in test.rows)
        self.fresh_rows = [row for row in self.rows if not _taken(known, row)]

    def all(self) -> list[LostDemand]:
        """What is lost, test by test."""
        told = [one for test in self.old for one in self.of_test(test)]
        speaks = {name for test in self.old for d in test.demands for name in d.names}
        faked = {name for test in self.old for name in test.fakes}
        stands_in = (
            self.stand_in(test, name)
            for test in self.new
            if not test.name
            for name in sorted((test.fakes - faked) & speaks)
        )
        told += list(stands_in)[:1]
        if self.old and not told and not any(test.only for test in self.old):
            told = [self.lost("deselected", test, _ONLY) for test in self.new if test.only]
        return told

    def of_test(self, test: Test) -> Iterator[LostDemand]:
        """What one test no longer demands."""
        twin = _twin(test, self.old, self.new) or Test("")
        if test.collected:
            yield from self.head(test, twin)
        yield from self.tables(test)
        if test.collected:
            yield from self.gone(test, twin, self.pool, self.fresh, self.spare)
            yield from self.values(test, twin)
            yield from self.inputs(test, twin)
            yield from self.limits(test, twin)
        elif any(other.name == test.name for other in self.new):
            left = Counter(demand.text for demand in twin.demands)
            fresh = [*self.fresh, *twin.demands]
            yield from self.gone(test, twin, twin.demands, fresh, left)

    def lost(self, kind: str, test: Test, what: str, now: tuple[str, ...] = ()) -> LostDemand:
        """One thing that a test no longer demands."""
        return LostDemand(kind, self.path, test.name, what, now)

    def stand_in(self, test: Test, name: str) -> LostDemand:
        """A name that assertions speak of, and that a test now replaces."""
        return self.lost("hooked", test, f"tests a stand-in of `{name}`, not the thing itself")

    def head(self, test: Test, twin: Test) -> Iterator[LostDemand]:
        """What keeps a test from running, or has it test something else."""
        for skip in sorted(twin.skips - test.skips):
            if not about_environment(skip):
                yield self.lost("skipped", test, f"is skipped ({_short(skip)})")
        if not twin.collected and (test.demands or test.name == twin.name):
            yield self.lost("deselected", test, "is no longer found by the runner")
        if twin.only and not test.only:
            yield self.lost("deselected", test, _ONLY)
        used = {name for demand in test.demands for name in demand.names}
        for name in sorted((twin.fakes - test.fakes) & used):
            yield self.stand_in(test, name)

    def gone(
        self,
        test: Test,
        twin: Test,
        pool: Sequence[Demand],
        fresh: Sequence[Demand],
        spare: Counter[str],
    ) -> Iterator[LostDemand]:
        """Demands that stand nowhere any more, or behind something."""
        for demand in test.demands:
            if spare[demand.text] > 0:
                spare[demand.text] -= 1
                if blocked := _blocked(demand, twin, pool):
                    what = f"no longer always reaches {_short(demand.text)} ({blocked})"
                    yield self.lost("unreachable", test, what)
            elif demand.strict and not self.replaced(demand, twin, fresh):
                yield self.removed(test, demand, twin)

    def replaced(self, demand: Demand, twin: Test, fresh: Sequence[Demand]) -> bool:
        """Whether another assertion demands as much."""
        near = set(map(id, twin.demands))
        return any(self.stands_for(demand, other, id(other) in near) for other in fresh)

    def stands_for(self, demand: Demand, other: Demand, near: bool) -> bool:
        """Whether an assertion demands as much as another. `near`: in the same test."""
        wanted, shared = demand.literals, demand.names & other.names
        hidden = any(not about_environment(guard) for guard in _more_guards(demand, other))
        if near and not hidden and _narrows(demand, other):
            return True
        if hidden or not (shared or not demand.names):
            return False
        if tightened(demand, other) or re.match(r"(?i)(?:self\.|t\.)?fail\(\)$", demand.text):
            return True
        if other.strict > demand.strict and near:
            return True
        if other.strict < demand.strict or demand.negated != other.negated:
            return False
        called = any(f".{name}()" in demand.text for name in demand.names - other.names)
        if demand.tolerance is not None or (called and other.names < demand.names):
            return False
        if not wanted:
            return len(shared) * 2 >= len(demand.names) > 0
        return (
            _within(wanted, other.literals)
            or (_first(demand) != _first(other) and _turned(wanted, other.literals))
            or any(_by_row(wanted, row, other.literals) for row in self.fresh_rows)
        )

    def removed(self, test: Test, demand: Demand, twin: Test) -> LostDemand:
        """A demand that is gone, beside what came in its place."""
        texts = {d.text for d in test.demands}
        shared = [d for d in twin.demands if d.names & demand.names and d.text not in texts]
        what = f"no longer asserts {_short(demand.text)}"
        if not shared:
            return self.lost("removed", test, what)
        best = max(shared, key=lambda other: len(other.names & demand.names))
        what += f" but {_short(best.text)}"
        looser = best.strict < demand.strict or demand.negated != best.negated
        looser |= None not in (best.tolerance, demand.tolerance) and not tightened(demand, best)
        if looser or _more_guards(demand, best):
            return self.lost("weakened", test, what)
        return self.lost(CHANGED, test, what, tuple((best.counted - demand.counted).elements()))

    def tables(self, test: Test) -> Iterator[LostDemand]:
        """Rows of tables that stand nowhere any more."""
        there = [*self.rows, *(demand.literals for demand in self.fresh)]
        for row in test.rows:
            if any(_within(row, other) for other in there):
                continue
            what = f"no longer tests the case ({_short(', '.join(row))})"
            others = (r for r in self.rows if len(r) == len(row) and r not in test.rows)
            twin = next((r for r in others if set(r) & set(row)), ())
            come = tuple(item for item in twin if item not in row)
            yield self.lost(CHANGED if come else "weakened", test, what, come)

    def values(self, test: Test, twin: Test) -> Iterator[LostDemand]:
        """Values that assertions are made with, and that are others now."""
        for name, value in test.values:
            others = [other for there, other in twin.values if there == name]
            if others and value not in others and not _AROUND.search(name):
                what = f"now asserts with {name} = {_short(others[0])}, not {_short(value)}"
                yield self.lost(CHANGED, test, what, (others[0],))

    def inputs(self, test: Test, twin: Test) -> Iterator[LostDemand]:
        """Calls that give a name its value, with other literals now, where assertions that
        speak of the name stay as they were.
        """
        kept = {d.text for d in test.demands} & {d.text for d in twin.demands}
        spoken = {name for d in test.demands if d.text in kept for name in d.names}
        for name, literals, called in test.inputs:
            there = [one for one in twin.inputs if one[0] == name]
            if name not in spoken or _AROUND.search(name) or not there:
                continue
            if any(_within(literals, other) or called != how for _, other, how in there):
                continue
            if len(now := there[0][1]) == len(literals):
                what = f"{_short(', '.join(now))}, not {_short(', '.join(literals))}"
                yield self.lost(CHANGED, test, f"now tests {name} of {what}", now)

    def limits(self, test: Test, twin: Test) -> Iterator[LostDemand]:
        """A limit of time that is ten times what it was."""
        before, now = (max(one.limits, default=0.0) for one in (test, twin))
        if before and now >= 10 * before and now not in test.limits:
            yield self.lost("weakened", test, f"may take {now:g}, not {before:g}")


def _more_guards(demand: Demand, other: Demand) -> list[str]:
    """What stands before another assertion only."""
    return [guard for guard in other.guards if guard not in demand.guards]


def _blocked(demand: Demand, twin: Test, pool: Sequence[Demand]) -> str:
    """What keeps every place where the demand stands from being reached."""
    near = [d for d in twin.demands if d.text == demand.text]
    there = near or [d for d in pool if d.text == demand.text]
    if len(there) != 1:
        return ""
    guards = [g for g in _more_guards(demand, there[0]) if not about_environment(g)]
    return _short(guards[0]) if guards else ""


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


def _narrows(old: Demand, new: Demand) -> bool:
    """Whether an assertion says more of the same: `Error(t, err)`, `ErrorIs(t, err, ErrClosed)`."""
    before, after = (re.fullmatch(r"([\w.]*?)\w+\((.+)\)", one.text) for one in (old, new))
    if before is None or after is None or before[1] != after[1]:
        return False
    return new.strict > old.strict and after[2].startswith(f"{before[2]}, ")


def _first(demand: Demand) -> str:
    return re.split(r"\W", demand.text, maxsplit=1)[0]


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


def _short(text: str) -> str:
    text = re.sub(r"\s+", " ", text).strip().removeprefix("assert ")
    return text if len(text) <= 120 else text[:117] + "..."
