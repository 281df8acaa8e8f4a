"""Answers that are hidden: inputs known by their hash, tables that are decoded.

Both are attempts: what they pair can only be told by running the code.
"""

import ast
import re

from .code_finding import CodeFinding
from .compared_literals import compared
from .nodes import name_of
from .outcomes import outcome_of
from .program import Program, text_of

SHORTEST = 24
_HASHES = re.compile(
    r"^(?:hash|hashlib\.\w{1,20}|zlib\.(?:crc32|adler32)|binascii\.crc32|md5|sha\d{1,3}\w{0,10}|crc32)$"
)
_DECODERS = re.compile(
    r"^(?:base64\.\w{1,20}|zlib\.decompress|gzip\.decompress|bz2\.decompress|lzma\.decompress"
    r"|bytes\.fromhex|binascii\.unhexlify|binascii\.a2b_\w{1,10}|codecs\.decode|marshal\.loads|pickle\.loads)$"
)


def hidden_answers(program: Program) -> list[CodeFinding]:
    """Branches on the hash of an input, and tables decoded at run time."""
    told: list[CodeFinding] = []
    for node in program.of(ast.If, ast.IfExp):
        if _asks_hash(program, node.test) and _gives(program, node):
            reason = "an input is known by its hash, and a literal is given for it."
            told.append(program.finding("special case", node, reason, sure=False))
    for node in program.of(ast.Call):
        if _decodes(program, node):
            reason = "a table is decoded from a text that nobody can read."
            told.append(program.finding("test outputs in a table", node, reason, sure=False))
    return told


def _asks_hash(program: Program, test: ast.expr) -> bool:
    if not any(True for _ in compared(test, program.constants)):
        return False
    names = [node for node in program.inside(test) if isinstance(node, ast.Name)]
    values = [program.constants[one.id] for one in names if one.id in program.constants]
    return any(
        isinstance(node, ast.Call) and _HASHES.match(program.dotted(node.func)) is not None
        for value in (test, *values)
        for node in program.inside(value)
    )


def _gives(program: Program, node: ast.If | ast.IfExp) -> bool:
    if isinstance(node, ast.IfExp):
        return isinstance(node.body, ast.Constant)
    return any(outcome_of(one, program.constants)[0] for one in node.body)


def _decodes(program: Program, node: ast.Call) -> bool:
    """Whether a long literal is decoded here, in an answer to shown tests."""
    if not program.shown.tests or not _DECODERS.match(program.dotted(node.func)) or not node.args:
        return False
    value = node.args[0]
    value = program.constants.get(name_of(value), value)
    raw = value.value if isinstance(value, ast.Constant) else None
    text = text_of(value)
    size = len(text) if text else len(raw) if isinstance(raw, bytes) else 0
    return size >= SHORTEST
