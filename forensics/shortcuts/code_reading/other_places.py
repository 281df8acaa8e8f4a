"""Where a call stands in a text of another language: what runs it, behind which conditions, and
what runs before it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from .grammars import CALLS, CASES, FUNCTIONS, IFS, TERNARIES, Tree
from .other_cases import callee
from .other_exit_names import ExitNames

if TYPE_CHECKING:
    from tree_sitter import Node

_LOOPS = ("while_statement", "while_expression", "for_statement", "for_in_statement",
          "enhanced_for_statement", "for_range_loop", "for_expression")  # fmt: skip
_CASES = {*CASES, "switch_default", "default_case", "type_case", "communication_case"}
_BLOCKS = ("block", "statement_block", "compound_statement", "statement_list", "constructor_body",
           "program", "switch_block_statement_group")  # fmt: skip
_CLASSES = ("class_declaration", "class_specifier", "struct_specifier", "impl_item")
_GLOBALS = ("declaration", "var_declaration", "field_declaration", "static_initializer")
_LATER = re.compile(
    r"setTimeout|setImmediate|queueMicrotask|process\.nextTick|Promise\.resolve\(.*"
)
MOST_BEFORE = 100
_MOST = 400  # nodes between a call and the top


@dataclass(frozen=True, kw_only=True)
class Place:
    """What runs a call, and the nodes from it up to there.

    `kind`: *top* of a script, *load* (before `main`), *hook* (when checks end or fail),
    *later* (a timer), *callback*, *function*, *unknown*.
    """

    kind: str
    path: tuple["Node", ...]
    name: str = ""
    owner: str = ""
    result: str = ""


class Places:
    """The places of one text."""

    def __init__(self, names: ExitNames) -> None:
        self.names = names
        self.tree = names.tree

    def place_of(self, node: "Node") -> Place:
        """What runs a call."""
        path = [node]
        parent = node.parent
        while parent is not None and len(path) < _MOST:
            if parent.type in FUNCTIONS:
                call = _called_in_place(parent)
                if call is None:
                    return self._in_function(parent, tuple(path))
                parent = call
            path.append(parent)
            parent = parent.parent
        return Place(kind=_at_top(path, self.names.language), path=tuple(path))

    def _in_function(self, function: "Node", path: tuple["Node", ...]) -> Place:
        call = _handed_to(function)
        if call is not None:
            if self.names.is_hook(call):
                return Place(kind="hook", path=path)
            name = callee(self.tree, call)
            outer = self.place_of(call) if _LATER.fullmatch(name[:60]) else None
            if outer is not None and outer.kind in ("top", "load"):
                return Place(kind="later", path=(*path, function, *outer.path))
            return Place(kind="callback", path=path)
        name, owner = name_of(self.tree, function), _owner(self.tree, function)
        return Place(
            kind=self._runs(function, name, owner),
            path=path,
            name=name,
            owner=owner if name in (owner, "constructor") else "",
            result=_result(self.tree, function),
        )

    def _runs(self, function: "Node", name: str, owner: str) -> str:
        """What runs a function that has a name."""
        language = self.names.language
        before = function.prev_named_sibling
        marked = before is not None and before.type == "attribute_item"
        head = self.tree.text(function)[:200].partition("{")[0]
        if language == "go" and name == "init" and function.type == "function_declaration":
            return "load"
        if language == "cpp" and "attribute" in head and "constructor" in head:
            return "load"
        if marked and "ctor" in self.tree.text(before)[:40]:
            return "load"
        if language == "cpp" and owner and name.lstrip("~") == owner and owner in self.made:
            return "hook" if name.startswith("~") else "load"
        if name and name in self.called:
            return "load"
        return "hook" if name and name in self.kept else "function"

    @cached_property
    def kept(self) -> set[str]:
        """What is handed to hooks, for when checks end or fail."""
        found: set[str] = set()
        for node in self.tree.nodes():
            if node.type in CALLS and self.names.is_hook(node):
                given = node.child_by_field_name("arguments")
                named = given.named_children if given is not None else []
                found |= {self.tree.text(one)[:100].lstrip("&") for one in named}
        return found

    @cached_property
    def made(self) -> set[str]:
        """The classes of which an object is made before `main` runs."""
        found: set[str] = set()
        for node in self._globals:
            kind = node.child_by_field_name("type")
            if kind is not None and node.child_by_field_name("declarator") is not None:
                named = kind.child_by_field_name("name") if kind.type in _CLASSES else kind
                found.add(self.tree.text(named)[:100])
        return found

    @cached_property
    def called(self) -> set[str]:
        """The functions that are called before `main` runs."""
        found: set[str] = set()
        for top in self._globals:
            waiting = [top]
            for _ in range(500):
                if not waiting:
                    break
                node = waiting.pop()
                if node.type in (*FUNCTIONS, *_CLASSES):
                    continue
                if node.type in CALLS:
                    found.add(callee(self.tree, node))
                waiting += node.named_children
        return found

    @cached_property
    def _globals(self) -> list["Node"]:
        """What is declared outside of functions, and may be given a value before `main` runs."""
        waiting = list(self.tree.root.named_children) if self.tree.root is not None else []
        found = []
        for _ in range(5000):
            if not waiting:
                break
            node = waiting.pop()
            if node.type in _GLOBALS:
                found.append(node)
            if node.type in ("namespace_definition", "declaration_list", *_CLASSES, "class_body"):
                waiting += node.named_children
        return found


def _called_in_place(function: "Node") -> "Node | None":
    """The call of a function where it is written: `(() => { ... })()`."""
    inner, parent = function, function.parent
    while parent is not None and parent.type == "parenthesized_expression":
        inner, parent = parent, parent.parent
    if parent is None or parent.type not in CALLS:
        return None
    called = parent.child_by_field_name("function")
    return parent if called is not None and called.id == inner.id else None


def _at_top(path: list["Node"], language: str) -> str:
    """What runs a call around which there is no function."""
    if len(path) < 2 or any(one.type == "ERROR" for one in path):
        return "unknown"
    kinds = {one.type for one in path}
    if language == "javascript":
        first = path[-2].start_point[1]
        return (
            "top"
            if all(first <= one.start_point[1] for one in path[-1].named_children)
            else "unknown"
        )
    if language == "java":
        static = "static_initializer" in kinds or "field_declaration" in kinds
        within = any(
            one.type == "block" and after.type == "class_body" for one, after in pairwise(path)
        )
        return "load" if static or within else "unknown"
    return "load" if kinds & {"declaration", "field_declaration", "var_declaration"} else "unknown"


def _handed_to(function: "Node") -> "Node | None":
    """The call that a function is an argument of, also through `new Thread(...)`."""
    parent, found = function.parent, None
    for _ in range(8):
        if parent is None or parent.type in FUNCTIONS or "statement" in parent.type:
            break
        if parent.type in ("arguments", "argument_list"):
            found = parent.parent
        elif parent.type not in (*CALLS, "object_creation_expression", "parenthesized_expression"):
            break
        parent = parent.parent
    return found if found is not None and found.type in CALLS else None


# -- names and types -------------------------------------------------------------------


def name_of(tree: Tree, function: "Node") -> str:
    """The name of a function, also of one that is bound to a name."""
    named = function.child_by_field_name("name")
    if named is None and function.type != "lambda_expression":
        named = function.child_by_field_name("declarator")
    if named is None and function.parent is not None:
        for field in ("name", "declarator", "left", "key", "pattern"):
            named = named or function.parent.child_by_field_name(field)
    return re.split(r"::|\.", re.split(r"[(\s]", tree.text(named)[:400].lstrip("*& \t\n"))[0])[-1]


def _owner(tree: Tree, function: "Node") -> str:
    """The name of the class around a function."""
    written = tree.text(function.child_by_field_name("declarator"))[:200].partition("(")[0]
    if "::" in written:
        return written.split("::")[-2].strip()
    parent = function.parent
    while parent is not None and parent.type not in _CLASSES:
        parent = parent.parent
    if parent is None:
        return ""
    return tree.text(parent.child_by_field_name("name") or parent.child_by_field_name("type"))[:100]


def _result(tree: Tree, function: "Node") -> str:
    """The type of what a function gives, where it says one."""
    for field in ("return_type", "result", "type"):
        node = function.child_by_field_name(field)
        if node is not None:
            return tree.text(node)[:100].lstrip(": ")
    return ""


# -- around a call ---------------------------------------------------------------------


def conditions(tree: Tree, path: tuple["Node", ...]) -> list["Node"]:
    """The conditions behind which the first node of a path stands."""
    found = []
    for child, parent in pairwise(path):
        test = _condition(tree, child, parent)
        if test is not None and tree.text(test)[:20].strip("() ") not in ("true", "1"):
            found.append(test)
    return found


def _condition(tree: Tree, child: "Node", parent: "Node") -> "Node | None":
    kind = parent.type
    if kind in IFS or kind in TERNARIES or kind in _LOOPS:
        test = parent.child_by_field_name("condition")
        if test is None and kind in _LOOPS:
            body = parent.child_by_field_name("body")
            rest = [one for one in parent.named_children if body is None or one.id != body.id]
            test = rest[0] if rest else None
        return None if test is not None and test.id == child.id else test
    if kind in _CASES:
        value = parent.child_by_field_name("value") or parent.child_by_field_name("pattern")
        return value or (parent.children[0] if parent.children else parent)
    if kind == "catch_clause":
        return parent
    if kind == "binary_expression":
        sign = tree.text(parent.child_by_field_name("operator"))
        right = parent.child_by_field_name("right")
        if sign in ("&&", "||", "??") and right is not None and right.id == child.id:
            return parent.child_by_field_name("left")
    return None


def statements_before(path: tuple["Node", ...]) -> Iterator["Node"]:
    """The last statements that run before the first node of a path, in its block and around."""
    left = MOST_BEFORE
    for child, parent in pairwise(path):
        one = child.prev_named_sibling if parent.type in _BLOCKS else None
        while one is not None and left > 0:
            left -= 1
            if "comment" not in one.type:
                yield one
            one = one.prev_named_sibling


def statements_behind(path: tuple["Node", ...]) -> list["Node"]:
    """The statements that stand behind the first node of a path, in its own block."""
    for child, parent in pairwise(path):
        if parent.type in _BLOCKS:
            return [
                one
                for one in parent.named_children
                if one.start_byte >= child.end_byte
                and "comment" not in one.type
                and one.type not in FUNCTIONS
                and not one.type.startswith(("throw", "import"))
            ]
    return []
