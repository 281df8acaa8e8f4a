"""Rows that strangers wrote, in whatever arrangement: a JSON document, a list, a
line for each row, or Parquet.

1. `parse` is strict about depth and kind about text: bytes that are no UTF-8,
   and halves of surrogate pairs, become U+FFFD.
2. `first_value` reads the first value of a file's head, be it cut off: what
   readers recognise a format by.
3. `read_rows` finds the rows of a file, whether they are lines, elements of one
   list, one document or of Parquet, and streams them: a list of any length is
   never held whole. What cannot be read is told by line or by position.
4. `read_parquet` reads the columns that are asked for.
5. `trajectories_from` makes runs of rows; what it cannot make something of is
   told by its place.
"""

import json
import re
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic_core import from_json

from forensics.errors import CURE, OutsideFailure, stop_full
from forensics.readers.content import (
    LIMITS,
    MEBIBYTE,
    Line,
    Unreadable,
    UnreadableContent,
    bare_name,
    open_content,
    read_head,
    read_lines,
    read_whole,
)
from forensics.records import Trajectory
from forensics.records.checksum import require_whole, source
from forensics.records.tables import ENDING, require_stored

# levels of nesting, the parser's own limit; elements of a streamed list may reach
# Python's (some 900)
DEPTH = 200
MARKS = b"\xef\xbb\xbf"
MALFORMED = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    RecursionError,
    OverflowError,
)
_SPACE = re.compile(r"[\s,]*")
_DECODER = json.JSONDecoder()
PARQUET = b"PAR1"  # how such a file begins
ROWS_AT_ONCE = 32  # a row may be a whole run


@dataclass(frozen=True)
class Row:
    """A JSON value of a file, and where it stands (`line 3`, `element 2`, `the document`).
    `path`: the file, where a run is made of the row.
    """

    where: str
    value: Any
    path: Path = Path()

    @property
    def place(self) -> str | None:
        """`line 3 of answers.jsonl`, where it is one of several: the name of a run without one."""
        one_of_many = self.where.startswith(("line ", "element ", "row "))
        return f"{self.where} of {bare_name(self.path)}" if one_of_many else None


Rows = Iterator[Row | Unreadable]
Runs = Iterator[Trajectory | Unreadable]


def parse(content: bytes | str) -> Any:
    """The value of a JSON text. Raises `UnreadableContent` with one sentence."""
    try:
        return from_json(content)
    except ValueError as error:
        reason = str(error)
        if "recursion" in reason:
            raise UnreadableContent(f"it is nested deeper than {DEPTH} levels") from None
        if "unicode" not in reason and "hex escape" not in reason and "surrogate" not in reason:
            raise UnreadableContent(f"it is not valid JSON ({reason})") from None
        return _parse_kindly(content)


def parse_or(value: Any, otherwise: Any = None) -> Any:
    """The value of a JSON text, `otherwise` where it is none; any other value as it is."""
    try:
        return parse(value) if isinstance(value, str) else value
    except UnreadableContent:
        return otherwise


def _parse_kindly(content: bytes | str) -> Any:
    text = content.decode("utf-8", "replace") if isinstance(content, bytes) else content
    try:
        return _clean(json.loads(text), DEPTH)
    except (ValueError, RecursionError) as error:
        raise UnreadableContent(f"it is not valid JSON ({error})") from None


def _clean(value: Any, depth: int) -> Any:
    """The value with half surrogate pairs replaced."""
    if depth == 0:
        raise ValueError(f"nested deeper than {DEPTH} levels")
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_clean(item, depth - 1) for item in value]
    if isinstance(value, dict):
        return {_clean(key, depth - 1): _clean(item, depth - 1) for key, item in value.items()}
    return value


@lru_cache(maxsize=8)
def first_value(head: bytes) -> Any:
    """The first JSON value in a head, as far as it goes there (the last string
    may be cut); `None` where none is.
    """
    text = head.removeprefix(MARKS).lstrip()
    if text[:1] not in (b"{", b"["):
        return None
    for part in (text.split(b"\n", 1)[0], text):
        try:
            return from_json(part, allow_partial=False if part is not text else "trailing-strings")
        except ValueError:
            continue
    return None


