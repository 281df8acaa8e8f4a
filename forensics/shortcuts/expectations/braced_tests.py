"""The tests of Java, JavaScript, TypeScript, Go, Rust, C and C++, and languages like them.

1. `brackets`: the text as nested brackets; a hunk, too.
2. A test is what its framework finds: an annotation or attribute, a name, a call (`it`), a macro.
3. Assertions: calls and chains whose name says so, and `if` with a body that fails the test,
   which demands the opposite of its condition. What an assertion only says is left away.
"""

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace

from forensics.shortcuts.expectations.brackets import (
    Token,
    balance,
    every,
    language_of,
    literal,
    parted,
    plain,
    statements,
    tree,
    written,
)
from forensics.shortcuts.expectations.demands import Demand, Test, merged, number, words
from forensics.shortcuts.expectations.versions import Part

_ASSERTS = re.compile(
    r"(?:(?:debug_|prop_)?assert\w*!?|Assert\w*|ASSERT\w*|EXPECT_\w+|expect\w*|CHECK\w*|REQUIRE\w*"
    r"|BOOST_(?:CHECK|REQUIRE|TEST|WARN)\w*|verify\w*|should(?:[A-Z]\w*)?|must|fail|FAIL\w*|refute\w*"
    r"|\w*[sS]napshot!?|TEST_ASSERT\w*|ck_assert\w*)$"
)
_METHODS = re.compile(
    r"(?:Not)?(?:Equal\w*|True|False|Nil|Error\w*|Empty|Zero|Contains|Len|Panics\w*|Same|Regexp|Subset"
    r"|InDelta|InEpsilon|JSONEq|Greater\w*|Less\w*|ElementsMatch|Implements|IsType|Eventually|Exactly)$"
    r"|NoError\w*$|(?:not|is|isNot|deepEqual|notDeepEqual|throws\w*|notThrows\w*|like|snapshot|regex"
    r"|equal|same|strictSame|ok|notOk|truthy|falsy|match|rejects)$"
)
_OBJECTS = frozenset({"s", "suite", "is", "c", "t", "ts", "a", "r", "tc"})
_NO_DEMAND = re.compile(
    r"assert(?:All|Softly)$|assertTimeout\w*$|assertions?$|expectTypeOf$|expect(?:ation|ed)s?$"
    r"|CHECKED|verifyNoMoreInteractions$"
)
_FAILS = re.compile(
    r"\b(?:t|b|tb|T|f)\.(?:Errorf?|Fatalf?|FailNow|Fail)\b|\bpanic!?\(|\b[fF]ail\(|\bFAIL\(|\bthrow\b"
    r"|process\.exit\(1|\babort\(|\bexit\((?:1|EXIT_FAILURE|-1)\)"
    r"|\breturn (?:1|-1|EXIT_FAILURE|false)\b"
    r"|ADD_FAILURE|std::process::exit\(1|done\([^)]"
)
_DEFINES = re.compile(r"(?:x|f)?(?:it|describe|context|specify|test|suite)$|bench$|Deno$")
_MACROS = re.compile(
    r"(?:TYPED_|RC_GTEST_)?TEST(?:_[A-Z]+)*$|BOOST_\w*TEST_CASE\w*$|SCENARIO\w*$|TEMPLATE_\w*TEST_CASE\w*$"
    r"|(?:DISABLED_)?TEST_CASE\w*$|START_TEST$|TEST_METHOD$"
)
_MARKED = re.compile(
    r"@(?:Test|ParameterizedTest|RepeatedTest|TestFactory|TestTemplate|Theory|Property|Fact|TestMethod)\b"
    r"|\[(?:\w+(?:::|\.))*(?:test|rstest|test_case|quickcheck|wasm_bindgen_test|proptest|Test|Fact|Theory)\b"
)
_SKIPS = re.compile(
    r"@(?:\w+\.)*(?:Ignore|Disabled\w*|EnabledIf\w*|EnabledOn\w*|Suppress)\b|enabled ?= ?false"
    r"|\[ignore\b|\[cfg\((?!test\b|not\(target|target|unix|windows)|\[cfg_attr\([^\]]*ignore"
    r"|\[should_panic"
    r"|expected ?= ?(?:java\.lang\.)?(?:AssertionError|Throwable|Exception|Error)\.class"
)
_SKIP_CALL = re.compile(
    r"\b(?:t|b|tb|s\.T\(\)|suite\.T\(\)|this|ctx|context|test)\.(?:skip|Skip|SkipNow|Skipf|todo)\("
    r"|\bGTEST_SKIP\b|\bassume(?:True|False|That|NotNull|NoException)?\(|^(?:\w+\.)*abort\($"
    r"|^SKIP\(|SkipException\(|TestAbortedException\(|TEST_IGNORE|AssumptionViolatedException\(|^pending\("
)
_MODIFIED = re.compile(r"^x|\.(?:skip|todo|failing|fails|skipIf|runIf)\b|DISABLED_")
_SWALLOWED = re.compile(r"\.catch\(|\.ok\(\)$")
_WIDE = re.compile(
    r"\b(?:AssertionError|AssertionFailedError|Throwable|Exception|Error|RuntimeException|exception)\b|\.\.\."
)
_KEEPS = re.compile(
    r"\b(?:throw|fail|assert\w*|expect|done|EXPECT_\w+|FAIL\w*|reject|panic!?|raise)\b"
)
_EXPECTS_FAILURE = re.compile(r"[tT]hrow|AssertionError|catch_unwind|rejects|Panics")
_WORDS = frozenset(
    {"true", "false", "null", "nil", "None", "nullptr", "undefined", "NaN", "TRUE", "FALSE"}
)
_SAYS = re.compile(
    r"(?:as|describedAs|withFailMessage|overridingErrorMessage|because|withContext|withClue)$"
)
_TWO = re.compile(
    r"(?i)equals?\w*$|same|_eq|_ne\b|_ne!|_eq!|contains|matches|instanceof|greater|less|As$|Is$|_[LG][TE]$|Eq$|throws|Len$|HasLen"
)
_ONE = re.compile(
    r"(?:(?:debug_)?assert!?|(?:assert|ASSERT_|EXPECT_|expect_)?_?(?:Not|Is|No)?_?(?:True|False|Null|Nil|Error"
    r"|Empty|NotNull|TRUE|FALSE)|fail|FAIL|ok|notOk|expect|truthy|falsy)$"
)
_THREE = re.compile(r"(?i)delta|near|close|epsilon|within")
_TABLES = re.compile(
    r"(?:of|asList|Values|each|vec!|values|table|listOf|arrayOf|cases|List|Stream)$"
)
_BUILDS = re.compile(
    r"(?:of|asList|vec!|String|from|new|List|Set|Map|Array|Some|Ok|Err|to_string|to_vec|into|Duration|\w*[tT]uple|pair|string)$"
)
_FAKES = re.compile(
    r"(?:jest|vi)\.(?:mock|doMock|spyOn)\(|sinon\.(?:stub|replace)\(|^when\(|\bMockito\.when\(|mockReturnValue\("
)


