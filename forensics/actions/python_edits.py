"""What a program in Python does to the texts of files: `python_edits`.

1. The program is parsed with `ast` and followed statement by statement, by this module: nothing
   of it is ever run. What is followed is what scripts that edit a file are made of: reading,
   `replace`, lines by number, `insert`, slices, loops over lists, functions of their own,
   writing.
2. A file is read as far as it is known (`known_file`): a line that nobody saw is a placeholder.
   A `replace` of a text that no known line holds is kept beside it as *missed*; a test whether
   it is there holds.
3. Anything else ends it: `False` says that the program was not followed to its end.
"""

import ast
import operator
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from forensics.actions.known_file import MARK
from forensics.actions.python_files import Files, SeenFiles
from forensics.actions.python_values import (
    LONGEST_LIST,
    Handle,
    Named,
    PathText,
    Unread,
    bounded,
    function,
    joined,
    many,
    plain_pattern,
    told,
)
from forensics.actions.untrusted import python_tree

MOST_STEPS = 20_000
MOST_READ = 50_000_000  # characters of all values
MOST_CALLS = 20  # within each other
_MODULES = ("os", "sys", "re", "io", "pathlib", "textwrap", "codecs")


_COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Is: operator.is_, ast.IsNot: operator.is_not,
    ast.Lt: operator.lt, ast.Gt: operator.gt, ast.LtE: operator.le, ast.GtE: operator.ge,
}  # fmt: skip


class _Ended(Exception):
    """The program ends itself."""


class _Returned(Exception):
    """A function gives a value back."""


class _Break(Exception):
    """A loop ends."""


class _Continue(Exception):
    """A loop goes on."""


def python_edits(program: str, files: Files) -> bool:
    """Follow a program, reading and writing `files`. Whether it was followed to its end."""
    tree = python_tree(program)
    if tree is None:
        return False
    try:
        return _Follower(files, tree).run(tree.body)
    except (Unread, _Returned, _Break, _Continue, RecursionError, MemoryError):
        return False
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError):
        return False  # as the program would have, had it been given these texts


