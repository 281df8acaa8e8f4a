"""What a statement gives as a literal: returned, printed, appended, or kept in a name."""

import ast

from .literals import Constants, NotLiteral, Tokens, flat, literal, tokens
from .nodes import called_name

_KEEPS = ("append", "extend", "add", "write", "writelines", "insert", "put")


def rows_of(node: ast.expr | None, constants: Constants) -> tuple[Tokens, ...] | None:
    """A literal as the rows that it prints: one a line, or one in all."""
    try:
        value = literal(node, constants)
    except NotLiteral:
        return None
    if isinstance(value, str) and "\n" in value.strip():
        return tuple(row for line in value.split("\n") if (row := tokens(line)))
    row = tokens(value)
    return (row,) if row else None


def outcome_of(statement: ast.stmt, constants: Constants) -> tuple[tuple[Tokens, ...] | None, bool]:
    """The literal rows that a statement gives, and whether it gives them back."""
    if isinstance(statement, ast.Return):
        return rows_of(statement.value, constants), True
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        return rows_of(statement.value, constants), False
    if isinstance(statement, ast.AugAssign) and isinstance(statement.value, ast.List):
        return rows_of(statement.value, constants), True
    if isinstance(statement, ast.Expr):
        value = statement.value
        if isinstance(value, ast.Yield):
            return rows_of(value.value, constants), True
        if isinstance(value, ast.Call):
            return _from_call(value, constants), True
    return None, False


def _from_call(call: ast.Call, constants: Constants) -> tuple[Tokens, ...] | None:
    name = called_name(call)
    if name == "print":
        parts = [rows_of(_bare(argument), constants) for argument in call.args]
        if parts and all(part is not None for part in parts):
            if len(parts) == 1:
                return parts[0]
            return (flat(flat(part or ()) for part in parts),)
    if name in _KEEPS and isinstance(call.func, ast.Attribute) and call.args:
        return rows_of(call.args[-1], constants)
    return None


def _bare(node: ast.expr) -> ast.expr:
    return node.value if isinstance(node, ast.Starred) else node
