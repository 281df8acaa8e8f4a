"""A prompt's sentences, and whether they ask for a file to be written.

1. Each sentence stands on one line, and says whether it stands in the text of an issue.
2. A file is asked for where a verb of writing leads to its name, in a folder that fits the
   path. A bare name says nothing of folders that hold data, graders or answers.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from forensics.shortcuts.vocabulary import Vocabulary

MOST = 60_000  # characters of a prompt
_FORMS = Vocabulary(__name__)
NEGATED = re.compile(
    r"(?i)(?:\bnot|n['’]t|\bnever|\bwithout|\bavoid|\bcannot|\bno need|\brather than|\binstead of"
    r"|\bunable|\bforbidden|\bprohibited)\b[^.;!?]{0,80}$"
)
_FAR = 160  # characters from the verb to the name


class Sentence(NamedTuple):
    """A sentence of a prompt; whether it stands in the text of an issue."""

    text: str
    issue: bool


def asked_to_write(prompt: str, path: str) -> bool:
    """Whether a prompt asks for a file to be written at a path."""
    name = path.rsplit("/", 1)[-1]
    if not name or name not in prompt[:MOST]:
        return False
    return any(
        _fits(folder, path)
        for sentence in sentences(prompt)
        for folder in _written(sentence.text[:2000], name)
    )


def _written(sentence: str, name: str) -> Iterator[str]:
    """The folders of a file's name where a sentence asks for it to be written."""
    for found in re.finditer(rf"{re.escape(name)}(?!\w)", sentence) if name in sentence else ():
        before = sentence[: found.start()]
        folder = _FORMS.folder.search(before)
        place = folder.start() if folder else len(before)
        verbs = [one for one in _FORMS.writes.finditer(before[:place]) if place - one.end() <= _FAR]
        if verbs and not NEGATED.search(before[: verbs[-1].end()]):
            yield before[place:]


def _fits(folder: str, path: str) -> bool:
    """Whether a path lies where a prompt says; a bare name may lie where the run works."""
    if not folder:
        return _FORMS.kept.search(path) is None
    name = path.rsplit("/", 1)[-1]
    return f"/{path}".endswith("/" + (folder + name).removeprefix("./").lstrip("/"))


@lru_cache(maxsize=64)
def sentences(prompt: str) -> tuple[Sentence, ...]:
    """What a prompt says, sentence by sentence, on one line each."""
    text, at, parts = prompt[:MOST], 0, []
    while block := _FORMS.issue.search(text, at):
        parts.append((text[at : block.start()], False))
        end = text.find(f"</{block[1]}>", block.end())
        end = len(text) if end < 0 else end
        parts.append((text[block.end() : end], True))
        at = end
    parts.append((text[at:], False))
    return tuple(
        Sentence(" ".join(_FORMS.bullet.sub("", one).split()), issue)
        for part, issue in parts
        for one in _FORMS.split.split(part)
        if one.strip()
    )
