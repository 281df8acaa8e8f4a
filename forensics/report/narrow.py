"""Runs to which nearly no kind of shortcut applies, and tools that nobody can read: what the first
sentence says of them.

1. *Bare* runs used neither files nor a shell (tools of a shop, a conversation), so most families
   do not apply to them. Where all runs are bare, the sentence says so first: silence of families
   that could not apply is no sign of anything.
2. *Single answers* without code, and other runs at which at most two families look.
3. Calls of tools with unknown names, which may have changed files or shown an answer.
"""

from collections import Counter
from collections.abc import Mapping

from forensics.phrases import plural, printable
from forensics.report.look_counts import looked_for
from forensics.shortcuts.looks import ANSWER, BARE, CoverageCounts

MOST_TOOLS = 4  # names of tools that a sentence holds


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
