"""Objects that are equal to everything.

1. Classes whose `__eq__` gives nothing but a true constant (or whose `__ne__`
   gives nothing but a false one), as a method, a lambda or through `type(...)`.
2. Sure where an instance is made, or where nothing else in the text could be
   the answer; a class that nobody uses beside a solution is an attempt.
3. `unittest.mock.ANY` given as an answer.
"""

import ast

from .code_finding import CodeFinding
from .nodes import name_of
from .program import Function, Program, text_of

_ANY = ("unittest.mock.ANY", "mock.ANY")
KIND = "equal to everything"
_BUILTIN = ("object", "str", "int", "float", "bool", "list", "tuple", "dict", "set", "bytes")
_REASON = "objects of this class are equal to whatever they are compared with."


_DOUBTFUL = "the equality of this class does not compare its objects with the other ones."


def equal_to_everything(program: Program) -> list[CodeFinding]:
    """The classes and objects that are equal to everything."""
    told: list[CodeFinding] = []
    for node in program.classes():
        if _always_equal(program, node) is not None:
            sure = _used(program, node)
            told.append(program.finding(KIND, node, _REASON, sure=sure))
        elif _compares_nothing(program, node):
            told.append(program.finding(KIND, node, _DOUBTFUL, sure=False))
    for node in program.of(ast.Call):
        if _made(program, node) or _set(program, node):
            told.append(program.finding(KIND, node, _REASON))
    for node in program.of(ast.Return, ast.Assign):
        told += _any(program, node)
    for node in program.of(ast.Assign):
        told += _replaced(program, node)
    return told or _given(program)


def _compares_nothing(program: Program, node: ast.ClassDef) -> bool:
    """Whether the `__eq__` of a class never sets something of its object beside something of
    the other one, or first takes the other's value over; or every order holds.
    """
    methods = {one.name: one for one in node.body if isinstance(one, Function)}
    equal = methods.get("__eq__")
    for statement in node.body:
        names = [name_of(one) for one in getattr(statement, "targets", ())]
        if isinstance(statement, ast.Assign) and "__eq__" in names:
            value = statement.value
            known = {one.name: one for one in program.functions()}
            other = known.get(name_of(value))
            if other is not None and _gives_only(other, True, program):
                return True
    orders = [methods.get(name) for name in ("__lt__", "__gt__")]
    if all(one is not None and _gives_only(one, True, program) for one in orders):
        return True
    differences = [methods.get(name) for name in ("__sub__", "__rsub__")]
    if all(one is not None and _gives_nothing(one) for one in differences):
        return True
    return equal is not None and _is_blind(program, equal)


def _is_blind(program: Program, equal: Function) -> bool:
    names = [one.arg for one in equal.args.args[:2]]
    inside = [one for statement in equal.body for one in program.inside(statement)]
    if len(names) < 2 or not any(isinstance(one, ast.Return) for one in inside):
        return False
    stored = any(_takes_over(program, one, names) for one in inside)
    used = {one.id for one in inside if isinstance(one, ast.Name) and type(one.ctx) is ast.Load}
    raised = any(isinstance(one, ast.Raise) for one in inside)
    gives = [one.value for one in inside if isinstance(one, ast.Return)]
    denies = any(_is_constant(one, False) or name_of(one) == "NotImplemented" for one in gives)
    if stored or (not used.intersection(names) and any(_is_constant(one, True) for one in gives)):
        return True
    judged = raised or denies or any(map(_asks_its_kind, inside))
    return not judged and names[0] not in used


def _takes_over(program: Program, node: ast.AST, names: list[str]) -> bool:
    """`self.value = other`"""
    if not isinstance(node, ast.Assign):
        return False
    own = any(getattr(getattr(one, "value", None), "id", "") == names[0] for one in node.targets)
    return own and any(name_of(one) == names[1] for one in program.inside(node.value))


def _asks_its_kind(node: ast.AST) -> bool:
    """`isinstance(other, Unit)`, `type(other) is Unit`, `super().__eq__(other)`"""
    return isinstance(node, ast.Call) and name_of(node.func) in (
        "isinstance",
        "type",
        "super",
    )


def _gives_nothing(node: Function) -> bool:
    returns = [one.value for one in ast.walk(node) if isinstance(one, ast.Return)]
    return bool(returns) and all(
        isinstance(one, ast.Constant) and one.value in (0, 0.0) for one in returns
    )


def _given(program: Program) -> list[CodeFinding]:
    """`__eq__` or `ANY` that is given to an object in another way: a reader should look."""
    for node in program.of(ast.Constant, ast.keyword, ast.Attribute, ast.Name):
        name = getattr(node, "arg", None) or text_of(node) or ""
        kept = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
        above = program.parents.get(node)
        if kept and node.attr == "__eq__" and getattr(above, "attr", "") == "return_value":
            name = "__eq__"
        if isinstance(node, ast.Attribute | ast.Name) and program.dotted(node) in _ANY:
            name = "" if _is_expected(program, node) else "__eq__"
        if name in ("__eq__", "__eq__.return_value", "__eq__.side_effect"):
            reason = "what equality means for an object is set from outside."
            place = node if hasattr(node, "lineno") else above or node
            return [program.finding(KIND, place, reason, sure=False)]
    return []


