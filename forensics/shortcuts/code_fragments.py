"""A stretch of Python that a patch shows, made whole enough to parse.

A hunk begins and ends anywhere: within brackets, a suite, a branch or a docstring. What is
missing around it is put back, and never more than that:

1. Brackets that it closes are opened before it, those that it opens are closed behind it.
2. A suite that it begins in gets a head (`if 1:`), a branch (`else`, `except`) the one before.
3. A head at its end gets a body (`pass`), a name of a function its brackets.
4. What breaks off within brackets is closed where it breaks off, or at the last comma.
5. Text of a docstring is told by its lines, hardly any of which look like code; it becomes a
   string.
"""

import ast
import textwrap
import warnings
from collections.abc import Iterator
from itertools import pairwise

from forensics.shortcuts.vocabulary import Vocabulary

LONGEST = 60_000  # characters of a fragment that are mended
_PAIRS = {")": "(", "]": "[", "}": "{"}
_CLOSES = {opened: closed for closed, opened in _PAIRS.items()}
_FORMS = Vocabulary(__name__)
MOST_COMMAS = 3  # from the end of a text that breaks off
MOST_CODE = 0.2  # share of the lines of a docstring that look like code


def mended(text: str) -> str | None:
    """The text with what is missing around it, `None` where that does not make it parse."""
    if len(text) > LONGEST:
        return None
    text = with_head(textwrap.dedent(text))
    for whole in _variants(text):
        if whole is not None and _parses(whole):
            return whole
    return None


def with_head(text: str) -> str:
    """A text that ends with the name of a function or class, with the brackets behind it."""
    return _FORMS.cut_head.sub(r"\g<0>():", text.rstrip("\n")) + "\n"


def completed(text: str) -> str | None:
    """A text that breaks off, with its last brackets closed, or up to the last comma in them;
    `None` where that does not make it parse. Its lines stay where they are.
    """
    if len(text) > LONGEST:
        return None
    end = len(text)
    for _ in range(MOST_COMMAS):
        whole = closed(text[:end])
        for candidate in (whole, whole + " pass"):
            if _parses(candidate):
                return candidate
        end = text.rfind(",", 0, end)
        if end < 0:
            break
    return None


def closed(text: str) -> str:
    """A text with the brackets closed that it leaves open."""
    text = text.rstrip()
    return text + "".join(_CLOSES[mark] for mark in reversed(_opened(text)[0]))


def _variants(text: str) -> Iterator[str | None]:
    yield text
    if _FORMS.case.match(text.lstrip("\n")):
        yield "match 1:\n" + _in_suites(textwrap.indent(text, " "))
    balanced = _balanced(text)
    yield _in_suites(balanced)
    yield _in_suites(text)
    start = _indent(balanced)
    if balanced[start : start + 1] in _CLOSES and balanced[start:] != text[_indent(text) :]:
        for head in ("if ", "def f", "f", "for _ in ", "class A"):
            yield _in_suites(head + balanced[start:])
    if text.count('"""') % 2:
        yield _in_suites(text.rstrip("\n") + '\n"""\n')
    yield _docstring(text)


def _parses(text: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _balanced(text: str) -> str:
    """The text with its brackets opened and closed."""
    opened, before = _opened(text)
    after = "".join(_CLOSES[mark] for mark in reversed(opened))
    text = text.rstrip("\n")
    start = len(text) - len(text.lstrip()) if before else 0
    start = text.rfind("\n", 0, start) + 1 + _indent(text[text.rfind("\n", 0, start) + 1 :])
    return f"{text[:start]}{''.join(reversed(before))}{text[start:]}{after}\n"


def _opened(text: str) -> tuple[list[str], list[str]]:
    """The brackets that a text opens and never closes, and what it closes and never opened."""
    before: list[str] = []
    opened: list[str] = []
    for mark in _brackets(text):
        if mark in _CLOSES:
            opened.append(mark)
        elif opened and opened[-1] == _PAIRS[mark]:
            opened.pop()
        else:
            before.append(_PAIRS[mark])
    return opened, before


def _brackets(text: str) -> list[str]:
    """The brackets that stand in code, without those of strings and comments."""
    return [found[0] for found in _FORMS.word.finditer(text) if found[0] in _FORMS.words["marks"]]


def _in_suites(text: str) -> str:
    """The text with heads for the suites that it begins in, and a body for a head at its end."""
    lines = text.split("\n")
    said = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not said:
        return text
    first = _indent(said[0])
    heads: list[str] = []
    lowest = first
    for line in said[1:]:
        here = _indent(line)
        if here < lowest:
            word = "try:" if _FORMS.handler.match(line.lstrip()) else "if 1:"
            heads.append(" " * here + word)
            lowest = here
    opening = " " * first
    if _FORMS.branch.match(said[0].lstrip()):
        heads.insert(0, f"{opening}if 1:\n{opening} pass")
    elif _FORMS.handler.match(said[0].lstrip()):
        heads.insert(0, f"{opening}try:\n{opening} pass")
    body = f"\n{' ' * (_indent(said[-1]) + 1)}pass\n" if said[-1].rstrip().endswith(":") else ""
    whole = "\n".join([*reversed(heads), text.rstrip("\n")]) + (body or "\n")
    return whole + "".join(f"{' ' * at}finally: pass\n" for at in _open_tries(whole))


def _open_tries(text: str) -> list[int]:
    """The indents of the `try` at the end that have no handler yet, the deepest first."""
    tries: list[int] = []
    for line in text.split("\n"):
        here, said = _indent(line), line.strip()
        if not said or said.startswith("#"):
            continue
        while tries and tries[-1] >= here:
            tries.pop()
        tries += [here] if said.startswith("try:") else []
    return tries[::-1]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _docstring(text: str) -> str | None:
    """The text as a string, where its lines are prose: with the end of the docstring in it, if
    it stands there.
    """
    inside, mark, rest = text.partition('"""')
    if not inside.strip():  # the docstring begins here
        inside, mark, rest = rest.partition('"""')
    shown = ["", *inside.split("\n")]
    examples = pairwise(shown)
    lines = [line for last, line in examples if line.strip() and ">>>" not in last + line]
    if sum(_FORMS.code.match(line) is not None for line in lines) > MOST_CODE * len(lines):
        return None
    quoted = "\n".join("#" + line for line in inside.split("\n"))
    return quoted + (f"\n{_in_suites(rest.lstrip(' '))}" if mark else "\n")