def read_pair(path: str, part: Part) -> tuple[list[Test], list[Test]]:
    """The tests before and after."""
    return tests_of(path, part.old, part.heading), tests_of(path, part.new, part.heading)


def damaged(path: str, parts: Sequence[Part]) -> bool:
    """Whether brackets of the file no longer close as they did."""
    language = language_of(path)
    for bracket in "([{":
        if sum(
            balance(part.new, language)[bracket] - balance(part.old, language)[bracket]
            for part in parts
        ):
            ends = [(p.new.count(m) - p.old.count(m)) for p in parts for m in ("/*", "*/")]
            return not any(ends)
    return False


def tests_of(path: str, text: str, heading: str = "") -> list[Test]:
    """The tests of a text or of a hunk below a heading."""
    reader = _Reader(language_of(path), heading)
    items = tree(text, reader.language)
    reader.block(items, reader.tests[0], (), "", True)
    return merged(reader.tests)


class _Reader:
    """Walks through statements, and keeps the tests that it meets."""

    def __init__(self, language: str, heading: str) -> None:
        self.language = language
        found = re.search(r"(?:\bfn |\bfunc |void |\bTEST\w*\()\s*(\w+)(?:, *(\w+))?", heading)
        self.tests = [Test(".".join(filter(None, found.groups())) if found else "")]

    def block(
        self,
        items: Sequence[Token],
        test: Test,
        guards: tuple[str, ...],
        within: str,
        first: bool = False,
    ) -> None:
        """Statements in order. `first`: at the beginning of a hunk, where marks may be cut."""
        lines: list[str] = []
        for statement in statements(items, self.language):
            head = statement[0]
            if head.kind == "line":
                _directive(head.text, lines)
                continue
            if head.text == "end":
                guards, first = (), False
                test = self.tests[0]
                continue
            more = self.statement(statement, test, (*guards, *lines), within, first)
            guards, first = (*guards, *more), False

    def statement(
        self, tokens: list[Token], test: Test, guards: tuple[str, ...], within: str, first: bool
    ) -> tuple[str, ...]:
        """One statement; gives the guards of what follows it."""
        bare = plain(tokens)
        if not bare:
            return ()
        word = bare[0].text if bare[0].kind == "word" else ""
        if word == "if":
            return self.choice(bare, test, guards, within)
        if word == "try":
            self.attempt(bare, test, guards, within)
            return ()
        if word in ("for", "while", "do", "switch", "match", "select", "loop", "unsafe", "else"):
            never = word == "while" and re.match(r"while ?\(?(?:false|0)\)?$", written(bare[:2]))
            inner = (*guards, "never") if never else guards
            for token in bare[1:]:
                if token.opens("{") and (self.language != "go" or token is bare[-1]):
                    self.block(token.items, test, inner, within)
                else:
                    self.expression([token], test, inner, within)
            if not any(token.opens("{") for token in bare):
                self.expression(bare[2:], test, inner, within)
            return ()
        if word in ("return", "break", "continue") and len(bare) <= 2:
            self.expression(bare[1:], test, guards, within)
            return ("after a return",) if word == "return" else ()
        if self.definition(tokens, bare, test, guards, within, first):
            return ()
        if word == "assert" and len(bare) > 1 and bare[1].text not in ("(", ".", "::"):
            told = parted(bare[1:], ":")[0]
            test.demands.append(_demand("assert " + written(told), told, guards))
            return ()
        at = next((i for i, t in enumerate(bare) if re.match(r"should(?:[A-Z]|$)", t.text)), 0)
        if at and bare[at - 1].text != "." and self.language == "kt":
            test.demands.append(_demand(written(bare), bare, guards))
            return ()
        self.value(bare, test)
        self.expression(bare, test, guards, within)
        if word == "throw" and not _SKIP_CALL.search(written(bare)):
            return ("after a throw",)
        return ()

    def choice(
        self, tokens: list[Token], test: Test, guards: tuple[str, ...], within: str
    ) -> tuple[str, ...]:
        """An `if` with what belongs to it."""
        more: tuple[str, ...] = ()
        at, why = 0, ""
        while at < len(tokens):
            start = at + 1
            is_if = tokens[at].text == "if"
            if tokens[at].text == "else" and start < len(tokens) and tokens[start].text == "if":
                at, is_if, start = start, True, start + 1
            ends = [i for i in range(start, len(tokens)) if tokens[i].opens("{")]
            ends = [i for i in ends if i + 1 == len(tokens) or tokens[i + 1].text == "else"]
            block = ends[0] if ends else -1
            if self.language not in ("go", "rust") and is_if and start < len(tokens):
                braced = start + 1 < len(tokens) and tokens[start + 1].opens("{")
                block = start + 1 if braced else -1
                condition = [tokens[start]]
            else:
                condition = tokens[start:block] if block >= 0 else []
            if block >= 0:
                body, end = tokens[block].items, block + 1
            else:
                body, end = tokens[start + is_if :], len(tokens)
                stop = next((i for i, t in enumerate(body) if t.text == "else"), None)
                if stop is not None:
                    end = start + is_if + stop
                    body = body[:stop]
            why = f"if {written(_opened(condition))}" if is_if else f"else of {why}"
            more += self.branch(why, condition if is_if else [], body, test, guards, within)
            at = end
        return more

    def branch(
        self,
        why: str,
        condition: Sequence[Token],
        body: Sequence[Token],
        test: Test,
        guards: tuple[str, ...],
        within: str,
    ) -> tuple[str, ...]:
        """One branch: skips, fails, returns, or holds assertions."""
        text = _sentence(body)
        if skip := _SKIP_CALL.search(text):
            test.skips.add(f"{why}: {skip[0].rstrip('(')}")
            return ()
        inside = Test("")
        self.block(body, inside, (*guards, why), within)
        only_fails = all(re.fullmatch(r"fail\(\)|FAIL\(\)", d.text) for d in inside.demands)
        if condition and _FAILS.search(text) and only_fails:
            *setup, asked = parted(_opened(condition), ";") or [[]]
            for one in parted(asked, "||"):
                one, *rest = parted(one, "&&")
                here = (*guards, *(f"if {written(part)}" for part in rest))
                shown = (
                    "assert " + _opposite(one) + (f" where {written(setup[0])}" if setup else "")
                )
                test.demands.append(
                    _demand(shown, [*(t for s in setup for t in s), *one], here, True)
                )
            return ()
        test.demands += inside.demands
        test.rows += inside.rows
        test.skips |= inside.skips
        test.values += inside.values
        ends = statements(body, self.language)
        if ends and ends[-1][0].text == "return" and not inside.demands:
            return (f"a return {why}",)
        return ()

    def attempt(
        self, tokens: list[Token], test: Test, guards: tuple[str, ...], within: str
    ) -> None:
        """A `try`; its body counts as swallowed where a handler lets failures pass."""
        silent = False
        for at, token in enumerate(tokens):
            if token.text == "catch":
                kinds = next((t for t in tokens[at + 1 : at + 2] if t.opens("(")), None)
                body = next((t for t in tokens[at + 1 : at + 3] if t.opens("{")), None)
                wide = self.language == "js" or kinds is None or _WIDE.search(written([kinds]))
                silent |= bool(wide) and body is not None and not _KEEPS.search(_sentence([body]))
        inner = (*guards, "its error is swallowed") if silent else guards
        handler = False
        for token in tokens[1:]:
            handler = (handler or token.text == "catch") and token.text != "finally"
            if token.opens("{"):
                here = (*guards, "in an error's handler") if handler else inner
                self.block(token.items, test, here, within)

    def definition(
        self,
        tokens: list[Token],
        bare: list[Token],
        test: Test,
        guards: tuple[str, ...],
        within: str,
        first: bool,
    ) -> bool:
        """A test, a helper or a class with a block of its own."""
        if not tokens[-1].opens("{"):
            return False
        head = bare[:-1]
        marks = written(tokens[: len(tokens) - len(bare)])
        word = head[0].text if head and head[0].kind == "word" else ""
        if _MACROS.match(word) and len(head) > 1 and head[1].opens("("):
            parts = [written(part).strip('"') for part in parted(head[1].items)]
            two = word.startswith(("TEST", "TYPED")) and "CASE" not in word
            name = ".".join(parts[:2] if two else parts[:1])
            inner = Test(name.replace("DISABLED_", ""))
            inner.skips |= set(
                re.findall(
                    r"\[\.\w*\]|\[!\w+\]|doctest::(?:skip|may_fail|should_fail)", written(head)
                )
            )
            inner.skips |= {"DISABLED_"} if "DISABLED_" in name or "DISABLED_" in word else set()
            return self.inner(inner, tokens[-1], "", guards)
        found = next(
            (
                i
                for i, t in enumerate(head)
                if t.text
                in (
                    "class",
                    "interface",
                    "struct",
                    "impl",
                    "mod",
                    "namespace",
                    "object",
                    "trait",
                    "record",
                    "enum",
                )
            ),
            None,
        )
        if (
            found is not None
            and found + 1 < len(head)
            and not any(t.text in ("=", ":=") for t in head)
        ):
            name = head[found + 1].text
            outer = Test(_joined(within, name), skips=_marked(marks))
            return self.inner(outer, tokens[-1], outer.name, guards)
        if any(t.kind == "mark" and t.text in ("=", ":=", "=>") for t in head):
            return self.arrow(head, tokens[-1], within)
        at = next(
            (
                i
                for i, t in enumerate(head)
                if t.opens("(")
                and i
                and head[i - 1].kind == "word"
                and head[i - 1].text not in ("func", "function", "fn")
            ),
            None,
        )
        if (
            at is None
            or word in ("return", "new", "await")
            or any(t.text == "." for t in head[:at])
        ):
            return False
        if at < 2 and self.language != "js":  # a call with a block: SECTION(...) { }
            if _SKIP_CALL.search(written(head[: at + 1])):
                test.skips.add(written(head[: at + 1]))
            self.block(tokens[-1].items, test, guards, within)
            return True
        name = head[at - 1].text
        inner = Test(_joined(within, name), self.collects(name, marks, head, first))
        inner.skips |= _marked(marks)
        for row in re.findall(r'"([^"]*,[^"]*)"', marks if "Csv" in marks else ""):
            inner.rows.append(tuple(part.strip() for part in row.split(",")))
        self.marks(tokens[: len(tokens) - len(bare)], inner)
        return self.inner(inner, tokens[-1], inner.name, guards)

    def marks(self, tokens: Sequence[Token], test: Test) -> None:
        """What annotations demand: an error, a limit of time, cases."""
        text = written(tokens)
        if found := re.search(r"expected ?= ?([\w.]+)\.class|expected ?= ?(\"[^\"]*\")", text):
            name = (found[1] or found[2]).rsplit(".", 1)[-1]
            if not _SKIPS.search(text) or "should_panic" in text:
                test.demands.append(Demand(f"throws {name}", (name,), frozenset({name})))
        if found := re.search(r"timeout ?= ?(\d+)|@Timeout\((?:value ?= ?)?(\d+)", text):
            test.limits.append(float(found[1] or found[2]))
        test.marks |= set(
            re.findall(r"@(?:Tag|Category)\(\"?(\w+)|groups ?= ?\{?\"(\w+)", text)
            and [
                a or b
                for a, b in re.findall(r"@(?:Tag|Category)\(\"?(\w+)|groups ?= ?\{?\"(\w+)", text)
            ]
        )
        for token in every(tokens):
            if token.kind == "group":
                test.rows += _rows(token, None)

    def collects(self, name: str, marks: str, head: Sequence[Token], first: bool) -> bool:
        """Whether the runner finds a function of this name with these marks."""
        if self.language == "go":
            return re.match(r"(?:Test|Example|Fuzz|Benchmark)(?![a-z])", name) is not None
        if _MARKED.search(marks) or (
            first and not marks and self.language in ("java", "rust", "kt")
        ):
            return True
        return self.language in ("java", "c", "kt") and name.startswith(("test", "Test"))

    def inner(self, test: Test, body: Token, within: str, guards: tuple[str, ...] = ()) -> bool:
        """A test with its own statements."""
        self.tests.append(test)
        self.block(body.items, test, guards, within)
        _collected_only(test, written(body.items))
        return True

    def arrow(self, head: Sequence[Token], body: Token, within: str) -> bool:
        """A helper that is given a name: `const check = (a, b) => { ... }`."""
        at = next(i for i, t in enumerate(head) if t.text in ("=", ":=", "=>"))
        if not at or head[at - 1].kind != "word":
            return False
        if not any(t.text in ("=>", "function") for t in head[at + 1 :]):
            return False
        return self.inner(Test(_joined(within, head[at - 1].text), False), body, within)

    def value(self, tokens: Sequence[Token], test: Test) -> None:
        """A name with the value that it is given."""
        at = next(
            (i for i, t in enumerate(tokens) if t.kind == "mark" and t.text in ("=", ":=")), 0
        )
        if not at or tokens[at - 1].kind != "word":
            return
        name, right = tokens[at - 1].text, tokens[at + 1 :]
        if not (values := _literals(right)) or any(
            t.text in ("=>", "function", "func") for t in right
        ):
            return
        if any(_rows(t, before) for before, t in _groups(right)):
            return
        called = [
            b.text for b, t in _groups(right) if b is not None and b.kind == "word" and t.opens("(")
        ]
        if all(_BUILDS.search(one) for one in called):
            test.values.append((name, written(right)))
        else:
            given = [t.text for t in tokens[:at] if t.kind == "word" and t.text not in _NO_NAMES]
            test.inputs += [(one, tuple(values), frozenset(called)) for one in given]

    def expression(
        self, tokens: Sequence[Token], test: Test, guards: tuple[str, ...], within: str
    ) -> None:
        """Calls that assert, skip, define tests or replace; tables; and blocks within."""
        at = 0
        while at < len(tokens):
            token = tokens[at]
            if token.kind == "group":
                test.rows += _rows(token, tokens[at - 1] if at else None)
                if token.opens("{"):
                    self.block(token.items, test, guards, within)
                else:
                    self.expression(token.items, test, guards, within)
                at += 1
                continue
            end = _chain_end(tokens, at)
            if token.kind == "word":
                self.chain(list(tokens[at:end]), test, guards, within)
            at = max(end, at + 1)

    def chain(self, chain: list[Token], test: Test, guards: tuple[str, ...], within: str) -> None:
        """A name with what is called on it."""
        text = written(chain)
        name = chain[0].text
        args = next((t for t in reversed(chain) if t.opens("(")), None)
        if _DEFINES.match(name) and args is not None and self.language in ("js", "kt"):
            title = next((t for t in args.items if t.kind in ("string", "word")), None)
            if title is not None and (title.kind == "string" or "each" in text[:40]):
                self.defined(chain, args, literal(title).strip('"'), within, guards)
                return
        asserting = _asserting(chain)
        if asserting is not None:
            swallowed = ("its error is swallowed",) if _SWALLOWED.search(text) else ()
            test.demands.append(_demand_of(chain, asserting, (*guards, *swallowed)))
            if _EXPECTS_FAILURE.search(text) and not re.search(
                r"(?i)not\.?_?throw|NotPanics", text
            ):
                guards = (*guards, "its failure is expected")
            for token in chain:
                if token.kind == "group" and any(
                    t.opens("{") or t.text in ("->", "=>") for t in every(token.items)
                ):
                    self.expression(token.items, test, guards, within)
            return
        if _SKIP_CALL.search(text):
            test.skips.add(" ".join([*guards, text[:80]]))
        if _FAKES.search(text):
            test.fakes |= {
                w
                for t in every(chain)
                for w in re.findall(r"\w{3,}", t.text)
                if t.kind in ("word", "string")
            }
        if found := re.search(r"\btimeout\((\d+)\)", text):
            test.limits.append(float(found[1]))
        if "catch_unwind" in text:
            guards = (*guards, "its error is swallowed")
        if args is not None:
            called = [
                t.text for t, n in itertools.pairwise(chain) if t.kind == "word" and n.opens("(")
            ]
            told = _demand(written(chain) + " ==", chain, guards)
            test.calls += [(one, told) for one in called[-1:]]
        for i, token in enumerate(chain):
            if token.kind == "group":
                self.expression([token], test, guards, within) if i == 0 else self.nested(
                    chain, i, test, guards, within
                )

    def nested(
        self, chain: Sequence[Token], at: int, test: Test, guards: tuple[str, ...], within: str
    ) -> None:
        """The arguments of a call."""
        token = chain[at]
        test.rows += _rows(token, chain[at - 1])
        if token.opens("{"):
            self.block(token.items, test, guards, within)
        else:
            self.expression(token.items, test, guards, within)

    def defined(
        self, chain: Sequence[Token], args: Token, title: str, within: str, guards: tuple[str, ...]
    ) -> None:
        """`it("...", () => {...})` and the like."""
        head = written([t for t in chain if t is not args and not t.opens("(")])
        inner = Test(_joined(within, title))
        if _MODIFIED.search(head):
            inner.skips.add(head)
        if found := re.search(r"\b(?:skip|todo|fails): ?true", written(args.items)[:300]):
            inner.skips.add(found[0])
        inner.only = head.startswith("f") or ".only" in head
        self.tests.append(inner)
        for token in chain:
            if token is not args and token.kind == "group":
                self.expression([token], inner, (), inner.name)
            if token.kind == "string" and token.text.startswith("`"):
                inner.rows += [
                    row
                    for line in token.text.split("\n")
                    if len(row := tuple(re.findall(r"\$\{(.*?)\}", line))) > 1
                ]
        parts = parted(args.items)
        if parts and len(parts[-1]) == 1 and parts[-1][0].kind == "number" and len(parts) > 2:
            inner.limits.append(number(parts[-1][0].text) or 0.0)
        if len(parts) == 1:
            inner.skips.add("has no body")
        for part in parts[1:]:
            self.expression(part, inner, guards, inner.name)


