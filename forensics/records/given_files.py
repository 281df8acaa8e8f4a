"""Files that a user names: recipes, rules, lists, what lies in a checkpoint directory.

They may be anything. A pipe would be waited for without an end, a circle of links or a
file that is nested a thousand times deep would end in an error of ours. So whoever reads
one reads it here, and gets text or a value that the rest of the program can work with:
`UserError` for a place that is no file, `ValueError` for content that is none.
"""

import errno
import json
import re
import stat
import tomllib
from pathlib import Path
from typing import Any, Final

from forensics.errors import UserError

ADDRESS: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{1,20}):/+(?=[^/])")
DEEPEST: Final = 100  # levels: more than any file of ours or of a checkpoint has
NO_FILE: Final = "is a pipe or a device, not a file; write what it gives into a file, and give that"


def address(path: Path) -> str | None:
    """The address that somebody gave for a path (`http://...`, `hf://...`), in its own form."""
    found = ADDRESS.match(str(path))
    return f"{found[1]}://{str(path)[found.end() :]}" if found else None


def require_file(path: Path, what: str, cure: str) -> None:
    """Raises `UserError` where a path leads to no file that can be read to its end.

    `what`: what the file is, before its path ('' or `the rule `); `cure`: what to give.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        if given := address(path):
            raise UserError(
                f"{what}{given} is an address, not a file on this machine; {cure}"
            ) from None
        raise UserError(f"{what}{path} does not exist; {cure}") from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UserError(f"{what}{path} is a link that leads back to itself; {cure}") from None
        raise UserError(f"{what}{path} cannot be read ({error.strerror}); {cure}") from None
    except ValueError:
        raise UserError(f"{what}{str(path)!r} is no path; {cure}") from None
    if stat.S_ISDIR(mode):
        raise UserError(f"{what}{path} is a folder; {cure}")
    if not stat.S_ISREG(mode):
        raise UserError(f"{what}{path} {NO_FILE}")


def leads_out(path: Path, folder: Path) -> bool:
    """Whether a path is a link to what does not lie in the folder, which nobody gave."""
    try:
        return path.is_symlink() and not path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # a circle, which leads nowhere
        return False


def require_inside(path: Path, folder: Path) -> None:
    """Raises `UserError` for a link out of a folder."""
    if leads_out(path, folder):
        raise UserError(
            f"{path} is a link that leads out of {folder}, which is not followed; put a copy of"
            " what it leads to there"
        )


def read_text(path: Path, what: str, cure: str, *, encoding: str = "utf-8") -> str:
    """The text of a file. Raises `UserError` where there is none."""
    require_file(path, what, cure)
    try:
        return path.read_text(encoding=encoding)
    except PermissionError:
        raise UserError(f"{what}{path} may not be read; change its permissions") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{what}{path} is not UTF-8 text ({error.reason}); {cure}") from None
    except OSError as error:
        raise UserError(f"{what}{path} cannot be read ({error.strerror}); {cure}") from None


def parse_json(text: str, *, halves: bool = False, **options: Any) -> Any:
    """The value of a JSON text. Raises `ValueError` for one that is broken, nested too deep, or
    holds half of a pair of surrogates, which no file of ours can hold, unless whoever shows the
    text escapes these (`halves`). `options`: of `json.loads`.
    """
    try:
        value = json.loads(text, **options)
    except RecursionError:
        raise ValueError(f"it is nested deeper than {DEEPEST} levels") from None
    require_shallow(value)
    if not halves and "\\ud" in text.lower():
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("it holds half of a surrogate pair (\\ud800 to \\udfff)") from None
    return value


def parse_toml(text: str) -> dict[str, Any]:
    """The tables of a TOML text. Raises `ValueError` for one that is broken or nested too deep."""
    try:
        value = tomllib.loads(text)
    except RecursionError:
        raise ValueError(f"it is nested deeper than {DEEPEST} levels") from None
    require_shallow(value)
    return value


def require_shallow(value: Any) -> None:
    """Raises `ValueError` for a value that is nested deeper than `DEEPEST` levels."""
    level = [value]
    for _ in range(DEEPEST):
        level = [
            part
            for one in level
            if isinstance(one, dict | list)
            for part in (one.values() if isinstance(one, dict) else one)
            if isinstance(part, dict | list)
        ]
        if not level:
            return
    raise ValueError(f"it is nested deeper than {DEEPEST} levels")
