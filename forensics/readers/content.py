"""The content of files that strangers wrote: compressed or not, of any size, in
constant memory and within limits.

1. What a file is, is told by its first bytes, never by its name: gzip,
   zstandard, xz, bzip2, or plain.
2. Content is inflated in small pieces, so that neither a file above 2 GB nor a
   bomb is ever held in memory whole.
3. Content that grows out of proportion, or past the total, is refused with one
   sentence (`UnreadableContent`). Real logs of looping policies compress very
   well, so proportion counts only after the first `free` bytes.
4. A line longer than a limit is skipped without being held, and told by its
   number.
"""

import bz2
import codecs
import io
import lzma
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

import zstandard

JsonObject = Mapping[str, Any]
WHOLE = "the whole file"
HEAD = 64 * 1024  # bytes of a file that are shown to `recognises`
LONG_HEAD = 8 << 20  # ... where nobody knew it by those
SUFFIX = re.compile(r"(\.(traj|trajectory|jsonl?|log))+$")
MEBIBYTE = 1 << 20
PIECE = 2048  # compressed bytes at a time: one block of a bomb is then some ten megabytes at most
SKIPPED_AT_ONCE = MEBIBYTE
MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ\x00": "xz", b"BZh": "bzip2"}
SUFFIXES = (".gz", ".zst", ".zstd", ".xz", ".bz2")
BROKEN = (zlib.error, lzma.LZMAError, zstandard.ZstdError, OSError, EOFError)


@dataclass(frozen=True)
class Unreadable:
    """A file or a part of one that could not be read: why, in one sentence, and `where` in it (a
    line, a member). `seen`: what a file of no known format holds.
    """

    path: Path
    reason: str
    where: str = WHOLE
    seen: str = ""


def log_name(path: Path) -> str:
    """The file's name without what tells its format: `x__y-1.traj.json.gz` is `x__y-1`."""
    return SUFFIX.sub("", bare_name(path)) or path.name


class UnreadableContent(ValueError):
    """Content that is broken or out of bounds: one sentence."""


@dataclass(kw_only=True)
class Limits:
    """Bounds on what one file may hold, in bytes unless said otherwise."""

    total: int = 1 << 40  # of one file's content
    free: int = 256 * MEBIBYTE  # content up to here is never out of proportion
    ratio: int = 1000  # content may be so many times what it is compressed to
    line: int = 64 * MEBIBYTE  # one line, or one element of a list
    document: int = 256 * MEBIBYTE  # one JSON document that must be read whole
    unpacked: int = 64 << 30  # what one archive may unpack to
    members: int = 1_000_000  # files in one archive
    nesting: int = 3  # archives in archives


LIMITS = Limits()


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line of a file without its line end; `number` counts from 1."""

    number: int
    content: bytes


class Inflater(Protocol):
    """What zlib, lzma, bz2 and zstandard have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


def bare_name(path: Path) -> str:
    """The file's name without what tells its compression: `a.jsonl.gz` is `a.jsonl`."""
    return path.name.removesuffix(path.suffix) if path.suffix.lower() in SUFFIXES else path.name


def open_content(path: Path) -> BinaryIO:
    """The content of a file, inflated where it is compressed. Reading raises
    `UnreadableContent` for what is broken.
    """
    try:
        file = path.open("rb")  # closed by the caller
        kind = compression(file.peek(8))
        return file if kind is None else inflated(file, kind, path.stat().st_size)
    except OSError as error:
        raise UnreadableContent(f"it cannot be opened ({error.strerror})") from None


def compression(start: bytes) -> str | None:
    """Which compression content that starts so has, `None` where it has none."""
    return next((name for magic, name in MAGIC.items() if start.startswith(magic)), None)


def inflated(file: BinaryIO, kind: str, packed: int) -> BinaryIO:
    """A stream of what `file`, `packed` bytes of compressed content, inflates to."""
    return cast(BinaryIO, io.BufferedReader(_Inflated(file, _INFLATERS[kind], packed), MEBIBYTE))


def read_head(path: Path, length: int = HEAD) -> bytes:
    """The first `length` bytes of the content. Raises `UnreadableContent` where there
    are none to be had.
    """
    with open_content(path) as stream:
        return stream.read(length)


def read_whole(path: Path, most: int | None = None) -> bytes:
    """The content of a file that must be held whole. Raises `UnreadableContent`
    above `most` bytes (`LIMITS.document`).
    """
    with open_content(path) as stream:
        content = stream.read((most or LIMITS.document) + 1)
    _require_bounded(content, most or LIMITS.document)
    return content