def _joined(within: str, name: str) -> str:
    return f"{within}.{name}" if within else name


def _collected_only(test: Test, text: str) -> None:
    """Guards what is asserted softly where nobody reports it, and nobody else is given it."""
    for name in re.findall(r"(\w+) ?= ?new (?:\w*BDD)?SoftAssertions\(\)", text):
        if not re.search(rf"\b{name}\.assertAll\(|[(,] ?{name} ?[,)]|\breturn {name}\b", text):
            test.demands = [
                replace(one, guards=(*one.guards, "it is never reported"))
                if one.text.startswith(f"{name}.")
                else one
                for one in test.demands
            ]


def _directive(line: str, lines: list[str]) -> None:
    found = re.match(r"\s*#\s*(\w+)\s*(.*)", line)
    if found is None:
        return
    if found[1] in ("if", "ifdef", "ifndef"):
        lines.append(f"#{found[1]} {found[2]}".strip())
    elif found[1] in ("else", "elif") and lines:
        lines[-1] = f"#else of {lines[-1]}"
    elif found[1] == "endif" and lines:
        lines.pop()


def _marked(marks: str) -> set[str]:
    return {marks[found.start() : found.end() + 60] for found in _SKIPS.finditer(marks)}


def _opened(tokens: Sequence[Token]) -> list[Token]:
    """Without the brackets around all of it."""
    return tokens[0].items if len(tokens) == 1 and tokens[0].opens("(") else list(tokens)


