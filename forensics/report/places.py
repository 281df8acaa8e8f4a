"""Where a run stands in the logs, in words that lead there: by its own name, or by the line or
row of a file where it has none.
"""

import re
from pathlib import PurePath

_UNNAMED = re.compile(r"((?:line|element|row) \d{1,15}) of ([^~]{1,300})(?:~\d{1,15})?")


def place_told(trajectory: str, file: str | None) -> str:
    """`run a-0 in deep/a.jsonl`; `line 3 of deep/a.jsonl` of a run that a reader called so."""
    if unnamed := _unnamed(trajectory, file):
        return unnamed
    return f"run {trajectory} in {file}" if file else f"run {trajectory}"


def file_told(trajectory: str, file: str | None) -> str:
    """The file alone where the run's own name stands beside it."""
    return _unnamed(trajectory, file) or file or ""


def _unnamed(trajectory: str, file: str | None) -> str | None:
    if (found := _UNNAMED.fullmatch(trajectory)) is None:
        return None
    same = file is not None and PurePath(file).name.startswith(found[2])
    return f"{found[1]} of {file if same else found[2]}"
