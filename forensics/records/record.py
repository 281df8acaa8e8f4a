"""The base of every record: frozen, versioned, valid once built, unknown keys refused."""

import hashlib
import json
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

FileState = tuple[int, int, int]
Texts = tuple[str, ...]
SCHEMA_VERSION: Literal[1] = 1


class Record(BaseModel):
    """A frozen value. Absent is `None`, never 0; NaN and infinities are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class VersionedRecord(Record):
    """A record that is written to a file on its own and so carries its schema version."""

    schema_version: Literal[1] = SCHEMA_VERSION


Kind = TypeVar("Kind", bound=Record)
_CANONICAL = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
)


def file_state(path: Path) -> FileState:
    """By what a file is told to be the one that was looked at before."""
    state = path.stat()
    return state.st_ino, state.st_size, state.st_mtime_ns


def canonical_json(value: Any) -> str:
    """The one JSON text of a value: keys sorted, no spaces, so that equal values hash equally."""
    plain = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    return _CANONICAL.encode(plain)


def content_hash(value: Any, length: int = 16) -> str:
    """The first `length` hexadecimal digits of the SHA-256 of a value's canonical JSON."""
    content = canonical_json(value).encode(errors="surrogatepass")  # a path may not be text
    return hashlib.sha256(content).hexdigest()[:length]


def first_error(error: ValidationError) -> str:
    """The first thing amiss in one line: where, and what."""
    first = error.errors(include_url=False)[0]
    where, what = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
    return f"{where}: {what}" if where else what


def first_amiss(error: ValidationError, kind: type[BaseModel]) -> str:
    """The same for what a user wrote by hand, as a `kind`: with the value, and an unknown key
    before a missing one, which it most often is a misspelling of, with the known ones.
    """
    errors = error.errors(include_url=False)
    first = next((one for one in errors if one["type"] == "extra_forbidden"), errors[0])
    where = [str(part) for part in first["loc"]]
    if first["type"] != "extra_forbidden":
        value = first.get("input")
        given = f", not {value!r}" if isinstance(value, str | int | float) else ""
        place = f"{'.'.join(where)}: " if where else ""
        return f"{place}{first['msg'].removeprefix('Value error, ')}{given}"
    place = f"in [{'.'.join(where[:-1])}]" if where[:-1] else "at the top level"
    section: Any = kind
    for part in (part for part in where[:-1] if not part.isdigit()):
        found = section.model_fields[part].annotation  # of an optional one, or one of several, too
        section = next((one for one in get_args(found) if hasattr(one, "model_fields")), found)
    known = [field.alias or name for name, field in section.model_fields.items()]
    meant = "".join(f", did you mean '{key}'?" for key in get_close_matches(where[-1], known, 1))
    return f"unknown key '{where[-1]}' {place}{meant or ';'} known: {', '.join(known)}"