def _sentence(tokens: Sequence[Token]) -> str:
    return written(tokens)


_OPPOSITES = {
    "!=": "==",
    "==": "!=",
    "===": "!=",
    "!==": "==",
    "<": ">=",
    ">": "<=",
    "<=": ">",
    ">=": "<",
}


def _opposite(tokens: Sequence[Token]) -> str:
    """What a condition that fails the test demands."""
    tokens = _opened(tokens)
    if tokens and tokens[0].text == "!":
        equal = " == true" if re.search(r"Equal|equals", written(tokens)) else ""
        return written(tokens[1:]) + equal
    turned = [
        Token("mark", _OPPOSITES[t.text], t.fresh)
        if t.kind == "mark" and t.text in _OPPOSITES
        else t
        for t in tokens
    ]
    if any(t.text in _OPPOSITES and t.kind == "mark" for t in tokens):
        return written(turned)
    return "not " + written(tokens)


_NO_NAMES = frozenset(
    {"new", "await", "return", "in", "of", "throw", "yield", "typeof"}
    | {"go", "defer", "mut", "let", "const", "var"}
)


def _chain_end(tokens: Sequence[Token], at: int) -> int:
    """Where the chain that begins here ends: names, dots, calls."""
    if tokens[at].kind != "word":
        return at + 1
    if tokens[at].text in _NO_NAMES:
        return at + 1
    end = at + 1
    while end < len(tokens):
        token = tokens[end]
        if token.text in (".", "::", "?.", "->") and end + 1 < len(tokens):
            if token.text == "->" and tokens[end + 1].kind != "word":
                break
            end += 2
        elif (
            (
                token.kind == "group"
                and token.text in "(["
                and not (token.fresh and token.text == "[")
            )
            or (
                token.kind == "string"
                and token.text.startswith("`")
                and tokens[end - 1].text == "each"
            )
            or (token.kind == "group" and tokens[end - 1].text.endswith("!"))
        ):
            end += 1
        else:
            break
    return end


