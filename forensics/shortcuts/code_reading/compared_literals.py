"""What a condition compares with literals: `==`, `in`, `match` patterns, and the ways
in which `and` and `or` put them together.
"""

import ast
from collections.abc import Iterator

from .literals import Constants, Tokens, flat, literal_or_none, singles_out
from .nodes import text_of


def compares_list(test: ast.expr) -> bool:
    """Whether something is compared with a list or set that holds something."""
    parts = test.values if isinstance(test, ast.BoolOp) else [test]
    return any(
        isinstance(part, ast.Compare)
        and isinstance(part.ops[0], ast.Eq)
        and any(isinstance(side, ast.List | ast.Set) and side.elts for side in _sides(part))
        for part in parts
    )


def _sides(part: ast.Compare) -> tuple[ast.expr, ast.expr]:
    return part.left, part.comparators[0]


def compared(test: ast.expr, constants: Constants, depth: int = 0) -> Iterator[tuple[Tokens, ...]]:
    """Each way in which a condition holds, as the literals that it compares with."""
    if depth > 8:
        return
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
        for value in test.values:
            yield from compared(value, constants, depth + 1)
        return
    if isinstance(test, ast.BoolOp):
        parts = [list(compared(value, constants, depth + 1)) for value in test.values]
        several = next((part for part in parts if len(part) > 1), [()])
        fixed = tuple(row for part in parts if len(part) == 1 for row in part[0])
        for option in several[:200]:
            if fixed or option:
                yield (*fixed, *option)
        return
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        yield from _comparison(test, constants)
    elif isinstance(test, ast.Call) and getattr(test.func, "attr", "") == "startswith":
        row = literal_or_none(test.args[0], constants) if test.args else None
        if row:
            yield (row,)


def denied(test: ast.expr, constants: Constants) -> Iterator[tuple[Tokens, ...]]:
    """What holds where a condition does not: `n != 5` leaves 5 to its `else`."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from compared(test.operand, constants)
    elif isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.NotEq | ast.NotIn):
        operator = ast.Eq() if isinstance(test.ops[0], ast.NotEq) else ast.In()
        yield from _comparison(
            ast.Compare(left=test.left, ops=[operator], comparators=test.comparators), constants
        )


def _comparison(test: ast.Compare, constants: Constants) -> Iterator[tuple[Tokens, ...]]:
    left, operator, right = test.left, test.ops[0], test.comparators[0]
    if isinstance(operator, ast.In):
        yield from ((row,) for row in _members(right, constants))
        row = literal_or_none(left) if text_of(left) else None
        if row and singles_out(row) and literal_or_none(right, constants) is None:
            yield (row,)  # `"-2 1 -3" in text`
    if not isinstance(operator, ast.Eq | ast.Is):
        return
    if isinstance(left, ast.Tuple) and isinstance(right, ast.Tuple):
        rows = [literal_or_none(one, constants) for one in right.elts]
        if all(row is not None for row in rows):
            yield tuple(row for row in rows if row is not None)
            return
    sides = [literal_or_none(side, constants) for side in (left, right)]
    if (sides[0] is None) != (sides[1] is None):
        row = sides[0] if sides[0] is not None else sides[1]
        if row:
            yield (row,)


def _members(node: ast.expr, constants: Constants) -> Iterator[Tokens]:
    for _ in range(5):
        if isinstance(node, ast.Name) and node.id in constants:
            node = constants[node.id]
        elif isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
            node = node.args[0]
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        for element in node.elts[:500]:
            row = literal_or_none(element, constants)
            if row:
                yield row


def pattern_values(pattern: ast.pattern) -> Iterator[Tokens]:
    """Each literal that a `case` pattern takes."""
    waiting: list[ast.pattern] = [pattern]
    for _ in range(500):
        if not waiting:
            return
        one = waiting.pop()
        if isinstance(one, ast.MatchOr):
            waiting += one.patterns
        elif isinstance(one, ast.MatchAs) and one.pattern is not None:
            waiting.append(one.pattern)
        else:
            row = _pattern_row(one)
            if row:
                yield row


def _pattern_row(pattern: ast.pattern) -> Tokens:
    if isinstance(pattern, ast.MatchValue):
        return literal_or_none(pattern.value) or ()
    if isinstance(pattern, ast.MatchSequence):
        rows = [_pattern_row(one) for one in pattern.patterns]
        return flat(rows) if all(rows) else ()
    return ()
