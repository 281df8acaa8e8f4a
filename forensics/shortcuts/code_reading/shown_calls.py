"""Calls with what they must give: asserts, doctests, arrows, `assertEqual`."""

import ast
import re
from collections.abc import Iterator
from typing import Any

from .literals import NotLiteral, Tokens, literal, tokens
from .shown_test import Found, ShownTest, rows

_CALL_LINE = re.compile(
    r"^[ \t>*-]{0,40}(?:assert\b|>>>|self\.assert"
    r"|(?:Assert\.|Assertions\.|console\.)?(?:assert|Assert|EXPECT_|ASSERT_|expect\()"
    r"|[\w.]{1,60}\(.{0,4000}(?:==|->|=>|→|#|//|returns)).*$",
    re.M,
)
_EXPECTED = re.compile(
    r"\bexpect\((?P<call>[^\n]{1,300}?)\)\.(?:to\.)?(?:deep\.|be\.)?"
    r"(?:toBe|toEqual|toStrictEqual|toBeCloseTo|equal|eql)"
    r"\((?P<wanted>[^\n]{1,200}?)\)[ \t]{0,4}(?:[;}]|$)",
    re.M,
)
_EQUAL = ("isclose", "allclose", "eq", "equal", "strictequal", "deepequal", "deepstrictequal",
          "equals", "expect_eq", "areequal")  # fmt: skip
_WORDS = (("true", "True"), ("false", "False"), ("null", "None"), ("nil", "None"), ("===", "=="))


_SIGNATURES = re.compile(
    r"\b(?:function|func|fn|fun|class)[ \t]{1,4}(?:\([^()\n]{0,80}\)[ \t]{0,4})?"
    r"(\w{1,80})[ \t]{0,4}[({<:]"
    r"|\b(?:const|let|var)[ \t]{1,4}(\w{1,80})[ \t]{0,4}=[ \t]{0,4}(?:async[ \t]{1,4})?"
    r"(?:function\b|\([^()\n]{0,200}\)[^=\n]{0,80}=>|\w{1,40}[ \t]{0,4}=>)"
    r"|\b(?:int|long|bool|boolean|void|double|float|char|auto|[Ss]tring|Integer|size_t|u?int\d\d_t"
    r"|[iu]\d\d|(?:std::)?(?:vector|List|map|Map|set|Set|pair|optional|Optional|unordered_map)"
    r"<[^()\n]{0,80}>)(?:\[\]|[ \t*&]){1,6}(\w{1,80})[ \t]{0,4}\("
    r"|`(\w{1,80})\([^`\n]{0,80}\)`"
)
_NO_NAMES = ("main", "if", "while", "for", "switch", "return", "exit", "Main", "printf", "print")


def signatures_of(text: str) -> frozenset[str]:
    """The functions and classes that a text names by a signature of any language."""
    found = (next(filter(None, one.groups())) for one in _SIGNATURES.finditer(text))
    return frozenset(name for name in found if name not in _NO_NAMES)


def from_calls(text: str) -> Found:
    """The tests of calls, and where they stand."""
    for found in _EXPECTED.finditer(text):
        test = next(from_statements(_body(f"{found['call']} == {found['wanted']}")), None)
        if test:
            yield [test], found.span()
    for found in _CALL_LINE.finditer(text):
        line = found.group().strip().lstrip("*- ")
        if len(line) > 20_000:
            continue
        if line.startswith(">>>"):
            after = text[found.end() + 1 : found.end() + 2000]
            wanted = after.split("\n", 1)[0].strip()
            test = _from_call(line[3:].strip(), wanted)
            span = (found.start(), found.end() + 1 + len(after.split("\n", 1)[0]))
        else:
            test, span = _from_line(line), found.span()
        yield ([test] if test else []), span


def expression(text: str) -> ast.expr | None:
    """A text as one expression of Python, `None` where it is none."""
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _from_call(call: str, wanted: str) -> ShownTest | None:
    node = expression(call)
    if isinstance(node, ast.Call) and _name(node.func) == "print" and node.args:
        node = node.args[0]
    if not isinstance(node, ast.Call) or not wanted or wanted.startswith((">>>", '"""')):
        return None
    output = expression(wanted)
    try:
        return _test(node, literal(output) if output is not None else wanted)
    except NotLiteral:
        return _test(node, wanted)


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")


