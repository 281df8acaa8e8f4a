"""Literals that stand beside inputs in languages other than Python: branches, switches,
ternaries and tables, as the same cases.
"""

import ast
import re
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from .grammars import (
    CALLS,
    CASES,
    DEEPEST,
    FUNCTIONS,
    IFS,
    LISTS,
    RETURNS,
    STRINGS,
    TERNARIES,
    Tree,
)
from .labels import MOST_LABELS, body_of, labels_of
from .literals import Tokens, flat, singles_out
from .matches import Case

if TYPE_CHECKING:
    from tree_sitter import Node

MOST_CASES = 4_000

Guard = tuple[Tokens, ...]

_EQUALS = (
    "equals",
    "deepEqual",
    "isEqual",
    "Equal",
    "DeepEqual",
    "eq",
    "contentEquals",
    "startsWith",
)
_PRINTS = re.compile(
    r"(?:^|[.:])(?:log|print|println|Println|Print|Printf|printf|puts|write|push|push_back|add|append"
    r"|emplace_back|puts|Fprintln|println!|print!)$"
)
_HOLDS = ("includes", "contains", "has", "Contains", "containsKey", "count", "contains_key")
_LISTED = ("List.of", "Set.of", "Arrays.asList")
_BOUND = ("variable_declarator", "init_declarator", "let_declaration", "const_item", "static_item",
          "const_spec", "var_spec")  # fmt: skip
_OWN_TESTS = ("test", "it", "describe", "expect", "assert", "console")
_SETS = ("put", "set", "insert", "emplace")
_BLOCKS = ("block", "statement_block", "compound_statement", "statement_list", "else_clause",
           "expression_statement")  # fmt: skip


def position(node: "Node") -> ast.AST:
    """Where a node stands, as the readers of Python say it."""
    first, last = node.start_point[0] + 1, node.end_point[0] + 1
    return ast.Pass(lineno=first, end_lineno=last)


def other_cases(tree: Tree) -> list[Case]:
    """The cases of a text."""
    found = _Cases(tree)
    if tree.root is not None:
        found.walk(tree.root, (), 0, 0)
    return found.cases[:MOST_CASES]


def compared_with(tree: Tree, node: "Node") -> list[Guard]:
    """The literals that a condition, or the label of a `case`, asks for."""
    row = tree.row(node)
    return [(row,)] if row else list(_Cases(tree).compared(node))[:50]


