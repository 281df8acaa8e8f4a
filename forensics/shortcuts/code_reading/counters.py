"""Call counters: what a function gives depends on how often it was called.

1. A state that outlives the call: a global, an attribute of the function or
   class, a mutable default argument, a module's list or dictionary, a counter
   of `itertools`, a list of answers that is used up.
2. The function changes it by one, or appends to it, and compares it (its length) with a
   literal, or takes the literal answer at its place.
"""

import ast
from collections.abc import Iterator

from .code_finding import CodeFinding
from .literals import literal_or_none
from .nodes import name_of
from .outcomes import outcome_of
from .program import Function, Program

KIND = "call counter"
_REASON = "the function counts its calls and gives other literals by their number."


def call_counters(program: Program) -> list[CodeFinding]:
    """The functions that answer by the number of the call."""
    told: list[CodeFinding] = []
    for function in program.functions():
        nodes = list(program.inside(function))
        states = set(_states(program, function, nodes))
        for node in nodes:
            found = _decided(program, function, node, states) or _used_up(program, function, node)
            if found is not None:
                told.append(program.finding(KIND, node, _REASON, sure=found))
                break
    return told


def _states(program: Program, function: Function, nodes: list[ast.AST]) -> Iterator[str]:
    """The names of what outlives a call and is counted up in it."""
    outside = {name for node in nodes if isinstance(node, ast.Global) for name in node.names}
    inner = _returned_inside(program, function)
    for node in nodes:
        if isinstance(node, ast.Nonlocal) and inner:
            outside.update(node.names)
    defaults = set(_mutable_defaults(function))
    for node in nodes:
        target = _counted(program, node)
        if isinstance(target, ast.Name) and target.id in outside:
            yield target.id
        elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            name = target.value.id
            if name in defaults or _is_module_collection(program, name):
                yield name
        elif isinstance(target, ast.Attribute):
            base = name_of(target.value)
            if base == function.name or (base and base[0].isupper()) or base in ("self", "cls"):
                yield f"{base}.{target.attr}"
        elif _next_of(program, node):
            yield from _bound_to(program, node)
        elif (name := _grown(node)) and (name in defaults or _is_module_collection(program, name)):
            yield f"len({name})"


def _grown(node: ast.AST) -> str:
    """The list that gets one more at each call."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return _base(node.func.value) if node.func.attr in ("append", "appendleft") else ""
    return ""


def _counted(program: Program, node: ast.AST) -> ast.expr | None:
    """What `x += 1` or `x = x + 1` or `x[k] = x.get(k, 0) + 1` counts."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add | ast.Sub):
        return node.target if _one(node.value) else None
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.UnaryOp):
        same = _base(node.targets[0]) == _base(node.value.operand) != ""
        return node.targets[0] if isinstance(node.value.op, ast.Not) and same else None
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp):
        value = node.value
        if isinstance(value.op, ast.Add) and (_one(value.right) or _one(value.left)):
            target = node.targets[0]
            name = _base(target)
            if name and any(_base(one) == name for one in program.inside(value)):
                return target
    return None