def first_row(head: bytes) -> dict[str, Any]:
    """The first row in a head, of a list or of lines; `{}` where that is no object."""
    value = first_value(head)
    value = value[0] if isinstance(value, list) and value else value
    return value if isinstance(value, dict) else {}


def read_rows(path: Path) -> Rows:
    """Every row of a file of lines, of one list, of one document, or of Parquet;
    broken ones are told and passed over.
    """
    try:
        head = read_head(path).removeprefix(MARKS).lstrip()
    except UnreadableContent as refused:
        yield Unreadable(path, str(refused))
        return
    if head.startswith(PARQUET):
        yield from read_parquet(path)
    elif head[:1] not in (b"[", b"{") or _one_line(head):
        yield from read_json_lines(path)
    else:
        yield from (read_elements if head[:1] == b"[" else read_document)(path)


def _one_line(head: bytes) -> bool:
    """Whether the first line is a whole value and others follow, or is an
    object that fills the head.
    """
    line, newline, rest = head.partition(b"\n")
    if not newline:
        return line.startswith(b"{")
    try:
        from_json(line)
    except ValueError:
        return rest.lstrip()[:1] == b"{" and line.rstrip().endswith(
            b"}"
        )  # a broken first line among lines
    return bool(rest.strip()) or line.startswith(b"{")


def read_json_lines(path: Path) -> Rows:
    """One row for each line."""
    for line in read_lines(path):
        if isinstance(line, Line):
            where = f"line {line.number}"
            try:
                yield Row(where, parse(line.content))
            except UnreadableContent as refused:
                yield Unreadable(path, str(refused), where)
        else:
            yield line


def read_elements(path: Path) -> Rows:
    """The elements of a JSON list, one by one, counted from 0; a broken one ends the list."""
    where = "the list"
    try:
        with open_content(path) as stream:
            text = _Text(stream, LIMITS.line)
            for number, value in enumerate(text.elements()):
                where = f"after element {number}"
                yield Row(f"element {number}", value)
    except UnreadableContent as refused:
        yield Unreadable(path, str(refused), where)


def read_entries(path: Path, listed: str) -> Iterator[tuple[str, Row] | Unreadable]:
    """The entries of one JSON object as they come, those of the list `listed`
    one by one and counted from 0.
    """
    where = "the document"
    try:
        with open_content(path) as stream:
            for key, number, value in _Text(stream, LIMITS.line).entries(listed):
                where = key if number is None else f"{key} {number}"
                yield key, Row(where, value)
    except UnreadableContent as refused:
        yield Unreadable(path, str(refused), f"after {where}")