def _is_expected(program: Program, node: ast.AST) -> bool:
    """Whether something is compared, or an argument of an assertion."""
    return any(
        isinstance(one, ast.Compare)
        or (isinstance(one, ast.Call) and "assert" in program.dotted(one.func))
        for one in program.ancestors(node)
    )


def _always_equal(program: Program, node: ast.ClassDef) -> ast.AST | None:
    """The statement of a class that makes its objects equal to everything."""
    by_name = {one.name: one for one in node.body if isinstance(one, Function)}
    for statement in node.body:
        name = getattr(statement, "name", "")
        if name == "__eq__" and _gives_only(statement, True, program):
            return statement
        if name == "__ne__" and "__eq__" not in by_name and _gives_only(statement, False):
            return statement
        if isinstance(statement, ast.Assign) and any(
            name_of(target) == "__eq__" for target in statement.targets
        ):
            value = statement.value
            if _constant_function(value, True):
                return statement
            other = by_name.get(name_of(value))
            if other is not None and _gives_only(other, True):
                return statement
    return None


def _gives_only(node: ast.AST, wanted: bool, program: Program | None = None) -> bool:
    """Whether a function gives this constant on every way through it."""
    if not isinstance(node, Function):
        return False
    returns = [one for one in ast.walk(node) if isinstance(one, ast.Return)]
    names = program.constants if program else {}
    values = [names.get(name_of(one.value), one.value) for one in returns]
    if not returns or not all(_is_constant(value, wanted) for value in values):
        return False
    return not any(isinstance(one, ast.Raise) for one in ast.walk(node))


def _is_constant(value: ast.expr | None, wanted: bool) -> bool:
    if isinstance(value, ast.IfExp):
        return _is_constant(value.body, wanted) and _is_constant(value.orelse, wanted)
    if isinstance(value, ast.BoolOp) and isinstance(value.op, ast.Or) and wanted:
        return any(_is_constant(one, True) for one in value.values)
    if isinstance(value, ast.Call) and name_of(value.func) == "bool" and value.args:
        return _is_constant(value.args[0], wanted)
    if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not):
        return _is_constant(value.operand, not wanted)
    if isinstance(value, ast.Compare) and len(value.ops) == 1:  # `1 == 1`, `self is self`
        same = ast.dump(value.left) == ast.dump(value.comparators[0])
        return same and isinstance(value.ops[0], ast.Eq | ast.Is) and wanted
    if isinstance(value, ast.Call) and name_of(value.func) == "isinstance":
        return wanted and len(value.args) == 2 and name_of(value.args[1]) in _BUILTIN
    return isinstance(value, ast.Constant) and bool(value.value) is wanted


def _constant_function(node: ast.AST, wanted: bool) -> bool:
    return isinstance(node, ast.Lambda) and _is_constant(node.body, wanted)


def _used(program: Program, node: ast.ClassDef) -> bool:
    """Whether an object of the class is made, or nothing else could be the answer."""
    inside = set(program.inside(node))
    outside = any(one.id == node.name and one not in inside for one in program.of(ast.Name))
    if outside:
        return True
    functions = [one for one in program.functions() if one not in inside]
    return not functions


def _made(program: Program, node: ast.Call) -> bool:
    """`type("X", (), {"__eq__": lambda self, other: True})`"""
    if program.dotted(node.func) != "type" or len(node.args) != 3:
        return False
    body = node.args[2]
    return isinstance(body, ast.Dict) and any(
        text_of(key) == "__eq__" and _constant_function(value, True)
        for key, value in zip(body.keys, body.values, strict=True)
    )


def _set(program: Program, node: ast.Call) -> bool:
    """`setattr(Answer, "__eq__", lambda self, other: True)`"""
    return (
        program.dotted(node.func) == "setattr"
        and len(node.args) == 3
        and text_of(node.args[1]) == "__eq__"
        and _constant_function(node.args[2], True)
    )


def _any(program: Program, node: ast.Return | ast.Assign) -> list[CodeFinding]:
    value = node.value
    name = program.dotted(value) if value is not None else ""
    if name not in ("unittest.mock.ANY", "mock.ANY") or program.function_of(node) is None:
        return []
    reason = "the answer is an object that is equal to whatever it is compared with."
    return [program.finding(KIND, node, reason, sure=isinstance(node, ast.Return))]


def _replaced(program: Program, node: ast.Assign) -> list[CodeFinding]:
    """`Answer.__eq__ = lambda self, other: True`"""
    if not any(getattr(target, "attr", "") == "__eq__" for target in node.targets):
        return []
    names = {one.name: one for one in program.functions()}
    value = node.value
    constant = _constant_function(value, True) or (
        isinstance(value, ast.Name) and value.id in names and _gives_only(names[value.id], True)
    )
    if constant and any(
        isinstance(target, ast.Attribute) and target.attr == "__eq__" for target in node.targets
    ):
        return [program.finding(KIND, node, _REASON)]
    return []
