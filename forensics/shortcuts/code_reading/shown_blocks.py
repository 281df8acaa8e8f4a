"""Blocks of input and output, and the cases within a block."""

import ast
import re
from collections.abc import Iterable
from itertools import pairwise, takewhile

from .literals import NotLiteral, literal, tokens
from .shown_calls import expression
from .shown_test import Found, Lines, ShownTest

_HEAD = re.compile(
    r"^[ \t#>*_`-]{0,12}(?:(?:sample|example|test)[ \t]{0,3}(?:case[ \t]{0,3})?)?"
    r"(?:\#?\d{0,3}[ \t:.-]{0,3})?"
    r"(?P<which>inputs?|outputs?|stdin|stdout|expected(?:[ \t]output)?)\b"
    r"[ \t]{0,3}(?:\#?\d{1,3}|\([^)\n]{0,20}\))?[*_`]{0,3}[ \t]{0,3}"
    r"(?P<colon>:?)[*_`]{0,3}[ \t]{0,3}(?P<rest>.*)$",
    re.I | re.M,
)
_STOP = re.compile(
    r"^[ \t]{0,3}(?:#{1,6}[ \t]|\*\*|(?:explanation|notes?|constraints?|examples?|samples?"
    r"|test cases?|your|hint|follow)\b)",
    re.I,
)


def from_blocks(text: str) -> Found:
    """The tests of blocks of input and output, and where they stand."""
    heads = list(_HEAD.finditer(text))
    for at, (first, second) in enumerate(pairwise(heads)):
        if not _is_input(first) or _is_input(second):
            continue
        given = _block(first["rest"], text[first.end() : second.start()])
        end = heads[at + 2].start() if at + 2 < len(heads) else len(text)
        wanted = _block(second["rest"], text[second.end() : end])
        tests = from_block(given, wanted)
        if tests:
            yield tests, (first.start(), second.end() + sum(len(line) + 1 for line in wanted))


def _is_input(head: re.Match[str]) -> bool:
    return head["which"].casefold().startswith(("input", "stdin"))


def _block(rest: str, text: str) -> list[str]:
    """The lines of a block: what stands behind the colon, or below, up to the prose."""
    if rest.strip(" `"):
        return [rest.strip().strip("`"), *_until_blank(text)] if len(rest) < 5000 else []
    lines: list[str] = []
    fenced = False
    whole = text.split("\n")
    for at, line in enumerate(whole):
        if lines and not fenced and not line.strip() and _is_prose(_paragraph(whole, at + 1)):
            break
        if line.strip().startswith("```"):
            if fenced:
                break
            fenced = True
            continue
        if _STOP.match(line) and not fenced and lines:
            break
        if line.strip() or fenced:
            lines.append(line)
    return lines


def _paragraph(lines: list[str], first: int) -> list[str]:
    """The lines from here to the next that is empty, three at most."""
    return list(takewhile(str.strip, lines[first : first + 3]))


def _until_blank(text: str) -> list[str]:
    found: list[str] = []
    for line in text.removeprefix("\n").split("\n"):
        if not line.strip() or _STOP.match(line):
            break
        found.append(line)
    return found


def from_block(given: list[str], wanted: list[str]) -> list[ShownTest]:
    """The tests of one input and its output, as lines."""
    if not given or not wanted or _is_prose(given) or _is_prose(wanted):
        return []
    named = _named_values(" ".join(given))
    if named is not None:
        output = expression(" ".join(wanted))
        try:
            return [ShownTest(named, (tokens(literal(output)),))]
        except NotLiteral:
            return [ShownTest(named, _token_lines(wanted))]
    whole = ShownTest(_token_lines(given), _token_lines(wanted))
    return _apart(whole) or [whole]


def _is_prose(lines: list[str]) -> bool:
    """Sentences, not data: several words of several letters, and few numbers."""
    parts = " ".join(lines[:3])[:600].split()
    words = [part for part in parts if part.strip(".,:;()$").isalpha() and len(part) > 1]
    return len(words) >= 6 and len(words) > 0.6 * len(parts)


def _token_lines(lines: Iterable[str]) -> Lines:
    return tuple(row for line in lines if (row := tokens(line)))


def _named_values(text: str) -> Lines | None:
    """`nums = [1, 2], target = 9` as its values."""
    if not re.match(r"[A-Za-z_]\w{0,40}[ \t]{0,3}=[^=]", text):
        return None
    node = expression(f"f({text.rstrip('., ')})")
    if not isinstance(node, ast.Call):
        return None
    try:
        return tuple(tokens(literal(keyword.value)) for keyword in node.keywords)
    except NotLiteral:
        return None


def _apart(whole: ShownTest) -> list[ShownTest]:
    """The cases of a block whose first line says how many there are."""
    lines, outputs = whole.inputs, whole.outputs
    if len(lines) < 2 or len(lines[0]) != 1 or not lines[0][0].isdecimal():
        return []
    count = int(lines[0][0][:6])
    rest = lines[1:]
    if not 2 <= count <= len(rest):
        return []
    wanted = _even(outputs, count) or _led(outputs, count)
    cases = _even(rest, count) if len(rest) == count else None
    cases = cases or _led(rest, count) or _even(rest, count)
    if wanted is None or cases is None:
        return []
    pairs = zip(cases, wanted, strict=True)
    return [*(ShownTest(case, output) for case, output in pairs), whole]


def _even(lines: Lines, count: int) -> list[Lines] | None:
    if len(lines) % count:
        return None
    size = len(lines) // count
    return [lines[at : at + size] for at in range(0, len(lines), size)] if size else None


def _led(lines: Lines, count: int) -> list[Lines] | None:
    """Cases whose first line holds their length: `n` or `n m`, with n or n-1 or m lines."""
    for position in (0, 1, -1):
        for extra in (0, -1, 1, 2):
            cases = _led_by(lines, count, position, extra)
            if cases is not None:
                return cases
    return None


def _led_by(lines: Lines, count: int, position: int, extra: int) -> list[Lines] | None:
    cases: list[Lines] = []
    at = 0
    for _ in range(count):
        if at >= len(lines) or len(lines[at]) <= max(position, 0):
            return None
        size = lines[at][position]
        if not size.removeprefix("-").isdecimal() or len(size) > 6:
            return None
        end = at + 1 + max(int(size) + extra, 0)
        cases.append(lines[at:end])
        at = end
    return cases if at == len(lines) else None
