"""The grammars of languages other than Python, where they are installed, and what is
the same in all of them.

A small table names, for every grammar, its module; node types that mean the same
(`if_statement`, `if_expression`) stand in one set of `grammars.toml`.
"""

import importlib
import re
from collections.abc import Iterator
from functools import lru_cache
from time import thread_time
from typing import TYPE_CHECKING

from forensics.shortcuts.vocabulary import Vocabulary

from .literals import Tokens, tokens
from .parsed import LONGEST_CODE

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

GRAMMARS = {  # language: (module, function)
    "javascript": ("tree_sitter_javascript", "language"),
    "typescript": ("tree_sitter_typescript", "language_typescript"),
    "java": ("tree_sitter_java", "language"),
    "cpp": ("tree_sitter_cpp", "language"),
    "go": ("tree_sitter_go", "language"),
    "rust": ("tree_sitter_rust", "language"),
}
DEEPEST = 150
MOST_SECONDS = 1.0  # of parsing one text
MOST_NODES = 100_000
LONGEST_ROW = 5_000

_NODES = Vocabulary(__name__).words
FUNCTIONS = _NODES["functions"]
IFS = _NODES["ifs"]
TERNARIES = _NODES["ternaries"]
CALLS = _NODES["calls"]
CASES = _NODES["cases"]
RETURNS = _NODES["returns"]
LISTS = _NODES["lists"]
WRAPPERS = _NODES["wrappers"]
STRINGS = _NODES["strings"]
_NUMBER = re.compile(r"-?\s?(?:0[xX][0-9a-fA-F_]+|[\d_']+(?:\.\d+)?)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


@lru_cache(maxsize=16)
def _parser(language: str) -> "Parser | None":
    if language not in GRAMMARS:
        return None
    module, function = GRAMMARS[language]
    try:
        from tree_sitter import Language, Parser

        return Parser(Language(getattr(importlib.import_module(module), function)()))
    except (ImportError, AttributeError, ValueError, TypeError, OSError):
        return None


def has_grammar(language: str) -> bool:
    """Whether code of this language can be parsed here."""
    return _parser(language) is not None


def _root(source: bytes, language: str) -> "Node | None":
    """The root of a text; `None` where there is no grammar or it takes too long."""
    parser = _parser(language)
    if parser is None:
        return None
    end = thread_time() + MOST_SECONDS
    parser.reset()  # a parse that was given up would be taken up again
    try:
        tree = parser.parse(
            lambda at, _: source[at : at + 65536],
            progress_callback=lambda *_: thread_time() > end,
        )
    except ValueError:  # given up
        return None
    return tree.root_node if tree is not None else None


class Tree:
    """A parsed text of another language."""

    def __init__(self, code: str, language: str) -> None:
        self.language = language
        self.source = code[:LONGEST_CODE].encode("utf-8", "replace")
        self.root = _root(self.source, language)

    def text(self, node: "Node | None") -> str:
        """What a node reads."""
        if node is None:
            return ""
        return self.source[node.start_byte : node.end_byte].decode(errors="replace")

    def nodes(self, top: "Node | None" = None) -> Iterator["Node"]:
        """A node and all below it, in the order of the text."""
        first = top if top is not None else self.root
        waiting = [first] if first is not None else []
        for _ in range(MOST_NODES):
            if not waiting:
                return
            node = waiting.pop()
            yield node
            waiting += reversed(node.named_children)

    def broken(self) -> float:
        """The share of the text that does not parse."""
        if self.root is None:
            return 1.0
        lost = sum(node.end_byte - node.start_byte for node in self.nodes() if node.type == "ERROR")
        return min(1.0, lost / max(len(self.source), 1))

    def breaks_off(self) -> bool:
        """Whether what does not parse, or is missing, stands at the end of the text."""
        if self.root is None or not self.root.has_error:
            return False
        end = len(self.source.rstrip())
        waiting = [self.root]
        for _ in range(DEEPEST * 20):
            if not waiting:
                return False
            node = waiting.pop()
            if (node.is_missing or node.type == "ERROR") and node.end_byte >= end:
                return True
            waiting += [one for one in node.children if one.has_error or one.is_missing]
        return False

    # -- literals ------------------------------------------------------------------------

    def row(self, node: "Node | None", depth: int = 0) -> Tokens | None:
        """The tokens of a literal, else `None`."""
        if node is None or depth > 20:
            return None
        kind = node.type
        if kind in STRINGS:
            return self._string(node)
        if kind in ("true", "false", "null", "nil", "none", "boolean_literal", "null_literal"):
            return tokens(self.text(node))
        if kind in LISTS:
            return self._rows(node.named_children, depth)
        if kind in WRAPPERS:
            inner = node.child_by_field_name("body") or node.child_by_field_name("value")
            return self.row(
                inner or (node.named_children[-1] if node.named_children else None), depth + 1
            )
        if kind == "macro_invocation" and self.text(node).startswith("vec!"):
            return tokens(re.sub(r"[^\d\s.-]", " ", self.text(node)[4:LONGEST_ROW]))
        if kind == "method_invocation" and re.match(
            r"(?:List|Set|Arrays|Map)\.(?:of|asList)\(", self.text(node)[:20]
        ):
            arguments = node.child_by_field_name("arguments")
            return self._rows(arguments.named_children, depth) if arguments else None
        if kind in CALLS:
            return self._rewritten(node, depth)
        return self._number(node)

    def _rewritten(self, node: "Node", depth: int) -> Tokens | None:
        """The tokens of a literal in a call that only wraps or rewrites it: `"a".into()`,
        `String::from("a")`, `Some(5)`.
        """
        arguments = node.child_by_field_name("arguments")
        given = arguments.named_children if arguments is not None else []
        called = node.child_by_field_name("function")
        if called is None:
            called = node.child_by_field_name("name")
        base = node.child_by_field_name("object")
        if called is not None and base is None and not given:
            base = called.child_by_field_name("value") or called.child_by_field_name("object")
            called = called.child_by_field_name("field") or called.child_by_field_name("property")
        if base is not None and not given:
            return (
                self.row(base, depth + 1) if self.text(called)[:40] in _NODES["keeping"] else None
            )
        name = self.text(called)[:40]
        if base is not None:
            name = f"{self.text(base)[:40]}.{name}"
        return (
            self.row(given[0], depth + 1)
            if len(given) == 1 and name in _NODES["rewriting"]
            else None
        )

    def _number(self, node: "Node") -> Tokens | None:
        text = self.text(node)[:200]
        plain = "number" in node.type or node.type.endswith(("_literal", "unary_expression"))
        found = _NUMBER.match(text) if plain else None
        if found is None or len(text) - found.end() > 3:
            return None
        digits = re.sub(r"[_'\s]", "", found[0])
        return tokens(str(int(digits, 16)) if "x" in digits.lower() else digits)

    def _rows(self, nodes: list["Node"], depth: int) -> Tokens | None:
        found: list[str] = []
        for node in nodes[:LONGEST_ROW]:
            row = self.row(node, depth + 1)
            if row is None:
                return None
            found += row
        return tuple(found)

    def _string(self, node: "Node") -> Tokens | None:
        if any(child.type in ("template_substitution", "interpolation") for child in node.children):
            return None
        text = self.text(node)[:50_000].strip("`\"'")
        return tokens(re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), text))
