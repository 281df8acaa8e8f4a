"""The `.eval` archives of Inspect: each sample as a row (`inspect_ai` makes a run of it).

Format: `log/_recorders/eval.py`, `log/_recorders/chunked/format.py`.

1. A `.eval` log is a zip file with a member for each sample, or several for a
   large one, compressed with deflate, or with zstandard in newer logs.
   `header.json` says what was run; a log whose run broke off has
   `_journal/start.json` only, and its samples are read. A sample is either
   `samples/ID_epoch_N.json`, or `samples/ID_epoch_N/sample.json` with numbered
   pieces of its messages, events and attachments beside it; one log may hold
   both kinds.
2. Samples are read one by one, in the natural order of their names; one that is
   broken is told by its name. Of an archive that breaks off, the whole samples are read.
"""

import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from forensics.phrases import plural
from forensics.readers.archives import WRONG, ZIP, opened_zip, read_member
from forensics.readers.content import JsonObject, Unreadable, UnreadableContent, bare_name
from forensics.readers.inspect_ai import Sample, from_monolith, run
from forensics.readers.json_rows import MALFORMED, Row, Rows, in_words, parse
from forensics.readers.log_reader import Reader
from forensics.readers.values import integer

HEADERS = ("header.json", "_journal/start.json")
SAMPLE = re.compile(r"samples/(?P<id>.+)_epoch_(?P<epoch>\d+)(?P<shape>\.json|/sample\.json)")
NO_SAMPLES = "the log holds no samples: the run kept none, or broke off before the first"
DIGITS = re.compile(r"(\d+)")


def recognises(path: Path, head: bytes) -> bool:
    """Whether a file is of this format."""
    if not head.startswith(ZIP):
        return False
    if bare_name(path).lower().endswith(".eval"):
        return True
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name in HEADERS for name in archive.namelist())
    except WRONG:
        return False


def samples(path: Path) -> Rows:
    """A row for each sample: what opens it, and what was run."""
    try:
        with opened_zip(path) as (archive, lost):
            log = _Log(archive)
            evaluation = log.evaluation() if lost is None or log.headed else {}
            if lost is not None:
                reason = f"{lost} ({_planned(evaluation, len(log.samples))})"
                yield Unreadable(path, reason, "the end of the archive")
            if not log.samples:
                yield Unreadable(path, NO_SAMPLES, "samples/")
            for name in log.samples:
                yield Row(name, (partial(log.sample, name), evaluation))
    except (*WRONG, *MALFORMED) as error:
        reason = f"the archive cannot be read ({in_words(UnreadableContent(str(error)))})"
        yield Unreadable(path, reason)


def _planned(evaluation: JsonObject, read: int) -> str:
    """How many of the samples that were to be run are there."""
    data, config = (evaluation.get(key) or {} for key in ("dataset", "config"))
    samples, epochs = integer(data.get("samples")), integer(config.get("epochs")) or 1
    if samples is None:
        return plural(read, "whole sample")
    return f"{read:,} of the {plural(samples * epochs, 'sample')} that were to be run are whole"


reader = Reader(
    name="inspect-eval",
    version="1 (Inspect log versions 1 to 3, whole and chunked samples)",
    recognises=recognises,
    rows=samples,
    run=run,
)


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

    @property
    def headed(self) -> bool:
        """Whether the log says what was run; one that broke off may have lost it."""
        return any(name in self.members for name in HEADERS)

    def evaluation(self) -> JsonObject:
        """What was run. Raises `UnreadableContent` where the log does not say."""
        for name in HEADERS:
            if name in self.members:
                found = self.value(name).get("eval")
                if isinstance(found, Mapping):
                    return found
        raise UnreadableContent(
            f"it has neither of {' and '.join(HEADERS)}, so it is no Inspect log"
        )

    def value(self, name: str) -> Any:
        return parse(read_member(self.archive, self.members[name]))

    def sample(self, name: str) -> Sample:
        """Raises `UnreadableContent` or `KeyError` for a sample that is broken."""
        if not name.endswith("/sample.json"):
            return from_monolith(self.value(name))
        folder, shell = name.removesuffix("sample.json"), self.value(name)
        messages = [message for part in self.parts(folder, "messages") for message in part]
        refs = shell.get("message_refs") or []
        if any(not 0 <= start <= end <= len(messages) for start, end in refs):
            raise UnreadableContent(
                f"it points to messages beyond the {len(messages)} that are there"
            )
        return Sample(
            shell=shell,
            messages=[message for start, end in refs for message in messages[start:end]],
            pool=messages,
            events=lambda: (event for part in self.parts(folder, "events") for event in part),
            attachment=_Attachments(self, folder),
        )

    def pieces(self, folder: str, sequence: str) -> list[tuple[int, str]]:
        """Where each numbered piece of a sequence starts, and its name, in order."""
        piece = re.compile(re.escape(f"{folder}{sequence}/") + r"(\d+)\.json")
        found = ((piece.fullmatch(name), name) for name in self.members)
        return sorted((int(match[1]), name) for match, name in found if match)

    def parts(self, folder: str, sequence: str) -> Iterator[list[Any]]:
        """The pieces of a sequence in order. Raises `UnreadableContent` where one is missing."""
        done = 0
        for start, name in self.pieces(folder, sequence):
            if start != done:
                raise UnreadableContent(
                    f"of its {sequence}, numbers {done} to {start - 1} are missing"
                )
            part = self.value(name)
            done += len(part)
            yield part


class _Attachments:
    """Attachments by number; a piece is read when the first of its texts is
    asked for, and the last one is kept.
    """

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
