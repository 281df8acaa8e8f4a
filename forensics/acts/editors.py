"""Commands that a harness adds to its shell: SWE-agent's file viewer, and the small language of `mini-repo`.

SWE-agent: `open FILE [LINE]`, `create FILE`, `edit FROM:TO` with the new lines up to `end_of_edit`, `append`, `submit`.
Its edits go to the file that is open. `mini-repo`: `open FILE`, `edit FILE BODY`, `history`, `list`, `test`, `submit`.
"""

import re
from typing import Final

from forensics.acts.act import Act
from forensics.acts.places import placed

_EDIT = re.compile(r"(edit|append|insert)\b[ \t]*([^\n]*)\n?(.*?)\n?(?:end_of_(?:edit|append|insert))?\s*\Z", re.S)
_VIEW = re.compile(r"(open|create|goto|scroll_up|scroll_down|search_file|set_cursors)\b[ \t]*([^\n;&|]*)\s*\Z")
_RANGE: Final = re.compile(r"\d+:\d+.*|\d*:?\d*")


def viewer_act(text: str, directory: str | None, root: str | None, opened: str | None) -> Act | None:
    """The act of a command of SWE-agent's file viewer, `None` for any other command line."""
    text = text.strip()
    if (found := _EDIT.match(text)) is not None and _RANGE.fullmatch(found[2].strip().split("<<")[0].strip()):
        writes = (placed(directory, opened, root),) if opened else ()
        words = tuple(found[2].split())
        return Act(step=0, kind="edit", program=found[1], arguments=words, writes=writes, text=text, wrote=found[3])
    if (found := _VIEW.match(text)) is None:
        return None
    words = tuple(word.strip("\"'") for word in found[2].split())
    named = words[:1] if found[1] in ("open", "create") else words[1:2] if found[1] == "search_file" else ()
    paths = tuple(placed(directory, path, root) for path in named or ((opened,) if opened else ()))
    creates = found[1] == "create"
    return Act(
        step=0, kind="edit" if creates else "tool", program=found[1], arguments=words, text=text,
        reads=() if creates else paths, writes=paths if creates else (),
    )


def word_act(text: str) -> Act:
    """The act of one command of `mini-repo`'s language."""
    head, *rest = text.split() or [""]
    edits = head == "edit" and len(rest) > 1
    return Act(
        step=0, kind="submit" if head == "submit" else "edit" if edits else "tool", program=head, arguments=tuple(rest),
        reads=tuple(rest[:1]) if head == "open" else (), writes=tuple(rest[:1]) if edits else (), text=text,
        wrote=" ".join(rest[1:]) if edits else None,
    )
