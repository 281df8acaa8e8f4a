"""The checksums of a case: `case.json` carries its own, and those of the files that were
written with it.

1. Whoever writes `case.json` writes what `sealed` makes of it: `files` holds the SHA-256 of
   each file that was written with it, `checksum` that of all else that `case.json` says.
2. Whoever reads it (`read_json`) works its own out again (`require_sealed`). A change that
   leaves the meaning as it was, such as another indent, is none.
3. Whoever reads one of the files (`require_written`) works out the file's.

A case of a version before this carries none, and is read all the same: it has neither of
the two names, of which a changed byte can break but one.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from forensics.errors import changed
from forensics.records.record import FileState, content_hash, file_state

CASE: Final = "case.json"
OWN, FILES = "checksum", "files"
DIGITS: Final = 64


def sealed(content: Mapping[str, Any], files: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What `case.json` says, with its checksum. `files`: the checksums of what was written with
    it; `None` leaves those that it states.
    """
    stated = content.get(FILES, {}) if files is None else files
    rest = json.loads(json.dumps({**content, FILES: dict(stated)}))  # as it will be read
    rest.pop(OWN, None)
    return {**rest, OWN: content_hash(rest, DIGITS)}


def hashes_of(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """The checksums of those of these files that a case has."""
    return {name: file_hash(folder / name) for name in names if (folder / name).is_file()}


def require_sealed(path: Path, content: Any) -> None:
    """Raises `OutsideFailure` where the content of a `case.json` is not what was written."""
    if not isinstance(content, dict) or not content.keys() & {OWN, FILES}:
        return
    rest = {name: value for name, value in content.items() if name != OWN}
    if content.get(OWN) != content_hash(rest, DIGITS):
        raise changed(path, "take a copy that is whole, or start over with --force")


def require_stated(path: Path, case: Any) -> None:
    """Raises `OutsideFailure` where a file is not what its `case.json` (its content) states."""
    stated = case.get(FILES) if isinstance(case, dict) else None
    if isinstance(stated, dict) and path.name in stated and stated[path.name] != file_hash(path):
        raise changed(path)


def file_hash(path: Path) -> str:
    """The SHA-256 of a file, which is read for it once in a process, for as long as its size and
    its time stay.
    """
    return _hash_at(path, file_state(path))


@lru_cache(maxsize=10_000)
def _hash_at(path: Path, _: FileState) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
