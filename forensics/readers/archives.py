"""Archives of logs (zip, tar, compressed tar): unpacked into a folder of their
own that is deleted afterwards.

1. Names in an archive are advice: what leads up, to a root or to a drive is
   left out of them, so every file lies below the folder.
2. Links, devices and encrypted members are not unpacked but told, each by its
   name.
3. What grows out of proportion to the archive, or past a total, is refused.
   Nothing is held in memory whole.

A zip file that breaks off has lost its list of members, which stands at the end. The
members that are whole are read all the same, by the header before each (`opened_zip`).

Zip members may be compressed with zstandard, which Python's own module knows
from 3.14 on only (`open_member`).
"""

import hashlib
import stat
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import Any, BinaryIO, cast

from forensics.errors import stop_full
from forensics.readers.content import (
    BROKEN,
    LIMITS,
    MEBIBYTE,
    PIECE,
    UnreadableContent,
    bare_name,
    inflated,
    open_content,
)

Problems = list[tuple[str, str]]
ZIP = b"PK\x03\x04"
ENCRYPTED = 1
UTF_8 = 1 << 11  # its name is
LARGE = 0xFFFFFFFF  # the lengths stand in the extra field
DESCRIBED = 8  # the lengths stand behind the member
ZSTANDARD = 93  # the compression methods of zip: APPNOTE 4.4.5
LOCAL_HEADER = struct.Struct("<26xHH")  # ... 4.3.7: the lengths of the name and of the extra field
HEADER = struct.Struct("<4xHHH4xLLLHH")
DESCRIPTOR = b"PK\x07\x08"
NAME_LIMIT = 120
WRONG = (
    *BROKEN,
    zipfile.BadZipFile,
    tarfile.TarError,
    NotImplementedError,
    RuntimeError,
    struct.error,
    ValueError,
)


def is_archive(path: Path, head: bytes) -> bool:
    """Whether content that begins with `head` is an archive that `unpacked` can open."""
    name = bare_name(path).lower()
    return (
        head.startswith(ZIP)
        or head[257:262] == b"ustar"
        or name.endswith((".tar", ".tgz", ".txz", ".tbz2"))
    )


@contextmanager
def unpacked(path: Path) -> Iterator[tuple[Path, Problems]]:
    """A folder with the archive's files, and what is not there: where, and why."""
    problems: Problems = []
    with tempfile.TemporaryDirectory(prefix="logs-") as place:
        folder = Path(place) / safe_name(path.name)  # readers see no random name
        folder.mkdir()
        unpack = _Unpacking(folder, max(LIMITS.free, path.stat().st_size * LIMITS.ratio), problems)
        try:
            _unpack_zip(path, unpack) if _is_zip(path) else _unpack_tar(path, unpack)
        except WRONG as error:
            stop_full(error)
            problems.append(
                (f"after {unpack.members} members", f"the archive cannot be read on ({error})")
            )
        yield folder, problems


@contextmanager
def opened_zip(path: Path) -> Iterator[tuple[zipfile.ZipFile, str | None]]:
    """A zip file, and what was lost where it breaks off: then its whole members only.
    Raises `BadZipFile` where there is none.
    """
    try:
        archive = zipfile.ZipFile(path)
    except zipfile.BadZipFile:
        with tempfile.TemporaryFile() as draft:
            lost = _salvage(path, draft)
            with zipfile.ZipFile(draft) as whole:
                yield whole, lost
        return
    with archive:
        yield archive, None


