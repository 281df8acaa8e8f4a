"""What an action says outright that it puts into files: `edits_of`.

A whole file, a text in place of another, a text at the end, the sections of a patch in the
`*** Begin Patch` form, or the several edits of one call.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from forensics.actions.action import Action
from forensics.actions.apply_patch import sections_of
from forensics.actions.untrusted import TABLES, first_of, json_value

LONGEST = 200_000  # characters of one text
_OLD, _NEW = TABLES["tools"]["old texts"], TABLES["tools"]["new texts"]
_APPENDS = re.compile(r">>\s*\S")


class Edit(NamedTuple):
    """One change of a file. `old` `None`: the whole file is `new`; `""`: added to it."""

    path: str
    old: str | None
    new: str


def edits_of(action: Action) -> Iterator[Edit]:
    """What an action says that it puts into files."""
    content = action.content
    given = dict(argument.split("=", 1) for argument in action.arguments if "=" in argument[:40])
    if content is not None and content.lstrip()[:16].startswith("*** Begin Patch"):
        for path, old, new in sections_of(content[:LONGEST]):
            yield Edit(path, old, new)
    elif content is None or not action.writes:
        return
    elif action.kind == "edit":
        if several := _several(given.get("edits", "")):
            for old, new in several:
                yield Edit(action.writes[0], old, new[:LONGEST])
            return
        old = first_of(given, _OLD)
        adds = action.program in ("append", "insert") or given.get("command") == "insert"
        if action.program == "edit" and old is None and "new_string" not in given:
            adds = True  # the lines that it takes the place of are not said
        yield Edit(action.writes[0], "" if adds else old, content[:LONGEST])
    elif action.program.casefold() in ("set-content", "add-content"):
        adds = action.program.casefold() == "add-content"
        yield Edit(action.writes[0], "" if adds else None, content[:LONGEST])
    elif action.program in ("cat", "tee", "echo", "printf"):
        adds = "-a" in action.arguments or _APPENDS.search(action.text[:2000]) is not None
        for path in action.writes:
            yield Edit(path, "" if adds else None, content[:LONGEST])


def _several(edits: str) -> list[tuple[str, str]]:
    """The pairs of old and new text in a list of edits."""
    found = json_value(edits)
    pairs = []
    for one in found if isinstance(found, list) else ():
        texts = [first_of(one, names, str) for names in (_OLD, _NEW) if isinstance(one, dict)]
        if texts and None not in texts:
            pairs.append((texts[0], texts[1]))
    return pairs
