"""Exits in languages other than Python, told apart from programs that stop.

1. Where an exit with success stands (`other_places`): what runs when the code is loaded (the
   top of a script, `init`, a static or global initializer, the constructor of a global
   object), a hook, `main`, or a function.
2. What makes it honest: a condition, a printed answer or reason, work done before, a
   callback, a helper of a program that reads its input.
3. Behind the literal of one input it is a targeted exit, where an assertion fails it is
   sure; what kills its own process is an attempt.
"""

import re
from itertools import islice
from typing import TYPE_CHECKING

from forensics.shortcuts.vocabulary import Vocabulary

from .code_finding import CodeFinding
from .exits import gives_reason, targets
from .grammars import CALLS, FUNCTIONS, Tree
from .other_cases import callee, compared_with, position
from .other_exit_names import ExitNames, is_hard
from .other_places import Place, Places, conditions, statements_before, statements_behind
from .program import Program

if TYPE_CHECKING:
    from tree_sitter import Node

_FORMS = Vocabulary(__name__)
MOST_JUDGED = 100  # calls of one text that end the process
_ON_LOAD = "loading the code ends the process with success before any check runs."
_ON_CALL = "calling the function ends the process with success before any check runs."


def other_exits(tree: Tree, program: Program) -> list[CodeFinding]:
    """The exits of a text that keep its checks from running."""
    names = ExitNames(tree)
    if not names.any or tree.root is None:
        return []
    judge = _Judge(tree, program, names)
    calls = (node for node in tree.nodes() if node.type in CALLS and judge.ends(node))
    found = (judge.told(node) for node in islice(calls, MOST_JUDGED))
    return [one for one in found if one is not None]


