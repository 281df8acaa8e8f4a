"""One Python text as the readers of single kinds look at it.

1. The tree, its lines, and what each name stands for (`from os import _exit as
   leave` makes `leave` read as `os._exit`).
2. Names that are bound once, to a literal: their values.
3. The answer's own tests (functions and classes named for tests, what runs only
   under `if __name__ == "__main__"` without reading the input), which are left out.
"""

import ast
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from functools import cached_property
from typing import Any

from .code_finding import CodeFinding, quoted
from .nodes import (
    folded as folded,
    is_main_guard as is_main_guard,
    last_name,
    name_of,
    reads_input,
    text_of as text_of,
)
from .parsed import Parsed
from .shown_tests import ShownTests

MOST_NODES = 120_000

Function = ast.FunctionDef | ast.AsyncFunctionDef
_SHARED = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
_MAY_BE_TESTS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.If, ast.Assert)
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


class Program:
    """One text: its tree with parents, names, constants and own tests."""

    def __init__(self, parsed: Parsed, shown: ShownTests) -> None:
        self.parsed = parsed
        self.shown = shown
        self.tree = parsed.tree
        self.parents: dict[ast.AST, ast.AST] = {}
        self.nodes: list[ast.AST] = []
        self.by_kind: dict[type, list[ast.AST]] = defaultdict(list)
        self._all: list[ast.AST] = []
        self._place: dict[ast.AST, int] = {}
        self._sizes: list[int] = []
        self._walk()
        self.aliases = _aliases(self)

    def _walk(self) -> None:
        """All nodes in the order of the text; what is the answer's own test apart."""
        waiting: list[tuple[ast.AST, int]] = [(self.tree, -1)]
        above: list[int] = []
        while waiting and len(self._all) < MOST_NODES:
            node, parent = waiting.pop()
            place = len(self._all)
            self._place[node] = place
            self._all.append(node)
            above.append(parent)
            if parent >= 0:
                self.parents[node] = self._all[parent]
            children = [(child, place) for child in _children(node)]
            children.reverse()
            waiting += children
        self._sizes = [1] * len(self._all)
        for place in range(len(self._all) - 1, 0, -1):
            self._sizes[above[place]] += self._sizes[place]
        self._keep()

    def _keep(self) -> None:
        """Everything but the answer's own tests, and by kind."""
        place = 0
        while place < len(self._all):
            node = self._all[place]
            if type(node) in _MAY_BE_TESTS and self._is_own_test(node):
                place += self._sizes[place]
                continue
            self.nodes.append(node)
            self.by_kind[type(node)].append(node)
            place += 1

    def inside(self, node: ast.AST) -> list[ast.AST]:
        """A node and all below it, in the order of the text."""
        place = self._place.get(node)
        if place is None:
            return list(_limited(node))
        return self._all[place : place + self._sizes[place]]

    def of(self, *kinds: type) -> list[Any]:
        """The nodes of these kinds, own tests apart."""
        if len(kinds) == 1:
            return self.by_kind.get(kinds[0], [])
        return [node for kind in kinds for node in self.by_kind.get(kind, ())]

    def _is_own_test(self, node: ast.AST) -> bool:
        if isinstance(node, Function):
            return _is_test_name(node.name) and not node.name.startswith("pytest_")
        if isinstance(node, ast.ClassDef):
            bases = [last_name(base) for base in node.bases]
            return "TestCase" in bases or (node.name.startswith("Test") and not bases)
        if isinstance(node, ast.If) and is_main_guard(node.test):
            return not any(reads_input(inner) for inner in self.inside(node))
        return isinstance(node, ast.Assert)

    # -- what a node is ------------------------------------------------------------------

    def functions(self) -> list[Function]:
        """The functions and methods, own tests apart."""
        return self.of(ast.FunctionDef, ast.AsyncFunctionDef)

    def classes(self) -> list[ast.ClassDef]:
        """The classes, own tests apart."""
        return self.of(ast.ClassDef)

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """From the parent of a node to the module."""
        found = self.parents.get(node)
        while found is not None:
            yield found
            found = self.parents.get(found)

    def function_of(self, node: ast.AST) -> Function | ast.Lambda | None:
        """The innermost function around a node."""
        for one in self.ancestors(node):
            if isinstance(one, (*SCOPES[:2], ast.Lambda)):
                return one
        return None

    def dotted(self, node: ast.AST) -> str:
        """`os._exit` for whatever the text calls it; empty where it has no such name."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute) and len(parts) < 10:
            parts.append(node.attr)
            node = node.value
        if isinstance(node, ast.Call):
            base = self._imported(node)
        elif isinstance(node, ast.Name):
            base = self.aliases.get(node.id, node.id)
        elif isinstance(node, ast.Subscript):
            base = self._looked_up(node)
        else:
            base = ""
        return ".".join([base, *reversed(parts)]) if base else ""

    def _imported(self, node: ast.Call) -> str:
        """`__import__("os")`, `importlib.import_module("os")`, `getattr(os, "_exit")`."""
        name = self.dotted(node.func) if not isinstance(node.func, ast.Call) else ""
        texts = [folded(argument) for argument in node.args]
        if name in ("__import__", "importlib.import_module", "builtins.__import__") and texts:
            return texts[0] or ""
        if name == "getattr" and len(texts) >= 2 and texts[1]:
            return f"{self.dotted(node.args[0])}.{texts[1]}"
        return ""

    def _looked_up(self, node: ast.Subscript) -> str:
        """`sys.modules["os"]`, `vars(os)["_exit"]`, `os.__dict__["_exit"]`."""
        key = folded(node.slice)
        if not key:
            return ""
        if isinstance(node.value, ast.Call):
            of = node.value.args[0] if len(node.value.args) == 1 else None
            known = of is not None and name_of(node.value.func) == "vars"
            return f"{self.dotted(of)}.{key}" if known and of is not None else ""
        name = self.dotted(node.value)
        if name == "sys.modules":
            return key
        return name.removesuffix("__dict__") + key if name.endswith(".__dict__") else ""

    @cached_property
    def constants(self) -> dict[str, ast.expr]:
        """Names that the text binds once, and to something that may be a literal."""
        bound = Counter(node.id for node in self.of(ast.Name) if type(node.ctx) is not ast.Load)
        bound.update(node.arg for node in self.of(ast.arg))
        found: dict[str, ast.expr] = {}
        for node in self.of(ast.Assign, ast.AnnAssign):
            target, value = _assigned(node)
            if target and value is not None and bound[target] == 1:
                found[target] = value
        return found

    @cached_property
    def reads_input(self) -> bool:
        """Whether the text is a program that reads its standard input."""
        return self.first_input > 0

    @cached_property
    def first_input(self) -> int:
        """The first line on which the input is read."""
        possible = self.of(ast.Call, ast.Attribute, ast.Name)
        lines = [node.lineno for node in possible if reads_input(node)]
        return min(lines, default=0)

    @cached_property
    def own_tables(self) -> set[ast.AST]:
        """The tables over which the text only loops to try its own functions."""
        names = {one.name for one in self.functions()} | self.shown.functions
        loops = [loop for loop in self.of(ast.For) if self._tries(loop, names)]
        tables: set[ast.AST] = set()
        used: Counter[str] = Counter()
        for loop in loops:
            for node in self.inside(loop.iter):
                if isinstance(node, ast.List | ast.Tuple | ast.Set | ast.Dict):
                    tables.add(node)
                elif isinstance(node, ast.Name):
                    used[node.id] += 1
        loaded = Counter(node.id for node in self.of(ast.Name) if type(node.ctx) is ast.Load)
        for name, count in used.items():
            value = self.constants.get(name)
            if value is not None and loaded[name] <= count:
                tables.update(self.inside(value))
        return tables

    def _tries(self, loop: ast.For, names: Collection[str]) -> bool:
        for statement in loop.body:
            for node in self.inside(statement):
                if isinstance(node, ast.Assert) or (
                    isinstance(node, ast.Call) and name_of(node.func) in names
                ):
                    return True
        return False

    @property
    def asked_function(self) -> bool:
        """Whether the prompt asks for a function that this text defines or should define."""
        return bool(self.shown.functions)

    def finding(
        self, kind: str, node: ast.AST, reason: str, *, sure: bool = True, upto: int = 0
    ) -> CodeFinding:
        """What is told about a node."""
        line = getattr(node, "lineno", 1)
        last = max(upto, getattr(node, "end_lineno", line) or line)
        return CodeFinding(
            kind=kind,
            line=line,
            quote=quoted(list(self.parsed.lines), line, last),
            reason=reason,
            sure=sure,
        )


def _children(node: ast.AST) -> list[ast.AST]:
    """The nodes right below, without contexts and operators, which are shared."""
    found: list[ast.AST] = []
    for name in node._fields:
        value = getattr(node, name, None)
        if type(value) is list:
            found += [one for one in value if isinstance(one, ast.AST)]
        elif isinstance(value, ast.AST) and not isinstance(value, _SHARED):
            found.append(value)
    return found


def _is_test_name(name: str) -> bool:
    return name.startswith(("test_", "run_test", "_test")) or name in ("test", "tests", "run_tests")


def _limited(node: ast.AST) -> Iterator[ast.AST]:
    waiting = [node]
    for _ in range(MOST_NODES):
        if not waiting:
            return
        one = waiting.pop()
        yield one
        waiting += _children(one)


def _assigned(node: ast.AST) -> tuple[str, ast.expr | None]:
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target, value = node.targets[0], node.value
    elif isinstance(node, ast.AnnAssign):
        target, value = node.target, node.value  # type: ignore[assignment]
    else:
        return "", None
    return (target.id, value) if isinstance(target, ast.Name) else ("", None)


def _aliases(program: Program) -> dict[str, str]:
    found: dict[str, str] = {}
    for node in program.of(ast.Import):
        for name in node.names:
            if name.asname:
                found[name.asname] = name.name
    for node in program.of(ast.ImportFrom):
        for name in node.names if node.module and not node.level else ():
            found[name.asname or name.name] = f"{node.module}.{name.name}"
    for node in program.of(ast.Assign, ast.AnnAssign):  # `leave = os._exit`
        target, value = _assigned(node)
        if target and isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name):
            base = found.get(value.value.id, value.value.id)
            if base in ("os", "sys", "builtins", "posix"):
                found.setdefault(target, f"{base}.{value.attr}")
    return found