def _asserting(chain: Sequence[Token]) -> int | None:
    """Where the name of the assertion stands in a chain, if it has one."""
    for at, token in enumerate(chain):
        if token.kind != "word" or _NO_DEMAND.match(token.text):
            continue
        after = chain[at + 1] if at + 1 < len(chain) else None
        called = after is not None and after.kind == "group"
        if token.text == "should" and after is not None:
            only_set_up = after.opens("(") and not after.items and at + 2 == len(chain)
            return None if only_set_up else at
        if _ASSERTS.match(token.text) and called:
            return at
        if at and called and _METHODS.match(token.text):
            first = chain[0].text
            if (first in _OBJECTS and not token.text.startswith(("Error", "Fail"))) or first in (
                "assert",
                "require",
                "expect",
                "Assertions",
            ):
                return at
    return None


def _demand_of(chain: Sequence[Token], at: int, guards: tuple[str, ...]) -> Demand:
    name = chain[at].text
    kept: list[Token] = []
    skip = False
    for i, token in enumerate(chain):
        if token.kind == "word" and _SAYS.match(token.text) and i > at + 1:
            skip = True
            if kept and kept[-1].text == ".":
                kept.pop()
        elif skip and token.kind == "group":
            skip = False
        elif i == at + 1 and token.opens("("):
            kept.append(Token("group", "(", False, _unsaid(name, token.items)))
        else:
            kept.append(token)
    return _demand(written(kept), kept, guards)


