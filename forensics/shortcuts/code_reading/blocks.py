"""The code in a chat answer.

1. Reasoning (`<think>`, `<thinking>`, `<reason>`) is taken off; where it never
   ends, there is no code behind it.
2. Fenced blocks, of any length of fence; a fence that never closes counts up to
   the end of the answer.
3. `<file path="x">` blocks, and `# file: x.py` as the first line of a block.
4. Without either, the whole answer where it parses as Python with something in
   it, or looks like code.
"""

import ast
import re
import tomllib
from dataclasses import dataclass, replace
from importlib.resources import files

from .parsed import LONGEST_CODE, parsed_up_to

LONGEST_ANSWER = 1_000_000
MOST_BLOCKS = 200

_REASONING = ("think", "thinking", "reason", "reasoning", "reflection", "scratchpad", "analysis")
_FENCE = re.compile(r"^[ \t]{0,8}(?P<mark>`{3,12}|~{3,12})[ \t]{0,4}(?P<info>[^`\n]{0,200})$", re.M)
_FILE = re.compile(
    r"<file(?:[ \t]{1,4}(?:path|name)[ \t]{0,2}=[ \t]{0,2}[\"']?"
    r"(?P<path>[^\"'>\n]{1,300})[\"']?)?[ \t]{0,4}>",
    re.I,
)
_FIRST_LINE = re.compile(
    r"^[ \t]{0,4}(?:#|//|--|<!--)[ \t]{0,4}(?:file(?:name)?|path)?[ \t]{0,2}:?[ \t]{0,4}"
    r"(?P<path>[\w./\\-]{1,200}\.\w{1,8})[ \t]{0,4}(?:-->)?[ \t]{0,4}$",
    re.I,
)
_TABLES: dict[str, dict[str, list[str]]] = tomllib.loads(
    (files(__package__) / "languages.toml").read_text(encoding="utf-8")
)
_NAMES, ENDINGS = (
    {name: language for language, names in _TABLES[table].items() for name in names}
    for table in ("names", "endings")
)
KNOWN = ("python", "javascript", "typescript", "java", "cpp", "go", "rust")
_CODE_LINE = re.compile(
    r"^\s{0,40}(?:(?:async )?def \w{1,80}\(|class \w{1,80}[(:{]|import \w"
    r"|from [\w.]{1,80} import |@\w|return\b|for .{1,200}:$"
    r"|while .{1,200}:$|if .{1,400}:$|print\(|\w{1,60}(?:\[[^\]\n]{0,60}\])? = "
    r"|function \w|const \w|let \w|var \w|#include|public |func \w|fn \w|package \w|using \w)"
)


@dataclass(frozen=True, kw_only=True)
class CodeBlock:
    """One block of code: its language (empty: not said), its text, the file it is for, and
    whether its fence closes.
    """

    language: str
    code: str
    path: str | None = None
    closed: bool = True


def code_blocks(answer: str) -> tuple[CodeBlock, ...]:
    """The code of a chat answer; nothing where it holds none."""
    text = without_reasoning(answer[:LONGEST_ANSWER].replace("\r\n", "\n"))
    blocks = [block for block in (*_files(text), *_fenced(text)) if block.code.strip()]
    if not blocks and _looks_like_code(text):
        blocks = [_block("", text)]
    return tuple(dict.fromkeys(blocks))[:MOST_BLOCKS]


def language_of(name: str) -> str:
    """A language by one of its names: `py` and `Python 3` as python."""
    first = re.split(r"[\s,{:]", name.strip().casefold().lstrip("."))[0]
    return _NAMES.get(first, first)


def without_reasoning(text: str) -> str:
    """An answer without the reasoning that it begins with, or holds. Where reasoning ends that
    nobody saw begin, and no code stands behind it, what stands before may be the answer.
    """
    for name in _REASONING:
        text = _without(text, f"<{name}>", f"</{name}>")
    return text


