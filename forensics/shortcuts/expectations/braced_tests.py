"""The tests of Java, JavaScript, TypeScript, Go, Rust, C and C++, and languages like them.

1. `brackets`: the text as nested brackets; a hunk, too.
2. A test is what its framework finds: an annotation or attribute, a name, a call (`it`), a macro.
3. Assertions (`braced_asserts`): calls and chains whose name says so, and `if` with a body that
   fails the test, which demands the opposite of its condition.
"""

import itertools
import re
from collections import Counter
from collections.abc import Sequence

from forensics.shortcuts.expectations.braced_asserts import (
    asserting,
    chain_end,
    demand_of,
    demanded,
    is_name,
    literals_in,
    opened,
    opposite,
    rows_in,
)
from forensics.shortcuts.expectations.braced_heads import (
    annotated,
    block_of,
    follow_directive,
    guard_unreported,
    is_called,
    macro_test,
    skips_in,
)
from forensics.shortcuts.expectations.brackets import (
    Token,
    balance,
    every,
    groups_in,
    language_of,
    literal,
    parted,
    plain,
    statements,
    tree,
    written,
)
from forensics.shortcuts.expectations.demands import Scope, Test, merged, number
from forensics.shortcuts.expectations.versions import Part
from forensics.shortcuts.vocabulary import Vocabulary

_FORMS = Vocabulary(__name__)
_SWALLOWED = "its error is swallowed"


def read_pair(path: str, part: Part) -> tuple[list[Test], list[Test]]:
    """The tests before and after."""
    return tests_of(path, part.old, part.heading), tests_of(path, part.new, part.heading)


def damaged(path: str, parts: Sequence[Part]) -> bool:
    """Whether brackets of the file no longer close as they did; a comment that is cut tells
    nothing.
    """
    language = language_of(path)
    more = Counter[str]()
    for part in parts:
        more.update(balance(part.new, language))
        more.subtract(balance(part.old, language))
    cut = any(p.new.count(mark) != p.old.count(mark) for p in parts for mark in ("/*", "*/"))
    return any(more.values()) and not cut


def tests_of(path: str, text: str, heading: str = "") -> list[Test]:
    """The tests of a text or of a hunk below a heading."""
    reader = _Reader(language_of(path), heading)
    reader.block(tree(text, reader.language), Scope(reader.tests[0]), True)
    return merged(reader.tests)


