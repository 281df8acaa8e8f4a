"""Inspect's `.eval` logs: a zip file with a member for each sample, or several for a large one.

Format: inspect_ai 0.3.285, `log/_recorders/eval.py` and `log/_recorders/chunked/format.py`. Members are compressed with
deflate, or with zstandard in newer logs.

1. `header.json` says what was run; a log whose run broke off has `_journal/start.json` only, and its samples are read.
2. A sample is either `samples/ID_epoch_N.json`, or `samples/ID_epoch_N/sample.json` with numbered pieces of its
   messages, events and attachments beside it. One log may hold both kinds.
3. Samples are read one by one, in the natural order of their names; one that is broken is told by its name.
"""

import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from forensics.readers.archives import WRONG, ZIP, read_member
from forensics.readers.inspect_samples import Sample, from_monolith, to_trajectory
from forensics.readers.opening import Refused, bare_name
from forensics.readers.parsing import CUT, in_words, parse
from forensics.readers.reading import Unreadable
from forensics.records import Trajectory

HEADERS = ("header.json", "_journal/start.json")
SAMPLE = re.compile(r"samples/(?P<id>.+)_epoch_(?P<epoch>\d+)(?P<shape>\.json|/sample\.json)")
DIGITS = re.compile(r"(\d+)")


@dataclass(frozen=True, kw_only=True)
class InspectEval:
    """Reads `.eval` files."""

    name: str = "inspect-eval"
    version: str = "1 (Inspect log versions 1 to 3, whole and chunked samples)"

    def recognises(self, path: Path, head: bytes) -> bool:
        if not head.startswith(ZIP):
            return False
        if bare_name(path).lower().endswith(".eval"):
            return True
        with zipfile.ZipFile(path) as archive:
            return any(name in HEADERS for name in archive.namelist())

    def read(self, path: Path) -> Iterator[Trajectory | Unreadable]:
        """Every sample of the log."""
        try:
            with zipfile.ZipFile(path) as archive:
                yield from _read(path, _Log(archive))
        except (*WRONG, *CUT) as error:
            reason = f"the archive cannot be read ({in_words(Refused(str(error)))})"
            yield Unreadable(path=path, where="the whole file", reason=reason)


reader = InspectEval()


def _read(path: Path, log: "_Log") -> Iterator[Trajectory | Unreadable]:
    evaluation = log.evaluation()
    if not log.samples:
        reason = "the log holds no samples: the run kept none, or broke off before the first"
        yield Unreadable(path=path, where="samples/", reason=reason)
    for name in log.samples:
        try:
            yield to_trajectory(log.sample(name), evaluation)
        except CUT as error:
            yield Unreadable(path=path, where=name, reason=in_words(error))


@dataclass
class _Log:
    """A log's members by name."""

    archive: zipfile.ZipFile

    @cached_property
    def members(self) -> dict[str, zipfile.ZipInfo]:
        """The last member of each name: a log that was added to has older ones before it."""
        return {member.filename: member for member in self.archive.infolist()}

    @cached_property
    def samples(self) -> list[str]:
        return sorted((name for name in self.members if SAMPLE.fullmatch(name)), key=_natural)

    def evaluation(self) -> Mapping[str, Any]:
        """What was run. Raises `Refused` where the log does not say."""
        for name in HEADERS:
            if name in self.members:
                found = self.value(name).get("eval")
                if isinstance(found, Mapping):
                    return found
        raise Refused(f"it has neither of {' and '.join(HEADERS)}, so it is no Inspect log")

    def value(self, name: str) -> Any:
        return parse(read_member(self.archive, self.members[name]))

    def sample(self, name: str) -> Sample:
        """Raises `Refused` or `KeyError` for a sample that is broken."""
        if not name.endswith("/sample.json"):
            return from_monolith(self.value(name))
        folder, shell = name.removesuffix("sample.json"), self.value(name)
        messages = [message for part in self.parts(folder, "messages") for message in part]
        refs = shell.get("message_refs") or []
        if any(not 0 <= start <= end <= len(messages) for start, end in refs):
            raise Refused(f"it points to messages beyond the {len(messages)} that are there")
        return Sample(
            shell=shell, messages=[message for start, end in refs for message in messages[start:end]], pool=messages,
            events=lambda: (event for part in self.parts(folder, "events") for event in part),
            attachment=_Attachments(self, folder),
        )

    def pieces(self, folder: str, sequence: str) -> list[tuple[int, str]]:
        """Where each numbered piece of a sequence starts, and its name, in order."""
        start, end = f"{folder}{sequence}/", ".json"
        found = [name for name in self.members if name.startswith(start) and name[len(start) : -len(end)].isdecimal()]
        return sorted((int(name[len(start) : -len(end)]), name) for name in found if name.endswith(end))

    def parts(self, folder: str, sequence: str) -> Iterator[list[Any]]:
        """The pieces of a sequence one after the other. Raises `Refused` where one is missing."""
        done = 0
        for start, name in self.pieces(folder, sequence):
            if start != done:
                raise Refused(f"of its {sequence}, numbers {done} to {start - 1} are missing")
            part = self.value(name)
            done += len(part)
            yield part


class _Attachments:
    """Attachments by number; a piece is read when the first of its texts is asked for, and the last one is kept."""

    def __init__(self, log: _Log, folder: str) -> None:
        self._log, self._pieces = log, log.pieces(folder, "attachments")
        self._held: tuple[int, list[Any]] = (0, [])

    def __call__(self, number: str) -> str | None:
        if not number.isdecimal() or len(number) > 12:
            return None
        wanted, (start, held) = int(number), self._held
        if not start <= wanted < start + len(held):
            piece = next(((at, name) for at, name in reversed(self._pieces) if at <= wanted), None)
            if piece is None:
                return None
            start, held = self._held = (piece[0], self._log.value(piece[1]))
        return held[wanted - start] if wanted - start < len(held) else None


def _natural(name: str) -> list[tuple[int, int | str]]:
    """Sample 10 behind sample 9."""
    return [(0, int(part)) if part.isdecimal() else (1, part) for part in DIGITS.split(name)]
