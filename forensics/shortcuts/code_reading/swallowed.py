"""Assertions whose failure is caught and dropped."""

import ast
import re

from .code_finding import CodeFinding
from .nodes import called_name, last_name, name_of
from .program import Program

KIND = "swallowed assertion"


def _catches_assertions(node: ast.expr | None) -> bool:
    return node is not None and any(
        isinstance(one, ast.Name | ast.Attribute) and last_name(one) == "AssertionError"
        for one in ast.walk(node)
    )


def swallowed(program: Program, node: ast.Try) -> list[CodeFinding]:
    """Failed assertions that a handler drops."""
    for handler in node.handlers:
        if _catches_assertions(handler.type) and not any(
            isinstance(one, ast.Raise) for one in ast.walk(handler)
        ):
            if not all(_drops(one) for one in handler.body):
                continue
            sure = any(
                _checks(program, one) for statement in node.body for one in ast.walk(statement)
            )
            reason = "a failed assertion is caught and dropped."
            return [program.finding(KIND, node, reason, sure=sure)]
    return []


def _drops(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Pass | ast.Continue | ast.Break):
        return True
    if isinstance(statement, ast.Return):
        return statement.value is None or isinstance(statement.value, ast.Constant)
    if isinstance(statement, ast.Expr):
        value = statement.value
        return isinstance(value, ast.Constant) or (
            isinstance(value, ast.Call) and name_of(value.func) == "print"
        )
    return False


def _checks(program: Program, node: ast.AST) -> bool:
    """An assertion, the call of a check, or of what a wrapper was given to call."""
    if isinstance(node, ast.Assert):
        return True
    if not isinstance(node, ast.Call):
        return False
    name = called_name(node)
    given = {
        one.arg
        for function in program.ancestors(node)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for one in function.args.args
    }
    return name in given or bool(re.match(r"assert|check|test|candidate|verify", name))


def suppressed(program: Program, node: ast.With | ast.AsyncWith) -> list[CodeFinding]:
    """Failed assertions that `contextlib.suppress` drops."""
    for item in node.items:
        call = item.context_expr
        names = isinstance(call, ast.Call) and any(map(_catches_assertions, call.args))
        if names and program.dotted(getattr(call, "func", call)) == "contextlib.suppress":
            return [program.finding(KIND, node, "failed assertions are suppressed.")]
    return []
