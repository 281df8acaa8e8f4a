"""The tests of Python text, read by `ast`.

1. Whole text is parsed as it is. A hunk is put below stand-in headings that its indentation
   asks for; up to as many lines as are the same in both states are left away at its ends.
2. Each function whose name begins with `test` is a test; what stands at the top, or in a hunk
   whose function is out of sight, counts as one, too.
3. Assertions: `assert`, `self.assert...`, mocks' and numpy's, `raises`, `fail`.
"""

import ast
import re
from collections.abc import Sequence

from forensics.shortcuts.code_fragments import with_head
from forensics.shortcuts.expectations.demands import Demand, Scope, Test, merged, number, words
from forensics.shortcuts.expectations.versions import Part
from forensics.shortcuts.vocabulary import Vocabulary

MOST_CUTS = 6
_FORMS = Vocabulary(__name__)
_SWALLOWED = "its error is swallowed"


def read_pair(part: Part) -> tuple[list[Test], list[Test]] | None:
    """The tests before and after; `None` where the old text does not parse. Raises
    `SyntaxError` where only the new one does not.
    """
    for cut in range(min(part.lead, MOST_CUTS) + 1):
        for end in range(min(part.trail, MOST_CUTS) + 1):
            old = _parsed(part.old, part.heading, cut, end)
            if old is None:
                continue
            new = _parsed(part.new, part.heading, cut, end)
            if new is not None:
                return _tests(old, part.heading), _tests(new, part.heading)
    for cut in range(min(part.lead, MOST_CUTS) + 1):
        if _parsed(part.old, part.heading, cut, 0) is not None:
            raise SyntaxError("the new text does not parse")
    return None


def _parsed(text: str, heading: str, cut: int, end: int) -> ast.Module | None:
    lines = text.split("\n")[cut:]
    lines = lines[: len(lines) - 1 - end]
    while lines and not lines[0].strip():
        lines.pop(0)
    if not lines:
        return ast.Module([], [])
    lines = with_head("\n".join(lines)).split("\n")[:-1]
    deep = len(lines[0]) - len(lines[0].lstrip())
    body = [*_headings(deep, heading, lines), *lines]
    last = next((line for line in reversed(lines) if line.strip()), "")
    if last.rstrip().endswith(":") or last.strip().startswith("@"):
        deeper = " " * (len(last) - len(last.lstrip()) + 4)
        body.append(
            f"{deeper}pass" if last.rstrip().endswith(":") else f"{deeper[4:]}def _(): pass"
        )
    try:
        return ast.parse("\n".join(body) + "\n")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _headings(deep: int, heading: str, lines: Sequence[str]) -> list[str]:
    if deep == 0:
        return []
    method = heading.startswith("class") or any(re.match(r" {4}(?:async )?def ", x) for x in lines)
    if re.match(r"\s*(?:@|(?:async )?def )", lines[0]) or method:
        kinds = ["class HunkTest:", "def test_hunk(self):"]
    else:
        kinds = ["def test_hunk():"]
    if deep == 4:
        kinds = kinds[:1]
    levels = range(0, deep, 4)
    return [
        " " * at + (kinds[i] if i < len(kinds) else "with hunk:") for i, at in enumerate(levels)
    ]


def _tests(tree: ast.Module, heading: str) -> list[Test]:
    found = _FORMS.heading.match(heading)
    known = found[1] if found else ""
    top = Test("")
    reader = _Reader(top)
    reader.block(tree.body, Scope(top))
    for test in reader.tests:
        if test.name in ("HunkTest.test_hunk", "test_hunk", "HunkTest"):
            test.name = known if known.startswith("test") else ""
        test.name = test.name.removeprefix("HunkTest.")
    return merged(reader.tests)