def read_text(path: Path, most: int) -> tuple[str, tuple[Unreadable, ...]]:
    """The text of a file that must be held whole, as far as it can be read, and what of it
    cannot. Raises `UnreadableContent` above `most` bytes.
    """
    content, broken = bytearray(), []
    with cast(io.BufferedReader, open_content(path)) as stream:
        try:  # piece by piece: a longer read that breaks off gives nothing
            while len(content) <= most and (piece := stream.read1(MEBIBYTE)):
                content += piece
        except UnreadableContent as refused:
            where = f"after {content.count(10):,} lines"
            broken.append(Unreadable(path, str(refused), where))
    _require_bounded(content, most)
    return content.decode("utf-8-sig", "replace"), tuple(broken)


def _require_bounded(content: bytes | bytearray, most: int) -> None:
    if len(content) > most:
        raise UnreadableContent(
            f"it holds one document above {_megabytes(most)}, too large to be read whole"
        )


def read_lines(path: Path) -> Iterator[Line | Unreadable]:
    """The lines of a file, empty ones left out; what is too long or breaks off is told by line."""
    number = 0
    try:
        with open_content(path) as stream:
            for number, content in enumerate(_bounded_lines(stream, LIMITS.line), 1):
                if content is None:
                    reason = f"the line is longer than {_megabytes(LIMITS.line)} and was left out"
                    yield Unreadable(path, reason, f"line {number}")
                elif content := (
                    content.removeprefix(codecs.BOM_UTF8) if number == 1 else content
                ).strip():
                    yield Line(number=number, content=content)
    except UnreadableContent as refused:
        yield Unreadable(path, str(refused), f"after line {number}")


def _bounded_lines(stream: BinaryIO, limit: int) -> Iterator[bytes | None]:
    while line := stream.readline(limit + 1):
        if len(line) <= limit or line.endswith(b"\n"):
            yield line
        else:
            while (line := stream.readline(SKIPPED_AT_ONCE)) and not line.endswith(b"\n"):
                pass
            yield None


class _Inflated(io.RawIOBase):
    """Inflates piece by piece; several streams one after the other are one
    content, as the tools have it.
    """

    def __init__(self, file: BinaryIO, new: Callable[[], Inflater], packed: int) -> None:
        self._file, self._new = file, new
        self._allowed = min(LIMITS.total, max(LIMITS.free, packed * LIMITS.ratio))
        self._inflater: Inflater | None = new()
        self._held, self._left, self._made = memoryview(b""), b"", 0

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
        super().close()

    def readinto(self, buffer: Any, /) -> int:
        while not self._held:
            try:
                piece = self._more()
            except BROKEN as error:
                raise UnreadableContent(f"its compressed content is broken ({error})") from None
            if piece is None:
                return 0
            self._held = memoryview(piece)
        count = min(len(buffer), len(self._held))
        buffer[:count], self._held = self._held[:count], self._held[count:]
        return count

    def _more(self) -> bytes | None:
        """The next inflated piece, maybe empty; `None` at the end."""
        packed = self._left or self._file.read(PIECE)
        self._left = b""
        if not packed:
            if self._inflater is not None:
                raise UnreadableContent("its compressed content breaks off before its end")
            return None
        if self._inflater is None:
            if (
                compression(packed) is None
            ):  # padding or rubbish after the last stream: the tools leave it out, too
                return b""
            self._inflater = self._new()
        made = self._inflater.decompress(packed)
        self._made += len(made)
        if self._made > self._allowed:
            raise UnreadableContent(
                f"its content grows past {_megabytes(self._allowed)} and out of proportion to the"
                " file, as a decompression bomb does; unpack it yourself if you trust it"
            )
        if self._inflater.eof:
            self._left, self._inflater = self._inflater.unused_data, None
        return made


_INFLATERS: dict[str, Callable[[], Inflater]] = {
    "gzip": lambda: zlib.decompressobj(wbits=31),
    "zstd": lambda: cast(
        Inflater, zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
    ),
    "xz": lambda: lzma.LZMADecompressor(memlimit=256 * MEBIBYTE),
    "bzip2": bz2.BZ2Decompressor,
}


def _megabytes(count: int) -> str:
    return f"{count / MEBIBYTE:,.4g} MB"
