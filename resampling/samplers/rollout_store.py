"""Rollouts on disk: what was drawn once is not drawn again, and a run that was
killed goes on where it stopped.

1. A folder holds one folder for each sampler's identity (policy, environment,
   settings, seed), so that nothing is mixed that was drawn otherwise. Where the
   sampler knows the texts of its traces, their fingerprints are kept apart as
   well.
2. Each process writes a part of its own (`part-000000.jsonl`), one line a
   rollout, handed to the system at once: a process that is killed loses at most
   the line that it was writing. A torn line is passed over when parts are read. Each line
   carries a checksum; a whole line whose checksum is wrong is refused, and that lines of an
   earlier version carry none is said.
3. In memory there is only where each rollout lies; the rollouts are read when
   they are asked for.
"""

import json
import os
import weakref
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, BinaryIO

from forensics.errors import OutsideFailure
from forensics.records import as_user_error, canonical_json, content_hash, tell_unchecked
from resampling.trace_rollouts import (
    Branch,
    Request,
    Rollout,
    Sampler,
    fingerprint_of,
    rollout_of,
)

CHECKSUM = "checksum"
BESIDE = {"text", CHECKSUM}  # of a line, beside the rollout
PLACED = {"text", "trace", "kept", "number", "append", "avoid", "outcome"}
KNOWN = {"text", *(one.name for one in fields(Rollout))}
Key = tuple[str, Branch]  # the text's fingerprint, then what was continued


@dataclass(frozen=True)
class _Place:
    """Where a line lies: the part, the offset of its first byte, and whether an
    outcome is there.
    """

    part: Path
    offset: int
    measured: bool

    def read(self) -> Rollout:
        with open(self.part, "rb") as file:
            file.seek(self.offset, os.SEEK_SET)
            row = json.loads(file.readline())
        return rollout_of({key: value for key, value in row.items() if key not in BESIDE})


def _close(part: BinaryIO) -> None:
    with suppress(OSError):  # a full disk was told when the line was written
        part.close()


def _whole_row(line: bytes, part: Path) -> dict[str, Any]:
    """The row of a whole line. Raises `OutsideFailure` where it is not what was written."""
    try:
        row = json.loads(line)
        stated = row.pop(CHECKSUM, None)
        if stated is None:
            tell_unchecked(part)
        if PLACED <= row.keys() <= KNOWN and stated in (None, content_hash(row)):
            return dict(row)
    except (ValueError, AttributeError, TypeError, RecursionError):
        pass
    raise OutsideFailure(
        f"a line of {part} was changed since it was written; delete the file and run the command"
        " again with --resume, which draws those rollouts again"
    )


class StoredSampler:
    """A `Sampler` that draws from another only what `folder` does not hold yet.
    Raises `UserError` on a full disk.

    `retry`: rollouts whose outcome is missing (a failed request, a broken
    environment) are drawn again.
    """

    def __init__(self, folder: Path | str, sampler: Sampler, retry: bool = False) -> None:
        self._folder, self._sampler, self._retry = Path(folder) / sampler.identity, sampler, retry
        self._places: dict[Key, dict[int, _Place]] = {}
        self._part: BinaryIO | None = None
        for part in sorted(self._folder.glob("part-*.jsonl")):
            with open(part, "rb") as file:
                offset = 0
                for line in file:
                    if line.endswith(b"\n"):  # else it was torn, and is passed over
                        row = _whole_row(line, part)
                        self._note(row, _Place(part, offset, row["outcome"] is not None))
                    offset += len(line)

    @property
    def identity(self) -> str:
        return self._sampler.identity

    def draw(self, requests: Iterable[Request]) -> Iterator[Rollout]:
        """What is stored first, then the rest as it is drawn, each written before it is given."""
        missing: list[Request] = []
        for request in list(requests):
            key = fingerprint_of(self._sampler, request.trace), request.branch
            places = self._places.get(key, {})
            for number in request.numbers:
                last = missing[-1] if missing else request
                if number in places and (places[number].measured or not self._retry):
                    yield places[number].read()
                elif missing and last.branch == request.branch and number == last.numbers.stop:
                    missing[-1] = replace(last, n=last.n + 1)
                else:
                    missing.append(replace(request, first=number, n=1))
        if missing:
            for rollout in self._sampler.draw(missing):
                self._write(rollout)
                yield rollout

    def _note(self, row: dict[str, Any], place: _Place) -> None:
        branch = Branch(row["trace"], row["kept"], row["avoid"], tuple(row["append"]))
        self._places.setdefault((row["text"], branch), {})[row["number"]] = place

    def _write(self, rollout: Rollout) -> None:
        row = {"text": fingerprint_of(self._sampler, rollout.trace), **asdict(rollout)}
        try:
            if self._part is None:
                self._folder.mkdir(parents=True, exist_ok=True)
                number = len(list(self._folder.glob("part-*.jsonl")))
                while self._part is None:  # a file that exists belongs to another process
                    with suppress(FileExistsError):
                        self._part = open(self._folder / f"part-{number:06d}.jsonl", "xb")  # noqa: SIM115
                    number += 1
                weakref.finalize(self, _close, self._part)
            offset = self._part.tell()
            self._part.write(canonical_json(row | {CHECKSUM: content_hash(row)}).encode() + b"\n")
            self._part.flush()
        except OSError as error:
            raise as_user_error(error, self._folder) from error
        self._note(row, _Place(Path(self._part.name), offset, rollout.outcome is not None))