def _salvage(path: Path, draft: BinaryIO) -> str:
    """Copy the whole members into `draft` and list them behind; what was lost. Raises
    `BadZipFile` where none is whole.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        members = list(_whole_members(file, size))
        if not members:
            raise zipfile.BadZipFile("it breaks off before the end of its first member")
        end = members[-1][1]
        file.seek(0)
        for start in range(0, end, MEBIBYTE):
            draft.write(file.read(min(MEBIBYTE, end - start)))
    with zipfile.ZipFile(draft, "a") as archive:  # no list is there: one is begun at the end
        archive.filelist += [member for member, _ in members]
        archive.comment = b"salvaged"  # so that the list is written
    draft.seek(0)
    return (
        f"the archive breaks off: {len(members):,} whole members were read, the"
        f" {size - end:,} bytes behind them and all that came after are lost"
    )


def _whole_members(file: BinaryIO, size: int) -> Iterator[tuple[zipfile.ZipInfo, int]]:
    """The members from the start on that are whole, and where each ends."""
    at = 0
    while member := _member_at(file, at):
        start = file.tell()
        if member.flag_bits & DESCRIBED and not _measured(file, member):
            return
        at = start + member.compress_size
        if member.flag_bits & DESCRIBED:
            file.seek(at)
            at += 16 if file.read(4) == DESCRIPTOR else 12
        if at > size:
            return
        yield member, at


def _member_at(file: BinaryIO, at: int) -> zipfile.ZipInfo | None:
    """The member whose header stands here; the file is then at its content."""
    file.seek(at)
    header = file.read(HEADER.size)
    if len(header) < HEADER.size or not header.startswith(ZIP):
        return None
    version, flags, method, crc, packed, length, name, extra = HEADER.unpack(header)
    names, extras = file.read(name), file.read(extra)
    text = names.decode("utf-8" if flags & UTF_8 else "cp437", "replace")
    member = zipfile.ZipInfo(text)
    member.header_offset, member.flag_bits, member.compress_type = at, flags, method
    member.CRC, member.compress_size, member.file_size = crc, packed, length
    member.extract_version = version
    if packed == LARGE or length == LARGE:
        kind, _, *sizes = struct.unpack("<HHQQ", extras[:20].ljust(20, b"\0"))
        if kind != 1:
            return None
        member.file_size, member.compress_size = sizes
    return member


def _measured(file: BinaryIO, member: zipfile.ZipInfo) -> bool:
    """Whether a deflated member whose lengths stand behind it is whole; it is told them."""
    if member.compress_type != zipfile.ZIP_DEFLATED:
        return False
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    read = written = crc = 0
    while not inflater.eof:
        data = file.read(PIECE)
        if not data:
            return False
        try:
            content = inflater.decompress(data)
        except zlib.error:
            return False
        read, written = read + len(data), written + len(content)
        crc = zlib.crc32(content, crc)
    member.compress_size = read - len(inflater.unused_data)
    member.file_size, member.CRC = written, crc
    return True


def safe_name(name: str) -> str:
    """A name of a file in an archive as a path below the archive; empty where
    nothing is left of it.
    """
    parts = name.replace("\\", "/").replace(":", "_").split("/")
    kept = ["".join(sign if sign.isprintable() else "_" for sign in part) for part in parts]
    return "/".join(_short(part) for part in kept if part.strip(". "))


def open_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> BinaryIO:
    """The content of a zip member, compressed as it may be. Raises `UnreadableContent`,
    or while reading it.
    """
    if member.flag_bits & ENCRYPTED:
        raise UnreadableContent("it is encrypted")
    if member.compress_type != ZSTANDARD:
        return cast(BinaryIO, archive.open(member))
    file = archive.fp
    assert file is not None
    file.seek(member.header_offset)
    names = LOCAL_HEADER.unpack(file.read(LOCAL_HEADER.size))
    start = member.header_offset + LOCAL_HEADER.size + sum(names)
    return inflated(
        cast(BinaryIO, BufferedReader(_Part(file, start, member.compress_size))),
        "zstd",
        member.compress_size,
    )


def read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """A zip member's whole content. Raises `UnreadableContent` where it is broken or
    larger than one document may be.
    """
    try:
        with open_member(archive, member) as stream:
            content = stream.read(LIMITS.document + 1)
    except UnreadableContent:
        raise
    except WRONG as error:
        raise UnreadableContent(f"it is broken ({error})") from None
    if len(content) > LIMITS.document:
        raise UnreadableContent(f"it is larger than {LIMITS.document // MEBIBYTE} MB")
    if (
        member.compress_type == ZSTANDARD and zlib.crc32(content) != member.CRC
    ):  # at others Python's module looks
        raise UnreadableContent("it is broken (its checksum is wrong)")
    return content


def _short(part: str) -> str:
    """A name that every file system takes; one that had to be cut keeps its end
    and stays unlike others.
    """
    if len(part.encode()) <= NAME_LIMIT:
        return part
    return f"{hashlib.sha256(part.encode()).hexdigest()[:12]}{part[-NAME_LIMIT // 4 :]}"


@dataclass
class _Unpacking:
    """The state of one unpacking: how many members there were, how many bytes
    may still be written.
    """

    folder: Path
    proportion: int
    problems: Problems
    members: int = 0
    written: int = 0

    def add(self, name: str, open_it: Callable[[], BinaryIO]) -> None:
        """One more file. A member that fails is told; what is out of bounds ends the unpacking."""
        self.members += 1
        if self.members > LIMITS.members:
            raise UnreadableContent(f"it holds more than {LIMITS.members} files")
        target = self.folder / (safe_name(name) or f"member-{self.members}")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with open_it() as source, target.open("xb") as file:
                self._copy(source, file)
        except _TooMuch:
            raise
        except FileExistsError:
            self.problems.append((name, "another member has the same name"))
        except WRONG as error:
            target.unlink(missing_ok=True)
            stop_full(error)
            self.problems.append((name, f"the member cannot be read ({error})"))

    def _copy(self, source: BinaryIO, file: BinaryIO) -> None:
        allowed = min(LIMITS.unpacked, self.proportion)
        while data := source.read(MEBIBYTE):
            self.written += len(data)
            if self.written > allowed:
                raise _TooMuch(
                    f"it unpacks to more than {allowed // MEBIBYTE} MB, out of proportion to its"
                    " size, as a decompression bomb does; unpack it yourself if you trust it"
                )
            file.write(data)


class _TooMuch(UnreadableContent):
    pass


def _is_zip(path: Path) -> bool:
    """Whether it is a zip file, be it one that breaks off."""
    if zipfile.is_zipfile(path):
        return True
    with path.open("rb") as file:
        return file.read(len(ZIP)) == ZIP


def _unpack_zip(path: Path, unpack: _Unpacking) -> None:
    with opened_zip(path) as (archive, lost):
        if lost is not None:
            unpack.problems.append(("the end of the archive", lost))
        for member in sorted(archive.infolist(), key=lambda member: member.filename):
            if stat.S_ISLNK(member.external_attr >> 16):
                unpack.problems.append((member.filename, "it is a link, which is not followed"))
            elif not member.filename.endswith("/"):  # `is_dir` fails where there is no name
                unpack.add(member.filename, partial(open_member, archive, member))


def _unpack_tar(path: Path, unpack: _Unpacking) -> None:
    with (
        open_content(path) as stream,
        tarfile.open(fileobj=stream, mode="r|") as archive,
    ):
        for member in archive:
            if member.isfile():
                opened = partial(archive.extractfile, member)
                unpack.add(member.name, cast(Callable[[], BinaryIO], opened))
            elif not member.isdir():
                unpack.problems.append(
                    (member.name, "it is a link or a device, which is not followed")
                )


class _Part(RawIOBase):
    """A stretch of a file, as a file."""

    def __init__(self, file: Any, start: int, length: int) -> None:
        self._file, self._at, self._end = file, start, start + length

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        self._file.seek(self._at)
        data: bytes = self._file.read(min(len(buffer), self._end - self._at))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)
