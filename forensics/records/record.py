"""The base of every record: frozen, versioned, valid once built, unknown keys refused."""

import hashlib
import json
from pathlib import Path
from typing import Any, Literal, TypeVar

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
