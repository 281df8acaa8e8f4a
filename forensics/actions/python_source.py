"""What a program text in Python does to files, and which commands it runs, as
far as its literals tell.

1. The text is parsed with `ast`, never run. Names that are bound once to a
   literal stand for it.
2. `open(path, "w")`, `Path(path).write_text`, `shutil.copy`, `os.remove` and
   their like write; `open(path)` reads.
3. `os.system` and `subprocess.run` of literals give command lines.

Limit: paths that are computed are not seen. Text that is not Python (of this
version) gives nothing.
"""

import ast
import re
import shlex
from functools import lru_cache
from typing import NamedTuple

from forensics.actions.untrusted import python_tree

_WRITES = ("write_text", "write_bytes", "unlink", "touch")
_READS = ("read_text", "read_bytes")
_MOVES = ("copy", "copyfile", "copy2", "move", "rename", "replace")
_REMOVES = ("remove", "unlink", "rmtree", "truncate")
_RUNS = ("system", "popen", "run", "call", "check_call", "check_output", "Popen", "getoutput")
_MODULE_NAMES = ("os", "shutil", "subprocess", "sp")
_OWN_NAMES = re.compile(rf"\b(?:open|urlretrieve|{'|'.join((*_WRITES, *_READS))})\b")
_OF_MODULES = re.compile(rf"\b(?:{'|'.join((*_MOVES, *_REMOVES, *_RUNS))})\b")
_MODULES = re.compile(rf"\b(?:{'|'.join(_MODULE_NAMES)})\b")


class FileEffects(NamedTuple):
    """Paths as the program names them, and command lines."""

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()


@lru_cache(maxsize=4096)
def python_effects(text: str) -> FileEffects:
    """The effects of a program text; none where it cannot be parsed or is too long."""
    if (
        text.isascii()
        and not _OWN_NAMES.search(text)
        and not (_MODULES.search(text) and _OF_MODULES.search(text))
    ):
        return (
            FileEffects()
        )  # it names nothing that counts (beyond ASCII, other letters may stand for these names)
    tree = python_tree(text)
    if tree is None:
        return FileEffects()
    nodes = list(ast.walk(tree))
    names = bound_names(nodes)
    reads: list[str] = []
    writes: list[str] = []
    lines: list[str] = []
    for node in nodes:
        if isinstance(node, ast.Call):
            _call(node, names, reads, writes, lines)
    return FileEffects(*(tuple(dict.fromkeys(found)) for found in (reads, writes, lines)))


def bound_names(nodes: list[ast.AST]) -> dict[str, str | None]:
    """Names bound to a literal; `None` for a name that is bound more than once
    to different ones.
    """
    names: dict[str, str | None] = {}
    for node in nodes:
        if (
            isinstance(node, ast.Assign)
            and len(node.targets) == 1
            and isinstance(node.targets[0], ast.Name)
        ):
            value = _literal(node.value, {})
            name = node.targets[0].id
            names[name] = value if names.get(name, value) == value else None
    return names


def _literal(node: ast.AST, names: dict[str, str | None]) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if (
        isinstance(node, ast.Call)
        and _name(node) in ("Path", "PurePath", "str", "fspath")
        and len(node.args) == 1
    ):
        return _literal(node.args[0], names)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        left, right = _literal(node.left, names), _literal(node.right, names)
        return f"{left.rstrip('/')}/{right}" if left and right else None
    return None


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _call(
    call: ast.Call,
    names: dict[str, str | None],
    reads: list[str],
    writes: list[str],
    lines: list[str],
) -> None:
    name = _name(call)
    arguments = [_literal(argument, names) for argument in call.args]
    first = arguments[0] if arguments else None
    owner = _literal(call.func.value, names) if isinstance(call.func, ast.Attribute) else None
    if name == "open" and (path := first if owner is None else owner):
        (writes if set(_mode(call, owner is not None)) & set("wax+") else reads).append(path)
    elif name in _WRITES and owner:
        writes.append(owner)
    elif name in _READS and owner:
        reads.append(owner)
    elif (
        name in _MOVES
        and owner is None
        and len(arguments) > 1
        and first
        and arguments[1]
        and _of_module(call)
    ):
        (reads if name.startswith("copy") else writes).append(first)
        writes.append(arguments[1])
    elif name == "urlretrieve" and len(arguments) > 1 and arguments[1]:
        writes.append(arguments[1])
    elif name in _REMOVES and first and _of_module(call):
        writes.append(first)
    elif name in _RUNS and call.args and _of_module(call) and (line := _line(call.args[0], names)):
        lines.append(line)


def _of_module(call: ast.Call) -> bool:
    """Whether it is called as a module's function, not as some object's method
    or a function of the text's own.
    """
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    return isinstance(owner, ast.Name) and owner.id in _MODULE_NAMES


def _mode(call: ast.Call, is_method: bool) -> str:
    at = 0 if is_method else 1
    given = (
        [call.args[at]]
        if len(call.args) > at
        else [word.value for word in call.keywords if word.arg == "mode"]
    )
    return (_literal(given[0], {}) if given else None) or "r"


def _line(node: ast.AST, names: dict[str, str | None]) -> str | None:
    if isinstance(node, ast.List | ast.Tuple):
        words = [_literal(item, names) for item in node.elts]
        return shlex.join(word for word in words if word) if words and words[0] else None
    return _literal(node, names)