def _test(call: ast.Call, output: Any) -> ShownTest | None:
    found: list[Tokens] = []
    for argument in (*call.args, *(keyword.value for keyword in call.keywords)):
        try:
            value = literal(argument)
        except NotLiteral:
            return None
        found += rows(value) if isinstance(value, str) else [tokens(value)]
    return ShownTest(tuple(found), tuple(rows(output)), _name(call.func))


def _from_line(line: str) -> ShownTest | None:
    arrow = re.match(
        r"([\w.]{1,60}\(.{0,4000}\))\s{0,4}(?:->|=>|→|#=>|# =>|returns|#)\s{0,4}(.{1,2000})", line
    )
    if arrow:
        return _from_call(arrow[1], arrow[2].strip().rstrip(".;"))
    remark = re.match(r"([\w.]{1,60}\(.{0,4000}\));?\s{0,9}//\s{0,4}(.{1,2000})", line)
    if remark:
        wanted = re.sub(r"^(?:=>|->|→|returns|should return|Output:)\s{0,4}", "", remark[2].strip())
        value = expression(_as_python(wanted.rstrip(".;")))
        plain = isinstance(value, ast.Constant | ast.List | ast.UnaryOp)
        return _from_call(remark[1], _as_python(wanted.rstrip(".;"))) if plain else None
    return next(from_statements(_body(line.split(" #")[0])), None)


def _body(line: str) -> list[ast.stmt]:
    """A line of any language as statements of Python, where it can be read so."""
    try:
        return ast.parse(_as_python(line)).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def _as_python(line: str) -> str:
    """`assert_eq!(f(2), vec![4])`, `assert.equal(f(2), true);` as Python writes them."""
    text = re.sub(
        r"\bnew \w{1,20}\[\]\{([^{}]{0,2000})\}|\bvec!\[", r"[\1", line.strip().rstrip(";")
    )
    text = re.sub(r"\bnew \w{1,20}\[\](?=\[)", "", text).replace("_eq!(", "Equal(")
    text = re.sub(r"^(?:console\.)?assert(?=\.)|^console\.assert(?=\()", "Assert", text)
    for other, ours in _WORDS:
        text = re.sub(rf"(?<![\w\"']){other}(?![\w\"'])", ours, text)
    return text


def from_statements(body: list[ast.stmt]) -> Iterator[ShownTest]:
    """The tests of assertions and calls."""
    for statement in body:
        node = statement.test if isinstance(statement, ast.Assert) else None
        if isinstance(statement, ast.Expr):
            node = statement.value
        test = _of_expression(node) if node is not None else None
        if test is not None:
            yield test


def _of_expression(node: ast.expr) -> ShownTest | None:
    """`f(x) == y`, `f(x)`, `not f(x)`, `assertEqual(f(x), y)`, `abs(f(x) - y) < e`."""
    if isinstance(node, ast.Call) and _name(node.func) == "Assert" and node.args:
        return _of_expression(node.args[0])  # `console.assert(f(2) == 4)`
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return _test(node.operand, False) if isinstance(node.operand, ast.Call) else None
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return _pair(node.left, node.comparators[0])
    if isinstance(node, ast.Call) and len(node.args) >= 2:
        name = _name(node.func).casefold()
        if name.startswith("assert") or name in _EQUAL:
            return _pair(
                *node.args[-2:] if len(node.args) == 3 and _is_handle(node) else node.args[:2]
            )
    return None


def _is_handle(call: ast.Call) -> bool:
    """`assert.Equal(t, 4, f(2))`: the first argument of Go's checks is no side."""
    return isinstance(call.args[0], ast.Name) and call.args[0].id == "t"


def _pair(left: ast.expr, right: ast.expr) -> ShownTest | None:
    if isinstance(left, ast.Call) and _name(left.func) == "abs" and left.args:
        inner = left.args[0]
        return _pair(inner.left, inner.right) if isinstance(inner, ast.BinOp) else None
    for call, other in ((left, right), (right, left)):
        while isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and not call.args:
            call = call.func.value  # `f(x).strip() == y`
        if isinstance(call, ast.Call):
            try:
                return _test(call, literal(other))
            except NotLiteral:
                continue
    return None