class _Reader:
    """Walks through statements, and keeps the tests that it meets."""

    def __init__(self, top: Test) -> None:
        self.tests = [top]

    def block(self, body: Sequence[ast.stmt], scope: Scope) -> None:
        """Statements in order; what follows a `return` or a `raise` is not reached."""
        for statement in body:
            self.statement(statement, scope)
            if isinstance(statement, (ast.Return, ast.Raise)):
                scope = scope.behind("after a return")
            elif (
                isinstance(statement, ast.If)
                and isinstance(statement.body[-1], ast.Return)
                and not any(isinstance(inner, ast.Assert) for inner in ast.walk(statement))
            ):
                scope = scope.behind(f"a return if {ast.unparse(statement.test)}")

    def statement(self, node: ast.stmt, scope: Scope) -> None:
        """One statement."""
        test = scope.test
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            self.definition(node, scope)
        elif isinstance(node, (ast.If, ast.Try, ast.TryStar)):
            self.choice(node, scope)
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            items = [item.context_expr for item in node.items]
            self.calls(items, scope)
            texts = list(map(ast.unparse, items))
            silent = any("suppress" in text for text in texts)
            awaited = any(map(_FORMS.awaits_failure.search, texts))
            inner = scope.behind(_SWALLOWED) if silent else scope
            self.block(node.body, inner.behind("its failure is expected") if awaited else inner)
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            self.calls([node.iter], scope)
            self.block(node.body, scope)
        elif isinstance(node, ast.While):
            never = not getattr(node.test, "value", True)
            self.block(node.body, scope.behind("never") if never else scope)
        elif isinstance(node, ast.Assert):
            text = "assert " + ast.unparse(node.test)
            test.demands.append(_demand(text, node.test, scope.guards))
            test.rows += _rows_in(node.test)
        else:
            if isinstance(node, (ast.Assign, ast.Raise)) and _names_skip(node):
                test.skips.add(ast.unparse(node))
            test.values += _values(node)
            test.inputs += _inputs(node)
            self.calls([node], scope)

    def choice(self, node: ast.If | ast.Try | ast.TryStar, scope: Scope) -> None:
        """Branches, and what stands under the eyes of handlers."""
        if isinstance(node, ast.If):
            why = f"if {ast.unparse(node.test)}"
            if len(node.body) == 1 and _names_skip(node.body[0]):
                scope.test.skips.add(f"{why}: {ast.unparse(node.body[0])}")
            else:
                self.block(node.body, scope.behind(why))
            self.block(node.orelse, scope.behind(f"else of {why}"))
            return
        inner = scope.behind(_SWALLOWED) if _swallows(node) else scope
        self.block(node.body, inner)
        for handler in node.handlers:
            self.block(handler.body, scope.behind("in an error's handler"))
        self.block([*node.orelse, *node.finalbody], inner)

    def definition(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, scope: Scope
    ) -> None:
        """A class, a test, a helper, or a function within one."""
        name, marks = scope.joined(node.name), node.decorator_list
        skips = {text for one in marks if _FORMS.skip.search(text := ast.unparse(one))}
        found = Test(name, node.name.startswith("test"), skips=skips)
        self.tests.append(found)
        if isinstance(node, ast.ClassDef):
            found.collected, scope = True, scope._replace(guards=())
        else:
            for one in marks:
                found.rows += _rows_in(one)
                found.fakes |= _fakes(one)
        self.block(node.body, Scope(found, scope.guards, name))

    def calls(self, nodes: Sequence[ast.AST], scope: Scope) -> None:
        """Calls that assert, skip or replace, and rows of tables."""
        test, guards = scope.test, scope.guards
        for node in nodes:
            test.rows += _rows_in(node)
            for call in [inner for inner in ast.walk(node) if isinstance(inner, ast.Call)]:
                name, text = _called(call), ast.unparse(call).removeprefix("self.")
                if _FORMS.call.search(name) and name != "assertion":
                    test.demands.append(_demand(text, call, guards))
                elif isinstance(node, ast.Expr) and call is node.value:
                    test.calls.append((name, _demand(f"{text} ==", call, guards)))
                if _FORMS.skipping.fullmatch(name) and not _FORMS.call.search(name):
                    test.skips.add(" ".join([*guards, ast.unparse(call)]))
                elif _FORMS.fake.search(ast.unparse(call.func)):
                    test.fakes |= _fakes(call)


def _called(call: ast.Call) -> str:
    func = call.func
    return func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")


