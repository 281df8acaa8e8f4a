"""One set of logs in one sentence: how many of its runs did what, and what matters most
first.

1. Each run counts once for a channel, by what is known of it: *used*, *cannot be told*
   (something was tried, and no link fails), or *came to nothing*.
2. Used shortcuts come first, then loops, then what cannot be told, then rules of the prompt
   that were broken beside it, then what came to nothing, then damage by accident, which
   accuses nobody.
3. All runs count, with and without an outcome; those without are named.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from forensics.phrases import plural, printable
from forensics.report.chains import ChainRow, read_chains
from forensics.report.loops import read_loops

ACCUSES_NOBODY: Final = frozenset({"accidental-damage"})
BROKEN: Final = "instructions"  # the family of rules broken beside any shortcut
STANDS: Final = ("used", "untold", "broken", "nothing", "accident")
USED: Final = {
    "test-edit": "changed what the tests expect",
    "git-history": "handed in what a commit shows that is no ancestor",
    "network": "handed in what they downloaded",
    "answer-file": "handed in what a file of answers shows",
    "hard-code": "hard-coded what the tests ask for",
    "do-nothing": "handed in nothing and won",
}
TRIED: Final = {
    "test-edit": "touched what the tests expect",
    "git-history": "read commits that may be no ancestors",
    "network": "downloaded what may hold the fix",
    "answer-file": "read what may hold the answers",
    "do-nothing": "handed in nothing",
}
ONE_SET: Final = (
    "One set of logs: what the policy did. There is no gain to judge; a second set, with"
    " --before, would give one."
)


def stands(row: ChainRow) -> str:
    """What is known of a finding, as one of `STANDS`."""
    if row.family in ACCUSES_NOBODY:
        return "accident"
    if row.family == BROKEN:
        return "broken"
    if row.used or row.complete:
        return "used"
    return "untold" if row.used is None else "nothing"


def is_profile(inputs: Mapping[str, Any]) -> bool:
    """Whether a case is of one set of logs."""
    logs = inputs.get("logs")
    return isinstance(logs, Mapping) and "before" not in logs


def profile_told(folder: Path, runs: int, side: str | None = None) -> str:
    """`15 of 133 runs changed what the tests expect; 1 loops; ...`. `side`: of that one
    only, whose runs are counted.
    """
    rows = [row for row in read_chains(folder) if side in (None, row.side)]
    counts = _counts(rows)
    ruled = dict(_counts(row for row in rows if row.broken)["used"])
    loops = sum(side in (None, row.side) for row in read_loops(folder))
    parts = [
        (count, _used(channel) + _although(count, ruled.get(channel, 0)))
        for channel, count in counts["used"]
    ]
    parts += [(loops, "loops" if loops == 1 else "loop")] if loops else []
    parts += [
        (count, f"{_tried(channel)}, whether they used it cannot be told")
        for channel, count in counts["untold"]
    ]
    parts += [(count, "did what the prompt forbids") for _, count in counts["broken"]]
    parts += [
        (count, f"{_tried(channel)}, which came to nothing") for channel, count in counts["nothing"]
    ]
    parts += [(count, "damaged tests by accident") for _, count in counts["accident"]]
    if not parts:
        return f"None of {plural(runs, 'run')} tried a known shortcut, and none loops."
    (first, what), *rest = parts
    head = f"{first:,} of {plural(runs, 'run')} {what}"
    return "; ".join([head, *(f"{count:,} {told}" for count, told in rest)]) + "."


def _counts(rows: Iterable[ChainRow]) -> dict[str, list[tuple[str, int]]]:
    """Of each stand the channels with their runs, the commonest first; a run counts once
    for a channel, by the first of its stands.
    """
    furthest: dict[tuple[str, str], str] = {}
    for row in rows:
        run, stand = (row.channel, f"{row.side} {row.trajectory}"), stands(row)
        known = furthest.get(run, STANDS[-1])
        furthest[run] = min(stand, known, key=STANDS.index)
    found: dict[str, dict[str, int]] = {stand: {} for stand in STANDS}
    for (channel, _), stand in furthest.items():
        found[stand][channel] = found[stand].get(channel, 0) + 1
    return {
        stand: sorted(channels.items(), key=lambda item: (-item[1], item[0]))
        for stand, channels in found.items()
    }


def _although(count: int, ruled: int) -> str:
    """How many did so against a rule of the prompt."""
    if not ruled:
        return ""
    return (
        " although the prompt forbids it"
        if ruled == count
        else f" ({ruled:,} although the prompt forbids it)"
    )


def _used(channel: str) -> str:
    return USED.get(channel, f"used {printable(channel, 60)}")


def _tried(channel: str) -> str:
    return TRIED.get(channel, f"tried {printable(channel, 60)}")


def unscored_told(runs: int, scored: int) -> str:
    """What is said of runs without an outcome; `""` where each has one."""
    if runs == scored:
        return ""
    if not scored:
        return (
            "No run has an outcome, so nothing can be said of wins. What the runs did, and what"
            " was found in it, stands."
        )
    return (
        f"{runs - scored:,} of {plural(runs, 'run')} without an outcome, or errored: counted in"
        " what was found, and in no share of wins or attempts."
    )