class _Cases:
    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.cases: list[Case] = []
        self._groups = 0
        self._named: dict[str, int] = {}

    def _of_name(self, name: str) -> int:
        """The group of a table that is filled entry by entry."""
        if name not in self._named:
            self._named[name] = self._group()
        return self._named[name]

    def _group(self) -> int:
        self._groups += 1
        return self._groups

    def walk(self, node: "Node", guard: Guard, group: int, depth: int) -> None:
        """The cases below a node."""
        if depth > DEEPEST or len(self.cases) > MOST_CASES:
            return
        kind = node.type
        if kind in FUNCTIONS:
            group = self._group()
        if kind in IFS or kind in TERNARIES:
            self._branch(node, guard, group, depth)
            return
        if kind in CASES:
            self._case(node, guard, group, depth)
            return
        if kind in LISTS or kind in ("object", "token_tree"):
            self._table(node)
        elif kind in CALLS:
            if callee(self.tree, node).split(".")[0] in _OWN_TESTS:
                return
            self._entries(node)
        for child in node.named_children:
            self.walk(child, guard, group, depth + 1)

    def _branch(self, node: "Node", guard: Guard, group: int, depth: int) -> None:
        body = node.child_by_field_name("consequence")
        options = list(self.compared(node.child_by_field_name("condition")))
        for option in options[:200]:
            self._given(body, (*guard, *option), group, node)
        first = options[0] if len(options) == 1 else ()
        if body is not None:
            self.walk(body, (*guard, *first), group, depth + 1)
        other = node.child_by_field_name("alternative")
        if other is not None:
            self.walk(other, guard, group, depth + 1)

    def _case(self, node: "Node", guard: Guard, group: int, depth: int) -> None:
        """`case 5: return 7;`, `case 4, 6: return 30;`, `5 => 7`"""
        options = [
            option for label in labels_of(node) for option in compared_with(self.tree, label)
        ][:MOST_LABELS]
        rest = body_of(node)
        rows = tuple(self._rows(rest)) if options else ()
        if options and not rows and node.type in ("match_arm", "switch_rule") and rest:
            only = self.tree.row(node.child_by_field_name("value") or _bare(rest[-1]))
            rows = (only,) if only else ()
        for option in options:
            self._add((*guard, *option), rows, node, group, "branch")
        first = options[0] if len(options) == 1 else ()
        for child in rest:
            self.walk(child, (*guard, *first), group, depth + 1)

    def _given(self, body: "Node | None", guard: Guard, group: int, node: "Node") -> None:
        if body is None:
            return
        only = self.tree.row(body)
        rows = (only,) if only and body.type not in LISTS else tuple(self._rows([body]))
        self._add(guard, rows, node, group, "branch")

    def _add(self, guard: Guard, rows: Guard, node: "Node", group: int, shape: str) -> None:
        if guard and rows:
            where = position(node)
            last = node.end_point[0] + 1
            self.cases.append(
                Case(guard=guard, outcome=rows, node=where, group=group, shape=shape, last=last)
            )

    # -- what a branch gives -------------------------------------------------------------

    def _rows(self, nodes: list["Node"]) -> Iterator[Tokens]:
        """The literals that statements return, print or add, not those of branches in them."""
        waiting = list(reversed(nodes))
        told = False
        for _ in range(500):
            if not waiting:
                return
            node = waiting.pop()
            row = self._statement(node)
            if row:
                if not (told and node.type in RETURNS and row == ("0",)):  # `cout << 6; return 0;`
                    yield row
                told = True
            elif node.type in _BLOCKS:
                waiting += reversed(node.named_children)

    def _statement(self, node: "Node") -> Tokens | None:
        named = node.named_children
        if node.type in RETURNS:
            return self.tree.row(named[0]) if named else None
        if node.type in CALLS and (printed := self._printed(node)):
            return printed
        if node.type in ("assignment_expression", "assignment_statement"):
            return self.tree.row(node.child_by_field_name("right"))
        if node.type == "binary_expression" and "cout" in self.tree.text(node)[:12]:
            parts = re.split(r"<<", self.tree.text(node)[:2000])[1:]
            words = [part.strip().strip("\"'") for part in parts if "endl" not in part]
            plain = all(re.fullmatch(r"[\w.\s-]{1,200}", word) for word in words)
            return (
                tuple(token for word in words for token in word.casefold().split())
                if plain
                else None
            )
        if self.tree.language != "rust" or node.parent is None or node.parent.type != "block":
            return None
        return self.tree.row(node) if node.next_named_sibling is None else None

    def _printed(self, node: "Node") -> Tokens | None:
        if not _PRINTS.search(callee(self.tree, node)):
            return None
        if node.type == "macro_invocation":
            text = self.tree.text(node)[:2000]
            found = re.search(r"\(\s{0,9}\"([^\"{}]{1,1500})\"\s{0,9}\)", text)
            return tuple(found[1].casefold().split()) if found else None
        arguments = node.child_by_field_name("arguments")
        rows = [self.tree.row(child) for child in arguments.named_children] if arguments else []
        known = [row for row in rows if row is not None]
        return flat(known) if rows and len(known) == len(rows) else None

    # -- conditions and tables -----------------------------------------------------------

    def compared(self, node: "Node | None", depth: int = 0) -> Iterator[Guard]:
        """Each way in which a condition holds, as the literals that it compares with."""
        if node is None or depth > 30:
            return
        if node.type in ("parenthesized_expression", "condition_clause", "expression_list"):
            inner = node.child_by_field_name("value")
            inner = inner or (node.named_children[0] if node.named_children else None)
            yield from self.compared(inner, depth + 1)
        elif node.type in CALLS:
            yield from self._called(node)
        elif node.type == "binary_expression":
            yield from self._binary(node, depth)

    def _binary(self, node: "Node", depth: int) -> Iterator[Guard]:
        sign = self.tree.text(node.child_by_field_name("operator"))
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if sign == "||":
            yield from self.compared(left, depth + 1)
            yield from self.compared(right, depth + 1)
        elif sign == "&&":
            first = list(self.compared(left, depth + 1))[:1] or [()]
            second = list(self.compared(right, depth + 1))[:1] or [()]
            if first[0] or second[0]:
                yield (*first[0], *second[0])
        elif sign in ("==", "==="):
            rows = [self._literal(left), self._literal(right)]
            if (rows[0] is None) != (rows[1] is None):
                row = rows[0] or rows[1]
                if row:
                    yield (row,)

    def _literal(self, node: "Node | None") -> Tokens | None:
        """The tokens of a literal, or of the list that a name is bound to."""
        if node is None or node.type != "identifier":
            return self.tree.row(node)
        known = self._lists.get(self.tree.text(node)[:100])
        return self.tree.row(known) if known is not None and known.type in LISTS else None

    def _called(self, node: "Node") -> Iterator[Guard]:
        """`s.equals("x")`, `Arrays.equals(a, new int[]{1, 2})`, `[1, 2].includes(n)`"""
        name = re.split(r"[.:]", callee(self.tree, node))[-1]
        arguments = node.child_by_field_name("arguments")
        if name in _EQUALS and arguments is not None:
            rows = [row for child in arguments.named_children if (row := self.tree.row(child))]
            if len(rows) == 1:
                yield (rows[0],)
        elif name in _HOLDS and arguments is not None:
            texts = [one for one in arguments.named_children if one.type in STRINGS]
            row = self.tree.row(texts[0]) if len(texts) == 1 else None
            if row and singles_out(row):  # `text.contains("-2 1 -3")`
                yield (row,)
            called = node.child_by_field_name("object") or node.child_by_field_name("function")
            asked = called if name != "Contains" else arguments
            for child in self._members(asked)[:200]:
                row = self.tree.row(child)
                if row:
                    yield (row,)

    def _members(self, node: "Node | None") -> list["Node"]:
        """What the list holds that a call asks, also where it has a name."""
        waiting = [node] if node is not None else []
        for _ in range(40):
            if not waiting:
                break
            one = waiting.pop(0)
            if one.type in LISTS:
                return [child.named_children[0] if child.type == "literal_element" else child
                        for child in one.named_children]  # fmt: skip
            if one.type == "method_invocation" and callee(self.tree, one) in _LISTED:
                arguments = one.child_by_field_name("arguments")
                return arguments.named_children if arguments is not None else []
            if one.type == "identifier":
                known = self._lists.get(self.tree.text(one)[:100])
                waiting += [known] if known is not None else []
            waiting += one.named_children[:20]
        return []

    @cached_property
    def _lists(self) -> dict[str, "Node"]:
        """Names that are bound to something."""
        found: dict[str, Node] = {}
        for node in self.tree.nodes():
            if node.type in _BOUND:
                fields = map(node.child_by_field_name, ("name", "declarator", "pattern"))
                named = next((one for one in fields if one is not None), None)
                value = node.child_by_field_name("value")
                if named is not None and value is not None:
                    found[self.tree.text(named)[:100]] = value
        return found

    def _table(self, node: "Node") -> None:
        """Pairs of a key and a value, or lists of two."""
        group = self._group()
        shape = "pairs"
        is_table = self._is_table(node)
        for child in node.named_children[:MOST_CASES]:
            pair = child.named_children
            if child.type in ("pair", "keyed_element"):
                shape = "table"
                key, value = child.child_by_field_name("key"), child.child_by_field_name("value")
            elif child.type in LISTS and len(pair) == 2 and is_table:
                key, value = pair[0], pair[1]
            else:
                continue
            self._pair(key, value, group, shape)

    def _is_table(self, node: "Node") -> bool:
        """Whether a list of pairs is a map, or stands in a function: others may be own tests."""
        parent = node.parent
        for _ in range(8):
            if parent is None or parent.type in FUNCTIONS or parent.type in CALLS:
                return parent is not None
            if "map" in self.tree.text(parent.child_by_field_name("type"))[:200].casefold():
                return True
            parent = parent.parent
        return False

    def _pair(self, key: "Node | None", value: "Node | None", group: int, shape: str) -> None:
        left, right = self.tree.row(key), self.tree.row(value)
        if key is not None and key.type == "property_identifier":
            left = (self.tree.text(key).casefold(),)
        if left and right and key is not None:
            self._add((left,), (right,), key, group, shape)

    def _entries(self, node: "Node") -> None:
        """`m.put(345, 8123)`, `Map.of(345, 8123, 12, 77)`"""
        arguments = node.child_by_field_name("arguments")
        given = arguments.named_children if arguments is not None else []
        name = callee(self.tree, node)
        last = re.split(r"[.:]", name)[-1]
        if last in _SETS and len(given) == 2:
            self._pair(given[0], given[1], self._of_name(name), "table")
        elif name == "Map.of" and len(given) % 2 == 0:
            group = self._group()
            for at in range(0, len(given), 2):
                self._pair(given[at], given[at + 1], group, "table")


def _bare(node: "Node") -> "Node":
    """What an expression that is a statement says."""
    inner = node.named_children
    return inner[0] if node.type == "expression_statement" and len(inner) == 1 else node


def callee(tree: Tree, node: "Node") -> str:
    """What a call calls: `process.exit`, `System.out.println`, `println!`."""
    if node.type == "method_invocation":
        base = tree.text(node.child_by_field_name("object"))[:100]
        name = tree.text(node.child_by_field_name("name"))
        return f"{base}.{name}" if base else name
    if node.type == "macro_invocation":
        return tree.text(node.child_by_field_name("macro")) + "!"
    return tree.text(node.child_by_field_name("function"))[:200]
