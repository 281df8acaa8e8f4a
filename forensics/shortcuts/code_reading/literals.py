"""Literals of code and of prompts as tokens that can be compared, and how much
each of them tells.

1. `literal` folds what an expression holds without running it: numbers, texts,
   lists, and the few calls that only rewrite a literal.
2. `tokens` makes a row of words of any value: `[1, 2]`, `(1, 2)` and `"1 2"` are
   the same row, `2.50` and `2.5` the same word, `YES` and `Yes` too.
3. `bits` says how unlikely it is to hit on a token by chance: small numbers,
   powers of ten and words of the task tell next to nothing.
"""

import ast
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

MOST_ITEMS = 5_000
DEEPEST = 40
LONGEST_TEXT = 50_000
MOST_BITS = 40.0
MOST_TOKEN_BITS = 24.0

Tokens = tuple[str, ...]
Constants = Mapping[str, ast.expr]


class NotLiteral(Exception):
    """An expression that holds more than literals."""


def literal(node: ast.expr | None, constants: Constants | None = None) -> Any:
    """The value of an expression made of literals; raises `NotLiteral` for others."""
    if node is None:
        raise NotLiteral
    return _value(node, constants or {}, 0)


def literal_or_none(node: ast.expr | None, constants: Constants | None = None) -> Tokens | None:
    """The tokens of an expression made of literals, else `None`."""
    try:
        return tokens(literal(node, constants))
    except NotLiteral:
        return None


def _value(node: ast.expr, constants: Constants, depth: int) -> Any:
    if depth > DEEPEST:
        raise NotLiteral
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return _items(node.elts, constants, depth)
    if isinstance(node, ast.Name) and node.id in constants:
        return _value(constants[node.id], constants, depth + 5)
    if isinstance(node, ast.UnaryOp):
        return _signed(node, constants, depth)
    if isinstance(node, ast.BinOp):
        return _calculated(node, constants, depth)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(_value(part, constants, depth + 1)) for part in node.values)
    if isinstance(node, ast.FormattedValue) and node.format_spec is None:
        return _value(node.value, constants, depth + 1)
    if isinstance(node, ast.Call):
        return _called(node, constants, depth)
    raise NotLiteral


def _items(nodes: Sequence[ast.expr], constants: Constants, depth: int) -> list[Any]:
    if len(nodes) > MOST_ITEMS:
        raise NotLiteral
    found: list[Any] = []
    for node in nodes:
        if isinstance(node, ast.Starred):
            found += _value(node.value, constants, depth + 1)
        else:
            found.append(_value(node, constants, depth + 1))
    return found


def _signed(node: ast.UnaryOp, constants: Constants, depth: int) -> Any:
    value = _value(node.operand, constants, depth + 1)
    if isinstance(value, int | float) and not isinstance(value, bool):
        if isinstance(node.op, ast.USub):
            return -value
        if isinstance(node.op, ast.UAdd):
            return value
    raise NotLiteral


def _calculated(node: ast.BinOp, constants: Constants, depth: int) -> Any:
    left = _value(node.left, constants, depth + 1)
    right = _value(node.right, constants, depth + 1)
    if isinstance(node.op, ast.Add) and type(left) is type(right) and isinstance(left, str | list):
        if len(left) + len(right) <= LONGEST_TEXT:
            return left + right
    elif isinstance(node.op, ast.Mult) and isinstance(left, str | list):
        if isinstance(right, int) and 0 <= right * len(left) <= MOST_ITEMS:
            return left * right
    elif isinstance(left, int) and isinstance(right, int):
        return _number(node.op, left, right)
    raise NotLiteral


def _number(operator: ast.operator, left: int, right: int) -> int:
    small = abs(left) < 10**40 and abs(right) < 10**40
    if isinstance(operator, ast.Pow) and 0 <= right <= 60 and abs(left) <= 1000:
        return int(left**right)
    if isinstance(operator, ast.LShift) and 0 <= right <= 64 and small:
        return left << right
    if small and isinstance(operator, ast.Add):
        return left + right
    if small and isinstance(operator, ast.Sub):
        return left - right
    if small and isinstance(operator, ast.Mult):
        return left * right
    raise NotLiteral


_REWRITING = ("str", "int", "float", "list", "tuple", "set", "frozenset", "Decimal", "Fraction")


