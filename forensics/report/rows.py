"""The rows of a case's JSON-lines files, one at a time."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from forensics.errors import UserError
from forensics.records.files import require_written
from forensics.records.given_files import parse_json
from forensics.records.record import Kind

T = TypeVar("T")
WRONG = (KeyError, TypeError, ValueError, AttributeError, RecursionError)


def rows_of(folder: Path, name: str, read: Callable[[str], T]) -> Iterator[T]:
    """What `read` makes of each line of a file; nothing where the case has no such file.

    Raises `UserError` with the number of a line that `read` cannot make anything of.
    """
    path = folder / name
    if not path.is_file():
        return
    require_written(path)
    with open(path, encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            try:
                yield read(line)
            except WRONG as error:
                why = " ".join([f"{type(error).__name__}:", *str(error).splitlines()[:1]])
                raise UserError(
                    f"{name} line {number} is not a row about a run ({why}); run the command that"
                    " wrote it again"
                ) from None


def as_record(kind: type[Kind]) -> Callable[[str], Kind]:
    """What reads a line as a record. Halves of surrogate pairs stay; whoever shows them escapes."""
    return lambda line: kind.model_validate(parse_json(line, halves=True))