def _unsaid(name: str, items: Sequence[Token]) -> list[Token]:
    """Arguments without the message."""
    parts = parted(items)
    if not (_TWO.search(name) or _THREE.search(name) or _ONE.match(name)):
        return list(items)
    first = 1 if parts and written(parts[0]) in ("t", "s.T()", "suite.T()", "tt", "tb") else 0
    most = 3 if _THREE.search(name) else 2 if _TWO.search(name) else 1
    most = 0 if re.match(r"(?i)fail", name) else most
    rest = parts[first:]
    if (
        len(rest) == most + 1
        and most
        and rest[0][0].kind == "string"
        and rest[-1][0].kind not in ("string", "number")
    ):
        rest = rest[1:] if name.startswith("assert") and not name.endswith("!") else rest
    while len(rest) > most and any(part[0].kind == "string" for part in rest[most:]):
        rest = rest[:-1]
    joined: list[Token] = []
    for part in [*parts[:first], *rest]:
        joined += [*([Token("mark", ",")] if joined else []), *part]
    return joined


def _demand(
    text: str, tokens: Sequence[Token], guards: tuple[str, ...], compared: bool = False
) -> Demand:
    found = _literals(tokens)
    if compared:
        found = [one for one in found if one not in ("nil", "null")]
    names = [t.text for t in every(tokens) if t.kind == "word" and t.text not in _WORDS]
    return Demand(text, tuple(found), words(names) - _COMMON, guards, _tolerance(text))


