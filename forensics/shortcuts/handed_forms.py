"""The code of a handed-in text, in whatever form it stands there.

1. Fenced blocks and files (`code_blocks`). What a fence calls by another name than a
   programming language is looked into, not passed over: a diff gives its added lines, a
   shell session its here documents and what was typed at a prompt, prose and data their
   lines of code.
2. JSON (all of the text, a block, a notebook, the arguments of a call) gives its texts,
   each of which is read the same way.
3. Where nothing of this holds code, the lines from the first to the last that can only be
   code.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from forensics.actions.heredocs import extract_heredocs
from forensics.shortcuts.code_reading import CodeBlock, code_blocks
from forensics.shortcuts.code_reading.blocks import guessed
from forensics.shortcuts.vocabulary import Vocabulary

LONGEST = 200_000  # characters of one text
LONGEST_SCRIPT = 60_000
DEEPEST = 4  # texts within texts
MOST_BLOCKS = 200
MOST_VALUES = 20_000  # of a JSON text
_DIFFS = ("diff", "patch", "udiff")
_FORMS = Vocabulary(__name__)


class CodePart(NamedTuple):
    """A stretch of code: its file, language, text, and which lines of it the run wrote
    (`None`: all). `known`: whether its form is. `cut`: whether its end does not parse.
    """

    path: str | None
    language: str
    text: str
    own: frozenset[str] | None = None
    known: bool = True
    cut: bool = False


def code_shown(text: str, depth: int = 0) -> tuple[CodePart, ...]:
    """Every stretch of code of a handed-in text. Never raises for any text."""
    text = re.sub(r"\r\n?", "\n", text[:LONGEST].lstrip("\ufeff"))
    if depth > DEEPEST:
        return _unknown(text)
    values = _values(text)
    if values is not None:
        return _of_values(values, depth)
    found: list[CodePart] = []
    shells: list[CodeBlock] = []
    for block in code_blocks(text):
        if block.language in _FORMS.words["shells"]:
            shells.append(block)
        found += _of_block(block, text, depth)
    if not found:
        found += _without_blocks(text, depth)
    if not found:  # all that was handed in is a script of the shell
        found = [CodePart(one.path, one.language, one.code, known=False) for one in shells]
    return tuple(dict.fromkeys(found))[:MOST_BLOCKS]


def _of_block(block: CodeBlock, text: str, depth: int) -> Iterator[CodePart]:
    name = block.language
    if name in _DIFFS or _is_diff(block.code):
        yield from _of_diff(block.code)
    elif name in _FORMS.words["shells"]:
        yield from _of_shell(block, depth)
    elif name in _FORMS.words["data"] or name in _FORMS.words["prose"]:
        if block.code.strip() != text.strip():
            yield from code_shown(block.code, depth + 1)
        elif _FORMS.surely.search(block.code):
            yield from _stretch(block.code)
    else:
        yield CodePart(block.path, name, block.code)


def _without_blocks(text: str, depth: int) -> Iterator[CodePart]:
    if _is_diff(text):
        yield from _of_diff(text)
    elif depth < DEEPEST and len(_FORMS.quoted.findall(text)) * 2 > text.count("\n") + 1:
        yield from code_shown(_FORMS.quoted.sub("", text), DEEPEST)
    elif _FORMS.surely.search(text):
        yield from _stretch(text)
    elif "\\n" in text:  # JSON that was cut off
        yield from _stretch(text.replace("\\n", "\n").replace('\\"', '"'))


def _stretch(text: str) -> Iterator[CodePart]:
    """The lines from the first to the last that can only be code, with what is indented below."""
    found = list(_FORMS.surely.finditer(text))
    if not found:
        return
    start = found[0].start()
    end = text.find("\n", found[-1].end())
    while end >= 0 and (text[end + 1 : end + 2] in (" ", "\t")):
        end = text.find("\n", end + 1)
    code = text[start : end if end >= 0 else len(text)].strip("`\n")
    if code.strip():
        yield CodePart(None, guessed(code), code)


def _unknown(text: str) -> tuple[CodePart, ...]:
    return (CodePart(None, "", text, known=False),) if _FORMS.surely.search(text) else ()


# -- diffs -----------------------------------------------------------------------------


def _is_diff(text: str) -> bool:
    return _FORMS.diff_head.search(text) is not None


def _of_diff(text: str) -> Iterator[CodePart]:
    """The new lines of a diff with what is around them, however its hunks are counted."""
    for path, lines in _hunks(text):
        new = [line[1:] for line in lines if line[:1] in ("+", " ")]
        own = frozenset(line[1:].strip() for line in lines if line[:1] == "+" and line[1:].strip())
        if own:
            code = "\n".join(new)
            yield CodePart(path, path.rpartition(".")[2] if path else guessed(code), code, own)


def _hunks(text: str) -> Iterator[tuple[str | None, list[str]]]:
    path: str | None = None
    lines: list[str] = []
    before = ""
    for line in text.split("\n"):
        head = line.startswith("+++ ") and before.startswith("--- ")
        if head or line.startswith(("@@", "diff --git ")):
            yield path, lines[:-1] if head else lines
            lines = []
        if head:
            path = line[4:].split("\t")[0].strip().removeprefix("b/")
        elif not line.startswith(("@@", "diff --git ", "index ", "+++ ")):
            lines.append(line)
        before = line
    yield path, lines


# -- shells and JSON -------------------------------------------------------------------


def _of_shell(block: CodeBlock, depth: int) -> Iterator[CodePart]:
    typed = [line for line in block.code.split("\n") if _FORMS.prompt.match(line)]
    if typed:
        yield CodePart(
            block.path, "python", "\n".join(_FORMS.prompt.sub("", line) for line in typed)
        )
    for one in extract_heredocs(block.code[:LONGEST_SCRIPT]).heredocs:
        yield from code_shown(one.body, depth + 1)


def _values(text: str) -> Any:
    """The text as JSON, `None` where it is none."""
    text = text.strip()
    if text[:1] not in ("{", "["):
        return None
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict | list) else None


def _of_values(value: Any, depth: int) -> tuple[CodePart, ...]:
    found: list[CodePart] = []
    for text in _texts(value):
        inner = code_shown(text, depth + 1)
        found += inner
        if len(found) >= MOST_BLOCKS:
            break
    return tuple(dict.fromkeys(found))[:MOST_BLOCKS]


def _texts(value: Any) -> Iterator[str]:
    """The texts of a JSON value; a list of lines, as notebooks hold them, is one."""
    waiting = [value]
    for _ in range(MOST_VALUES):
        if not waiting:
            return
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            waiting += reversed(list(one.values()))
        elif isinstance(one, list):
            if one and all(isinstance(line, str) for line in one):
                lines = all(line.endswith("\n") for line in one[:-1])
                yield "".join(one) if lines else "\n".join(one)
            else:
                waiting += reversed(one)