def _called(node: ast.Call, constants: Constants, depth: int) -> Any:
    """Calls that only rewrite a literal: `str(5)`, `"1 2".split()`, `" ".join(...)`."""
    if node.keywords or len(node.args) > 1:
        raise NotLiteral
    inner = node.args[0] if node.args else None
    if isinstance(node.func, ast.Name) and node.func.id in _REWRITING and inner is not None:
        value = _value(inner, constants, depth + 1)
        return str(value) if node.func.id == "str" and not isinstance(value, list) else value
    if isinstance(node.func, ast.Attribute):
        value = _value(node.func.value, constants, depth + 1)
        if isinstance(value, str) and node.func.attr == "join" and inner is not None:
            return value.join(tokens(_value(inner, constants, depth + 1)))[:LONGEST_TEXT]
        if isinstance(value, str) and node.func.attr in ("split", "splitlines", "strip", "rstrip"):
            return value
    raise NotLiteral


# -- tokens ----------------------------------------------------------------------------


def tokens(value: Any) -> Tokens:
    """Any value as a row of words."""
    found: list[str] = []
    waiting: list[tuple[Any, int]] = [(value, 0)]
    while waiting and len(found) < MOST_ITEMS:
        one, depth = waiting.pop()
        if isinstance(one, list | tuple | set | frozenset) and depth < DEEPEST:
            waiting += [(part, depth + 1) for part in reversed(list(one)[:MOST_ITEMS])]
        elif isinstance(one, dict) and depth < DEEPEST:
            for key, part in reversed(list(one.items())[:MOST_ITEMS]):
                waiting += [(part, depth + 1), (key, depth + 1)]
        elif isinstance(one, str):
            found += [word(part) for part in _parts(one[:LONGEST_TEXT])]
        elif isinstance(one, bytes):
            found += [word(part) for part in one[:LONGEST_TEXT].decode("latin-1").split()]
        else:
            found.append(word(_written(one)))
    return tuple(found[:MOST_ITEMS])


_DECIMAL = re.compile(r"[+-]?(?:\d+\.\d*|\.\d+)")
_LISTED = str.maketrans(",;[]()", "      ")


def _parts(text: str) -> list[str]:
    """The words of a text; `"(8, 4)"` and `"8,4"` are two numbers."""
    if "," in text and any(letter.isdecimal() for letter in text):
        text = text.translate(_LISTED)
    return text.split()


def _written(value: Any) -> str:
    try:
        return str(value)
    except ValueError:  # a number of more digits than Python writes
        return hex(value)


def word(text: str) -> str:
    """One word, as it is compared: without case, and a decimal number in one form."""
    text = text[:2000]
    if "." in text and _DECIMAL.fullmatch(text):
        number = float(text)
        return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)
    return text.casefold()


# -- how much a token tells ------------------------------------------------------------


def bits(token: str, known: Collection[str] = ()) -> float:
    """How unlikely it is to hit on `token` by chance; words of the task (`known`) say little."""
    if token in known or token in ("true", "false", "none", "yes", "no", "0", "1", "-1"):
        return 1.0
    digits = token.removeprefix("-")
    if digits.isdecimal() and (digits[0] != "0" or digits == "0"):
        size = math.log2(int(digits[:18]) + 1) + 3.3 * max(0, len(digits) - 18)
        size += token != digits
        return min(size, 4.0) if digits.strip("0") in ("1", "2", "5") else min(size, 24.0)
    if digits and not set(digits) - set("01"):
        return min(0.9 * len(digits), MOST_TOKEN_BITS)
    if digits.isalpha() and len(set(digits)) > 2:
        return min(1.5 * len(token), 12.0)
    return min(2.0 * len(token), MOST_TOKEN_BITS)


def row_bits(row: Iterable[str], known: Collection[str] = ()) -> float:
    """How much a row tells; what goes on as it began (`1 2 3 4`, `0 0 0`) tells little."""
    total = 0.0
    before: list[str] = []
    for token in row:
        total += 0.4 if _goes_on(before, token) else bits(token, known)
        before = [*before[-1:], token]
        if total >= MOST_BITS:
            return MOST_BITS
    return total


def flat(rows: Iterable[Tokens]) -> Tokens:
    """The tokens of rows, one after the other."""
    return tuple(chain.from_iterable(rows))


def singles_out(row: Tokens) -> bool:
    """Whether a text that an input has to hold is a stretch of it: three words with numbers."""
    return len(row) > 2 and any(letter.isdigit() for token in row for letter in token)


def _goes_on(before: list[str], token: str) -> bool:
    if before and before[-1] == token:
        return True
    try:
        return len(before) == 2 and int(token) - int(before[1]) == int(before[1]) - int(before[0])
    except ValueError:
        return False
