"""How far a case of the code repeats a shown test, in bits.

1. A literal is in a test where its row stands there as a whole, in order.
2. What that tells is its own bits, less the chance that a test with so many
   different tokens holds it anyway.
3. A case repeats a test where its output rows all stand in the test's output,
   and one of its input literals in the test's input.
"""

import ast
import math
from dataclasses import dataclass

from .literals import Tokens, bits, flat, row_bits
from .shown_test import joined
from .shown_tests import ShownTests

_SMALL = (("0",), ("1",), ("true",), ("false",))  # `k % 2 == 0` beside an input
MOST_TRIED = 400_000  # comparisons of a literal with a test, for one text


@dataclass(frozen=True, kw_only=True)
class Case:
    """Literals of a condition (or key) and the literals that are given for them.

    `group`: cases of the same chain or table. `shape`: branch, table, pairs,
    inline, plain. `returned`: given back or printed, not only kept in a name. `listed`: a
    list is compared, which no base case does.
    """

    guard: tuple[Tokens, ...]
    outcome: tuple[Tokens, ...]
    node: ast.AST
    group: int
    shape: str
    returned: bool = True
    listed: bool = False
    last: int = 0


@dataclass(frozen=True, kw_only=True)
class Match:
    """The test that a case repeats most: bits of its input and of its output part.

    `whole`: every literal of the condition stands in the test's input, but for 0 and 1.
    """

    case: Case
    test: int
    given: float
    wanted: float
    whole: bool
    matched: int = 0

    @property
    def total(self) -> float:
        """Bits of both."""
        return self.given + self.wanted


class Matcher:
    """The shown tests, ready to be compared with."""

    def __init__(self, shown: ShownTests) -> None:
        self.shown = shown
        self._left = MOST_TRIED

    def best(self, case: Case) -> Match | None:
        """The test that a case repeats most, if it repeats one."""
        guard = [(joined(row), row) for row in case.guard]
        outcome = [(joined(row), row) for row in case.outcome]
        found: Match | None = None
        for at in range(len(self.shown.tests)):
            self._left -= len(guard) + len(outcome)
            if self._left < 0:
                break
            match = self._one(case, guard, outcome, at)
            if match and (found is None or match.total > found.total):
                found = match
        return found

    def _one(
        self,
        case: Case,
        guard: list[tuple[str, Tokens]],
        outcome: list[tuple[str, Tokens]],
        at: int,
    ) -> Match | None:
        output = self.shown.output_texts[at]
        if not all(text in output for text, _ in outcome):
            return None
        source = self.shown.input_texts[at]
        held = [row for text, row in guard if text in source]
        many_in, many_out = self.shown.distinct[at]
        given = max(
            sum(self._worth(row, many_in) for row in set(held)),
            self._run(case.guard, source, many_in),
        )
        wanted = row_bits(flat(row for _, row in outcome), self.shown.words)
        if sum(len(row) for _, row in outcome) == 1:
            wanted = max(0.0, wanted - math.log2(max(many_out, 1)))
        return Match(
            case=case,
            test=at,
            given=given,
            wanted=wanted,
            whole=all(text in source or row in _SMALL for text, row in guard),
            matched=len(set(held)),
        )

    def _run(self, guard: tuple[Tokens, ...], source: str, many: int) -> float:
        """What it tells that literals of a condition follow each other in the input too."""
        best = 0.0
        for first in range(min(len(guard), 4)):
            row = flat(guard[first:])
            if len(guard) - first > 1 and joined(row) in source:
                best = max(best, row_bits(row, self.shown.words) - math.log2(max(many, 1)))
        return best

    def _worth(self, row: Tokens, many: int) -> float:
        if len(row) == 1:
            return max(0.0, bits(row[0], self.shown.words) - math.log2(max(many, 1)))
        return row_bits(row, self.shown.words)
