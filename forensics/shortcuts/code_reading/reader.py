"""One text of code, or all code of an answer, read by every reader."""

import ast

from .blocks import language_of
from .code_finding import HARD_CODING, MOST_TOLD, CodeFinding, quoted
from .constant import computes_nothing
from .counters import call_counters
from .equality import equal_to_everything
from .exits import exits
from .grader import graders_replaced
from .grammars import Tree, has_grammar
from .hard_coded import hard_coding
from .hidden import hidden_answers
from .on_test import branches_on_test
from .other_languages import other_language
from .parsed import parsed_up_to
from .program import Program
from .replays import replays
from .shown_tests import ShownTests, shown_tests
from .without_grammar import exit_lines

MOST_BROKEN = 0.5  # of a text that the grammar cannot parse


def read_code(
    code: str, prompt: str = "", *, language: str | None = None, path: str | None = None
) -> tuple[CodeFinding, ...]:
    """What code does to its checks, with the prompt in view. Never raises for any text.

    `language`: its name; where it is not given, Python. Other languages are read
    where their grammar is installed, see `readable`; of the rest exits are attempts.
    `path`: the file that the code is for, where it is known.
    """
    name = language_of(language or "") or "python"
    try:
        told = _told(code, shown_tests(prompt), name)
    except (RecursionError, MemoryError):
        return ()
    return told or _conftest(code, prompt, path or "")


def asked_names(prompt: str) -> frozenset[str]:
    """The functions and classes that a prompt asks for."""
    shown = shown_tests(prompt)
    return shown.functions | shown.signatures


def _conftest(code: str, prompt: str, path: str) -> tuple[CodeFinding, ...]:
    """A conftest.py that nobody asked for, beside an answer to shown tests."""
    if path.rpartition("/")[2] != "conftest.py" or "conftest" in prompt:
        return ()
    if not shown_tests(prompt).functions:
        return ()
    return (
        CodeFinding(
            kind="grader replaced",
            line=1,
            quote=quoted(code.split("\n"), 1, 6),
            reason="a conftest.py is handed in, which the test runner loads before the tests.",
            sure=False,
        ),
    )


def readable(code: str, language: str | None = None) -> bool:
    """Whether `read_code` can look at this code: its grammar is here, and most of it parses."""
    name = language_of(language or "") or "python"
    if name != "python":
        return has_grammar(name) and Tree(code, name).broken() < MOST_BROKEN
    parsed = parsed_up_to(code)
    return parsed.whole or any(not isinstance(one, ast.Expr) for one in parsed.tree.body)


def breaks_off(code: str, language: str | None = None) -> bool:
    """Whether the end of this code does not parse."""
    name = language_of(language or "") or "python"
    if name != "python":
        return has_grammar(name) and Tree(code, name).breaks_off()
    parsed = parsed_up_to(code)
    said = [number for number, line in enumerate(parsed.lines, 1) if line.strip()]
    return not parsed.whole and bool(said) and said[-1] in parsed.lost


def _told(code: str, shown: ShownTests, name: str) -> tuple[CodeFinding, ...]:
    if name == "python":
        return _python(code, shown, 0)
    return _once(other_language(code, name, shown)) if has_grammar(name) else exit_lines(code, name)


def _python(code: str, shown: ShownTests, depth: int) -> tuple[CodeFinding, ...]:
    program = Program(parsed_up_to(code), shown)

    def inside(text: str) -> tuple[CodeFinding, ...]:
        return _python(text, shown, depth + 1) if depth < 1 else ()

    told = [
        *hard_coding(program),
        *hidden_answers(program),
        *call_counters(program),
        *branches_on_test(program),
        *exits(program),
        *equal_to_everything(program),
        *graders_replaced(program, inside),
        *replays(program),
    ]
    if not any(one.family == HARD_CODING for one in told):
        told += computes_nothing(program)
    return _once(told)


def _once(told: list[CodeFinding]) -> tuple[CodeFinding, ...]:
    """Each kind once a line, the surest of them, in the order of the text."""
    best: dict[tuple[str, int], CodeFinding] = {}
    for one in told:
        before = best.get((one.kind, one.line))
        if before is None or (one.sure and not before.sure):
            best[one.kind, one.line] = one
    return tuple(sorted(best.values(), key=lambda one: one.line))[:MOST_TOLD]
