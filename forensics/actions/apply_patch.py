"""Edits that are written down as old and new text: the `*** Begin Patch` form that Codex's
`apply_patch` takes, and SEARCH/REPLACE blocks (aider, Cline).
"""

import re
from collections.abc import Iterator

_SECTION = re.compile(r"^\*\*\* (Update|Add|Delete) File: ([^\n]+)$", re.M)
_SEARCHED = re.compile(r"^(?:-{3,}|<{3,}) ?SEARCH[^\n]{0,80}\n", re.M)
_DIVIDED = re.compile(r"^={3,}[ \t]*\n", re.M)
_REPLACED = re.compile(r"^(?:\+{3,}|>{3,}) ?REPLACE", re.M)


def sections_of(patch: str) -> Iterator[tuple[str, str | None, str]]:
    """Path, old and new text of each hunk; old is `None` for a file that is added whole."""
    found = list(_SECTION.finditer(patch))
    for at, head in enumerate(found):
        end = found[at + 1].start() if at + 1 < len(found) else len(patch)
        body = patch[head.end() : end].split("*** End Patch")[0].strip("\n")
        path = head[2].strip()
        if head[1] == "Add":
            yield path, None, "\n".join(line[1:] for line in body.split("\n") if line[:1] == "+")
        elif head[1] == "Update":
            for hunk in re.split(r"^@@[^\n]*$", body, flags=re.M):
                lines = [line for line in hunk.split("\n") if line and not line.startswith("***")]
                old = "\n".join(line[1:] for line in lines if line[0] in " -")
                new = "\n".join(line[1:] for line in lines if line[0] in " +")
                if old != new:
                    yield path, old, new


def searched_texts(text: str) -> Iterator[tuple[str, str, str]]:
    """Each SEARCH/REPLACE block: what stands above it, what it looks for and what it puts there."""
    at = 0
    while opened := _SEARCHED.search(text, at):
        divided = _DIVIDED.search(text, opened.end())
        closed = _REPLACED.search(text, divided.end()) if divided else None
        if divided is None or closed is None:
            return
        old, new = text[opened.end() : divided.start()], text[divided.end() : closed.start()]
        yield text[at : opened.start()], old, new
        at = closed.end()
