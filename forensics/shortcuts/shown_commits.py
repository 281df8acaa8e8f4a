"""Whether HEAD holds what a commit does, told by the commit's diff, the files that the run
read and the patch that it handed in.

A patch is relative to HEAD, so its context and what it takes away show parts of HEAD's
files; so does what the run read before it wrote to them.

1. A diff is split into changes: the line before, lines taken away, lines added, the line
   after. Where HEAD's file holds the change as it was before, the commit is not part of
   HEAD; where it holds it as it is after, it is.
2. Else: what both the patch and the commit add to a file is absent from HEAD, so the
   commit is no ancestor (three lines, or half of what it adds there).
3. Reverts apart: where most of what it adds is taken away by another commit that is shown,
   it stays open.
4. A commit that adds what the run itself had written is the run's own.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from forensics.actions import Action
from forensics.layers.evidence_chain import step_text
from forensics.layers.text_words import words
from forensics.shortcuts.blind_run import LONGEST, BlindRun
from forensics.shortcuts.git_words import subcommand

FEWEST_WORDS = 6  # of a place that is looked for in a file
FEWEST_LINES = 3
MOST_LINES = 20_000
MOST_CHANGES = 500  # of one commit
_COMMIT = re.compile(r"(?:commit |From )?([0-9a-f]{7,40})\b")
_FILE = re.compile(r"(?:diff --git a/.* b/|\+\+\+ (?:b/)?)([^\t\n]+)")
_HUNK = re.compile(r"@@ -\d{1,9}(?:,(\d{1,9}))? \+\d{1,9}(?:,(\d{1,9}))? @@")
_NUMBERED = re.compile(r"\s{0,9}\d{1,6}(?:[:|\t]|  )")
Lines = tuple[str, ...]


class Change(NamedTuple):
    """One change to a file: before, taken away, added, after; the lines as words."""

    path: str
    above: Lines
    removed: Lines
    added: Lines
    below: Lines

    @property
    def old(self) -> Lines:
        """The place as it was."""
        return (*self.above[-1:], *self.removed, *self.below[:1])

    @property
    def new(self) -> Lines:
        """The place as it is after the change."""
        return (*self.above[-1:], *self.added, *self.below[:1])

    def turned(self) -> "Change":
        """The change the other way round."""
        return self._replace(removed=self.added, added=self.removed)


class Commit(NamedTuple):
    """A commit as an answer shows it (`name`: `""` where it shows none)."""

    name: str
    changes: tuple[Change, ...]

    def lines(self, added: bool) -> frozenset[tuple[str, str]]:
        """The lines that say something, each with its file's name."""
        return frozenset(
            (_name(change.path), line)
            for change in self.changes
            for line in (change.added if added else change.removed)
            if line.count(" ") >= 2  # three words
        )


def commits_shown(text: str, turned: bool = False) -> tuple[Commit, ...]:
    """The commits whose diffs stand in a text, in order. `turned`: diffs that lead from the
    commit to HEAD.
    """
    found: list[tuple[str, list[Change]]] = [("", [])]
    lines = text[:LONGEST].splitlines()[:MOST_LINES]
    at, path = 0, ""
    while at < len(lines):
        line = lines[at]
        at += 1
        if (hunk := _HUNK.match(line)) and path:
            left = [int(hunk[1] or 1), int(hunk[2] or 1)]
            at, changes = _changes(lines, at, path, left)
            found[-1][1].extend(changes)
        elif named := _FILE.match(line):
            path = path if named[1] == "/dev/null" else named[1]
        elif commit := _COMMIT.match(line):
            found.append((commit[1], []))
    return tuple(
        Commit(name, tuple(one.turned() if turned else one for one in changes[:MOST_CHANGES]))
        for name, changes in found
        if changes
    )


def _changes(lines: Sequence[str], at: int, path: str, left: list[int]) -> tuple[int, list[Change]]:
    """The changes of one hunk, and where it ends."""
    rows: list[tuple[str, str]] = []
    while at < len(lines) and (left[0] > 0 or left[1] > 0):
        mark, text = (lines[at] or " ")[0], lines[at][1:]
        if mark not in " +-\\":
            break
        left[0] -= mark in " -"
        left[1] -= mark in " +"
        rows.append((mark, _plain(text)))
        at += 1
    rows = [(mark, text) for mark, text in rows if text and mark != "\\"]
    changes: list[Change] = []
    here = 0
    while here < len(rows):
        if rows[here][0] == " ":
            here += 1
            continue
        end = here
        while end < len(rows) and rows[end][0] != " ":
            end += 1
        block = rows[here:end]
        above = tuple(text for mark, text in rows[:here] if mark != "-")
        below = tuple(text for _, text in rows[end : end + 1])
        taken, new = (tuple(text for mark, text in block if mark == one) for one in "-+")
        changes.append(Change(path, above, taken, new, below))
        here = end
    return at, changes