_COMMON = frozenset(
    {"new", "class", "async", "await", "of", "List", "Object", "function", "func", "fn"}
    | {"string", "int", "return", "not", "to", "be", "let", "const", "err"}
    | {"chai", "exist"}
)


def _literals(tokens: Sequence[Token]) -> list[str]:
    found: list[str] = []
    before: Token | None = None
    last: Token | None = None
    for token in every(tokens):
        if token.kind == "string":
            found.append(literal(token))
        elif token.kind == "number":
            minus = (
                last is not None
                and last.text == "-"
                and (before is None or before.kind == "mark" or before.kind == "group")
            )
            found.append(
                ("-" if minus else "")
                + re.sub(r"(?<=\d)_?(?:[fFlLuUdD]|[iu]\d+|usize|f\d+)+$", "", token.text)
            )
        elif token.kind == "word" and (
            token.text in _WORDS or re.match(r"(?!NoError)[A-Z]\w*(?:Error|Exception)$", token.text)
        ):
            found.append(token.text)
        before, last = last, token
    return found


_TOLERANCE = re.compile(
    r"(?:within|offset|Within|epsilon|margin|WithinAbs|WithinRel|closeTo|NEAR|InDelta\w*|InEpsilon\w*|max_relative|eq!?)"
    r"(?: ?[(=] ?|\()(?:.*, ?)?(\d[\w.+-]*)\)?"
)


