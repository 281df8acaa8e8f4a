"""What stands before and around the tests of languages with braces: macros, annotations, the
preprocessor, the block of a branch.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from forensics.shortcuts.expectations.braced_asserts import rows_in
from forensics.shortcuts.expectations.brackets import Token, every, parted, written
from forensics.shortcuts.expectations.demands import Demand, Test
from forensics.shortcuts.vocabulary import Vocabulary

_FORMS = Vocabulary(__name__)


def macro_test(word: str, head: Sequence[Token]) -> Test:
    """`TEST(Suite, name)`, `TEST_CASE("name", "[.hidden]")`."""
    parts = [written(part).strip('"') for part in parted(head[1].items)]
    two = word.startswith(("TEST", "TYPED")) and "CASE" not in word
    name = ".".join(parts[: 1 + two])
    marks = r"\[\.\w*\]|\[!\w+\]|doctest::(?:skip|may_fail|should_fail)"
    skips = set(re.findall(marks, written(head)))
    skips |= {"DISABLED_"} if any("DISABLED_" in one for one in (name, word)) else set()
    return Test(name.replace("DISABLED_", ""), skips=skips)


def annotated(text: str, tokens: Sequence[Token], test: Test) -> None:
    """What annotations demand: an error, a limit of time, cases."""
    if found := re.search(r"expected ?= ?([\w.]+)\.class|expected ?= ?(\"[^\"]*\")", text):
        name = (found[1] or found[2]).rsplit(".", 1)[-1]
        if not _FORMS.skips.search(text) or "should_panic" in text:
            test.demands.append(Demand(f"throws {name}", (name,), frozenset({name})))
    if found := re.search(r"timeout ?= ?(\d+)|@Timeout\((?:value ?= ?)?(\d+)", text):
        test.limits.append(float(found[1] or found[2]))
    for token in every(tokens):
        test.rows += rows_in(token, None)


def guard_unreported(test: Test, text: str) -> None:
    """Guards what is asserted softly where nobody reports it, and nobody else is given it."""
    for name in re.findall(r"(\w+) ?= ?new (?:\w*BDD)?SoftAssertions\(\)", text):
        if not re.search(rf"\b{name}\.assertAll\(|[(,] ?{name} ?[,)]|\breturn {name}\b", text):
            test.demands = [
                replace(one, guards=(*one.guards, "it is never reported"))
                if one.text.startswith(f"{name}.")
                else one
                for one in test.demands
            ]


def follow_directive(line: str, lines: list[str]) -> None:
    """Keep the conditions of the preprocessor that lines stand behind."""
    found = re.match(r"\s*#\s*(\w+)\s*(.*)", line)
    if found is None:
        return
    if found[1] in ("if", "ifdef", "ifndef"):
        lines.append(f"#{found[1]} {found[2]}".strip())
    elif found[1] in ("else", "elif") and lines:
        lines[-1] = f"#else of {lines[-1]}"
    elif found[1] == "endif" and lines:
        lines.pop()


def skips_in(marks: str) -> set[str]:
    """What annotations leave a test out with."""
    return {marks[found.start() : found.end() + 60] for found in _FORMS.skips.finditer(marks)}


def block_of(tokens: Sequence[Token], start: int, bare: bool) -> int | None:
    """Where the block of a branch stands. `bare`: no brackets stand around its condition."""
    if not bare:
        braced = start + 1 < len(tokens) and tokens[start + 1].opens("{")
        return start + 1 if braced else None
    for at in range(start, len(tokens)):
        if tokens[at].opens("{") and (at + 1 == len(tokens) or tokens[at + 1].text == "else"):
            return at
    return None


def is_called(head: Sequence[Token], at: int) -> bool:
    """Whether brackets stand behind the name of a function."""
    name = head[at - 1]
    return (
        head[at].opens("(") and name.kind == "word" and name.text not in ("func", "function", "fn")
    )
