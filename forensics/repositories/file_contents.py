"""The contents of one file that a stranger left, with those of archives in it: zip and wheels,
tar, compressed files, archives in archives; git bundles and packs are handed on whole.

Nothing is unpacked by name: members are read as streams, in pieces, within limits. Links in
archives and encrypted members are told, not followed. Nothing is unpickled or unmarshalled.
"""

import stat
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import BinaryIO, cast

from forensics.errors import stop_full
from forensics.readers.archives import WRONG, ZIP, open_member, opened_zip
from forensics.readers.content import UnreadableContent, compression, open_content

PIECE, OVERLAP = 32 << 20, 64 << 10  # bytes that are searched at a time, and twice
MOST_INFLATED = 2 << 30  # bytes that the members of one file may come to
MOST_MEMBERS = 200_000
MOST_DEPTH = 3  # archives in archives
HEAD = 4096
PACKS = (b"# v2 git bundle", b"# v3 git bundle", b"PACK\0\0\0")


@dataclass
class Reading:
    """One file at work: what of it could not be read, how much was inflated, how many members."""

    unread: list[tuple[str, str]] = field(default_factory=list)
    inflated: int = 0
    members: int = 0

    def note(self, name: str, why: object) -> None:
        """One more thing that was not searched."""
        self.unread.append((name, str(why)))

    def count(self, more: int) -> None:
        """So many bytes were inflated. Raises `UnreadableContent` past the limit."""
        self.inflated += more
        if self.inflated > MOST_INFLATED:
            raise UnreadableContent(f"its members come to more than {MOST_INFLATED >> 30} GB")


@dataclass(frozen=True)
class Content:
    """One content: its name (`a.zip!/b.py`), and either its pieces or a git pack in a file."""

    name: str
    pieces: Iterator[bytes]
    pack: Path | None = None


def contents_of(path: Path, name: str, reading: Reading, depth: int = 0) -> Iterator[Content]:
    """The contents of a file. A piece begins with the end of the one before it. What fails is
    noted in `reading`.
    """
    try:
        with path.open("rb") as file:
            head = file.read(HEAD)
            file.seek(0)
            if head.startswith(PACKS):
                yield Content(name, iter(()), path)
            elif depth < MOST_DEPTH and _is_container(head):
                yield from _members(path, head, name, reading, depth)
            else:
                if _is_container(head):
                    reading.note(name, f"it is more than {MOST_DEPTH} archives deep")
                yield Content(name, _pieces(file))
    except WRONG as error:  # an archive that breaks off, a file that may not be read
        stop_full(error)
        reading.note(name, getattr(error, "strerror", None) or error)


def _is_container(head: bytes) -> bool:
    return ZIP in head or head[257:262] == b"ustar" or compression(head) is not None


def _members(path: Path, head: bytes, name: str, reading: Reading, depth: int) -> Iterator[Content]:
    if (ZIP in head and zipfile.is_zipfile(path)) or head.startswith(ZIP):
        yield from _zipped(path, name, reading, depth)
        return
    if ZIP in head and not compression(head):
        with path.open("rb") as file:
            yield Content(name, _pieces(file))
        return
    with open_content(path) as stream:
        start = stream.read(HEAD)
    if start[257:262] == b"ustar":
        yield from _tarred(path, name, reading, depth)
        return
    with open_content(path) as stream:
        yield from _member(stream, name, reading, depth)


def _zipped(path: Path, name: str, reading: Reading, depth: int) -> Iterator[Content]:
    with opened_zip(path) as (archive, lost):
        if lost is not None:
            reading.note(name, lost)
        for member in archive.infolist():
            if stat.S_ISLNK(member.external_attr >> 16):
                reading.note(f"{name}!/{member.filename}", "it is a link, which is not followed")
            elif not member.filename.endswith("/"):
                where = f"{name}!/{member.filename}"
                try:
                    with open_member(archive, member) as stream:
                        yield from _member(stream, where, reading, depth)
                except UnreadableContent:
                    if reading.inflated > MOST_INFLATED:
                        raise
                    reading.note(where, "it is encrypted or broken")


def _tarred(path: Path, name: str, reading: Reading, depth: int) -> Iterator[Content]:
    with open_content(path) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            if member.isfile():
                inside = cast(BinaryIO, archive.extractfile(member))
                yield from _member(inside, f"{name}!/{member.name}", reading, depth)
            elif member.issym() or member.islnk():
                reading.note(f"{name}!/{member.name}", "it is a link, which is not followed")


def _member(stream: BinaryIO, name: str, reading: Reading, depth: int) -> Iterator[Content]:
    """The contents of a member, by way of a file of its own where it is an archive again."""
    reading.members += 1
    if reading.members > MOST_MEMBERS:
        raise UnreadableContent(f"it holds more than {MOST_MEMBERS:,} files")
    head = stream.read(HEAD)
    if not (_is_container(head) or head.startswith(PACKS)):
        yield Content(name, _pieces(stream, head, reading))
        return
    with NamedTemporaryFile(prefix="leaks-") as draft:
        draft.write(head)
        while piece := stream.read(1 << 20):
            reading.count(len(piece))
            draft.write(piece)
        draft.flush()
        yield from contents_of(Path(draft.name), name, reading, depth + 1)


def _pieces(stream: BinaryIO, head: bytes = b"", reading: Reading | None = None) -> Iterator[bytes]:
    piece = head
    while more := stream.read(PIECE):
        if reading is not None:
            reading.count(len(more))
        yield piece + more
        piece = more[-OVERLAP:]
        head = b""
    if head:
        yield head
