"""What ends a process with success or kills it, and the hooks and timers through which it does."""

import ast
import re
from dataclasses import replace

from .code_finding import CodeFinding
from .nodes import name_of
from .program import Program, folded

_EXIT = "early exit"
HARD = ("os._exit", "posix._exit", "os.abort", "nt._exit")
SOFT = ("sys.exit", "exit", "quit", "builtins.exit", "builtins.quit", "SystemExit", "site.exit")
KILLS = ("os.kill", "os.abort")
TESTS = ("pytest.exit", "pytest.skip", "unittest.SkipTest", "unittest.case.SkipTest")


def killed(told: CodeFinding) -> CodeFinding:
    """What is told of a process that is killed, which is no success."""
    reason = told.reason.replace("ends the process with success", "kills the process")
    return replace(told, reason=reason.replace("ends with success", "is killed"))


def exit_name(program: Program, node: ast.AST) -> str:
    """The name of a successful exit, else nothing."""
    if isinstance(node, ast.Raise):
        raised = node.exc
        name = program.dotted(raised.func if isinstance(raised, ast.Call) else raised or node)
        arguments = raised.args if isinstance(raised, ast.Call) else []
        name = "SystemExit" if _stands_for_exit(program, raised) else name
        if name in ("SystemExit", "builtins.SystemExit", "unittest.SkipTest"):
            return name if _succeeds(name, arguments, []) else ""
        return ""
    if not isinstance(node, ast.Call) or isinstance(program.parents.get(node), ast.Raise):
        return ""
    name = program.dotted(node.func)
    if name == "os.kill" and node.args and _is_self(program, node.args[0]):
        return name
    if name in (*HARD, *SOFT, *TESTS) and name != "SystemExit":
        return name if _succeeds(name, node.args, node.keywords) else ""
    return ""


def _stands_for_exit(program: Program, raised: ast.AST | None) -> bool:
    """`E = SystemExit`, and then `raise E(0)`."""
    called = raised.func if isinstance(raised, ast.Call) else raised
    value = program.constants.get(called.id) if isinstance(called, ast.Name) else None
    return name_of(value) == "SystemExit"


