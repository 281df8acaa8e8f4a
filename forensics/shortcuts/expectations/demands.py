"""What tests demand. A *demand* is one assertion: its text without formatting, its literals, the
names it uses, how strict it is, and what stands between it and being reached.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import NamedTuple

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


class LostDemand(NamedTuple):
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
