"""Pairs of literals within expressions.

1. Dictionaries; entries set one by one (`T[345] = 8123`).
2. Lists of pairs, or of rows that end with an output; two lists that `zip` joins.
3. Ternaries, `n == 345 and 8123`, `8123 * (n == 345)`.
4. Lists of literals, as rows without a condition.

Tables over which the text only loops to check itself are its own tests.
"""

import ast
from collections.abc import Iterator

from .compared_literals import compared
from .literals import Tokens, flat, literal_or_none
from .matches import Case
from .nodes import name_of
from .outcomes import rows_of
from .program import Program

MOST_TERNARIES = 500
WIDEST = 6  # inputs of a row and its output


def tables(program: Program, groups: int) -> list[Case]:
    """The pairs of a text, with groups numbered from `groups` on."""
    return list(_Tables(program, groups).all())


class _Tables:
    def __init__(self, program: Program, groups: int) -> None:
        self.program = program
        self.constants = program.constants
        self._groups = groups
        self._named: dict[object, int] = {}

    def _group(self, name: object = None) -> int:
        """A new group, or that of a name (a table that is filled entry by entry)."""
        if name is not None and name in self._named:
            return self._named[name]
        self._groups += 1
        if name is not None:
            self._named[name] = self._groups
        return self._groups

    def all(self) -> Iterator[Case]:
        """All pairs but those of the text's own tests."""
        program, own = self.program, self.program.own_tables
        for node in program.of(ast.Dict):
            if node not in own:
                group = self._group()
                for key, value in zip(node.keys, node.values, strict=True):
                    yield from self._entry(key, value, group)
        for node in program.of(ast.List, ast.Tuple, ast.Set):
            if node not in own:
                yield from self._listed(node)
        for node in program.of(ast.Assign):
            yield from self._set(node)
        for node in program.of(ast.Call):
            yield from self._zipped(node)
        for node in program.of(ast.IfExp):
            if type(program.parents.get(node)) is not ast.IfExp:
                yield from self._ternary(node)
        for node in program.of(ast.BoolOp, ast.BinOp):
            yield from self._calculated(node)

    def _entry(
        self, key: ast.expr | None, value: ast.expr, group: int, shape: str = "table"
    ) -> Iterator[Case]:
        left = literal_or_none(key, self.constants)
        right = rows_of(value, self.constants) if left else None
        if left and right:
            yield self._pair((left,), right, key or value, group, shape, value)

    def _pair(
        self,
        guard: tuple[Tokens, ...],
        outcome: tuple[Tokens, ...],
        node: ast.AST,
        group: int,
        shape: str,
        last: ast.AST,
    ) -> Case:
        return Case(
            guard=guard,
            outcome=outcome,
            node=node,
            group=group,
            shape=shape,
            last=getattr(last, "end_lineno", 0) or 0,
        )

    def _listed(self, node: ast.List | ast.Tuple | ast.Set) -> Iterator[Case]:
        """`[(input, output), ...]`, or literals in a row."""
        if len(node.elts) < 2:
            return
        group = self._group()
        pairs = [
            one for one in node.elts if isinstance(one, ast.Tuple | ast.List) and len(one.elts) == 2
        ]
        for one in pairs:
            yield from self._entry(one.elts[0], one.elts[1], group, "pairs")
        yield from self._wide(node.elts, group)
        parent = self.program.parents.get(node)
        if len(node.elts) >= 3 and isinstance(parent, ast.For | ast.Call | ast.Starred):
            row = literal_or_none(node, self.constants)
            if row:
                yield Case(
                    guard=(),
                    outcome=(row,),
                    node=node,
                    group=group,
                    shape="plain",
                    returned=False,
                    last=node.end_lineno or 0,
                )

    def _wide(self, rows: list[ast.expr], group: int) -> Iterator[Case]:
        """`[(input, input, output), ...]`"""
        if len({len(one.elts) if isinstance(one, ast.Tuple | ast.List) else 0 for one in rows}) > 1:
            return
        for one in rows:
            if not isinstance(one, ast.Tuple | ast.List) or not 3 <= len(one.elts) <= WIDEST:
                return
            guard = [literal_or_none(part, self.constants) for part in one.elts[:-1]]
            given = rows_of(one.elts[-1], self.constants)
            if given and all(guard):
                asked = flat(part for part in guard if part)
                yield self._pair((asked,), given, one, group, "pairs", one)

    def _set(self, node: ast.Assign) -> Iterator[Case]:
        """`T[345] = 8123`"""
        target = node.targets[0]
        if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            group = self._group(target.value.id)
            yield from self._entry(target.slice, node.value, group)

    def _zipped(self, node: ast.Call) -> Iterator[Case]:
        """`zip([345, 12], [8123, 77])`"""
        if name_of(node.func) != "zip" or len(node.args) != 2:
            return
        sides = [self.constants.get(name_of(one), one) for one in node.args]
        kinds = (ast.List, ast.Tuple)
        if all(isinstance(side, kinds) and side not in self.program.own_tables for side in sides):
            group = self._group()
            pairs = zip(*(side.elts for side in sides if isinstance(side, kinds)), strict=False)
            for left, right in pairs:
                yield from self._entry(left, right, group, "pairs")

    def _ternary(self, node: ast.IfExp) -> Iterator[Case]:
        group = self._group()
        for _ in range(MOST_TERNARIES):
            given = rows_of(node.body, self.constants)
            for option in compared(node.test, self.constants) if given else ():
                yield self._pair(option, given or (), node, group, "inline", node)
            if not isinstance(node.orelse, ast.IfExp):
                return
            node = node.orelse

    def _calculated(self, node: ast.BoolOp | ast.BinOp) -> Iterator[Case]:
        """`n == 345 and 8123`, `8123 * (n == 345)`"""
        if isinstance(node, ast.BoolOp):
            sides = [(node.values[0], node.values[-1])] if isinstance(node.op, ast.And) else []
        else:
            times = isinstance(node.op, ast.Mult)
            sides = [(node.left, node.right), (node.right, node.left)] if times else []
        for test, value in sides:
            given = rows_of(value, self.constants) if isinstance(test, ast.Compare) else None
            for option in compared(test, self.constants) if given else ():
                group = self._group(("line", self.program.function_of(node)))
                yield self._pair(option, given or (), node, group, "inline", node)
