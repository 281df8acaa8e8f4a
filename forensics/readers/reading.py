"""Reading logs that other people's tools wrote: what a reader is, and how one is found for a file.

A reader is a plug-in (entry points `forensics.readers`). It turns a file into trajectories one by one, and tells what
it could not read by name and line, so that nothing is silently dropped: the rest goes on.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from forensics.records import Trajectory

HEAD = 64 * 1024  # bytes of a file that are shown to `recognises`


@dataclass(frozen=True, kw_only=True)
class Unreadable:
    """A file or a part of one that could not be read: `where` in it (a line, a member), and why, in one sentence."""

    path: Path
    where: str
    reason: str


class Reader(Protocol):
    """One format. `version` says which shapes of the format are known."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...

    def recognises(self, path: Path, head: bytes) -> bool:
        """Whether this file is of the format, from its name and its first bytes (of its content, where compressed)."""
        ...

    def read(self, path: Path) -> Iterator[Trajectory | Unreadable]:
        """Every run in the file. Never raises for what is in the file."""
        ...
