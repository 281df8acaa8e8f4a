"""`looks.jsonl` as the report reads it: of how many runs each kind of shortcut was looked for,
and why it could not be elsewhere. Silence comes in three kinds, which are never added up.

1. Each run has for each family *found*, *not found*, *could not look* with its reason, or *does
   not apply* with its reason. Rows are streamed; only counts are kept.
2. A run at which no family could look counts as *not looked at*; one at which some families
   could not look counts as *looked at in part*. Each by the reason that stops most of its
   families, so that the reasons of a count add up to it.
3. A run whose tools reach neither files nor a shell, or at which at most two families look,
   since the others do not apply to it, is *narrow*: nothing found there says little, and says
   so (`narrow`).
4. A case without the file claims nothing of the kind.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from forensics.phrases import printable
from forensics.records.given_files import parse_json
from forensics.report.numbers import joined
from forensics.report.report_words import WORDING
from forensics.report.rows import rows_of
from forensics.shortcuts.looks import NO_FILES, SINGLE, TALK

LOOKS: Final = "looks.jsonl"
NARROW: Final = 2  # families that look at most
MOST_NAMED: Final = 3  # kinds of shortcut that a sentence names
ANSWER, BARE, OTHER = "a single answer", "neither files nor a shell", "other"  # kinds of such runs
BARE_TOOLS: Final = frozenset({NO_FILES, TALK})


@dataclass
class FamilyLooks:
    """Of how many runs one family can say what; reasons with their runs."""

    found: int = 0
    not_found: int = 0
    could_not_look: Counter[str] = field(default_factory=Counter)
    does_not_apply: Counter[str] = field(default_factory=Counter)


@dataclass
class Looks:
    """Shortcuts checked in the runs of one side. `blind`: runs at which nothing could look,
    `partial`: at which something could not, each by the main reason; `stopped`: the families
    of the latter. `narrow`: runs at which only these families look, by their kind. `tools`: how
    many runs called each tool that nobody can read, `tool_runs`: how many called any.
    """

    runs: int = 0
    families: dict[str, FamilyLooks] = field(default_factory=dict)
    blind: Counter[str] = field(default_factory=Counter)
    partial: Counter[str] = field(default_factory=Counter)
    stopped: set[str] = field(default_factory=set)
    narrow: Counter[tuple[str, tuple[str, ...]]] = field(default_factory=Counter)
    tools: Counter[str] = field(default_factory=Counter)
    tool_runs: int = 0

    @property
    def not_looked_at(self) -> int:
        """Runs at which at least one family could not look."""
        return self.blind.total() + self.partial.total()

    def add(self, row: Mapping[str, Any]) -> None:
        """One run more."""
        looked = [*row["found"], *row["not_found"]]
        stopped, aside = row["could_not_look"], row["does_not_apply"]
        unread = {str(name) for name in row.get("unknown_tools") or ()}
        self.runs += 1
        self.tools.update(unread)
        self.tool_runs += bool(unread)
        for name in row["found"]:
            self._of(name).found += 1
        for name in row["not_found"]:
            self._of(name).not_found += 1
        for name, reason in stopped.items():
            self._of(name).could_not_look[str(reason)] += 1
        for name, reason in aside.items():
            self._of(name).does_not_apply[str(reason)] += 1
        if stopped:
            main = _main(stopped.values())
            (self.partial if looked else self.blind)[main] += 1
            self.stopped |= set(stopped) if looked else set()
        elif aside and (len(looked) <= NARROW or NO_FILES in aside.values()):
            self.narrow[_kind(aside.values()), tuple(sorted(looked))] += 1

    def _of(self, name: str) -> FamilyLooks:
        return self.families.setdefault(name, FamilyLooks())


def _kind(reasons: Any) -> str:
    """What kind of run most families do not apply to."""
    known = set(map(str, reasons))
    if known & BARE_TOOLS:
        return BARE
    return ANSWER if SINGLE in known else OTHER


def _main(reasons: Any) -> str:
    """The reason that stops most families; of several the first by name."""
    counts = Counter(map(str, reasons))
    return min(counts, key=lambda reason: (-counts[reason], reason))


def read_looks(folder: Path) -> dict[str, Looks]:
    """The looks of each side; none where the case has no such file. A file is read once while
    it stays as it is.
    """
    path = folder / LOOKS
    if not path.is_file():
        return {}
    now = path.stat()
    return _read(path, now.st_mtime_ns, now.st_size)


@lru_cache(maxsize=2)
def _read(path: Path, _: int, __: int) -> dict[str, Looks]:
    sides: dict[str, Looks] = {}

    def add(line: str) -> None:
        row = parse_json(line, halves=True)
        sides.setdefault(str(row["side"]), Looks()).add(row)

    for _row in rows_of(path.parent, path.name, add):
        pass
    return sides


def looks_of(sides: Mapping[str, Looks], side: str | None) -> Looks | None:
    """The looks of one side, or of all together (`None`)."""
    if side is not None or len(sides) < 2:
        return sides.get(side, None) if side is not None else next(iter(sides.values()), None)
    whole = Looks()
    for one in sides.values():
        _add(whole, one)
    return whole


def _add(whole: Looks, one: Looks) -> None:
    whole.runs += one.runs
    whole.tool_runs += one.tool_runs
    whole.stopped |= one.stopped
    for name in ("blind", "partial", "narrow", "tools"):
        getattr(whole, name).update(getattr(one, name))
    for family, counts in one.families.items():
        known = whole.families.setdefault(family, FamilyLooks())
        known.found += counts.found
        known.not_found += counts.not_found
        known.could_not_look.update(counts.could_not_look)
        known.does_not_apply.update(counts.does_not_apply)


def looked_for(families: Any) -> str:
    """`words to a grader and empty answers`; of more than three how many kinds of shortcut."""
    order = (*WORDING["looked_for"], *families)
    names = [family_told(name) for name in sorted(families, key=order.index)]
    if len(names) > MOST_NAMED:
        return f"{len(names)} kinds of shortcut"
    return joined(names, "nothing")


def family_told(family: str) -> str:
    """What a family looks for, in words."""
    return WORDING["looked_for"].get(family, printable(family, 60))


def why(reasons: Mapping[str, int]) -> str:
    """`30: actions in a form nobody reads; 10: no submission`, the commonest first."""
    listed = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    if len(listed) == 1:
        return printable(listed[0][0], 120)
    return "; ".join(f"{count:,}: {printable(reason, 120)}" for reason, count in listed)


COLUMNS: Final = ("shortcut", "found", "not found", "not checked", "does not apply")


def look_rows(looks: Looks) -> Iterator[tuple[str, ...]]:
    """A row for each family: in how many runs it was found, not found, and so on, with why."""
    for name, counts in sorted(looks.families.items(), key=lambda item: (-item[1].found, item[0])):
        yield (
            family_told(name),
            f"{counts.found:,}",
            f"{counts.not_found:,}",
            *(_counted(reasons) for reasons in (counts.could_not_look, counts.does_not_apply)),
        )


def _counted(reasons: Counter[str]) -> str:
    """`40 (30: actions in a form nobody reads; 10: no submission)`."""
    return f"{reasons.total():,} ({why(reasons)})" if reasons.total() else "0"


def looks_json(looks: Looks) -> dict[str, Any]:
    """The counts for machines."""
    return {
        "runs": looks.runs,
        "runs_not_looked_at": looks.not_looked_at,
        "runs_where_nothing_could_look": dict(sorted(looks.blind.items())),
        "runs_where_something_could_not_look": dict(sorted(looks.partial.items())),
        "runs_that_called_unknown_tools": dict(sorted(looks.tools.items())),
        "families": {
            name: {
                "found": counts.found,
                "not_found": counts.not_found,
                "could_not_look": dict(sorted(counts.could_not_look.items())),
                "does_not_apply": dict(sorted(counts.does_not_apply.items())),
            }
            for name, counts in sorted(looks.families.items())
        },
    }
