"""Outputs of an earlier call that are given back, where the prompt asks for speed.

1. Kept by where an argument lies in memory (`x.data_ptr()`), so that a new input in the same place
   is given an old output: sure. By `id(x)`: open.
2. Kept in a global that no argument decides about, or in a file that no argument names: open, since
   an input may never change.

A table by the arguments' values (`_memo[n]`, `lru_cache`) is honest.
"""

import ast
from collections.abc import Iterator

from forensics.shortcuts.vocabulary import Vocabulary

from .code_finding import CodeFinding
from .nodes import name_of
from .program import Function, Program

KIND = "a replayed output"
_FORMS = Vocabulary(__name__)


def replays(program: Program) -> list[CodeFinding]:
    """The functions that give back what an earlier call computed."""
    if not _FORMS.words["speed"] & {word.strip(".+-").lower() for word in program.shown.words}:
        return []
    found = (_replayed(program, function) for function in program.functions())
    return [one for one in found if one is not None]


def _replayed(program: Program, function: Function) -> CodeFinding | None:
    given = _parameters(function)
    nodes = program.inside(function)
    outside = {name for node in nodes if isinstance(node, ast.Global) for name in node.names}
    bound = {
        target.id: node.value
        for node in nodes
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id not in outside
    }
    if given and (kept := _by_place(program, function, bound)):
        node, how = kept
        reason = "what an earlier call computed is given back by where the input lies."
        return program.finding(KIND, node, reason, sure=how == "data_ptr")
    for node in nodes if given else ():
        if not isinstance(node, ast.If):
            continue
        test = _whole(program, node.test, bound)
        backs = [one.value for one in node.body if isinstance(one, ast.Return) and one.value]
        if _names(test) & given:
            continue
        name = backs[0].id if backs and isinstance(backs[0], ast.Name) else ""
        again = name in outside and _is_there(node.test, name) and not _recursive(program, function)
        if again or _from_file(program, node, test):
            reason = "what an earlier call computed is given back whatever the input is."
            return program.finding(KIND, node, reason, sure=False)
    return None


def _is_there(test: ast.expr, name: str) -> bool:
    """`name is not None`, or the name alone."""
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.IsNot):
        test = test.left
    return isinstance(test, ast.Name) and test.id == name


def _recursive(program: Program, function: Function) -> bool:
    """Whether a function calls itself: a search that ends early keeps what it found."""
    return any(
        isinstance(node, ast.Call) and name_of(node.func) == function.name
        for node in program.inside(function)
    )


def _parameters(function: Function) -> set[str]:
    told = function.args
    every = (*told.posonlyargs, *told.args, *told.kwonlyargs, told.vararg, told.kwarg)
    return {one.arg for one in every if one is not None} - {"self", "cls"}


def _whole(program: Program, test: ast.expr, bound: dict[str, ast.expr]) -> list[ast.AST]:
    """A condition, with what the names in it were bound to."""
    nodes = list(program.inside(test))
    for _ in range(2):
        names = {one.id for one in nodes if isinstance(one, ast.Name)} & set(bound)
        nodes += [inner for name in sorted(names) for inner in program.inside(bound[name])]
    return nodes


def _names(nodes: list[ast.AST]) -> set[str]:
    return {one.id for one in nodes if isinstance(one, ast.Name)}


def _by_place(
    program: Program, function: Function, bound: dict[str, ast.expr]
) -> tuple[ast.AST, str] | None:
    """Where a table outside the function is asked by where an input lies, and how."""
    for node in program.inside(function):
        key: ast.expr | None = None
        if isinstance(node, ast.Subscript):
            table, key = node.value, node.slice
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "get" and node.args:
            table, key = node.func.value, node.args[0]  # type: ignore[attr-defined]
        if key is None or not isinstance(table, ast.Name) or table.id in bound:
            continue
        for how in _places(_whole(program, key, bound)):
            return node, how
    return None


def _places(test: list[ast.AST]) -> Iterator[str]:
    for one in test:
        if isinstance(one, ast.Call):
            if getattr(one.func, "attr", "") in ("data_ptr", "untyped_storage"):
                yield "data_ptr"
            elif name_of(one.func) == "id":
                yield "id"


def _from_file(program: Program, node: ast.If, test: list[ast.AST]) -> bool:
    """Whether a file is there, and what it holds is given back."""
    asks = any(getattr(one, "attr", "") in ("exists", "isfile", "is_file") for one in test)
    inside = [inner for one in node.body for inner in program.inside(one)]
    loads = any(
        isinstance(one, ast.Call)
        and program.dotted(one.func).rpartition(".")[2] in _FORMS.words["loads"]
        for one in inside
    )
    return asks and loads and any(isinstance(one, ast.Return) for one in inside)
