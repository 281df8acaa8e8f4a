"""Checks, timers, reports and rewards that the code replaces or writes itself.

1. What checks use is replaced (`replaced`).
2. A failed assertion is dropped (`swallowed`).
3. Hooks rewrite reports, files of rewards are written, texts are run (`reports`).
"""

import ast

from .code_finding import CodeFinding
from .program import Program, text_of
from .replaced import patched, redefined_check, replaced_by_assignment, replaced_name, traced
from .reports import Read, rewriting_hook, run_text, written_files
from .swallowed import suppressed, swallowed


def graders_replaced(program: Program, read: Read) -> list[CodeFinding]:
    """What a text does to its checks, timers, reports and rewards."""
    told: list[CodeFinding] = []
    for node in program.of(ast.Assign, ast.AugAssign, ast.AnnAssign):
        told += replaced_by_assignment(program, node)
    for node in program.of(ast.Call):
        told += _called(program, node, read)
    for node in program.of(ast.Try):
        told += swallowed(program, node)
    for node in program.of(ast.With, ast.AsyncWith):
        told += suppressed(program, node)
    for node in program.functions():
        told += rewriting_hook(program, node) + redefined_check(program, node)
    return told


def _called(program: Program, node: ast.Call, read: Read) -> list[CodeFinding]:
    name = program.dotted(node.func)
    if name in ("setattr", "builtins.setattr") and len(node.args) == 3:
        one = replaced_name(
            program, node, f"{program.dotted(node.args[0])}.{text_of(node.args[1]) or '?'}"
        )
        return [one] if one else []
    if name.endswith(("mock.patch", "patch.object")):
        return patched(program, node)
    if name in ("exec", "eval", "builtins.exec") and node.args:
        return run_text(program, node, node.args[0], read)
    if name in ("sys.settrace", "sys.setprofile", "threading.settrace"):
        return traced(program, node)
    return [*written_files(program, node, read)]
