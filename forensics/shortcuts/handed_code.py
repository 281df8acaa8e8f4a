"""The code that a run handed in, read as code with the prompt in view.

1. Code stands in the files of the patch (recorded, or the run's own edits), hunk by hunk
   with what is around it, and in the blocks of a submitted text or an answer.
2. Each part is read (`code_reading`). In a patch only what stands on an added line counts;
   what was there before is not the run's.
3. *Used*: what was handed in does the thing, in a block that no later one replaces
   (`handed_drafts`). Where the reader is not sure, the link stays open. Lines in languages
   that nobody can read as code are searched for the family's own pattern (`added`).
"""

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from forensics.actions.hand_in import HandIn
from forensics.shortcuts.code_fragments import closed, completed, mended
from forensics.shortcuts.code_reading import (
    ENDINGS,
    CodeFinding,
    breaks_off,
    code_blocks,
    read_code,
    readable,
)
from forensics.shortcuts.expectations.versions import FileChange, files_of
from forensics.shortcuts.handed_drafts import as_draft, drafts_of
from forensics.shortcuts.handed_forms import CodePart, code_shown

LONGEST = 200_000  # characters of one part
MOST_PARTS = 200
KEPT = 20_000  # characters of a prompt and a hand-in that are remembered


@dataclass(frozen=True, kw_only=True)
class HandedCode:
    """All parts, what they show, the parts that could not be read as code, and whether what was
    handed in breaks off.
    """

    parts: tuple[CodePart, ...]
    quoted: tuple[CodeFinding, ...]
    unread: tuple[CodePart, ...]
    breaks_off: bool = False


def read_handed_code(hand_in: HandIn, prompt: str) -> HandedCode:
    """Everything that is told of the code of a hand-in. Pure, never raises. What a policy says
    again and again to one prompt is read once.
    """
    size = sum(len(text or "") for text in (hand_in.submission, hand_in.patch, prompt))
    return _kept(hand_in, prompt) if size <= KEPT else _read(hand_in, prompt)


def _read(hand_in: HandIn, prompt: str) -> HandedCode:
    parts = tuple(_parts(hand_in))[:MOST_PARTS]
    quoted: list[CodeFinding] = []
    unread: list[CodePart] = []
    drafts = drafts_of(parts, prompt)
    for at, part in enumerate(parts):
        told = read_code(part.text, prompt, language=part.language or None, path=part.path)
        told = tuple(map(as_draft, told)) if at in drafts else told
        quoted += [replace(one, path=part.path) for one in told if _is_own(part, one)]
        if not part.known or not readable(part.text, part.language or None):
            unread.append(part)
    return HandedCode(
        parts=parts,
        quoted=tuple(quoted),
        unread=tuple(unread),
        breaks_off=any(part.cut for part in parts) or _ends_open(hand_in),
    )


def _ends_open(hand_in: HandIn) -> bool:
    """Whether the last fence of a text never closes."""
    if hand_in.source not in ("submission", "answer"):
        return False
    blocks = code_blocks((hand_in.submission or "")[:LONGEST])
    return any(not block.closed for block in blocks)


_kept = lru_cache(maxsize=1024)(_read)


def _parts(hand_in: HandIn) -> Iterator[CodePart]:
    for change in files_of((hand_in.patch or "")[: 5 * LONGEST]):
        language = ENDINGS.get(change.name.rpartition(".")[2].lower())
        if language is not None and not change.deleted:
            yield from _of_file(change, language)
    if hand_in.source in ("submission", "answer"):
        yield from map(_of_text, code_shown(hand_in.submission or ""))


def _of_text(shown: CodePart) -> CodePart:
    if shown.own is None:
        cut = breaks_off(shown.text, shown.language or None)
        return shown._replace(text=_completed(shown) if cut else shown.text, cut=cut)
    language = ENDINGS.get(shown.language, "" if shown.path is None else shown.language)
    text = textwrap.dedent(shown.text)
    if language in ("", "python"):
        text = mended(text) or text
    return shown._replace(language=language, text=text)


def _completed(shown: CodePart) -> str:
    """Code that breaks off, with its brackets closed where that makes it whole."""
    if shown.language in ("", "python"):
        return completed(shown.text) or shown.text
    whole = closed(shown.text[:LONGEST])
    return shown.text if breaks_off(whole, shown.language) else whole


def _of_file(change: FileChange, language: str) -> Iterator[CodePart]:
    for part in change.parts:
        before = set(part.old.split("\n"))
        own = frozenset(line for line in part.new.split("\n") if line not in before)
        if any(line.strip() for line in own):
            text = part.new[:LONGEST]
            if language == "python":
                text = mended(textwrap.dedent(text)) or _own_blocks(text, own)
            yield CodePart(change.path, language, text, frozenset(line.strip() for line in own))


def _own_blocks(text: str, own: frozenset[str]) -> str:
    """The stretches that the run wrote, each made whole, where that makes all of them parse;
    else the text as it is.
    """
    blocks: list[list[str]] = [[]]
    for line in text.split("\n"):
        if line in own:
            blocks[-1].append(line)
        elif blocks[-1]:
            blocks.append([])
    whole = [mended(textwrap.dedent("\n".join(block))) for block in blocks if block]
    return textwrap.dedent(text) if None in whole else "\n".join(filter(None, whole))


def _is_own(part: CodePart, told: CodeFinding) -> bool:
    """Whether a line that shows it is one that the run wrote."""
    if part.own is None:
        return True
    return any(line.strip() in part.own for line in told.quote.split("\n") if line.strip())


def searched_lines(code: HandedCode, pattern: str) -> list[tuple[str | None, str]]:
    """Lines that the run wrote in code that could not be read as such, and that a pattern
    matches.
    """
    expression = re.compile(pattern)
    return [
        (part.path, line)
        for part in code.unread
        for line in part.text.split("\n")
        if (part.own is None or line.strip() in part.own) and expression.search(line[:2000])
    ]
