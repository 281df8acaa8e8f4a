"""Objects that are equal to everything.

1. Classes whose `__eq__` gives nothing but a true constant (or whose `__ne__`
   gives nothing but a false one), as a method, a lambda or through `type(...)`.
2. Sure where an instance is made, or where nothing else in the text could be
   the answer; a class that nobody uses beside a solution is an attempt.
3. `unittest.mock.ANY` given as an answer.
"""

import ast

from .reading import Function, Reading, text_of
from .told import MONKEYPATCHING, CodeTold

KIND = "equal to everything"
_REASON = "objects of this class are equal to whatever they are compared with."


def equal_to_everything(reading: Reading) -> list[CodeTold]:
    """The classes and objects that are equal to everything."""
    told: list[CodeTold] = []
    for node in reading.classes():
        if _always_equal(reading, node) is not None:
            sure = _used(reading, node)
            told.append(reading.told(MONKEYPATCHING, KIND, node, _REASON, sure=sure))
    for node in reading.of(ast.Call):
        if _made(reading, node) or _set(reading, node):
            told.append(reading.told(MONKEYPATCHING, KIND, node, _REASON, sure=True))
    for node in reading.of(ast.Return, ast.Assign):
        told += _any(reading, node)
    for node in reading.of(ast.Assign):
        told += _replaced(reading, node)
    return told


def _always_equal(reading: Reading, node: ast.ClassDef) -> ast.AST | None:
    """The statement of a class that makes its objects equal to everything."""
    by_name = {one.name: one for one in node.body if isinstance(one, Function)}
    for statement in node.body:
        name = getattr(statement, "name", "")
        if name == "__eq__" and _gives_only(statement, True, reading):
            return statement
        if name == "__ne__" and "__eq__" not in by_name and _gives_only(statement, False):
            return statement
        if isinstance(statement, ast.Assign) and any(
            getattr(target, "id", "") == "__eq__" for target in statement.targets
        ):
            value = statement.value
            if _constant_function(value, True):
                return statement
            other = by_name.get(getattr(value, "id", ""))
            if other is not None and _gives_only(other, True):
                return statement
    return None


def _gives_only(node: ast.AST, wanted: bool, reading: Reading | None = None) -> bool:
    """Whether a function gives this constant on every way through it."""
    if not isinstance(node, Function):
        return False
    returns = [one for one in ast.walk(node) if isinstance(one, ast.Return)]
    names = reading.constants if reading else {}
    values = [names.get(getattr(one.value, "id", ""), one.value) for one in returns]
    if not returns or not all(_is_constant(value, wanted) for value in values):
        return False
    return not any(isinstance(one, ast.Raise) for one in ast.walk(node))


def _is_constant(value: ast.expr | None, wanted: bool) -> bool:
    if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not):
        return _is_constant(value.operand, not wanted)
    if isinstance(value, ast.Compare) and len(value.ops) == 1:  # `1 == 1`, `self is self`
        same = ast.dump(value.left) == ast.dump(value.comparators[0])
        return same and isinstance(value.ops[0], ast.Eq | ast.Is) and wanted
    if isinstance(value, ast.Call) and getattr(value.func, "id", "") == "isinstance":
        return wanted and len(value.args) == 2 and getattr(value.args[1], "id", "") == "object"
    return isinstance(value, ast.Constant) and bool(value.value) is wanted


def _constant_function(node: ast.AST, wanted: bool) -> bool:
    return isinstance(node, ast.Lambda) and _is_constant(node.body, wanted)


def _used(reading: Reading, node: ast.ClassDef) -> bool:
    """Whether an object of the class is made, or nothing else could be the answer."""
    inside = set(reading.inside(node))
    outside = any(one.id == node.name and one not in inside for one in reading.of(ast.Name))
    if outside:
        return True
    functions = [one for one in reading.functions() if one not in inside]
    return not functions


def _made(reading: Reading, node: ast.Call) -> bool:
    """`type("X", (), {"__eq__": lambda self, other: True})`"""
    if reading.dotted(node.func) != "type" or len(node.args) != 3:
        return False
    body = node.args[2]
    return isinstance(body, ast.Dict) and any(
        text_of(key) == "__eq__" and _constant_function(value, True)
        for key, value in zip(body.keys, body.values, strict=True)
    )


def _set(reading: Reading, node: ast.Call) -> bool:
    """`setattr(Answer, "__eq__", lambda self, other: True)`"""
    return (
        reading.dotted(node.func) == "setattr"
        and len(node.args) == 3
        and text_of(node.args[1]) == "__eq__"
        and _constant_function(node.args[2], True)
    )


def _any(reading: Reading, node: ast.Return | ast.Assign) -> list[CodeTold]:
    value = node.value
    name = reading.dotted(value) if value is not None else ""
    if name not in ("unittest.mock.ANY", "mock.ANY") or reading.function_of(node) is None:
        return []
    reason = "the answer is an object that is equal to whatever it is compared with."
    return [reading.told(MONKEYPATCHING, KIND, node, reason, sure=isinstance(node, ast.Return))]


def _replaced(reading: Reading, node: ast.Assign) -> list[CodeTold]:
    """`Answer.__eq__ = lambda self, other: True`"""
    if not any(getattr(target, "attr", "") == "__eq__" for target in node.targets):
        return []
    names = {one.name: one for one in reading.functions()}
    value = node.value
    constant = _constant_function(value, True) or (
        isinstance(value, ast.Name) and value.id in names and _gives_only(names[value.id], True)
    )
    if constant and any(
        isinstance(target, ast.Attribute) and target.attr == "__eq__" for target in node.targets
    ):
        return [reading.told(MONKEYPATCHING, KIND, node, _REASON, sure=True)]
    return []