class _Reader:
    """Walks through statements, and keeps the tests that it meets."""

    def __init__(self, language: str, heading: str) -> None:
        self.language = language
        found = re.search(r"(?:\bfn |\bfunc |void |\bTEST\w*\()\s*(\w+)(?:, *(\w+))?", heading)
        self.tests = [Test(".".join(filter(None, found.groups())) if found else "")]

    # -- statements ------------------------------------------------------------------------

    def block(self, items: Sequence[Token], scope: Scope, first: bool = False) -> None:
        """Statements in order. `first`: at the beginning of a hunk, where marks may be cut."""
        lines: list[str] = []
        for statement in statements(items, self.language):
            head = statement[0]
            if head.kind == "line":
                follow_directive(head.text, lines)
                continue
            if head.text == "end":
                scope = Scope(self.tests[0], (), scope.within)
            else:
                scope = scope.behind(*self.statement(statement, scope.behind(*lines), first))
            first = False

    def statement(self, tokens: list[Token], scope: Scope, first: bool) -> tuple[str, ...]:
        """One statement; gives the guards of what follows it."""
        bare = plain(tokens)
        word = bare[0].text if bare and bare[0].kind == "word" else ""
        if not bare or word in _FORMS.words["blocks"]:
            return self.compound(word, bare, scope)
        if word in ("return", "break", "continue") and len(bare) <= 2:
            self.expression(bare[1:], scope)
            return ("after a return",) if word == "return" else ()
        if self.definition(tokens, bare, scope, first):
            return ()
        if word == "assert" and len(bare) > 1 and bare[1].text not in ("(", ".", "::"):
            told = parted(bare[1:], ":")[0]
            scope.test.demands.append(demanded("assert " + written(told), told, scope.guards))
            return ()
        at = next((i for i, t in enumerate(bare) if re.match(r"should(?:[A-Z]|$)", t.text)), 0)
        if at and bare[at - 1].text != "." and self.language == "kt":
            scope.test.demands.append(demanded(written(bare), bare, scope.guards))
            return ()
        self.value(bare, scope.test)
        self.expression(bare, scope)
        throws = word == "throw" and not _FORMS.skip_call.search(written(bare))
        return ("after a throw",) if throws else ()

    def compound(self, word: str, tokens: list[Token], scope: Scope) -> tuple[str, ...]:
        """A statement that holds others."""
        if word == "if":
            return self.choice(tokens, scope)
        if word == "try":
            self.attempt(tokens, scope)
            return ()
        if word == "while" and re.match(r"while ?\(?(?:false|0)\)?$", written(tokens[:2])):
            scope = scope.behind("never")
        for token in tokens[1:]:
            if token.opens("{") and (self.language != "go" or token is tokens[-1]):
                self.block(token.items, scope)
            else:
                self.expression([token], scope)
        if not any(token.opens("{") for token in tokens):
            self.expression(tokens[2:], scope)
        return ()

    def choice(self, tokens: list[Token], scope: Scope) -> tuple[str, ...]:
        """An `if` with what belongs to it."""
        more: tuple[str, ...] = ()
        at, why = 0, ""
        while at < len(tokens):
            start, is_if = at + 1, tokens[at].text == "if"
            if tokens[at].text == "else" and start < len(tokens) and tokens[start].text == "if":
                is_if, start = True, start + 1
            bare = self.language in ("go", "rust") or not is_if or start == len(tokens)
            block = block_of(tokens, start, bare)
            if block is not None:
                body, end = tokens[block].items, block + 1
            else:
                rest = range(start + is_if, len(tokens))
                end = next((i for i in rest if tokens[i].text == "else"), len(tokens))
                body = tokens[start + is_if : end]
            condition = tokens[start : block or start] if bare else [tokens[start]]
            why = f"if {written(opened(condition))}" if is_if else f"else of {why}"
            more += self.branch(why, condition if is_if else [], body, scope)
            at = end
        return more

    def branch(
        self, why: str, condition: Sequence[Token], body: Sequence[Token], scope: Scope
    ) -> tuple[str, ...]:
        """One branch: skips, fails, returns, or holds assertions."""
        text, test = written(body), scope.test
        if skip := _FORMS.skip_call.search(text):
            test.skips.add(f"{why}: {skip[0].rstrip('(')}")
            return ()
        inside = Test("")
        self.block(body, scope.behind(why)._replace(test=inside))
        only_fails = all(re.fullmatch(r"fail\(\)|FAIL\(\)", d.text) for d in inside.demands)
        if condition and _FORMS.fails.search(text) and only_fails:
            *setup, asked = parted(opened(condition), ";") or [[]]
            where = f" where {written(setup[0])}" if setup else ""
            for one in parted(asked, "||"):
                one, *rest = parted(one, "&&")
                here = scope.behind(*(f"if {written(part)}" for part in rest))
                told = [*itertools.chain(*setup), *one]
                shown = f"assert {opposite(one)}{where}"
                test.demands.append(demanded(shown, told, here.guards, compared=True))
            return ()
        test.demands += inside.demands
        test.rows += inside.rows
        test.skips |= inside.skips
        test.values += inside.values
        ends = statements(body, self.language)
        returns = ends and ends[-1][0].text == "return" and not inside.demands
        return (f"a return {why}",) if returns else ()

    def attempt(self, tokens: list[Token], scope: Scope) -> None:
        """A `try`; its body counts as swallowed where a handler lets failures pass."""
        silent = False
        for at, token in enumerate(tokens):
            if token.text == "catch":
                kinds = next((t for t in tokens[at + 1 : at + 2] if t.opens("(")), None)
                body = next((t for t in tokens[at + 1 : at + 3] if t.opens("{")), None)
                wide = (
                    self.language == "js" or kinds is None or _FORMS.wide.search(written([kinds]))
                )
                silent |= bool(wide and body and not _FORMS.keeps.search(written([body])))
        inner = scope.behind(_SWALLOWED) if silent else scope
        handler = False
        for token in tokens[1:]:
            handler = (handler or token.text == "catch") and token.text != "finally"
            if token.opens("{"):
                self.block(token.items, scope.behind("in an error's handler") if handler else inner)

    # -- definitions -----------------------------------------------------------------------

    def definition(self, tokens: list[Token], bare: list[Token], scope: Scope, first: bool) -> bool:
        """A test, a helper or a class with a block of its own."""
        if not tokens[-1].opens("{"):
            return False
        head, body = bare[:-1], tokens[-1]
        marks = tokens[: len(tokens) - len(bare)]
        word = head[0].text if head and head[0].kind == "word" else ""
        if _FORMS.macros.match(word) and len(head) > 1 and head[1].opens("("):
            return self.inner(macro_test(word, head), body, scope._replace(within=""))
        kinds = [i for i, t in enumerate(head) if t.text in _FORMS.words["types"]]
        bound = any(t.text in ("=", ":=") for t in head)
        if kinds and kinds[0] + 1 < len(head) and not bound:
            name = scope.joined(head[kinds[0] + 1].text)
            return self.inner(
                Test(name, skips=skips_in(written(marks))), body, scope._replace(within=name)
            )
        if any(t.kind == "mark" and t.text in ("=", ":=", "=>") for t in head):
            return self.arrow(head, body, scope)
        return self.function(marks, head, body, scope, first)

    def function(
        self, marks: list[Token], head: list[Token], body: Token, scope: Scope, first: bool
    ) -> bool:
        """A function by its name and brackets, or a call with a block: `SECTION(...) { }`."""
        at = next((i for i in range(1, len(head)) if is_called(head, i)), None)
        if at is None or head[0].text in ("return", "new", "await"):
            return False
        if any(t.text == "." for t in head[:at]):
            return False
        if at < 2 and self.language != "js":
            if _FORMS.skip_call.search(written(head[: at + 1])):
                scope.test.skips.add(written(head[: at + 1]))
            self.block(body.items, scope)
            return True
        said, name = written(marks), head[at - 1].text
        inner = Test(scope.joined(name), self.collects(name, said, first))
        inner.skips |= skips_in(said)
        for row in re.findall(r'"([^"]*,[^"]*)"', said if "Csv" in said else ""):
            inner.rows.append(tuple(part.strip() for part in row.split(",")))
        annotated(said, marks, inner)
        return self.inner(inner, body, scope._replace(within=inner.name))

    def collects(self, name: str, marks: str, first: bool) -> bool:
        """Whether the runner finds a function of this name with these marks."""
        if self.language == "go":
            return re.match(r"(?:Test|Example|Fuzz|Benchmark)(?![a-z])", name) is not None
        cut = first and not marks and self.language in ("java", "rust", "kt")
        if cut or _FORMS.marked.search(marks):
            return True
        return self.language in ("java", "c", "kt") and name.startswith(("test", "Test"))

    def inner(self, test: Test, body: Token, scope: Scope) -> bool:
        """A test with its own statements."""
        self.tests.append(test)
        self.block(body.items, scope._replace(test=test))
        guard_unreported(test, written(body.items))
        return True

    def arrow(self, head: Sequence[Token], body: Token, scope: Scope) -> bool:
        """A helper that is given a name: `const check = (a, b) => { ... }`."""
        at = next(i for i, t in enumerate(head) if t.text in ("=", ":=", "=>"))
        if not at or head[at - 1].kind != "word":
            return False
        if not any(t.text in ("=>", "function") for t in head[at + 1 :]):
            return False
        return self.inner(
            Test(scope.joined(head[at - 1].text), False), body, scope._replace(guards=())
        )

    # -- expressions -----------------------------------------------------------------------

    def value(self, tokens: Sequence[Token], test: Test) -> None:
        """A name with the value that it is given."""
        marks = (i for i, t in enumerate(tokens) if t.kind == "mark" and t.text in ("=", ":="))
        at = next(marks, 0)
        if not at or tokens[at - 1].kind != "word":
            return
        right = tokens[at + 1 :]
        values = literals_in(right)
        if not values or any(t.text in ("=>", "function", "func") for t in right):
            return
        groups = groups_in(right)
        if any(rows_in(group, before) for before, group in groups):
            return
        called = [b.text for b, t in groups if b is not None and b.kind == "word" and t.opens("(")]
        if all(map(_FORMS.builds.search, called)):
            test.values.append((tokens[at - 1].text, written(right)))
        else:
            given = [t.text for t in tokens[:at] if is_name(t)]
            test.inputs += [(one, tuple(values), frozenset(called)) for one in given]

    def expression(self, tokens: Sequence[Token], scope: Scope) -> None:
        """Calls that assert, skip, define tests or replace; tables; and blocks within."""
        at = 0
        while at < len(tokens):
            end = at + 1
            if tokens[at].kind == "group":
                self.group(tokens, at, scope)
            elif tokens[at].kind == "word":
                end = chain_end(tokens, at)
                self.chain(list(tokens[at:end]), scope)
            at = end

    def group(self, tokens: Sequence[Token], at: int, scope: Scope) -> None:
        """Brackets with what stands in them."""
        token = tokens[at]
        scope.test.rows += rows_in(token, tokens[at - 1] if at else None)
        if token.opens("{"):
            self.block(token.items, scope)
        else:
            self.expression(token.items, scope)

    def chain(self, chain: list[Token], scope: Scope) -> None:
        """A name with what is called on it."""
        text, test = written(chain), scope.test
        arguments = next((t for t in reversed(chain) if t.opens("(")), None)
        defines = self.language in ("js", "kt") and _FORMS.defines.match(chain[0].text)
        if defines and arguments is not None:
            title = next((t for t in arguments.items if t.kind in ("string", "word")), None)
            if title is not None and (title.kind == "string" or "each" in text[:40]):
                return self.defined(chain, arguments, literal(title).strip('"'), scope)
        at = asserting(chain)
        if at is not None:
            return self.assertion(chain, at, text, scope)
        if _FORMS.skip_call.search(text):
            test.skips.add(" ".join([*scope.guards, text[:80]]))
        if _FORMS.fakes.search(text):
            texts = [t.text for t in every(chain) if t.kind in ("word", "string")]
            test.fakes.update(word for one in texts for word in re.findall(r"\w{3,}", one))
        if found := re.search(r"\btimeout\((\d+)\)", text):
            test.limits.append(float(found[1]))
        if "catch_unwind" in text:
            scope = scope.behind(_SWALLOWED)
        if arguments is not None:
            pairs = itertools.pairwise(chain)
            called = [t.text for t, n in pairs if t.kind == "word" and n.opens("(")]
            told = demanded(text + " ==", chain, scope.guards)
            test.calls += [(one, told) for one in called[-1:]]
        for i, token in enumerate(chain):
            if token.kind == "group":
                self.group(chain, i, scope)
        return None

    def assertion(self, chain: list[Token], at: int, text: str, scope: Scope) -> None:
        """A chain that asserts, and the functions that it is given."""
        here = scope.behind(_SWALLOWED) if _FORMS.swallowed.search(text) else scope
        scope.test.demands.append(demand_of(chain, at, here.guards))
        expected = _FORMS.expects_failure.search(text)
        if expected and not re.search(r"(?i)not\.?_?throw|NotPanics", text):
            scope = scope.behind("its failure is expected")
        for token in chain:
            if any(t.opens("{") or t.text in ("->", "=>") for t in every(token.items)):
                self.expression(token.items, scope)

    def defined(self, chain: Sequence[Token], args: Token, title: str, scope: Scope) -> None:
        """`it("...", () => {...})` and the like."""
        head = written([t for t in chain if t is not args and not t.opens("(")])
        inner = Test(scope.joined(title), only=head.startswith("f") or ".only" in head)
        here = Scope(inner, scope.guards, inner.name)
        if _FORMS.modified.search(head):
            inner.skips.add(head)
        if found := re.search(r"\b(?:skip|todo|fails): ?true", written(args.items)[:300]):
            inner.skips.add(found[0])
        self.tests.append(inner)
        for token in chain:
            if token is not args and token.kind == "group":
                self.expression([token], here._replace(guards=()))
            if token.kind == "string" and token.text.startswith("`"):
                rows = (re.findall(r"\$\{(.*?)\}", line) for line in token.text.split("\n"))
                inner.rows += [tuple(row) for row in rows if len(row) > 1]
        parts = parted(args.items)
        if len(parts) > 2 and len(parts[-1]) == 1 and parts[-1][0].kind == "number":
            inner.limits.append(number(parts[-1][0].text) or 0.0)
        if len(parts) == 1:
            inner.skips.add("has no body")
        for part in parts[1:]:
            self.expression(part, here)
