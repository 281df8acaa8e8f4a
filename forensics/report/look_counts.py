"""`looks.jsonl` as the report reads it: of how many runs each kind of shortcut was looked for,
and why it could not be elsewhere (`shortcuts.looks`). A case without the file claims nothing of
the kind.

What the first sentence says of runs to which nearly no kind of shortcut applies:

1. *Bare* runs used neither files nor a shell (tools of a shop, a conversation), so most families
   do not apply to them. Where all runs are bare, the sentence says so first: silence of families
   that could not apply is no sign of anything.
2. *Single answers* without code, and other runs at which at most two families look.
3. Calls of tools with unknown names, which may have changed files or shown an answer.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from forensics.phrases import joined, plural, printable
from forensics.records.finding import Coverage
from forensics.report.report_words import WORDING
from forensics.report.rows import as_record, rows_of
from forensics.shortcuts.looks import ANSWER, BARE, CoverageCounts

MOST_TOOLS = 4  # names of tools that a sentence holds
LOOKS: Final = "looks.jsonl"
MOST_NAMED: Final = 3  # kinds of shortcut that a sentence names


COLUMNS: Final = ("shortcut", "found", "not found", "not checked", "does not apply")


def read_looks(folder: Path) -> dict[str, CoverageCounts]:
    """The counts of each side; none where the case has no such file. A file is read once while
    it stays as it is.
    """
    path = folder / LOOKS
    if not path.is_file():
        return {}
    now = path.stat()
    return _read(path, now.st_mtime_ns, now.st_size)


@lru_cache(maxsize=2)
def _read(path: Path, _: int, __: int) -> dict[str, CoverageCounts]:
    sides: dict[str, CoverageCounts] = {}
    for row in rows_of(path.parent, path.name, as_record(Coverage)):
        sides.setdefault(row.side, CoverageCounts()).add(row)
    return sides


def looks_of(sides: Mapping[str, CoverageCounts], side: str | None) -> CoverageCounts | None:
    """The counts of one side, or of all together (`None`)."""
    if side is not None or not sides:
        return sides.get(side or "")
    return sum(sides.values(), start=CoverageCounts())


def looked_for(families: Collection[str]) -> str:
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


def look_rows(looks: CoverageCounts) -> Iterator[tuple[str, ...]]:
    """A row for each family: in how many runs it was found, not found, and so on, with why."""
    for name, counts in sorted(looks.families().items(), key=lambda one: -one[1]["found"]):
        numbers = (f"{counts[status]:,}" for status in ("found", "not_found"))
        reasons = (_counted(counts[status]) for status in ("could_not_look", "does_not_apply"))
        yield (family_told(name), *numbers, *reasons)


def _counted(reasons: Mapping[str, int]) -> str:
    """`40 (30: actions in a form nobody reads; 10: no submission)`."""
    return f"{sum(reasons.values()):,} ({why(reasons)})" if reasons else "0"


def looks_json(looks: CoverageCounts) -> dict[str, Any]:
    """The counts for machines."""
    return {
        "runs": looks.runs,
        "runs_not_looked_at": looks.not_looked_at,
        "runs_where_nothing_could_look": dict(sorted(looks.blind.items())),
        "runs_where_something_could_not_look": dict(sorted(looks.partial.items())),
        "runs_that_called_unknown_tools": dict(sorted(looks.tools.items())),
        "families": looks.families(),
    }


def narrow_told(looks: CoverageCounts | None, count: int) -> str:
    """A sentence for each kind of such runs of `count`; `""` without any."""
    if looks is None:
        return ""
    told = []
    for kind in dict.fromkeys(kind for (kind, _), _ in looks.narrow.most_common()):
        groups = Counter({names: n for (one, names), n in looks.narrow.items() if one == kind})
        told.append(_kind_told(kind, groups, count))
    return " ".join(told)


def all_bare(looks: CoverageCounts | None, count: int) -> str:
    """`None of 100 runs used files or a shell, so most known shortcuts do not apply: ...`, where
    that is so of all runs; else `""`.
    """
    if looks is None:
        return ""
    groups = Counter({names: n for (kind, names), n in looks.narrow.items() if kind == BARE})
    if groups.total() < max(count, 1):
        return ""
    who = f"None of {plural(count, 'run')} used files or a shell"
    if count == 1:
        who = "The one run used neither files nor a shell"
    return f"{who}, so most known shortcuts do not apply; only {_groups(groups)}"


def unknown_tools_told(tools: Mapping[str, int], runs: int, count: int) -> str:
    """`3 of 12 runs called tools that this scan cannot read (...)`. `tools`: how many runs called
    each; `runs`: how many called any. `""` without any.
    """
    if not runs:
        return ""
    order = sorted(tools, key=lambda name: (-tools[name], name))
    names = ", ".join(printable(name, 40) for name in order[:MOST_TOOLS])
    more = f" and {len(order) - MOST_TOOLS:,} more" if len(order) > MOST_TOOLS else ""
    tool, its = ("a tool", "its") if len(order) == 1 else ("tools", "their")
    what = f"{runs:,} of {plural(count, 'run')} called {tool} that this scan cannot read"
    return f"{what} ({names}{more}): {its} effects are unknown"


def _kind_told(kind: str, groups: Counter[tuple[str, ...]], count: int) -> str:
    runs = groups.total()
    if kind == ANSWER:
        are = "is a single answer" if runs == 1 else "are single answers"
        return f"{_who(runs, count)} {are} without code: only {_groups(groups)}."
    if kind == BARE:
        return f"{_who(runs, count)} used neither files nor a shell: only {_groups(groups)}."
    who = "In them" if runs == count else f"In {runs:,} of the runs"
    return f"{who} only {_groups(groups)}; nothing else applies."


def _who(runs: int, count: int) -> str:
    if runs < count:
        return f"{runs:,} of the runs"
    return "It" if count == 1 else "They"


def _groups(groups: Counter[tuple[str, ...]]) -> str:
    """`downloaded answers could be checked in 95, and empty answers in 5`"""
    first, *rest = groups.most_common()
    if not rest:
        return f"{looked_for(first[0])} could be checked"
    told = [f"{looked_for(first[0])} could be checked in {first[1]:,}"]
    told += [f"{looked_for(names)} in {n:,}" for names, n in rest]
    return f"{', '.join(told[:-1])}, and {told[-1]}"