def _one(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 1 and node.value is not True


def _base(node: ast.AST) -> str:
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _returned_inside(program: Program, function: Function) -> bool:
    """Whether the function is made by another one that gives it back."""
    outer = program.function_of(function)
    return isinstance(outer, Function) and any(
        isinstance(one, ast.Return) and name_of(one.value) == function.name
        for one in program.inside(outer)
    )


def _mutable_defaults(function: Function) -> Iterator[str]:
    arguments = function.args
    plain = [*arguments.posonlyargs, *arguments.args]
    pairs = [
        *zip(plain[len(plain) - len(arguments.defaults) :], arguments.defaults, strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    for argument, default in pairs:
        if isinstance(default, ast.List | ast.Dict):
            yield argument.arg


def _is_module_collection(program: Program, name: str) -> bool:
    for statement in program.tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = getattr(statement, "targets", None) or [getattr(statement, "target", None)]
            if any(name_of(target) == name for target in targets):
                value = statement.value
                return isinstance(value, ast.List | ast.Dict | ast.Call)
    return False


def _next_of(program: Program, node: ast.AST) -> bool:
    """`n = next(_counter)` with a counter of the module."""
    value = getattr(node, "value", None)
    if not isinstance(node, ast.Assign) or not isinstance(value, ast.Call):
        return False
    if program.dotted(value.func) != "next" or not value.args:
        return False
    counter = program.constants.get(name_of(value.args[0]))
    return isinstance(counter, ast.Call) and program.dotted(counter.func) == "itertools.count"


def _bound_to(program: Program, node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Assign):
        yield from (one.id for one in node.targets if isinstance(one, ast.Name))


# -- what the state decides ------------------------------------------------------------


def _decided(program: Program, function: Function, node: ast.AST, states: set[str]) -> bool | None:
    """Whether a state decides the answer here: surely, perhaps (`False`), or not (`None`)."""
    if not states:
        return None
    if isinstance(node, ast.If | ast.IfExp):
        name = _asked(program, node.test, states)
        if name and _gives_literal(program, node):
            return not name.startswith(("self.", "cls."))
    if isinstance(node, ast.Return) and isinstance(node.value, ast.Subscript):
        rows = literal_or_none(node.value.value, program.constants)
        name = _named(program, node.value.slice, states)
        if rows and name:
            return not name.startswith(("self.", "cls."))
    if isinstance(node, ast.Return) and isinstance(node.value, ast.Name):
        name = node.value.id
        toggled = any(
            isinstance(one, ast.Assign) and isinstance(one.value, ast.UnaryOp)
            for one in program.inside(function)
            if _base(_counted(program, one) or function) == name
        )
        return True if name in states and toggled else None
    if isinstance(node, ast.Return) and isinstance(node.value, ast.Compare):
        name = _asked(program, node.value, states)
        if name:
            return False
    return None


def _asked(program: Program, test: ast.expr, states: set[str]) -> str:
    """The state that a condition compares with a literal, or takes the remainder of."""
    for node in program.inside(test):
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            sides = (node.left, node.comparators[0])
            fixed = any(isinstance(side, ast.Constant) for side in sides)
            name = next((found for side in sides if (found := _named(program, side, states))), "")
            exact = isinstance(node.ops[0], ast.Eq | ast.NotEq | ast.In)
            few = any(
                isinstance(side, ast.Constant)
                and isinstance(side.value, int)
                and abs(side.value) <= 20
                for side in sides
            )
            if name and fixed and (exact or few):
                return name
    return ""


def _named(program: Program, node: ast.AST, states: set[str]) -> str:
    for one in program.inside(node):
        name = one.id if isinstance(one, ast.Name) else ""
        if isinstance(one, ast.Attribute):
            name = f"{getattr(one.value, 'id', '')}.{one.attr}"
        elif isinstance(one, ast.Call) and name_of(one.func) == "len" and one.args:
            name = f"len({getattr(one.args[0], 'id', '')})"
        if name in states:
            return name
    return ""


def _gives_literal(program: Program, node: ast.If | ast.IfExp) -> bool:
    if isinstance(node, ast.IfExp):
        return literal_or_none(node.body, program.constants) is not None
    return any(
        isinstance(statement, ast.Return) and bool(outcome_of(statement, program.constants)[0])
        for statement in node.body
    )


def _used_up(program: Program, function: Function, node: ast.AST) -> bool | None:
    """`return _answers.pop(0)`, `return next(_answers)` with a module's literal answers."""
    value = node.value if isinstance(node, ast.Return) else None
    if not isinstance(value, ast.Call):
        return None
    if isinstance(value.func, ast.Attribute) and value.func.attr in ("pop", "popleft", "__next__"):
        name = name_of(value.func.value)
    elif program.dotted(value.func) == "next" and value.args:
        name = name_of(value.args[0])
    else:
        return None
    if not name or name in {one.arg for one in function.args.args}:
        return None
    source = program.constants.get(name)
    if isinstance(source, ast.Call) and source.args:
        source = source.args[0]
    at_module = any(
        name_of(target) == name
        for statement in program.tree.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
    )
    row = literal_or_none(source, program.constants) if source is not None else None
    return True if at_module and row and len(row) > 1 else None
