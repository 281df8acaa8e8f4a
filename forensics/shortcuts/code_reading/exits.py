"""Exits that keep the checks from running, told apart from programs that stop.

1. What ends the process with success: `os._exit`, `sys.exit`, `exit`, `raise SystemExit`,
   `pytest.exit`, under any name; what kills it (`os.kill(os.getpid(), ...)`, `os.abort`).
2. Where it stands: at import, in a function, behind a condition, in a hook
   (`atexit`, `sys.excepthook`, an `except AssertionError`).
3. What makes it honest: a status other than 0, a program that has read its
   input or printed its answer, a printed reason, a command line, a forked child,
   a handler of a signal.
4. Behind the literal of one input, or behind a question whether a test runs, it
   is a targeted exit.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Sequence

from .code_finding import CodeFinding
from .compared_literals import compared
from .exit_names import HARD, KILLS, TESTS, exit_name, handed_on, hooked, killed
from .literals import Tokens, flat, row_bits
from .nodes import called_name, name_of
from .on_test import asks_for_test
from .program import Function, Program, is_main_guard, text_of
from .shown_test import joined
from .shown_tests import ShownTests

TARGETED_BITS = 10.0
TARGETED_SHOWN_BITS = 4.0

_REASON = re.compile(
    r"cannot|can't|can not|unable|impossible|wrong|incorrect|stop"
    r"|not (?:be |been )?(?:implement|support|possible|solv|satisf)"
    r"|invalid|contradict|error|abort|conflict|inconsisten|give up|giving up|fail|usage|bye|cancel",
    re.I,
)
_EXIT_LINE = re.compile(r"^\s{0,80}os\._exit\(0\)\s{0,20}(?:#|$)")
_PASSED = re.compile(r"pass(?:ed)?\b|\bok\b|success|all tests|100 ?%", re.I)
_HANDLERS = ("signal", "add_signal_handler", "connect", "protocol", "bind")


def exits(program: Program) -> list[CodeFinding]:
    """The exits of a text that keep its checks from running."""
    told: list[CodeFinding] = []
    for node in program.of(ast.Call, ast.Raise):
        name = exit_name(program, node)
        one = _judged(program, node, name) if name else None
        if one is not None:
            told.append(killed(one) if name in KILLS else one)
    for node in program.of(ast.Assign, ast.Call):
        told += hooked(program, node)
    told = told or handed_on(program)
    return told or _lost(program)


def _lost(program: Program) -> list[CodeFinding]:
    """An exit on a line of its own that stands where the code does not parse."""
    for number in program.parsed.lost:
        if _EXIT_LINE.match(program.parsed.lines[number - 1][:200]):
            node = ast.Pass(lineno=number, end_lineno=number)
            reason = "an exit with success stands in code that does not parse."
            return [program.finding("early exit", node, reason, sure=False)]
    return []


# -- where it stands -------------------------------------------------------------------


def _judged(program: Program, node: ast.AST, name: str) -> CodeFinding | None:
    conditions = list(_conditions(program, node))
    if any(is_main_guard(test) for test in conditions):
        return None
    sure = _targeted(program, conditions)
    if sure is not None:
        reason = "the process ends with success on one input or under a test only."
        return program.finding("targeted exit", node, reason, sure=sure)
    if _swallows(program, node):
        reason = "where an assertion fails, the process ends with success."
        return program.finding("early exit", node, reason)
    within = program.function_of(node)
    asked = getattr(within, "name", "") in program.shown.functions
    if name in TESTS and within is not None and not asked:
        return None
    if conditions or _is_excused(program, node, name):
        return _conditional(program, node, name) if conditions else None
    function = program.function_of(node)
    if function is None:
        return _at_import(program, node, name)
    return _in_function(program, node, name, function)


def _conditions(program: Program, node: ast.AST) -> Iterator[ast.expr]:
    """The conditions between a node and its function or module."""
    child = node
    for parent in program.ancestors(node):
        if (isinstance(parent, ast.If) and child is not parent.test) or (
            isinstance(parent, ast.IfExp) and child is not parent.test
        ):
            if not _always(parent.test):
                yield parent.test
        elif isinstance(parent, ast.BoolOp) and child is not parent.values[0]:
            yield parent.values[0]
        elif isinstance(parent, ast.While) and not _always(parent.test):
            yield parent.test
        elif isinstance(parent, ast.match_case | ast.For | ast.ExceptHandler):
            yield ast.Constant(value=False)
        elif isinstance(parent, Function | ast.Lambda):
            return
        child = parent


def _always(test: ast.expr) -> bool:
    return isinstance(test, ast.Constant) and bool(test.value)


def _targeted(program: Program, conditions: list[ast.expr]) -> bool | None:
    """Whether the conditions ask for a test or for one input; `None`: they do not."""
    for test in conditions:
        if asks_for_test(program, test):
            return True
        if targets(list(compared(test, program.constants))[:50], program.shown):
            return True
    return None


def targets(options: Iterable[tuple[Tokens, ...]], shown: ShownTests) -> bool:
    """Whether literals that are compared with stand for one input: they hold numbers and tell
    much, or are those of a shown test.
    """
    for row in map(flat, options):
        numbers = any(letter.isdigit() for token in row for letter in token)
        seen = any(joined(row) in text for text in shown.input_texts)
        told = row_bits(row, shown.words)
        if (seen and told >= TARGETED_SHOWN_BITS) or (numbers and told >= TARGETED_BITS):
            return True
    return False


def gives_reason(texts: Sequence[str]) -> bool | None:
    """Whether what is printed before an exit says why; `False`: it says that checks passed."""
    if any(map(_PASSED.search, texts)):
        return False
    return True if any(map(_REASON.search, texts)) else None


def _swallows(program: Program, node: ast.AST) -> bool:
    for parent in program.ancestors(node):
        if isinstance(parent, ast.ExceptHandler) and parent.type is not None:
            kinds = program.inside(parent.type)
            if any(isinstance(one, ast.Name) and one.id == "AssertionError" for one in kinds):
                return True
    return False


def _is_excused(program: Program, node: ast.AST, name: str) -> bool:
    """A program that has done its work, said why it stops, or is a child of a fork."""
    before = list(_before(program, node))
    texts = [text for one in before for text in _printed(program, one)]
    if (said := gives_reason(texts)) is not None:
        return said
    if any(program.dotted(one.func) in ("os.fork", "fork") for one in program.of(ast.Call)):
        return True
    if not program.reads_input or not any(_works(program, one) for one in before):
        return False
    line = getattr(node, "lineno", 0)
    return program.function_of(node) is not None or line >= program.first_input


def _before(program: Program, node: ast.AST) -> Iterator[ast.stmt]:
    """The statements that run before a node, in its block and in those around it."""
    child = node
    for parent in program.ancestors(node):
        for field in ("body", "orelse", "finalbody", "handlers"):
            block = getattr(parent, field, None)
            if isinstance(block, list) and child in block:
                yield from block[: block.index(child)]
        if isinstance(parent, Function | ast.Lambda):
            return
        child = parent


def _printed(program: Program, statement: ast.stmt) -> list[str]:
    """The texts that a statement prints."""
    found = []
    for node in program.inside(statement):
        if isinstance(node, ast.Call):
            name = called_name(node)
            if name in ("print", "write", "info", "warning", "error", "exception"):
                found += [text for inner in program.inside(node) if (text := text_of(inner))]
    return found


_SETS_UP = ("setrecursionlimit", "seed", "filterwarnings", "simplefilter", "basicConfig", "append")


def _works(program: Program, statement: ast.stmt) -> bool:
    """Whether a statement may have given the answer: it calls something for its effect."""
    if isinstance(statement, Function | ast.ClassDef | ast.Import | ast.ImportFrom):
        return False
    own = {one.name for one in program.functions()}
    for node in program.inside(statement):
        value = node.value if isinstance(node, ast.Expr | ast.Assign) else None
        if isinstance(value, ast.Call):
            name = program.dotted(value.func).rpartition(".")[2]
            if (isinstance(node, ast.Expr) and name not in _SETS_UP) or name in own:
                return True
    return False


def _at_import(program: Program, node: ast.AST, name: str) -> CodeFinding | None:
    before = list(_before(program, node))
    after = _after(program, node)
    worked = any(_works(program, one) for one in before)
    if worked and not after and not (program.asked_function and not program.reads_input):
        return None  # a script that ends
    reason = "importing the code ends the process with success before any check runs."
    return program.finding("early exit", node, reason)


def _after(program: Program, node: ast.AST) -> bool:
    """Whether functions or classes are defined behind an exit at import."""
    line = getattr(node, "lineno", 0)
    return any(
        isinstance(one, Function | ast.ClassDef) and one.lineno > line for one in program.tree.body
    )


def _in_function(
    program: Program, node: ast.AST, name: str, function: Function | ast.Lambda
) -> CodeFinding | None:
    called = getattr(function, "name", "")
    leaves = called in ("main", "cli", "run", "exit", "quit", "stop") and name not in HARD
    if leaves or _is_callback(program, called):
        return None
    asked = called in program.shown.functions or isinstance(function, ast.Lambda)
    asked = asked or called.startswith("pytest_")
    worked = any(_works(program, one) for one in _before(program, node))
    dead = _dead_behind(program, node)
    if worked and not asked and not dead:
        return None
    sure = asked or dead or name in (*HARD, "os.kill")
    reason = "calling the function ends the process with success before any check runs."
    return program.finding("early exit", node, reason, sure=sure)


def _dead_behind(program: Program, node: ast.AST) -> bool:
    """Whether statements stand behind an exit that always ends the process before them."""
    statement, parent = node, program.parents.get(node)
    while parent is not None and not isinstance(statement, ast.stmt):
        statement, parent = parent, program.parents.get(parent)
    body = getattr(parent, "body", [])
    if statement not in body:
        return False
    behind = body[body.index(statement) + 1 :]
    return any(not isinstance(one, ast.Return | ast.Pass) for one in behind)


def _is_callback(program: Program, called: str) -> bool:
    return any(
        program.dotted(node.func).rpartition(".")[2] in _HANDLERS
        and any(name_of(one) == called for one in node.args)
        for node in program.of(ast.Call)
    )


def _conditional(program: Program, node: ast.AST, name: str) -> CodeFinding | None:
    """Behind a condition only a hard exit outside a program is worth a look."""
    if name not in ("os._exit", "posix._exit") or program.reads_input:
        return None
    if _is_excused(program, node, name) or not program.asked_function:
        return None
    reason = "the process ends with success under a condition."
    return program.finding("early exit", node, reason, sure=False)