def _tolerance(text: str) -> float | None:
    if found := re.search(r"toBeCloseTo\(.*?(?:, ?(\d+))?\)$", text):
        return 10.0 ** -int(found[1] or 2)
    if found := re.search(
        r"assertEquals\((?:.*), ?(\d*\.\d+(?:[eE]-?\d+)?|\d+[eE]-\d+)[fd]?\)$", text
    ):
        return number(found[1]) if text.count(",") > 1 else None
    if found := re.search(r"abs\w*\(.*\)? ?<=? ?([\d.]+(?:[eE]-?\d+)?)", text):
        return number(found[1])
    if re.search(r"NEAR|InDelta|InEpsilon|[cC]loseTo|[wW]ithin|epsilon|margin|offset", text):
        found = _TOLERANCE.search(text)
        return number(found[1]) if found else None
    return None


def _groups(tokens: Sequence[Token]) -> list[tuple[Token | None, Token]]:
    """Each group with what stands before it."""
    found: list[tuple[Token | None, Token]] = []
    for at, token in enumerate(tokens):
        if token.kind == "group":
            found.append((tokens[at - 1] if at else None, token))
            found += _groups(token.items)
    return found


def _rows(group: Token, before: Token | None) -> list[tuple[str, ...]]:
    """The items of each row of a table."""
    if group.opens("(") and not (before is not None and _TABLES.search(before.text)):
        return []
    if any(t.kind == "mark" and t.text == ";" for t in group.items):
        return []
    rows = []
    for part in parted(group.items):
        if part[-1].kind != "group" or any(t.text in ("=>", "=", ":=") for t in part):
            continue
        if (
            part[-1].opens("(")
            and len(part) > 1
            and not re.search(r"(?i)of$|tuple$|pair$|arguments$|case$|row$", part[-2].text)
        ):
            continue
        items = [_unnamed(item) for item in parted(part[-1].items)]
        if len(items) > 1 and any(_literals(item) for item in items):
            rows.append(tuple(map(written, items)))
    return rows


def _unnamed(item: list[Token]) -> list[Token]:
    """A field's value, without its name; a point before a name is C's."""
    start = 1 if item[0].text == "." else 0
    if (
        len(item) > start + 2
        and item[start].kind in ("word", "string")
        and item[start + 1].text in (":", "=")
    ):
        return item[start + 2 :]
    return item