class _Follower:
    """One program that is followed."""

    def __init__(self, files: Files, tree: ast.Module) -> None:
        self._names: dict[str, Any] = {"__name__": "__main__"}
        self._steps = self._depth = self._read_so_far = 0
        numbers = [
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and type(node.value) is int
        ]
        last = max((one for one in numbers if 0 < one < LONGEST_LIST), default=0) + 1
        self._files = SeenFiles(files, last)

    def run(self, body: list[ast.stmt]) -> bool:
        """The whole program. Whether all that it does is known: where it looked for something
        among lines that nobody saw, and changed nothing, it is not.
        """
        with suppress(_Ended):
            self.follow(body)
        return self._files.changed or not self._files.doubtful

    def follow(self, body: list[ast.stmt]) -> None:
        """Statements, in order."""
        for one in body:
            self._steps += 1
            if self._steps > MOST_STEPS:
                raise Unread
            self._statement(one)

    def _statement(self, one: ast.stmt) -> None:
        doing: Callable[[Any], None] | None = getattr(self, f"_do_{type(one).__name__}", None)
        if doing is None:
            raise Unread
        doing(one)

    def _do_Import(self, one: ast.Import) -> None:
        for alias in one.names:
            self._names[alias.asname or alias.name] = Named("module", alias.name.split(".")[0])

    def _do_ImportFrom(self, one: ast.ImportFrom) -> None:
        for alias in one.names:
            self._names[alias.asname or alias.name] = Named("function", alias.name)

    def _do_Pass(self, one: ast.Pass) -> None:
        """Nothing."""

    def _do_Expr(self, one: ast.Expr) -> None:
        self._value(one.value)

    def _do_Assign(self, one: ast.Assign) -> None:
        value = self._value(one.value)
        for target in one.targets:
            self._put(target, value)

    def _do_AnnAssign(self, one: ast.AnnAssign) -> None:
        if one.value is not None:
            self._put(one.target, self._value(one.value))

    def _do_AugAssign(self, one: ast.AugAssign) -> None:
        self._put(
            one.target, self._combined(one.op, self._value(one.target), self._value(one.value))
        )

    def _do_Delete(self, one: ast.Delete) -> None:
        for target in one.targets:
            if not isinstance(target, ast.Subscript):
                raise Unread
            del self._listed(target.value)[self._index(target.slice)]

    def _do_With(self, one: ast.With) -> None:
        handles = [(self._value(item.context_expr), item.optional_vars) for item in one.items]
        for handle, name in handles:
            if not isinstance(handle, Handle):
                raise Unread
            if name is not None:
                self._put(name, handle)
        self.follow(one.body)
        for handle, _ in handles:
            self._files.close(handle)

    def _do_If(self, one: ast.If) -> None:
        self.follow(one.body if self._value(one.test) else one.orelse)

    def _do_For(self, one: ast.For) -> None:
        for value in many(self._value(one.iter)):
            self._put(one.target, value)
            try:
                self.follow(one.body)
            except _Break:
                return
            except _Continue:
                continue
        self.follow(one.orelse)

    def _do_Break(self, one: ast.Break) -> None:
        raise _Break

    def _do_Continue(self, one: ast.Continue) -> None:
        raise _Continue

    def _do_Assert(self, one: ast.Assert) -> None:
        if not self._value(one.test):
            raise _Ended

    def _do_Try(self, one: ast.Try) -> None:
        self.follow(one.body + one.orelse + one.finalbody)

    def _do_FunctionDef(self, one: ast.FunctionDef) -> None:
        self._names[one.name] = one

    def _do_Return(self, one: ast.Return) -> None:
        raise _Returned(self._value(one.value) if one.value else None)

    def _do_Raise(self, one: ast.Raise) -> None:
        raise _Ended

    def _put(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self._names[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            values = list(many(value))
            for one, given in zip(target.elts, values, strict=True):
                self._put(one, given)
        elif isinstance(target, ast.Subscript):
            listed = self._listed(target.value)
            listed[self._index(target.slice)] = value
            bounded(listed)
        else:
            raise Unread

    def _listed(self, node: ast.expr) -> Any:
        value = self._value(node)
        if not isinstance(value, list | dict):
            raise Unread
        return value

    def _index(self, node: ast.expr) -> Any:
        if not isinstance(node, ast.Slice):
            return self._value(node)
        ends = (node.lower, node.upper, node.step)
        return slice(*(None if one is None else self._value(one) for one in ends))

    def _value(self, node: ast.expr) -> Any:
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise Unread
        asking: Callable[[Any], Any] | None = getattr(self, f"_of_{type(node).__name__}", None)
        if asking is None:
            raise Unread
        value = bounded(asking(node))
        self._read_so_far += len(value) if isinstance(value, str) else 1
        if self._read_so_far > MOST_READ:
            raise Unread
        return value

    def _of_Constant(self, node: ast.Constant) -> Any:
        return node.value

    def _of_Name(self, node: ast.Name) -> Any:
        return self._names.get(node.id, Named("function", node.id))

    def _of_List(self, node: ast.List) -> list[Any]:
        return [self._value(one) for one in node.elts]

    def _of_Tuple(self, node: ast.Tuple) -> tuple[Any, ...]:
        return tuple(self._value(one) for one in node.elts)

    def _of_Dict(self, node: ast.Dict) -> dict[Any, Any]:
        keys = [self._value(key) if key else None for key in node.keys]
        return dict(zip(keys, map(self._value, node.values), strict=True))

    def _of_JoinedStr(self, node: ast.JoinedStr) -> str:
        return joined([told(self._value(one)) for one in node.values])

    def _of_FormattedValue(self, node: ast.FormattedValue) -> str:
        if node.format_spec is not None or node.conversion != -1:
            raise Unread
        return told(self._value(node.value))

    def _of_Subscript(self, node: ast.Subscript) -> Any:
        value = self._value(node.value)
        if not isinstance(value, str | list | tuple | dict):
            raise Unread
        return value[self._index(node.slice)]

    def _of_BinOp(self, node: ast.BinOp) -> Any:
        return self._combined(node.op, self._value(node.left), self._value(node.right))

    def _combined(self, op: ast.operator, left: Any, right: Any) -> Any:
        if isinstance(op, ast.Div) and isinstance(left, PathText):
            return PathText(f"{left.rstrip('/')}/{right}")
        if isinstance(op, ast.Add) and isinstance(left, str | list | int):
            return left + right
        if isinstance(op, ast.Sub) and isinstance(left, int):
            return left - right
        if isinstance(op, ast.Mult) and isinstance(left, str) and right in range(200):
            return left * right
        raise Unread

    def _of_UnaryOp(self, node: ast.UnaryOp) -> Any:
        value = self._value(node.operand)
        if isinstance(node.op, ast.Not):
            return not value
        if isinstance(node.op, ast.USub) and isinstance(value, int):
            return -value
        raise Unread

    def _of_BoolOp(self, node: ast.BoolOp) -> Any:
        ends = isinstance(node.op, ast.Or)
        for one in node.values:
            value = self._value(one)
            if bool(value) is ends:
                break
        return value

    def _of_IfExp(self, node: ast.IfExp) -> Any:
        return self._value(node.body if self._value(node.test) else node.orelse)

    def _of_Compare(self, node: ast.Compare) -> bool:
        left = self._value(node.left)
        for op, other in zip(node.ops, node.comparators, strict=True):
            right = self._value(other)
            if not self._compared(op, left, right):
                return False
            left = right
        return True

    def _compared(self, op: ast.cmpop, left: Any, right: Any) -> bool:
        if isinstance(op, ast.In | ast.NotIn):
            held = bool(left in right)
            if not held and isinstance(right, str) and MARK in right:
                held = "\n" in right[:-1]  # of a whole file it is believed, of a line it is not
                self._files.doubtful = True
            return held == isinstance(op, ast.In)
        if isinstance(left, str) and isinstance(right, str):
            self._files.doubtful |= MARK in left or MARK in right
        return bool(_COMPARED[type(op)](left, right))

    def _of_ListComp(self, node: ast.ListComp) -> list[Any]:
        if len(node.generators) != 1:
            raise Unread
        made = node.generators[0]
        found = []
        for value in many(self._value(made.iter)):
            self._put(made.target, value)
            if all(self._value(test) for test in made.ifs):
                found.append(self._value(node.elt))
        return found

    _of_GeneratorExp = _of_ListComp

    def _of_Attribute(self, node: ast.Attribute) -> Any:
        value = self._value(node.value)
        if not isinstance(value, Named):
            return Named("method", node.attr, value)
        known = value.kind == "function" or value.name in _MODULES  # `os.path.join`
        return Named("function" if known else "unread", node.attr)

    def _of_Call(self, node: ast.Call) -> Any:
        called = self._value(node.func)
        given = [self._value(one) for one in node.args]
        named = {one.arg: self._value(one.value) for one in node.keywords if one.arg}
        if isinstance(called, ast.FunctionDef):
            return self._own(called, given, named)
        if isinstance(called, Named) and called.kind == "method":
            return self._files.method(called.owner, called.name, given, named)
        if isinstance(called, Named) and called.kind == "function":
            return self._function(called.name, given, named)
        raise Unread

    def _own(self, called: ast.FunctionDef, given: list[Any], named: dict[str, Any]) -> Any:
        names = [one.arg for one in called.args.args]
        defaults = [self._value(one) for one in called.args.defaults]
        if self._depth >= MOST_CALLS or called.args.vararg or called.args.kwarg:
            raise Unread
        outer, self._depth = self._names, self._depth + 1
        known = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))
        self._names = {**outer, **known, **dict(zip(names, given, strict=False)), **named}
        try:
            self.follow(called.body)
        except _Returned as back:
            return back.args[0]
        finally:
            self._names, self._depth = outer, self._depth - 1
        return None

    def _function(self, name: str, given: list[Any], named: dict[str, Any]) -> Any:
        if name == "open":
            mode = given[1] if len(given) > 1 else named.get("mode", "r")
            return self._files.open(told(given[0]), told(mode))
        if name in ("exit", "quit", "_exit"):
            raise _Ended
        if name != "sub":
            return function(name, given, named)
        if len(given) > 4 or "flags" in named:
            raise Unread
        old, new = plain_pattern(*given[:2])
        count = given[3] if len(given) > 3 else named.get("count", 0)
        return self._files.replaced(given[2], old, new, count or -1)