def _names_skip(node: ast.AST) -> bool:
    """Whether a statement uses what skips; texts and names of arguments are nothing."""
    names = (
        inner.attr if isinstance(inner, ast.Attribute) else getattr(inner, "id", "")
        for inner in ast.walk(node)
        if isinstance(inner, (ast.Name, ast.Attribute))
    )
    return any(_FORMS.skipping.fullmatch(name) for name in names)


def _fakes(node: ast.AST) -> set[str]:
    if not _FORMS.fake.search(ast.unparse(node)):
        return set()
    texts = (n.value for n in ast.walk(node) if isinstance(n, ast.Constant))
    return {text.rsplit(".", 1)[-1] for text in texts if isinstance(text, str)}


def _swallows(node: ast.Try | ast.TryStar) -> bool:
    """Whether a failed assertion ends in a handler that lets it pass."""
    for handler in node.handlers:
        kinds = ast.unparse(handler.type) if handler.type else "Exception"
        wide = re.search(r"\b(?:AssertionError|Exception|BaseException)\b", kinds)
        body = " ".join(map(ast.unparse, handler.body))
        if wide and not re.search(r"\braise\b|fail\(|assert", body):
            return True
    return False


def _demand(text: str, node: ast.AST, guards: tuple[str, ...]) -> Demand:
    names = [n.id for n in ast.walk(node) if isinstance(n, ast.Name)]
    names += [n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)]
    return Demand(text, _literals(node), words(names), guards, _tolerance(node))


def _inputs(node: ast.stmt) -> list[tuple[str, tuple[str, ...], frozenset[str]]]:
    """A name with the literals of the calls that give it its value."""
    if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
        return []
    called = frozenset(_called(n) for n in ast.walk(node.value) if isinstance(n, ast.Call))
    found = _literals(node.value)
    return [(node.targets[0].id, found, called)] if called and found else []


def _literals(node: ast.AST) -> tuple[str, ...]:
    """In the order in which they stand there."""
    if isinstance(node, ast.Constant):
        return (repr(node.value),)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return tuple(f"-{literal}" for literal in _literals(node.operand))
    if isinstance(node, ast.Name) and re.search(r"(?:Error|Exception|Warning)$", node.id):
        return (node.id,)
    return tuple(text for inner in ast.iter_child_nodes(node) for text in _literals(inner))


def _tolerance(node: ast.AST) -> float | None:
    below = isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Lt, ast.LtE))
    if (
        isinstance(node, ast.Compare)
        and below
        and re.search(r"abs\(|norm\(", ast.unparse(node.left))
    ):
        return number(ast.unparse(node.comparators[0]))
    for inner in ast.walk(node):
        if isinstance(inner, ast.keyword) and inner.arg in _FORMS.words["tolerance"]:
            value = getattr(inner.value, "value", None)
            if isinstance(value, (int, float)):
                return number(str(value))
    return None


def _rows_in(node: ast.AST) -> list[tuple[str, ...]]:
    """Tuples, lists and dictionaries in a list or a tuple, item by item, if one is a literal."""
    found: list[tuple[str, ...]] = []
    for inner in ast.walk(node):
        if isinstance(inner, (ast.List, ast.Tuple)):
            items = [_items(item) for item in inner.elts]
            found += [
                tuple(map(ast.unparse, row))
                for row in items
                if len(row) > 1 and any(map(_literals, row))
            ]
    return found


def _items(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, (ast.Tuple, ast.List)):
        return node.elts
    if isinstance(node, ast.Dict):
        return [
            ast.Tuple([key, value])
            for key, value in zip(node.keys, node.values, strict=True)
            if key
        ]
    return node.args if isinstance(node, ast.Call) and _called(node) == "param" else []


def _values(node: ast.stmt) -> list[tuple[str, str]]:
    """A name with the value that it is given, if that calls nothing but arithmetic."""
    if not isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)) or node.value is None:
        return []
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    calls = [_called(inner) for inner in ast.walk(node.value) if isinstance(inner, ast.Call)]
    plain = all(name in _FORMS.words["arithmetic"] for name in calls)
    table = isinstance(node.value, (ast.List, ast.Tuple, ast.Dict, ast.Set))
    if table and ast.unparse(target).isupper():
        return []
    known = isinstance(target, ast.Name) and plain and _literals(node.value)
    return [(ast.unparse(target), ast.unparse(node.value))] if known else []
