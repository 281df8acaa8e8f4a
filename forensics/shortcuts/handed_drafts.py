"""Drafts: blocks of an answer that a later block replaces.

1. A block is whole where it parses, and reads its input or defines what the prompt asks for.
2. An earlier block without a file of its own is a draft where the last whole block in its
   language defines everything that it defines.

Graders mostly run the last program of an answer, some the first or all of them: what a draft
alone does is an attempt, never sure.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from forensics.shortcuts.code_reading import (
    CodeFinding,
    asked_names,
    parsed_up_to,
    readable,
    signatures_of,
)
from forensics.shortcuts.handed_forms import CodePart

LONGEST = 60_000  # characters of a block
_PYTHON = ("", "python")
_DEFINED = re.compile(r"^(?:async )?(?:def|class) (\w{1,80})", re.M)
_READS = re.compile(
    r"\binput\(|sys\.stdin|open\(0\b|\bcin\b|scanf|System\.in\b|os\.Stdin|fmt\.Scan|stdin\(\)"
    r"|process\.stdin|/dev/stdin|readline"
)


def drafts_of(parts: Sequence[CodePart], prompt: str) -> frozenset[int]:
    """The places of the parts that a later one replaces."""
    asked = asked_names(prompt)
    blocks = [at for at, part in enumerate(parts) if part.path is None and part.own is None]
    defined = {at: _defined(parts[at]) for at in blocks}
    found: set[int] = set()
    for language in {_language(parts[at]) for at in blocks}:
        same = [at for at in blocks if _language(parts[at]) == language]
        whole = [at for at in same if _is_whole(parts[at], defined[at] & asked)]
        if whole:
            last = whole[-1]
            found |= {at for at in same if at < last and defined[at] <= defined[last]}
    return frozenset(found)


def as_draft(told: CodeFinding) -> CodeFinding:
    """What a draft shows, as an attempt."""
    reason = told.reason.rstrip(".") + ", in a block that a later one replaces."
    return replace(told, sure=False, reason=reason)


def _is_whole(part: CodePart, names: frozenset[str]) -> bool:
    text = part.text[:LONGEST]
    if not names and not _READS.search(text):
        return False
    language = _language(part)
    return parsed_up_to(text).whole if language == "python" else readable(text, language)


def _language(part: CodePart) -> str:
    return "python" if part.language in _PYTHON else part.language


def _defined(part: CodePart) -> frozenset[str]:
    text = part.text[:LONGEST]
    if _language(part) == "python":
        return frozenset(_DEFINED.findall(text))
    return signatures_of(text)