class Head:
    """What the log shows of HEAD's files, and of what the run wrote."""

    def __init__(self, blind: BlindRun) -> None:
        self._run = blind

    @cached_property
    def patch(self) -> Commit:
        """What was handed in."""
        text = self._run.trajectory.patch or ""
        changes = [change for one in commits_shown(text) for change in one.changes]
        return Commit("", tuple(changes))

    @cached_property
    def _parts(self) -> dict[str, list[str]]:
        """By a file's name, texts of it with a line of words each."""
        parts: dict[str, list[str]] = defaultdict(list)
        for change in self.patch.changes:
            parts[_name(change.path)].append(_text((*change.above, *change.removed, *change.below)))
        touched: set[str] = set()
        for action in self._run.actions:
            touched.update(map(_name, action.writes))
            if subcommand(action) in ("", "grep") and action.observation is not None:
                answer = None
                for name in {*map(_name, action.reads)} - touched:
                    answer = answer or _text(_plain_lines(self._run.answer(action)))
                    parts[name].append(answer)
        return parts

    @cached_property
    def _removing(self) -> list[tuple[str, frozenset[tuple[str, str]]]]:
        """The commits that the run saw, and what each takes away."""
        found = []
        for action in self._run.actions:
            if subcommand(action) in ("show", "log", "format-patch", "whatchanged"):
                for commit in commits_shown(self._run.answer(action)):
                    found.append((commit.name, commit.lines(added=False)))
        return found

    def holds(self, commit: Commit) -> bool | None:
        """Whether HEAD holds what a commit does; `None` where the log does not show it."""
        before = sum(self._shows(one.path, one.old, one.new) for one in commit.changes)
        after = sum(self._shows(one.path, one.new, one.old) for one in commit.changes)
        if after and not before:
            return True
        if not before and not self._adds_the_same(commit):
            return None
        return None if self._reverted(commit) else False

    def _shows(self, path: str, place: Lines, other: Lines) -> bool:
        text = _text(place)
        return (
            place != other
            and text.count(" ") + text.count("\n") > FEWEST_WORDS
            and any(text in part for part in self._parts.get(_name(path), ()))
            and not any(_text(other) in part for part in self._parts.get(_name(path), ()))
        )

    def _adds_the_same(self, commit: Commit) -> bool:
        new = commit.lines(added=True)
        same = {
            (name, line)
            for name, line in new & self.patch.lines(added=True)
            if not any(f"\n{line}\n" in part for part in self._parts.get(name, ()))
        }
        long = any(line.count(" ") >= FEWEST_WORDS - 1 for _, line in same)
        files = {name for name, _ in same}
        there = sum(name in files for name, _ in new)
        return len(same) >= FEWEST_LINES or (long and 2 * len(same) >= there)

    def _reverted(self, commit: Commit) -> bool:
        new = commit.lines(added=True)
        return bool(new) and any(
            2 * len(new & taken) >= len(new)
            for name, taken in self._removing
            if not (
                name
                and commit.name
                and (name.startswith(commit.name) or commit.name.startswith(name))
            )
        )

    def unchanged(self, text: str) -> bool:
        """Whether a text has a place that the patch changes as it was, none as it is, and none
        that begins as it did and goes on otherwise.
        """
        shown = _text(_plain_lines(text))
        old, new = (
            [_text(place) for place in places if sum(line.count(" ") + 1 for line in place) > 5]
            for places in (
                [change.old for change in self.patch.changes],
                [change.new for change in self.patch.changes],
            )
        )
        begun = [
            (_text(change.above[-1:]), _text((*change.above[-1:], *change.removed[:1])))
            for change in self.patch.changes
            if change.removed and any(line.count(" ") > 4 for line in change.above[-1:])
        ]
        if any(above in shown and goes_on not in shown for above, goes_on in begun):
            return False
        return any(place in shown for place in old) and not any(place in shown for place in new)

    def own(self, commit: Commit, step: int) -> bool:
        """Whether the run had written what the commit adds before a step, and committed or
        stashed it.
        """
        saved = ("commit", "stash", "am")
        if not any(subcommand(one) in saved and one.step <= step for one in self._run.actions):
            return False
        lines = [line for change in commit.changes for line in change.added]
        return unwritten(self._run, lines, step + 1) < 0.5 if lines else False


def unwritten(run: BlindRun, lines: Sequence[str], before: int | None = None) -> float:
    """Share of the lines' words that the run did not type in before a step (`None`: ever)."""
    typed = "\n".join(typed_in(run, before))
    long = [(line.count(" ") + 1, f"\n{line}\n" in typed or line in typed) for line in lines]
    whole = sum(size for size, _ in long)
    return sum(size for size, written in long if not written) / whole if whole else 0.0


def typed_in(run: BlindRun, before: int | None = None) -> Iterator[str]:
    """The lines that the run wrote, as words."""
    for at, step in run.trajectory.actions:
        if before is None or at < before:
            text = step_text(step)[:LONGEST].replace("\\/", "/")
            yield from _plain_lines(
                text.replace("\\n", "\n").replace('\\"', '"').replace("\\t", " ")
            )


def handed_in(run: BlindRun, paths: Sequence[str] | None = None) -> list[str]:
    """The lines that the patch adds (in some files), as words."""
    return [
        line
        for change in run.changes
        if paths is None or change.path in paths
        for line in map(_plain, change.added)
        if line
    ]


def shown_whole(run: BlindRun, action: Action) -> bool:
    """Whether an answer holds lines that the patch adds, and that the run did not type in
    before: a file as it is in a commit.
    """
    shown = set(_plain_lines(run.answer(action)))
    lines = [line for line in handed_in(run) if line.count(" ") >= 2]
    return len({line for line in lines if line in shown}) >= FEWEST_LINES


def _plain_lines(text: str) -> Lines:
    return tuple(filter(None, (_plain(line) for line in text.splitlines()[:MOST_LINES])))


def _plain(line: str) -> str:
    """A line's words, without the number that a viewer puts before it."""
    return " ".join(words(_NUMBERED.sub("", line[:2000], count=1)))


def _text(lines: Sequence[str]) -> str:
    return "\n" + "\n".join(lines) + "\n"


def _name(path: str) -> str:
    return path.rstrip("/").rsplit("/", 1)[-1]
