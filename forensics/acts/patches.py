"""Patches: the files that a patch changes, from its own headers (unified diffs, and the `*** Update File:` form)."""

import re

_HEADER = re.compile(r"^(?:\+\+\+ |--- |\*\*\* (?:Update|Add|Delete) File: |\*\*\* Move to: )([^\t\r\n]+)", re.M)


def patched_files(patch: str) -> tuple[str, ...]:
    """Paths in the order in which the patch names them, each once, without git's `a/` and `b/`."""
    found = (_plain(name.strip()) for name in _HEADER.findall(patch))
    return tuple(dict.fromkeys(name for name in found if name not in ("/dev/null", "")))


def _plain(name: str) -> str:
    name = name.strip('"')
    return name[2:] if name[:2] in ("a/", "b/") else name