def _is_self(program: Program, node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and program.dotted(node.func) in ("os.getpid", "os.getppid")


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


def hooked(program: Program, node: ast.Assign | ast.Call) -> list[CodeFinding]:
    """`atexit.register(os._exit, 0)`, `sys.excepthook = lambda *a: os._exit(0)`."""
    if isinstance(node, ast.Call):
        name = program.dotted(node.func)
        if name == "signal.signal":
            return _timed(program, node)
        if name not in ("atexit.register", "threading.Timer") or not node.args:
            return []
        handler = node.args[-1] if name == "threading.Timer" else node.args[0]
        direct = any(program.dotted(one) in HARD for one in node.args)
    else:
        names = [program.dotted(target) for target in node.targets]
        if not any(name in ("sys.excepthook", "threading.excepthook") for name in names):
            return []
        handler, direct = node.value, False
    if direct or _ends_well(program, handler):
        reason = "when the checks end or fail, the process is made to end with success."
        return [program.finding(_EXIT, node, reason)]
    return []


_ALARMS = ("signal.SIGALRM", "signal.SIGVTALRM", "signal.SIGPROF")


def _timed(program: Program, node: ast.Call) -> list[CodeFinding]:
    """`signal.signal(signal.SIGALRM, leave)` beside a timer, in no program that stops in time."""
    alarm = len(node.args) == 2 and program.dotted(node.args[0]) in _ALARMS
    if (
        not alarm
        or program.reads_input
        or not any(_sets_timer(program, one) for one in program.of(ast.Call))
    ):
        return []
    if not _ends_well(program, node.args[1]):
        return []
    reason = "a timer ends the process with success while the checks run."
    return [program.finding(_EXIT, node, reason)]


def _sets_timer(program: Program, node: ast.Call) -> bool:
    """Whether a call sets a timer (0 takes one back)."""
    at = {"signal.alarm": 0, "signal.setitimer": 1}.get(program.dotted(node.func), -1)
    return 0 <= at < len(node.args) and getattr(node.args[at], "value", 1) != 0


def _kills_later(program: Program, node: ast.Call) -> bool:
    """Whether a timer is set that nothing handles, which kills the process."""
    if not _sets_timer(program, node) or program.reads_input or not program.asked_function:
        return False
    handled = (one for one in program.of(ast.Call) if program.dotted(one.func) == "signal.signal")
    return not any(
        len(one.args) == 2 and program.dotted(one.args[1]) != "signal.SIG_DFL" for one in handled
    )


def _ends_well(program: Program, handler: ast.expr) -> bool:
    """Whether a handler (a lambda, or a function by its name) exits with success."""
    bodies: list[ast.AST] = [handler]
    if isinstance(handler, ast.Name):
        bodies = [one for one in program.functions() if one.name == handler.id]
    return any(
        exit_name(program, node) in (*HARD, *SOFT)
        for body in bodies
        for node in program.inside(body)
    )


_ENDS = re.compile(
    r"^(?:signal\.raise_signal|os\.(?:killpg|execl?v?p?e?)|faulthandler\._sig\w{1,10}"
    r"|faulthandler\._stack_overflow|psutil\.Process(?:\.\w{1,10})?)$"
)
_KILLS = re.compile(r"\bkill\b|\bpkill\b")
_SHELLS = ("os.system", "os.popen", "subprocess.run", "subprocess.call", "subprocess.Popen",
           "subprocess.check_call")  # fmt: skip


def handed_on(program: Program) -> list[CodeFinding]:
    """An exit that is not called but passed on (`map(os._exit, [0])`), a library's own
    (`ctypes`), a process that kills itself or becomes another: a reader should look.
    """
    if any(program.dotted(one.func) in ("os.fork", "fork") for one in program.of(ast.Call)):
        return []
    for node in program.of(ast.Attribute, ast.Name):
        above = program.parents.get(node)
        called = isinstance(above, ast.Call) and above.func is node
        if not called and type(node.ctx) is ast.Load and program.dotted(node) in HARD:
            return [
                program.finding(_EXIT, node, "the exit of the process is passed on.", sure=False)
            ]
    for node in program.of(ast.Call):
        if _kills_later(program, node):
            return [
                program.finding(
                    _EXIT,
                    node,
                    "a timer kills the process, maybe while the checks run.",
                    sure=False,
                )
            ]
        if _ends_otherwise(program, node):
            return [
                program.finding(
                    _EXIT, node, "the process may be made to end before any check runs.", sure=False
                )
            ]
    return []


def _ends_otherwise(program: Program, node: ast.Call) -> bool:
    name = program.dotted(node.func)
    if _ENDS.match(name):
        if name.startswith("os.exec"):  # another program by its name, not one that was asked for
            return bool(node.args) and folded(node.args[0]) is not None
        if name.startswith("psutil.") or name == "os.killpg":
            group = node.args[0] if node.args else None
            return getattr(group, "value", None) == 0 or _mentions_self(program, node)
        return True
    last = getattr(node.func, "attr", "")
    loaded = getattr(node.func, "value", None)
    if last in ("exit", "_exit", "abort", "raise_", "kill") and isinstance(loaded, ast.Call):
        return program.dotted(loaded.func).startswith(("ctypes.", "psutil."))
    if last == "throw":
        return any(name_of(one) == "SystemExit" for one in node.args)
    if name in _SHELLS:
        inside = program.inside(node)
        kills = any(_KILLS.search(folded(one) or "") for one in inside)
        parent = any("$PPID" in (folded(one) or "") for one in inside)
        return kills and (parent or _mentions_self(program, node))
    if name in ("operator.attrgetter", "operator.methodcaller") and node.args:
        return folded(node.args[0]) in ("_exit", "abort")
    if name == "getattr" and len(node.args) >= 2 and folded(node.args[1]) is None:
        above = program.parents.get(node)
        called = isinstance(above, ast.Call) and above.func is node
        return called and program.dotted(node.args[0]) in ("os", "sys", "posix", "builtins")
    return False


def _mentions_self(program: Program, node: ast.AST) -> bool:
    inside = (one for one in program.inside(node) if isinstance(one, ast.Call))
    return any(_is_self(program, one) for one in inside)
