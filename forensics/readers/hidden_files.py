"""Hidden files of a folder or an archive: which are looked at.

Agents keep their sessions in hidden places (`.codex/sessions`, `.claude/projects`). A hidden
file is read where a reader recognises it, named where its format is one that is not read
(`.aider.chat.history.md`), and neither named nor counted otherwise. What tools keep for
themselves (`field_names.toml`) is never looked at, our own drafts and caches among it.
"""

import re
from fnmatch import translate
from pathlib import Path

from forensics.readers.values import field_names

_LEFT_OUT = re.compile("|".join(map(translate, field_names("hidden").left_out)))


def is_left_out(name: str) -> bool:
    """Whether a file or folder of this name is never looked at."""
    return name.startswith(".") and _LEFT_OUT.match(name) is not None


def is_hidden(path: Path, above: Path | None) -> bool:
    """Whether a file is hidden, or lies in a hidden folder below `above`."""
    if above is None or path == above or not path.is_relative_to(above):
        return False
    return any(part.startswith(".") for part in path.relative_to(above).parts)
