"""Paths: where a name leads from a working directory, and how it is called from the root of the work."""

import posixpath
from functools import lru_cache


def joined(directory: str | None, path: str) -> str | None:
    """A path from a directory (`""`: where the shell started). `None` where it cannot be told."""
    if "$" in path or "`" in path:
        return None
    if path.startswith(("/", "~")):
        return _short(path)
    return None if directory is None else _short(posixpath.join(directory, path))


@lru_cache(maxsize=2048)
def placed(directory: str | None, path: str, root: str | None) -> str:
    """A path as it is told in an act: below `root` relative to it, elsewhere as far as it can be told."""
    whole = joined(directory, path)
    if whole is None:
        return path
    if root and whole == root:
        return "."
    return (whole.removeprefix(root.rstrip("/") + "/") if root else whole) or "."


def _short(path: str) -> str:
    """Without `.` and `..`; a slash at the end stays (it says: a folder)."""
    if not path:
        return ""
    short = posixpath.normpath(path)
    short = short[1:] if short.startswith("//") else short
    return "" if short == "." else short + "/" if path.endswith("/") and not short.endswith("/") else short
