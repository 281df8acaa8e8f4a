"""Languages other than Python: hard-coding and exits as in Python; objects that are equal to
everything, and replaced checks by the names that each language has for them.
"""

import ast
import re
from typing import TYPE_CHECKING

from .code_finding import MOST_TOLD, CodeFinding
from .constant import members
from .grammars import CALLS, FUNCTIONS, RETURNS, Tree
from .hard_coded import judged
from .other_cases import compared_with, other_cases, position
from .other_exits import other_exits
from .other_places import name_of
from .parsed import Parsed
from .program import Program
from .shown_tests import ShownTests

if TYPE_CHECKING:
    from tree_sitter import Node

_EQUALITY = ("equals", "isEqual", "eq", "Equal", "operator==", "equal", "compareTo")
_REPLACED = re.compile(
    r"^(?:global(?:This)?\.|window\.)?(?:assert|expect|chai|describe|it|test|console\.assert)(?:\.\w{1,40}){0,3}$"
)
_CLOCK = re.compile(
    r"^(?:global(?:This)?\.)?(?:Date\.now|performance\.now|process\.hrtime(?:\.bigint)?)$"
)


def other_language(code: str, language: str, shown: ShownTests) -> list[CodeFinding]:
    """What code of another language does to its checks."""
    tree = Tree(code, language)
    lines = tuple(code.split("\n"))
    empty = Parsed(tree=ast.Module(body=[], type_ignores=[]), lines=lines, whole=True)
    program = Program(empty, shown)
    told = [*judged(program, other_cases(tree)), *other_exits(tree, program)]
    for node in tree.nodes():
        if len(told) > MOST_TOLD:
            break
        if node.type in RETURNS or node.type == "arrow_function":
            told += _members(tree, program, node)
        if node.type in FUNCTIONS:
            told += _equal(tree, program, node)
        elif node.type == "assignment_expression":
            told += _replaced(tree, program, node)
    return told


def _members(tree: Tree, program: Program, node: "Node") -> list[CodeFinding]:
    """`return [7, 97].includes(n)`, `n => known.has(n)`"""
    given = node.named_children
    value = node.child_by_field_name("body") or (given[0] if given else None)
    if value is None or value.type not in CALLS:
        return []
    return members(program, compared_with(tree, value), position(value))


def _equal(tree: Tree, program: Program, node: "Node") -> list[CodeFinding]:
    """`equals(other) { return true; }`"""
    if name_of(tree, node) not in _EQUALITY:
        return []
    body = node.child_by_field_name("body")
    statements = [child for child in body.named_children if child.type != "comment"] if body else []
    while len(statements) == 1 and statements[0].type in (
        *RETURNS,
        "statement_list",
        "expression_list",
    ):
        statements = statements[0].named_children
    if len(statements) != 1 or tree.text(statements[0]) != "true":
        return []
    reason = "objects of this class are equal to whatever they are compared with."
    return [program.finding("equal to everything", position(node), reason)]


def _replaced(tree: Tree, program: Program, node: "Node") -> list[CodeFinding]:
    """`assert.equal = () => {}`, `Date.now = () => 0`"""
    name = tree.text(node.child_by_field_name("left"))[:100]
    if _CLOCK.match(name):
        kind, reason = "timer replaced", "a clock that checks measure with is replaced."
    elif _REPLACED.match(name) and "." in name:
        kind, reason = "grader replaced", "a function of the checks is replaced."
    else:
        return []
    return [program.finding(kind, position(node), reason)]