class _Text:
    """The part of a stream of JSON text that is being read; it grows only as
    far as one value needs.
    """

    def __init__(self, stream: BinaryIO, limit: int) -> None:
        self._stream, self._limit = stream, limit
        self._decoder = getincrementaldecoder("utf-8-sig")("replace")
        self._text, self._at, self._ended = "", 0, False

    def elements(self) -> Iterator[Any]:
        """The elements of the list that the whole text is."""
        yield from self._list()
        if self._next() != "":
            raise UnreadableContent(
                "something follows after the end of the list; one JSON value a line can be"
                " read, too"
            )

    def entries(self, listed: str) -> Iterator[tuple[str, int | None, Any]]:
        """The entries of the object that the text is; of the list `listed` each
        element, with its number.
        """
        self._skip("{", "an object")
        while (sign := self._next()) != "}":
            key = str(self._value()) if sign else ""
            self._skip(":", "a value")
            if key == listed and self._next() == "[":
                yield from ((key, number, value) for number, value in enumerate(self._list()))
            else:
                yield key, None, self._value()

    def _list(self) -> Iterator[Any]:
        self._skip("[", "a list")
        while (sign := self._next()) != "]":
            if sign == "":
                raise UnreadableContent("the list breaks off before its end")
            yield self._value()
        self._at += 1

    def _skip(self, sign: str, what: str) -> None:
        found = self._next()
        if found != sign:
            raise UnreadableContent(
                f"{what} should start here" if found else "it breaks off before its end"
            )
        self._at += 1

    def _next(self) -> str:
        """The next character that is neither space nor comma."""
        while True:
            self._at = _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]  # it matches nothing, too
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._grow(MEBIBYTE):
                return ""

    def _value(self) -> Any:
        wanted = MEBIBYTE
        self._next()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
                if end < len(self._text) or self._ended:
                    whole, self._at = self._text[self._at : end], end
                    return parse(whole) if "\\ud" in whole.lower() else value
            except RecursionError:
                raise UnreadableContent(f"it is nested deeper than {DEPTH} levels") from None
            except ValueError as error:
                if self._ended:
                    raise UnreadableContent(f"it is not valid JSON ({error})") from None
            if len(self._text) - self._at > self._limit:
                raise UnreadableContent(
                    f"it is not valid JSON, or longer than {self._limit // MEBIBYTE} MB"
                )
            self._grow(wanted)
            wanted *= 2  # so that a long value is tried a few times only

    def _grow(self, count: int) -> bool:
        """More text from the stream, what was read before dropped; whether there was any."""
        data = self._stream.read(count)
        self._text, self._at = (
            self._text[self._at :] + self._decoder.decode(data, final=not data),
            0,
        )
        self._ended = not data
        return bool(data)


def trajectories_from(path: Path, rows: Rows, make: Callable[[Row], Trajectory | None]) -> Runs:
    """`make` of each row; what it cannot make something of is told by its
    place. `None`: the row is no run.
    """
    for row in rows:
        if isinstance(row, Unreadable):
            yield row
            continue
        try:
            made = make(Row(row.where, row.value, path))
        except MALFORMED as error:
            yield Unreadable(path, in_words(error), row.where)
        else:
            if made is not None:
                yield made


def in_words(error: Exception) -> str:
    """Why a row could not be read, on one line."""
    text = " ".join(str(error).split())[:300]
    if isinstance(error, UnreadableContent):
        return text
    if isinstance(error, RecursionError):
        return f"it is nested deeper than {DEPTH} levels"
    what = f"has no {text}" if isinstance(error, KeyError) else f"is not as expected ({text})"
    return f"the row {what}"


def parquet_schema(path: Path, head: bytes) -> pa.Schema:
    """The columns of a file, and what it says about itself; none where it is no Parquet file.
    Raises `OutsideFailure` for one of ours that was changed, so that it is no unknown file.
    """
    try:
        if head.startswith(PARQUET) or path.suffix == ENDING:
            require_whole(path)
        return pq.read_schema(source(path)) if head.startswith(PARQUET) else pa.schema([])
    except (pa.ArrowException, OSError, ValueError) as error:
        stop_full(error)
        return pa.schema([])


def read_parquet(path: Path, columns: Sequence[str] | None = None) -> Rows:
    """The rows of a file, counted from 0; columns that it does not have are left out.
    Raises `OutsideFailure` for a file of ours that is broken: it is no log to go on without.
    """
    done, ours = 0, False
    try:
        ours = require_stored(path)
        with pq.ParquetFile(source(path)) as file:
            names = file.schema_arrow.names
            chosen = None if columns is None else [name for name in columns if name in names]
            for batch in file.iter_batches(ROWS_AT_ONCE, columns=chosen):
                for value in batch.to_pylist():
                    yield Row(f"row {done}", value)
                    done += 1
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        stop_full(error)
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        if ours:
            raise OutsideFailure(
                f"{path} is broken from row {done} on ({reason[:200]}); {CURE}"
            ) from error
        yield Unreadable(path, f"the file is broken ({reason})", f"from row {done}")


def read_document(path: Path) -> Rows:
    """The one JSON value of a file, as a row."""
    try:
        value = parse(read_whole(path).removeprefix(MARKS))
        yield Row("the document", value)
    except UnreadableContent as refused:
        yield Unreadable(path, str(refused))
