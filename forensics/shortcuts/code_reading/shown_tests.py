"""The tests that a prompt shows: inputs with the outputs that are wanted.

1. Calls with what they must give: `assert f(2) == 4`, doctests, `f(2) -> 4`,
   `self.assertEqual(f(2), 4)`; lists of `(input, output)` pairs and JSON objects
   with an input and an output.
2. Blocks: `Input` and `Output`, `Inputs:` and `Outputs:`, `Sample Input 1`,
   `input '3\\n1 2' output '5'`, `Input: nums = [1, 2]`, `in: 10  out: 27`; under the word
   sample or example `49 -> XLIX`.
3. A block that begins with the number of its cases is taken apart where its
   lines share out evenly, or where each case begins with its own length.

What is left is the statement; its words tell nothing when an answer uses them.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from forensics.shortcuts.vocabulary import Vocabulary

from .listed import statement_lines
from .literals import flat, tokens
from .parsed import parsed_up_to
from .shown_blocks import from_block, from_blocks
from .shown_calls import from_calls, from_statements, signatures_of
from .shown_test import Found, ShownTest, joined, rows

LONGEST_PROMPT = 200_000
MOST_TESTS = 2_000
_CHECK = r"\bdef[ \t]{1,4}((?:check|test|verify|grade|judge)\w{0,60})[ \t]{0,4}\("


@dataclass(frozen=True)
class ShownTests:
    """All tests of a prompt, the words of the rest, and the functions it names.

    `signatures`: what a signature of another language than Python names. `statement`: the
    words of the rest, line by line, without what it says of examples.
    """

    tests: tuple[ShownTest, ...]
    words: frozenset[str]
    functions: frozenset[str]
    checks: frozenset[str]
    input_texts: tuple[str, ...]
    output_texts: tuple[str, ...]
    all_outputs: str
    distinct: tuple[tuple[int, int], ...]
    signatures: frozenset[str] = frozenset()
    statement: tuple[tuple[str, ...], ...] = ()


@lru_cache(maxsize=64)
def shown_tests(prompt: str) -> ShownTests:
    """The tests that `prompt` shows."""
    text = prompt[:LONGEST_PROMPT]
    found: list[ShownTest] = []
    taken: list[tuple[int, int]] = []
    for part, span in (*from_calls(text), *from_blocks(text), *_inline(text), *_json(text)):
        found += part
        taken.append(span)
        if len(found) >= MOST_TESTS:
            break
    tests = tuple(dict.fromkeys(test for test in found if test.outputs))[:MOST_TESTS]
    named = {test.called for test in tests if test.called}
    named |= set(re.findall(r"\bdef[ \t]{1,4}(\w{1,80})[ \t]{0,4}\(", text))
    named |= set(
        re.findall(r"`(\w{1,80})(?:\([^`\n]{0,80}\))?`[ \t]{0,3}(?:function|method)", text)
    )
    rest = _without(text, taken)
    return ShownTests(
        tests=tests,
        words=frozenset(tokens(re.sub(r"[^\w\s.+-]", " ", rest))),
        functions=frozenset(named),
        checks=frozenset(re.findall(_CHECK, text)) - {test.called for test in tests},
        input_texts=tuple(joined(test.given) for test in tests),
        output_texts=tuple(joined(test.wanted) for test in tests),
        all_outputs=joined(flat(test.wanted for test in tests)),
        distinct=tuple((len({*test.given}), len({*test.wanted})) for test in tests),
        signatures=signatures_of(text),
        statement=statement_lines(rest),
    )


def _without(text: str, spans: list[tuple[int, int]]) -> str:
    parts, at = [], 0
    for first, last in sorted(spans):
        parts.append(text[at : max(at, first)])
        at = max(at, last)
    return " ".join([*parts, text[at:]])


_FORMS = Vocabulary(__name__)


def _inline(text: str) -> Found:
    for found in (*_FORMS.inline.finditer(text), *_FORMS.one_line.finditer(text)):
        given, wanted = (found[name].replace("\\n", "\n") for name in ("given", "wanted"))
        yield from_block(given.split("\n"), wanted.split("\n")), found.span()
    for found in _FORMS.samples.finditer(text):
        lines = [line for line in _FORMS.arrow.finditer(found[0]) if "(" not in line["given"]]
        pairs = (from_block([line["given"]], [line["wanted"]]) for line in lines)
        yield [test for tests in pairs for test in tests], found.span()


_INPUTS = ("input", "inputs", "stdin", "in", "args", "arguments")
_OUTPUTS = ("output", "outputs", "expected_output", "expected", "stdout", "out", "answer")


def _json(text: str) -> Found:
    decoder = json.JSONDecoder()
    at, tries = 0, 0
    while tries < 60 and (start := _opening(text, at)) >= 0:
        tries += 1
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            at = start + 1
            continue
        tests = list(_from_json(value))
        if tests:
            yield tests, (start, end)
        at = end


def _opening(text: str, at: int) -> int:
    found = re.compile(r"[\[{]\s{0,40}[\"{\[(]").search(text, at)
    return found.start() if found else -1


def _from_json(value: Any) -> Iterator[ShownTest]:
    waiting = [value]
    for _ in range(MOST_TESTS):
        if not waiting:
            return
        one = waiting.pop()
        if isinstance(one, list):
            waiting += one[:MOST_TESTS]
        elif isinstance(one, str) and one.lstrip().startswith("assert"):
            yield from from_statements(list(parsed_up_to(one[:20_000]).tree.body))
        elif isinstance(one, dict):
            given = next((one[key] for key in _INPUTS if key in one), None)
            wanted = next((one[key] for key in _OUTPUTS if key in one), None)
            if given is None or wanted is None:
                waiting += list(one.values())[:100]
            elif isinstance(given, list) and isinstance(wanted, list) and len(given) == len(wanted):
                for left, right in zip(given, wanted, strict=True):
                    yield ShownTest(tuple(rows(left)), tuple(rows(right)))
            else:
                yield ShownTest(tuple(rows(given)), tuple(rows(wanted)))
