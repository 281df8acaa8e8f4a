"""Checks, timers, reports and rewards that the code replaces or writes itself.

1. What checks use is replaced (`replaced`).
2. A failed assertion is dropped (`swallowed`).
3. Hooks rewrite reports, files of rewards are written, texts are run (`reports`).
"""

import ast

from .reading import Reading, text_of
from .replaced import patched, redefined_check, replaced_by_assignment, replaced_name, traced
from .reports import Read, rewriting_hook, run_text, written_files
from .swallowed import suppressed, swallowed
from .told import CodeTold


def graders_replaced(reading: Reading, read: Read) -> list[CodeTold]:
    """What a text does to its checks, timers, reports and rewards."""
    told: list[CodeTold] = []
    for node in reading.of(ast.Assign, ast.AugAssign, ast.AnnAssign):
        told += replaced_by_assignment(reading, node)
    for node in reading.of(ast.Call):
        told += _called(reading, node, read)
    for node in reading.of(ast.Try):
        told += swallowed(reading, node)
    for node in reading.of(ast.With, ast.AsyncWith):
        told += suppressed(reading, node)
    for node in reading.functions():
        told += rewriting_hook(reading, node) + redefined_check(reading, node)
    return told


def _called(reading: Reading, node: ast.Call, read: Read) -> list[CodeTold]:
    name = reading.dotted(node.func)
    if name in ("setattr", "builtins.setattr") and len(node.args) == 3:
        one = replaced_name(
            reading, node, f"{reading.dotted(node.args[0])}.{text_of(node.args[1]) or '?'}"
        )
        return [one] if one else []
    if name.endswith(("mock.patch", "patch.object")):
        return patched(reading, node)
    if name in ("exec", "eval", "builtins.exec") and node.args:
        return run_text(reading, node, node.args[0], read)
    if name in ("sys.settrace", "sys.setprofile", "threading.settrace"):
        return traced(reading, node)
    return [*written_files(reading, node, read)]
