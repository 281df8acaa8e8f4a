"""Files for the tests of readers: damaged content, zip files with zstandard
members, and a reader of one's own.
"""

import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import zstandard
from hypothesis import strategies as st

from forensics.readers import LogReader, Unreadable
from forensics.readers.content import LIMITS
from forensics.records import Step, Trajectory
from tests.episodes import episode_of

DATA = Path(__file__).parents[3] / "shared" / "data"


def write_zstd_zip(path: Path, members: Mapping[str, bytes]) -> Path:
    """A zip file of zstandard members (method 93), written by hand after
    APPNOTE 4.3.7 and 4.3.12.
    """
    local, central = b"", b""
    for name, content in members.items():
        packed, title = zstandard.compress(content), name.encode()
        sizes = (zlib.crc32(content), len(packed), len(content), len(title))
        here = len(local)
        local += (
            struct.pack("<4s5H3I2H", b"PK\x03\x04", 63, 0, 93, 0, 33, *sizes, 0) + title + packed
        )
        central += (
            struct.pack(
                "<4s6H3I5H2I", b"PK\x01\x02", 63, 63, 0, 93, 0, 33, *sizes, 0, 0, 0, 0, 0, here
            )
            + title
        )
    end = struct.pack(
        "<4s4H2IH", b"PK\x05\x06", 0, 0, len(members), len(members), len(central), len(local), 0
    )
    path.write_bytes(local + central + end)
    return path


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """The content cut off, or with a few bytes changed, put in or taken out."""
    if draw(st.booleans()):
        return content[: draw(st.integers(0, len(content)))]
    broken = bytearray(content)
    for _ in range(draw(st.integers(1, 5))):
        at = draw(st.integers(0, max(len(broken) - 1, 0)))
        broken[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(broken)


def limited(**bounds: int) -> Any:
    """Within it, files may hold no more than this."""
    return patch.multiple(LIMITS, **{"free": LIMITS.free, **bounds})


def survives(reader: LogReader, path: Path, content: bytes) -> list[Trajectory | Unreadable]:
    """What the reader finds in the content: runs and sentences, whatever the content is."""
    path.write_bytes(content)
    assert reader.recognises(path, content[:4096]) in (True, False)
    found = list(reader.read(path))
    assert all(
        isinstance(item, Trajectory) or (item.reason and "\n" not in item.reason) for item in found
    )
    return found


def run(name: str, **changes: Any) -> Trajectory:
    """A small trajectory."""
    steps = (Step(role="user", text="do"), Step(role="assistant", text="done"))
    return episode_of(**{"id": name, "steps": steps, **changes})


@dataclass(frozen=True, kw_only=True)
class Words:
    """A reader of files that begin with `word`: a run for each of the words behind it."""

    name: str = "words"
    version: str = "1"
    rank: int = 0
    mark: str = "word"

    def recognises(self, path: Path, head: bytes) -> bool:
        return head.startswith(self.mark.encode())

    def accompanies(self, path: Path) -> bool:
        return path.name == "table.csv"

    def read(self, path: Path) -> Iterator[Trajectory | Unreadable]:
        for word in path.read_text().split()[1:]:
            if word == "crash":
                raise ZeroDivisionError("one of\ntwo lines")
            yield (
                Unreadable(path=path, where=word, reason="bad")
                if word == "bad"
                else run(word, environment=self.name)
            )
