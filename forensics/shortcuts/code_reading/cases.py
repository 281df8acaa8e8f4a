"""Answers that stand in the code beside the inputs that they are for.

1. Branches: what a run of `if`, `elif` and `match` compares with literals, all
   conditions around it together, and the literal that it then returns, prints
   or keeps.
2. Tables and what else pairs literals within an expression (`literal_pairs`).
3. Outputs without a condition: literals that are printed, returned or listed.
"""

import ast
from collections.abc import Sequence

from .compared_literals import compared, compares_list, denied, pattern_values
from .literal_pairs import tables
from .literals import Constants, Tokens
from .matches import Case
from .outcomes import outcome_of
from .program import Program

DEEPEST = 60
MOST_CASES = 4_000


def all_cases(program: Program) -> list[Case]:
    """The cases of a text, in its order."""
    found = _Cases(program)
    found.module()
    return [*found.cases, *tables(program, found.groups)][:MOST_CASES]


class _Cases:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.cases: list[Case] = []
        self.constants: Constants = program.constants
        self._kept = set(program.nodes)
        self.groups = 0

    def _group(self) -> int:
        self.groups += 1
        return self.groups

    # -- statements ----------------------------------------------------------------------

    def module(self) -> None:
        """The cases of the whole text."""
        body = self.program.tree.body
        self._outcome(body, (), self._group(), self.program.tree)
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
        if isinstance(node, ast.If):
            self._branch(node, guard, group, depth)
        elif isinstance(node, ast.Match):
            self._match(node, guard, group, depth)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
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
                continue
            others = list(denied(node.test, self.constants))
            for option in others[:200]:
                self._outcome(node.orelse, (*guard, *option), group, node)
            if not others:
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
