"""The search in parts alone, with given values: what it finds, and how much it looks at."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from forensics.statistics import Estimate
from resampling.gain_tests.search import Limits, Search, Subsets

LIMITS = Limits(screen=10, tasks=20, most_units=200, most_asked=4, asked=30)
Value = Callable[[frozenset[int]], float]


def exactly(value: float) -> Estimate:
    return Estimate(estimate=value, low=value, high=value, level=0.95)


@dataclass(frozen=True)
class Numbers:
    """A part of some numbered atoms."""

    atoms: tuple[int, ...]

    @property
    def name(self) -> str:
        return f"{self.atoms}"

    @property
    def halves(self) -> tuple["Numbers", ...]:
        middle = len(self.atoms) // 2
        return (Numbers(self.atoms[:middle]), Numbers(self.atoms[middle:])) if middle else ()

    def but(self, atoms: Iterable[int]) -> "Numbers":
        gone = set(atoms)
        return Numbers(tuple(one for one in self.atoms if one not in gone))


@dataclass(frozen=True, kw_only=True)
class Given(Search[Numbers]):
    """A search in which what a part carries is given, of a gain of 1; all of it is new."""

    value: Value

    def kept(self, units: Sequence[Numbers], most: int, before: bool) -> Any:
        return {unit: self._amount(unit) for unit in units}

    def _amount(self, unit: Numbers) -> Any:
        carried = self.value(frozenset(unit.atoms))
        enough = carried > 0.2
        exact = (exactly(carried), exactly(carried - 0.2))
        return SimpleNamespace(
            carried=exact[0], over_bar=exact[1], cleared=not enough, found=enough
        )

    def newly_either(self, unit: Numbers, most: int) -> Any:
        return None


def searched(
    value: Value, atoms: int = 16, **limits: int
) -> tuple[set[frozenset[int]], Subsets[Numbers]]:
    """The smallest subsets of so many atoms."""
    none: Any = None
    given = Given(study=none, on=(), keeping=none, value=value)
    search = Subsets(search=given, limits=replace(LIMITS, **limits))
    found = search.of(Numbers(tuple(range(atoms))))
    return {frozenset(one.unit.atoms) for one in found}, search


def all_of(*sets: set[int]) -> Value:
    """Each of these sets carries an equal share of the gain, if all of it is there."""
    return lambda atoms: sum(one <= atoms for one in sets) / len(sets)


@pytest.mark.parametrize(
    "planted",
    [[{3}], [{3}, {12}], [{2, 13}], [{0, 7, 15}], [{5}, {6}, {11}], [{1, 2}, {9}]],
    ids=lambda planted: str([sorted(one) for one in planted]),  # a set has no fixed order
)
def test_planted_subsets_are_found(planted: list[set[int]]) -> None:
    """Each or some of them together, and nothing beside."""
    found, _ = searched(all_of(*planted))
    for one in found:
        assert one == frozenset().union(*(part for part in planted if part <= one))
    assert len(found) * 2 >= len(planted)


def test_nothing_is_enough() -> None:
    found, search = searched(lambda atoms: 0.1)
    assert found == {frozenset(range(16))} and len(search.played) == 1 and not search.thinned


@pytest.mark.parametrize(("share", "thinned"), [(0.49, True), (0.5, False)])
def test_both_sides_of_half_of_the_whole(share: float, thinned: bool) -> None:
    """A half that carries less than half of the whole is not all there is."""

    def value(atoms: frozenset[int]) -> float:
        return 1.0 if {1, 9} <= atoms else share * ({1} <= atoms)

    found, search = searched(value)
    assert bool(search.thinned) == thinned
    assert found == ({frozenset({1}), frozenset({1, 9})} if thinned else {frozenset({1})})


@pytest.mark.parametrize(("share", "atoms"), [(0.5, 2), (0.49, 3)])
def test_both_sides_of_half_when_thinning(share: float, atoms: int) -> None:
    """What leaves half of the whole may be taken out."""

    def value(atoms: frozenset[int]) -> float:
        return 1.0 if {1, 9, 12} <= atoms else share * ({1} <= atoms and max(atoms) > 7)

    (found,), _ = searched(value)
    assert len(found) == atoms and found - {1} and (atoms == 2 or found == {1, 9, 12})


def test_where_the_limit_is_reached_what_is_left_is_told_as_open() -> None:
    planted = all_of({3}, {12})
    found, search = searched(planted, most_units=4)
    assert found != {frozenset({3}), frozenset({12})} and len(search.played) <= 1 + 2 * 4
    assert all(any(one & part for part in ({3}, {12})) for one in found)
    found, search = searched(all_of({2, 13}), most_units=5)
    assert len(search.thinned) <= 5 and all({2, 13} <= one for one in found)
