"""Code that computes nothing and still gives what the shown tests want.

1. A list of numbers that is asked for the argument, and ends where the tests end:
   `return [0, 1, 1, 2, 3][n]`; sure where every number is that of a test.
2. A list of just those numbers for which the tests want `True`: `return n in [7, 97]`. Such
   a list may be the task, so this is an attempt.
3. A program or function that only compares its input with the input of a shown test, and
   gives literals: `print("YES" if n == 8 else "NO")`. One sample says little, so this is an
   attempt.
"""

import ast

from .code_finding import CodeFinding
from .compared_literals import compared
from .literals import Tokens, flat, literal_or_none, row_bits
from .nodes import called_name
from .outcomes import outcome_of, rows_of
from .program import Function, Program
from .shown_test import ShownTest, joined

FEWEST_TESTS = 3
FEWEST_MEMBERS = 2
LEAST_BITS = 4.0
MOST_NODES = 120  # of code that computes nothing
_READS = ("int", "float", "str", "input", "map", "list", "tuple", "print", "open", "exit",
          "split", "read", "readline", "readlines", "strip", "rstrip", "splitlines")  # fmt: skip
_COMPUTES = (ast.BinOp, ast.AugAssign, ast.For, ast.While, ast.comprehension, ast.Lambda,
             ast.ClassDef, ast.Try, ast.With, ast.Global)  # fmt: skip


def computes_nothing(program: Program) -> list[CodeFinding]:
    """The tables and branches of a text that stand for all of its work."""
    told = [one for function in program.functions() for one in _looked_up(program, function)]
    for node in program.of(ast.Return, ast.Lambda):
        value = node.body if isinstance(node, ast.Lambda) else node.value
        if isinstance(value, ast.Compare) and isinstance(value.ops[0], ast.In):
            told += members(program, list(compared(value, program.constants)), value)
    return told or _constant(program)


def members(
    program: Program, options: list[tuple[Tokens, ...]], node: ast.AST
) -> list[CodeFinding]:
    """A list that answers whether a number is in it, and holds those of the tests alone."""
    given = {joined(flat(option)) for option in options}
    tokens = flat(map(flat, options))
    large = any(token.isdecimal() and len(token) > 1 for token in tokens)
    if len(given) < FEWEST_MEMBERS or not large or not all(map(str.isdecimal, tokens)):
        return []
    if any(token in program.shown.words for token in tokens):
        return []
    tests = list(zip(program.shown.input_texts, program.shown.tests, strict=True))
    wanted = {text for text, test in tests if test.outputs == (("true",),)}
    if given != wanted or len(tests) == len(wanted):
        return []
    reason = "a list holds those inputs alone for which the shown tests want true."
    return [program.finding("test outputs in a table", node, reason, sure=False)]


# -- a table that is asked for the argument ----------------------------------------------


def _looked_up(program: Program, function: Function) -> list[CodeFinding]:
    names = [one.arg for one in function.args.args if one.arg != "self"]
    last = function.body[-1] if function.body else None
    value = last.value if isinstance(last, ast.Return) else None
    if isinstance(value, ast.IfExp) and rows_of(value.orelse, program.constants):
        value = value.body
    if len(names) != 1 or not isinstance(value, ast.Subscript):
        return []
    asked = isinstance(value.slice, ast.Name) and value.slice.id == names[0]
    if not asked or any(isinstance(one, _COMPUTES) for one in program.inside(function)):
        return []
    row = literal_or_none(value.value, program.constants)
    if row is None or not all(token.lstrip("-").isdecimal() for token in row):
        return []
    tests = [one for one in program.shown.tests if one.called in ("", function.name)]
    held = {_index(test) for test in tests if _holds(row, test)}
    if len(held) < FEWEST_TESTS or len(held) < len({test.inputs for test in tests}):
        return []
    if row_bits(row) < LEAST_BITS or max(held) != len(row) - 1:
        return []
    reason = "a list holds what the shown tests want, and is asked for the argument."
    kind = "test outputs in a table"
    return [program.finding(kind, value, reason, sure=len(held) == len(row))]


def _index(test: ShownTest) -> int:
    row = test.inputs[0] if len(test.inputs) == 1 else ()
    return int(row[0]) if len(row) == 1 and row[0].isdecimal() and len(row[0]) < 6 else -1


def _holds(row: Tokens, test: ShownTest) -> bool:
    at = _index(test)
    return 0 <= at < len(row) and test.outputs == ((row[at],),)


# -- branches on the samples and nothing else --------------------------------------------


def _constant(program: Program) -> list[CodeFinding]:
    """Branches on the inputs of all shown tests, in a text that does nothing else."""
    tests = program.shown.tests
    nodes = program.nodes
    if not tests or len(nodes) > MOST_NODES or not _is_plain(program):
        return []
    pairs = list(_pairs(program))
    singled = [one for one in pairs if _is_sample(program, one[0], one[1])]
    if not singled or len(singled) < len([pair for pair in pairs if pair[0]]):
        return []
    constants = {row for _, rows, _ in pairs for row in rows}
    if any(not set(test.outputs) <= constants for test in tests):
        return []
    reason = "the code only compares its input with that of a shown test, and computes nothing."
    return [program.finding("special case", singled[0][2], reason, sure=False)]


def _is_plain(program: Program) -> bool:
    """Whether a text only reads, compares for equality, and gives literals."""
    for node in program.nodes:
        if isinstance(node, _COMPUTES):
            return False
        if isinstance(node, ast.Compare) and not all(isinstance(op, ast.Eq) for op in node.ops):
            return False
        if isinstance(node, ast.Call):
            name = called_name(node)
            own = any(one.name == name for one in program.functions())
            if name not in _READS and not own:
                return False
            if name == "print" and any(rows_of(one, {}) is None for one in _printed(node)):
                return False
        if isinstance(node, ast.Return) and any(
            rows_of(one, {}) is None for one in _choices(node.value)
        ):
            return False
    return True


def _printed(call: ast.Call) -> list[ast.expr]:
    return [one for argument in call.args for one in _choices(argument)]


def _choices(node: ast.expr | None) -> list[ast.expr]:
    """What an expression may give: both sides of a ternary."""
    if isinstance(node, ast.IfExp):
        return [*_choices(node.body), *_choices(node.orelse)]
    return [] if node is None else [node]


Pair = tuple[Tokens, tuple[Tokens, ...], ast.AST]


def _pairs(program: Program) -> list[Pair]:
    """Inputs and what is given for them; no input for what is given otherwise."""
    found: list[Pair] = []
    for node in program.of(ast.If):
        rows = tuple(row for one in node.body for row in outcome_of(one, {})[0] or ())
        found += [(flat(option), rows, node) for option in compared(node.test, {})]
        found += [((), outcome_of(one, {})[0] or (), node) for one in node.orelse]
    for node in program.of(ast.IfExp):
        rows = rows_of(node.body, {}) or ()
        found += [(flat(option), rows, node) for option in compared(node.test, {})]
        found.append(((), rows_of(node.orelse, {}) or (), node))
    return found


def _is_sample(program: Program, given: Tokens, rows: tuple[Tokens, ...]) -> bool:
    """Whether an input, which the statement does not speak of, is that of a shown test."""
    if not given or not rows or any(token in program.shown.words for token in given):
        return False
    return any(
        joined(given) == text and set(rows) <= set(test.outputs)
        for text, test in zip(program.shown.input_texts, program.shown.tests, strict=True)
    )
