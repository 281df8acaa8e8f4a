"""Writing files so that a crash at any moment leaves either the old or the new
file, never a half.
"""

import errno
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from forensics.errors import OutsideFailure, UserError, system_number
from forensics.records.case_checksum import CASE, require_sealed, require_stated
from forensics.records.evidence import Evidence, EvidenceRow, Undefined
from forensics.records.given_files import parse_json, read_text, require_file
from forensics.records.record import canonical_json, first_error

T = TypeVar("T")
_ROW: TypeAdapter[Evidence | Undefined] = TypeAdapter(EvidenceRow)


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write next to the target, flush to disk, then rename over it. A full disk
    is an `OutsideFailure`.
    """
    # a path may hold bytes that are no text; in JSON, this is how it is spelled there
    data = content.encode(errors="backslashreplace") if isinstance(content, str) else content
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(draft, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise as_user_error(error, path) from error


def as_user_error(error: OSError, path: Path) -> Exception:
    """A full or read-only disk said in one sentence; any other failure as it is."""
    if error.errno == errno.EFBIG:
        return OutsideFailure(
            f"{path.name} is larger than a file may be here (ulimit -f); raise it and use --resume"
        )
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return OutsideFailure(
            f"no space left to write {path.name}; free some space and run again with --resume"
        )
    if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
        return OutsideFailure(f"{path} cannot be written; choose another folder with --out")
    return error


@contextmanager
def disk_told(path: Path) -> Iterator[None]:
    """A full disk as one sentence. Savers written in Rust raise errors of their
    own, with the number in the text.
    """
    try:
        yield
    except Exception as error:
        number = system_number(error)
        if number is None:
            raise
        raise as_user_error(OSError(number, os.strerror(number)), path) from error


def write_json(path: Path, value: Any) -> None:
    """Human-readable JSON with sorted keys."""
    write_atomically(
        path,
        json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n",
    )


def write_json_lines(path: Path, rows: Iterable[Any]) -> None:
    """One canonical JSON text a line."""
    write_atomically(path, "".join(canonical_json(row) + "\n" for row in rows))


def read_json(path: Path) -> Any:
    """A JSON file's content. Raises `UserError` where it is missing or no JSON, and for a
    `case.json` that was changed.
    """
    text = read_text(path, "", _cure(path))
    try:
        content = parse_json(text)
    except ValueError as error:
        raise UserError(
            f"{path} is not valid JSON ({error}); run the command that wrote it again"
        ) from None
    if path.name == CASE:
        require_sealed(path, content)
    return content


def _cure(path: Path) -> str:
    """What to give instead of a folder that has no such file."""
    audits = path.parent / "audits"
    such = f", such as one of {audits}" if audits.is_dir() else ""
    return f"give a folder that `forensics investigate` wrote{such}"


def require_written(path: Path) -> None:
    """Raises `UserError` where a file is not what was written with the `case.json` beside it."""
    if (case := path.with_name(CASE)).is_file():
        require_stated(path, read_json(case))


def read_findings(path: Path) -> Iterator[Evidence | Undefined]:
    """Stream `evidence.jsonl`; a broken line is named."""
    return read_json_lines(path, _ROW, "a finding")


def read_json_lines(path: Path, kind: TypeAdapter[T], what: str) -> Iterator[T]:
    """Stream records; a broken line is named, by its number from 1."""
    require_file(path, "", "give a folder that `forensics investigate` wrote")
    require_written(path)
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                yield kind.validate_json(line)
            except ValidationError as error:
                raise UserError(
                    f"line {number} of {path} is not {what}: {first_error(error)}"
                ) from None
