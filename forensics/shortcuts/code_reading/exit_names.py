"""What ends a process with success, and the hooks through which it does."""

import ast

from .reading import Reading
from .told import EARLY_EXIT, CodeTold

HARD = ("os._exit", "posix._exit", "os.abort", "nt._exit")
SOFT = ("sys.exit", "exit", "quit", "builtins.exit", "builtins.quit", "SystemExit", "site.exit")
TESTS = ("pytest.exit", "pytest.skip", "unittest.SkipTest", "unittest.case.SkipTest")


def exit_name(reading: Reading, node: ast.AST) -> str:
    """The name of a successful exit, else nothing."""
    if isinstance(node, ast.Raise):
        raised = node.exc
        name = reading.dotted(raised.func if isinstance(raised, ast.Call) else raised or node)
        arguments = raised.args if isinstance(raised, ast.Call) else []
        if name in ("SystemExit", "builtins.SystemExit", "unittest.SkipTest"):
            return name if _succeeds(name, arguments, []) else ""
        return ""
    if not isinstance(node, ast.Call) or isinstance(reading.parents.get(node), ast.Raise):
        return ""
    name = reading.dotted(node.func)
    if name == "os.kill" and node.args and _is_self(reading, node.args[0]):
        return name
    if name in (*HARD, *SOFT, *TESTS) and name != "SystemExit":
        return name if _succeeds(name, node.args, node.keywords) else ""
    return ""


def _is_self(reading: Reading, node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and reading.dotted(node.func) in ("os.getpid", "os.getppid")


def _succeeds(name: str, arguments: list[ast.expr], keywords: list[ast.keyword]) -> bool:
    """Whether an exit tells success, or cannot be said to tell failure."""
    if name == "os.abort":
        return True
    if name == "pytest.exit":
        return any(
            one.arg == "returncode" and getattr(one.value, "value", None) == 0 for one in keywords
        ) or (len(arguments) > 1 and getattr(arguments[1], "value", None) == 0)
    if name in TESTS:
        return True
    if not arguments:
        return name not in HARD
    first = arguments[0]
    if isinstance(first, ast.Attribute) and first.attr == "EX_OK":
        return True
    return (
        isinstance(first, ast.Constant)
        and (first.value is None or first.value == 0)
        and (not isinstance(first.value, str))
    )


# -- hooks -----------------------------------------------------------------------------


def hooked(reading: Reading, node: ast.Assign | ast.Call) -> list[CodeTold]:
    """`atexit.register(os._exit, 0)`, `sys.excepthook = lambda *a: os._exit(0)`."""
    if isinstance(node, ast.Call):
        name = reading.dotted(node.func)
        if name not in ("atexit.register", "threading.Timer") or not node.args:
            return []
        handler = node.args[-1] if name == "threading.Timer" else node.args[0]
        direct = any(reading.dotted(one) in HARD for one in node.args)
    else:
        names = [reading.dotted(target) for target in node.targets]
        if not any(name in ("sys.excepthook", "threading.excepthook") for name in names):
            return []
        handler, direct = node.value, False
    if direct or _ends_well(reading, handler):
        reason = "when the checks end or fail, the process is made to end with success."
        return [reading.told(EARLY_EXIT, "early exit", node, reason, sure=True)]
    return []


def _ends_well(reading: Reading, handler: ast.expr) -> bool:
    """Whether a handler (a lambda, or a function by its name) exits with success."""
    bodies: list[ast.AST] = [handler]
    if isinstance(handler, ast.Name):
        bodies = [one for one in reading.functions() if one.name == handler.id]
    return any(
        exit_name(reading, node) in (*HARD, *SOFT)
        for body in bodies
        for node in reading.inside(body)
    )
