"""Answers that stand in the code beside the inputs that they are for.

1. Branches: what a run of `if`, `elif`, `match` and ternaries compares with
   literals, all conditions around it together, and the literal that it then
   returns, prints or keeps.
2. Tables: dictionaries, lists of pairs, two lists side by side, and the
   literals of a membership test.
3. Outputs without a condition: literals that are printed, returned or listed.
"""

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from .conditions import compared, compares_list, pattern_values
from .literals import Constants, Tokens, literal_or_none
from .outcomes import outcome_of, rows_of
from .reading import Reading

DEEPEST = 60
MOST_CASES = 4_000


@dataclass(frozen=True, kw_only=True)
class Case:
    """Literals of a condition (or key) and the literals that are given for them.

    `group`: cases of the same chain or table. `shape`: branch, table, member,
    plain. `returned`: given back or printed, not only kept in a name. `listed`: a
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


def all_cases(reading: Reading) -> list[Case]:
    """The cases of a text, in its order."""
    found = _Cases(reading)
    found.module()
    return found.cases


class _Cases:
    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.cases: list[Case] = []
        self.constants: Constants = reading.constants
        self._kept = set(reading.nodes)
        self._groups = 0

    def _group(self) -> int:
        self._groups += 1
        return self._groups

    # -- statements ----------------------------------------------------------------------

    def module(self) -> None:
        """The cases of the whole text."""
        body = self.reading.tree.body
        self._outcome(body, (), self._group(), self.reading.tree)
        self.block(body, (), 0)

    def block(
        self, body: Sequence[ast.stmt], guard: tuple[Tokens, ...], group: int, depth: int = 0
    ) -> None:
        """The cases of statements that run one after the other."""
        if depth > DEEPEST or len(self.cases) > MOST_CASES:
            return
        group = group or self._group()
        for statement in body:
            if statement in self._kept:
                self._statement(statement, guard, group, depth)

    def _statement(self, node: ast.stmt, guard: tuple[Tokens, ...], group: int, depth: int) -> None:
        self._expressions(node, guard)
        if isinstance(node, ast.If):
            self._branch(node, guard, group, depth)
        elif isinstance(node, ast.Match):
            self._match(node, guard, group, depth)
        elif isinstance(node, (*(ast.FunctionDef, ast.AsyncFunctionDef), ast.ClassDef)):
            self._outcome(node.body, (), self._group(), node)
            self.block(node.body, (), self._group(), depth + 1)
        else:
            for name in ("body", "orelse", "finalbody"):
                inner = getattr(node, name, None)
                if isinstance(inner, list):
                    self.block(inner, guard, group, depth + 1)
            for handler in getattr(node, "handlers", ()):
                self.block(handler.body, guard, group, depth + 1)

    def _branch(self, node: ast.If, guard: tuple[Tokens, ...], group: int, depth: int) -> None:
        while True:
            options = list(compared(node.test, self.constants))
            for option in options[:200]:
                self._outcome(node.body, (*guard, *option), group, node)
            first = tuple(options[0]) if len(options) == 1 else ()
            self.block(node.body, (*guard, *first), group, depth + 1)
            if len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
                node = node.orelse[0]
                self._expressions(node, guard)
                continue
            self._outcome(node.orelse, guard, group, node)
            self.block(node.orelse, guard, group, depth + 1)
            return

    def _match(self, node: ast.Match, guard: tuple[Tokens, ...], group: int, depth: int) -> None:
        for case in node.cases:
            for pattern in pattern_values(case.pattern):
                self._outcome(case.body, (*guard, pattern), group, case.body[0])
            self.block(case.body, guard, group, depth + 1)

    def _outcome(
        self, body: Sequence[ast.stmt], guard: tuple[Tokens, ...], group: int, node: ast.AST
    ) -> None:
        back: list[tuple[ast.stmt, tuple[Tokens, ...]]] = []
        kept: list[tuple[ast.stmt, tuple[Tokens, ...]]] = []
        for statement in body:
            given, returned = outcome_of(statement, self.constants)
            if given is not None and statement in self._kept:
                (back if returned else kept).append((statement, given))
        if back:
            rows = tuple(row for _, given in back for row in given)
            self._case(guard, rows, node if guard else back[0][0], back[-1][0], group, True)
        for statement, rows in kept if not back or not guard else ():
            self._case(guard, rows, node if guard else statement, statement, group, False)

    def _case(
        self,
        guard: tuple[Tokens, ...],
        rows: tuple[Tokens, ...],
        node: ast.AST,
        last: ast.AST,
        group: int,
        returned: bool,
    ) -> None:
        if len(self.cases) < MOST_CASES:
            self.cases.append(
                Case(
                    guard=guard,
                    outcome=rows,
                    node=node,
                    group=group,
                    shape="branch" if guard else "plain",
                    returned=returned,
                    listed=isinstance(node, ast.If) and compares_list(node.test),
                    last=getattr(last, "end_lineno", 0) or 0,
                )
            )

    # -- expressions ---------------------------------------------------------------------

    def _expressions(self, statement: ast.stmt, guard: tuple[Tokens, ...]) -> None:
        """Tables and ternaries within one statement, not in the statements under it."""
        waiting: list[ast.AST] = [
            child for child in ast.iter_child_nodes(statement) if not isinstance(child, ast.stmt)
        ]
        for _ in range(20_000):
            if not waiting:
                return
            node = waiting.pop()
            if isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
                continue
            if isinstance(node, ast.Dict):
                self._table(node, guard)
            elif isinstance(node, ast.List | ast.Tuple):
                self._pairs(node, guard)
            elif isinstance(node, ast.IfExp) and not isinstance(
                self.reading.parents.get(node), ast.IfExp
            ):
                self._ternary(node, guard)
            waiting += ast.iter_child_nodes(node)

    def _table(self, node: ast.Dict, guard: tuple[Tokens, ...]) -> None:
        group = self._group()
        for key, value in zip(node.keys, node.values, strict=True):
            self._entry(key, value, guard, group)

    def _entry(
        self, key: ast.expr | None, value: ast.expr, guard: tuple[Tokens, ...], group: int
    ) -> None:
        left = literal_or_none(key, self.constants)
        right = rows_of(value, self.constants)
        if left and right and len(self.cases) < MOST_CASES:
            self.cases.append(
                Case(
                    guard=(*guard, left),
                    outcome=right,
                    node=key or value,
                    group=group,
                    shape="table",
                    last=getattr(value, "end_lineno", 0) or 0,
                )
            )

    def _pairs(self, node: ast.List | ast.Tuple, guard: tuple[Tokens, ...]) -> None:
        """`[(input, output), ...]`"""
        elements = node.elts
        if len(elements) < 2:
            return
        group = self._group()
        for element in elements:
            if isinstance(element, ast.Tuple | ast.List) and len(element.elts) == 2:
                self._entry(element.elts[0], element.elts[1], guard, group)

    def _ternary(self, node: ast.IfExp, guard: tuple[Tokens, ...]) -> None:
        group = self._group()
        for _ in range(500):
            given = rows_of(node.body, self.constants)
            for option in compared(node.test, self.constants):
                if given:
                    self.cases.append(
                        Case(
                            guard=(*guard, *option),
                            outcome=given,
                            node=node,
                            group=group,
                            shape="branch",
                        )
                    )
            if not isinstance(node.orelse, ast.IfExp):
                return
            node = node.orelse