class _Judge:
    def __init__(self, tree: Tree, program: Program, names: ExitNames) -> None:
        self.tree = tree
        self.program = program
        self.names = names
        self.places = Places(names)
        self.reads_input = _FORMS.input.search(names.source) is not None
        self.asked = program.shown.functions | program.shown.signatures

    def ends(self, node: "Node") -> bool:
        """Whether a call ends the process."""
        return bool(self.names.exit_name(node)) or self.names.kills(node)

    def told(self, node: "Node") -> CodeFinding | None:
        """What is told of one call that ends the process."""
        name = self.names.exit_name(node)
        place = self.places.place_of(node)
        tests = conditions(self.tree, place.path)
        if not name:
            reason = "the process kills itself, which may be before any check runs."
            plain = not tests and self.asked and not self.reads_input
            return self._told(node, reason, sure=False) if plain else None
        if any(self._targets(test) for test in tests):
            reason = "the process ends with success on one input or under a test only."
            return self._told(node, reason, sure=True, kind="targeted exit")
        if any("AssertionError" in self._caught(test) for test in tests):
            reason = "where an assertion fails, the process ends with success."
            return self._told(node, reason, sure=True)
        if tests:
            return self._conditional(node, name, place)
        if self._withholds(place):
            return self._told(node, _ON_CALL, sure=is_hard(name) or not self.reads_input)
        return None if self._is_excused(place) else self._judged(node, name, place)

    def _judged(self, node: "Node", name: str, place: Place) -> CodeFinding | None:
        if place.kind == "hook":
            reason = "when the checks end or fail, the process is made to end with success."
            return self._told(node, reason, sure=True)
        worked = any(self._works(one) for one in statements_before(place.path))
        asks = bool(self.asked) and not self.reads_input
        if place.kind == "later":  # a timer that a script sets
            return self._told(node, _ON_LOAD, sure=False) if asks and not worked else None
        if place.kind == "load":
            return self._told(node, _ON_LOAD, sure=True) if not worked else None
        if place.kind == "top":
            if worked and not asks:
                return None  # a script that ends
            broken = self.tree.root is not None and self.tree.root.has_error
            return self._told(node, _ON_LOAD, sure=not broken)
        return self._in_function(node, name, place, worked) if place.kind == "function" else None

    def _in_function(
        self, node: "Node", name: str, place: Place, worked: bool
    ) -> CodeFinding | None:
        behind = [one for one in statements_behind(place.path) if "return" not in one.type]
        if place.name == "TestMain":
            return self._told(node, "the tests end with success whatever they say.", sure=True)
        if place.name == "main" and self.names.language != "javascript":
            reason = "the program ends with success before it does anything."
            sure = bool(behind or self.program.shown.tests or self.asked)
            return None if worked else self._told(node, reason, sure=sure)
        if place.name in self.asked or place.owner in self.asked:
            return self._told(node, _ON_CALL, sure=True)
        if place.name in _FORMS.words["stops"] and not is_hard(name):
            return None
        gives = place.result not in _FORMS.words["no_value"]
        if worked or (self.reads_input and not gives and not behind):
            return None
        sure = not self.reads_input and (gives or bool(behind) or is_hard(name))
        return self._told(node, _ON_CALL, sure=sure)

    def _withholds(self, place: Place) -> bool:
        """Whether a function that should give a value ends the process instead, and has shown
        nothing before.
        """
        if (
            place.kind != "function"
            or place.result in _FORMS.words["no_value"]
            or place.name in _FORMS.words["stops"]
        ):
            return False
        return not any(self._shows(one) for one in statements_before(place.path))

    def _shows(self, statement: "Node") -> bool:
        """Whether a statement prints something, more than a flush."""
        text = re.sub(r"(?:std\s{0,9}::\s{0,9})?(?:flush|endl)\b", "", self.tree.text(statement))
        return (
            _FORMS.prints.search(re.sub(r"\bc(?:out|err)\s{0,9}(?:<<\s{0,9})*;", "", text))
            is not None
        )

    def _conditional(self, node: "Node", name: str, place: Place) -> CodeFinding | None:
        """Behind a condition only a hard exit outside a program is worth a look."""
        if not is_hard(name) or self.reads_input or not self.asked or self._is_excused(place):
            return None
        reason = "the process ends with success under a condition."
        return self._told(node, reason, sure=False)

    def _is_excused(self, place: Place) -> bool:
        """A program that has done its work, or said why it stops."""
        before = list(statements_before(place.path))
        texts = [text for one in before for text in self._printed(one)]
        if (said := gives_reason(texts)) is not None:
            return said
        if not self.reads_input or not any(self._works(one) for one in before):
            return False
        first = _FORMS.input.search(self.names.source)
        return place.kind != "top" or (
            first is not None and first.start() <= place.path[0].start_byte
        )

    def _printed(self, statement: "Node") -> list[str]:
        text = self.tree.text(statement)[:4000]
        return (
            re.findall(r"['\"`]([^'\"`\n]{1,400})['\"`]", text)
            if _FORMS.prints.search(text)
            else []
        )

    def _works(self, statement: "Node") -> bool:
        """Whether a statement may have given the answer: it calls, reads or prints something."""
        if statement.type in FUNCTIONS or "import" in statement.type or "use_" in statement.type:
            return False
        bound = "declaration" in statement.type
        waiting = [statement]
        for _ in range(2000):
            if not waiting:
                return False
            node = waiting.pop()
            if node.type in FUNCTIONS or self._sets_up(node):
                continue
            if node.type == "binary_expression" and _FORMS.streams.match(self.tree.text(node)[:40]):
                return True
            if node.type in CALLS and (not bound or self._is_own(node)):
                return True
            waiting += node.named_children
        return True

    def _sets_up(self, node: "Node") -> bool:
        return node.type in CALLS and _FORMS.sets_up.search(callee(self.tree, node)) is not None

    def _is_own(self, node: "Node") -> bool:
        """Whether a call reads the input, or calls a function that the text defines."""
        text = self.tree.text(node)[:300]
        name = re.escape(callee(self.tree, node)[:80])
        own = rf"\b(?:function|fn|func|void|int|long|bool|auto|static)\s{{1,9}}{name}\s{{0,9}}\("
        return bool(_FORMS.input.search(text) or re.search(own, self.names.source))

    def _targets(self, test: "Node") -> bool:
        if _FORMS.asks_for_test.search(self.tree.text(test)[:2000]):
            return True
        return targets(compared_with(self.tree, test), self.program.shown)

    def _caught(self, test: "Node") -> str:
        return self.tree.text(test).partition("{")[0][:300] if test.type == "catch_clause" else ""

    def _told(
        self, node: "Node", reason: str, *, sure: bool, kind: str = "early exit"
    ) -> CodeFinding:
        return self.program.finding(kind, position(node), reason, sure=sure)
