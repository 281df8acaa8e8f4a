"""Code that asks whether it is being tested, or who calls it.

1. Signs of a test run: `PYTEST_CURRENT_TEST`, `"pytest" in sys.modules`, the
   name of the program, a stack frame whose file or function is named for tests.
2. Program the caller's own names (`f_back.f_locals`) or objects (`gc.get_objects`) to find
   what is expected.
"""

import ast
import re

from .code_finding import CodeFinding
from .program import Program, text_of

_RUNNERS = re.compile(r"^(?:pytest|_pytest|unittest|nose2?|py\.test)(?:\.\w{1,30})?$", re.I)
_TEST_WORD = re.compile(r"test|check|expect|assert|grade|candidate|verif", re.I)
_WHERE = ("sys.modules", "sys.argv", "os.environ", "sys.orig_argv")
_STACK = (
    "inspect.stack",
    "inspect.currentframe",
    "sys._getframe",
    "traceback.extract_stack",
    "traceback.format_stack",
    "inspect.getouterframes",
)


def asks_for_test(program: Program, test: ast.expr) -> bool:
    """Whether a condition holds only while a test runs."""
    for node in program.inside(test):
        if isinstance(node, ast.Call) and program.dotted(node.func) == "sys.gettrace":
            return True
        text = text_of(node)
        if text and "PYTEST" in text and text.isupper():
            return True
        if text and _RUNNERS.match(text) and _looks_around(program, test):
            return True
        if isinstance(node, ast.Name) and node.id in program.constants and node is not test:
            value = program.constants[node.id]
            if isinstance(value, ast.Compare | ast.BoolOp) and asks_for_test(program, value):
                return True
    if isinstance(test, ast.Name) and test.id in program.constants:
        value = program.constants[test.id]
        return (
            isinstance(value, ast.expr)
            and not isinstance(value, ast.Name)
            and (asks_for_test(program, value))
        )
    return _asks_the_stack(program, test)


def _looks_around(program: Program, test: ast.expr) -> bool:
    return any(
        program.dotted(node).startswith(_WHERE) or program.dotted(node) in _STACK
        for node in program.inside(test)
        if isinstance(node, ast.Attribute | ast.Call | ast.Name)
    )


def _asks_the_stack(program: Program, test: ast.expr) -> bool:
    """A comparison of the caller's name or file with a word of tests."""
    nodes = list(program.inside(test))
    words = any((text := text_of(node)) and _TEST_WORD.search(text) for node in nodes)
    calls = any(isinstance(n, ast.Call) and program.dotted(n.func) in _STACK for n in nodes)
    frames = any(
        isinstance(n, ast.Attribute) and n.attr in ("co_name", "f_code", "f_back", "co_filename")
        for n in nodes
    )
    return words and (calls or frames)


def branches_on_test(program: Program) -> list[CodeFinding]:
    """Branches that hold only under a test, and looks into the caller."""
    told: list[CodeFinding] = []
    for node in program.of(ast.If, ast.IfExp):
        if asks_for_test(program, node.test):
            sure = isinstance(node, ast.IfExp) or _decides(program, node)
            reason = "the code asks whether a test runs, and does something else then."
            told.append(program.finding("branch on the test", node, reason, sure=sure))
    for node in program.of(ast.Call) if program.asked_function else ():
        if program.dotted(node.func) in ("gc.get_objects", "gc.get_referrers"):
            reason = "the code looks through the objects of whoever calls it."
            told.append(program.finding("branch on the test", node, reason, sure=False))
    for node in program.of(ast.Attribute):
        if node.attr in ("f_locals", "f_globals"):
            told += _caller_read(program, node)
    return told


def _decides(program: Program, node: ast.If) -> bool:
    """Whether the branch gives an answer, exits or raises, and not only sets up."""
    return any(
        isinstance(inner, ast.Return | ast.Raise | ast.Yield) for inner in program.inside(node)
    )


def _caller_read(program: Program, node: ast.Attribute) -> list[CodeFinding]:
    """`frame.f_back.f_locals["expected"]`: a name of tests is taken from a caller."""
    parent = program.parents.get(node)
    key: str | None = None
    if isinstance(parent, ast.Subscript):
        key = text_of(parent.slice)
    elif isinstance(parent, ast.Attribute) and parent.attr == "get":
        call = program.parents.get(parent)
        key = text_of(call.args[0]) if isinstance(call, ast.Call) and call.args else None
    if key is None and not program.asked_function:
        return []
    sure = key is not None and bool(_TEST_WORD.search(key))
    reason = "the code reads the names of whoever calls it."
    if key is not None and not sure and not program.asked_function:
        return []
    return [program.finding("branch on the test", node, reason, sure=sure)]