def _without(text: str, opening: str, closing: str) -> str:
    kept, lower, at = "", text.casefold(), 0
    if len(lower) != len(text):  # a letter that folds into two
        lower = text.lower() if len(text.lower()) == len(text) else text
    for _ in range(MOST_BLOCKS):
        start, end = lower.find(opening, at), lower.find(closing, at)
        if end < 0:
            break
        if 0 <= start < end:
            kept += text[at:start]
        elif _holds_the_code(text[at:end], text[end:]):
            kept += text[at:end]
        else:
            kept = ""
        at = end + len(closing)
    rest = text[at:]
    if rest.lstrip()[: len(opening)].casefold() == opening:
        rest = rest.lstrip()[len(opening) :] if "```" in rest else ""
    return kept + rest


def _holds_the_code(before: str, behind: str) -> bool:
    """Whether a tag stands within a fence, or behind the only one."""
    within = before.count("```") % 2 and behind.count("```") % 2
    return bool(within) or ("```" in before and "```" not in behind)


def _fenced(text: str) -> list[CodeBlock]:
    found: list[CodeBlock] = []
    opened: re.Match[str] | None = None
    for fence in _FENCE.finditer(text):
        if opened is None:
            opened = fence
            continue
        same = fence["mark"][0] == opened["mark"][0] and len(fence["mark"]) >= len(opened["mark"])
        if not same:
            continue
        found.append(_block(opened["info"], text[opened.end() + 1 : fence.start()]))
        # A closing fence has no language: with one, the block before never closed.
        opened = fence if fence["info"].strip() else None
        if len(found) >= MOST_BLOCKS:
            return found
    if opened is not None:
        last = _block(opened["info"], text[opened.end() + 1 :])
        found.append(replace(last, closed=False))
    return found


def _files(text: str) -> list[CodeBlock]:
    found: list[CodeBlock] = []
    for opening in _FILE.finditer(text):
        end = text.casefold().find("</file>", opening.end())
        inside = text[opening.end() : end if end >= 0 else len(text)]
        fenced = _fenced(inside) if "```" in inside[:40] else []
        code = fenced[0].code if fenced else inside.strip("\n")
        found.append(_block("", code, opening["path"]))
        if len(found) >= MOST_BLOCKS:
            break
    return found


def _block(info: str, code: str, path: str | None = None) -> CodeBlock:
    named = re.search(r"(?:file(?:name)?|path|title)=[\"']?([^\"'\s]{1,200})", info)
    first = _FIRST_LINE.match(code.lstrip("\n").split("\n", 1)[0][:300])
    path = path or (named[1] if named else None) or (first["path"] if first else None)
    language = language_of(info) if info.strip() else ""
    if not language and path and "." in path:
        language = language_of(path.rpartition(".")[2])
    language = language or guessed(code)
    return CodeBlock(language=language, code=code, path=path)


_SIGNS = (
    ("cpp", re.compile(r"^\s{0,40}#include\b|^\s{0,40}using namespace\b", re.M)),
    ("java", re.compile(r"^\s{0,40}(?:public |import java\.|final class )", re.M)),
    ("go", re.compile(r"^package \w|^func \w", re.M)),
    ("rust", re.compile(r"^\s{0,40}(?:pub )?fn \w|^use std::", re.M)),
    ("javascript", re.compile(r"^\s{0,40}(?:function \w|const \w|let \w|module\.exports)", re.M)),
)


def guessed(code: str) -> str:
    """The language of code that does not say it, where it plainly is not Python."""
    text = code[:20_000]
    if re.search(
        r"^\s{0,40}(?:def|class) \w{1,80}[^{\n]{0,300}:\s{0,9}(?:#.{0,200})?$", text, re.M
    ):
        return ""
    return next((name for name, sign in _SIGNS if sign.search(text)), "")


def _looks_like_code(text: str) -> bool:
    """Whether a text without fences is code: it parses to more than words, or its lines look so."""
    lines = [line for line in text[:LONGEST_CODE].split("\n") if line.strip()]
    if not lines:
        return False
    if sum(bool(_CODE_LINE.match(line[:600])) for line in lines[:400]) * 3 >= len(lines[:400]):
        return True
    parsed = parsed_up_to(text)
    return parsed.whole and any(_says_something(one) for one in parsed.tree.body)


def _says_something(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call)
    return not isinstance(statement, ast.AnnAssign | ast.Pass)
