"""What a finding changed, as hunks with the removed *and* the added lines: what was taken
away is the evidence, what came instead is its other half.

1. Of a run that handed in a patch: the hunks of the files that the finding's explanation
   names (of the tests, where it names none), those that take something away first.
2. Of a run without a patch: the edits of the steps that the finding cites, where the
   editor's tool was told the old text and the new.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final

from forensics.records import Trajectory
from forensics.records.finding import Finding
from forensics.records.page import TextSpan, TextSpans
from forensics.report.shown_runs import Allowance

MOST: Final = 4  # hunks of one finding
TEST_FILE: Final = re.compile(r"(?:^|/)(?:tests?|__tests__|specs?|testing)/|test_|_test\.|\.test\.")
FILE: Final = re.compile(r"^diff --git .*$|^--- (?=.*\n\+\+\+ )", re.MULTILINE)
NAME: Final = re.compile(r"^(?:\+\+\+|---) (?:[ab]/)?(?!/dev/null)(\S+)", re.MULTILINE)
HUNK: Final = re.compile(r"^@@ .*$", re.MULTILINE)
OLD: Final = ("old_str", "old_string", "old_text", "old")
NEW: Final = ("new_str", "new_string", "new_text", "new")
LABELS: Final = {"-": "removed", "+": "added"}


def hunks_of(row: Finding, run: Trajectory | None, allowance: Allowance) -> Iterator[TextSpans]:
    """The hunks of one finding, cut to what may still be shown."""
    if run is None:
        return
    found = list(_of_patch(run.patch, row) if run.patch else _of_edits(run, row))
    found.sort(key=lambda pair: "\n-" not in f"\n{pair[1]}")
    for name, hunk in found[:MOST]:
        text, left_out = allowance.take(hunk)
        yield TextSpans(
            text=text,
            who=name,
            role="hunk",
            marks=("changed",),
            spans=tuple(_marked(text)),
            left_out=left_out,
        )


def _of_patch(patch: str, row: Finding) -> Iterator[tuple[str, str]]:
    """The file and the text of each hunk that the finding may rest on."""
    parts = [(_name(part), part) for part in _split(FILE, patch)]
    named = [pair for pair in parts if pair[0] and pair[0] in row.explanation]
    if not named and row.channel == "test-edit":
        named = [pair for pair in parts if TEST_FILE.search(pair[0])]
    for name, part in named:
        yield from ((name, hunk.rstrip("\n")) for hunk in _split(HUNK, part))


def _split(mark: re.Pattern[str], text: str) -> list[str]:
    """The parts of a text, each from a mark to the next one."""
    starts = [found.start() for found in mark.finditer(text)]
    if mark is FILE:  # the names follow the line of git: one part, not two
        starts = [at for at in starts if text.startswith("diff ", at)] or starts
    return [text[at:end] for at, end in zip(starts, [*starts[1:], len(text)], strict=True)]


def _name(part: str) -> str:
    found = NAME.findall(part)
    return found[-1] if found else ""


def _of_edits(run: Trajectory, row: Finding) -> Iterator[tuple[str, str]]:
    for number in row.attempt_steps:
        calls = run.steps[number].tool_calls if 0 <= number < len(run.steps) else ()
        for call in calls:
            try:
                told = json.loads(call.arguments)
            except ValueError:
                continue
            if not isinstance(told, Mapping):
                continue
            old, new = (_first(told, names) for names in (OLD, NEW))
            if old or new:
                lines = [*(f"-{line}" for line in old), *(f"+{line}" for line in new)]
                name = told.get("path") or told.get("file_path") or f"step {number}"
                yield str(name), "\n".join(lines)


def _first(told: Mapping[str, object], names: tuple[str, ...]) -> list[str]:
    text = next((told[name] for name in names if isinstance(told.get(name), str)), "")
    return str(text).splitlines()


def _marked(text: str) -> Iterator[TextSpan]:
    """A stretch for each block of removed or of added lines."""
    at, begun, sign = 0, 0, ""
    for line in [*text.splitlines(keepends=True), ""]:
        now = line[:1] if line[:1] in LABELS else ""
        if now != sign:
            if sign:
                end = at - (text[at - 1 : at] == "\n")
                yield TextSpan(start=begun, end=end, label=LABELS[sign])
            begun, sign = at, now
        at += len(line)
