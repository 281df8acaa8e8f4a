"""Inspect's JSON logs: one document with the header and all samples.

Format: inspect_ai 0.3.285, `log/_recorders/json.py`. Samples are streamed, so a log of any length can be read.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from forensics.readers.inspect_samples import from_monolith, to_trajectory
from forensics.readers.parsing import Row, each_run, glimpse, read_entries
from forensics.readers.reading import Unreadable
from forensics.records import Trajectory


@dataclass(frozen=True, kw_only=True)
class InspectJson:
    """Reads JSON logs."""

    name: str = "inspect-json"
    version: str = "1 (Inspect log versions 1 to 3)"

    def recognises(self, path: Path, head: bytes) -> bool:
        found = glimpse(head)
        return isinstance(found, dict) and {"version", "status", "eval"} <= found.keys()

    def read(self, path: Path) -> Iterator[Trajectory | Unreadable]:
        """Every sample of the log."""
        evaluation = next((row.value for key, row in _entries(path) if key == "eval"), None)
        if not isinstance(evaluation, Mapping):
            reason = "it lacks the entry `eval`, so it is no Inspect log"
            yield Unreadable(path=path, where="the document", reason=reason)
            return
        found = False
        for item in each_run(path, _samples(path), lambda row: to_trajectory(from_monolith(row.value), evaluation)):
            found = True
            yield item
        if not found:
            yield Unreadable(path=path, where="samples", reason="the log holds no samples")


reader = InspectJson()


def _entries(path: Path) -> Iterator[tuple[str, Row]]:
    return (entry for entry in read_entries(path, "samples") if not isinstance(entry, Unreadable))


def _samples(path: Path) -> Iterator[Row | Unreadable]:
    for entry in read_entries(path, "samples"):
        if isinstance(entry, Unreadable):
            yield entry
        elif entry[0] == "samples" and entry[1].value is not None:
            yield entry[1]
