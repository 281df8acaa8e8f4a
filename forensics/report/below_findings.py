"""What stands below the findings of a case from logs and is none: runs that loop, rules of the
prompt that runs broke, and where the record of a run does not hold.

Where a run stands in the logs, in words that lead there: by its own name, or by the line or
row of a file where it has none.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePath
from typing import Final

from forensics.phrases import capital, plural
from forensics.records.case_file import IntegrityRow, LoopRow
from forensics.records.finding import Finding
from forensics.report.escape import short
from forensics.report.rows import read_chains, rows_of

_UNNAMED = re.compile(r"((?:line|element|row) \d{1,15}) of ([^~]{1,300})(?:~\d{1,15})?")
LOOPS: Final = "loops.jsonl"
INTEGRITY: Final = "integrity.jsonl"
SHOWN: Final = 10  # lines of a list
SHOWN_OF_RECORD: Final = 20
LOOPED_ACTIONS: Final = 3
INTEGRITY_COLUMNS: Final = ("run", "what", "steps", "quoted", "why")
RECALL: Final = "recall: "  # names that older scans looked for, no matter of the record
ROUTINE: Final = "cut outputs"  # comes last: most harnesses cut


def read_loops(folder: Path) -> tuple[LoopRow, ...]:
    """The runs that loop, the longest loop first."""
    rows = rows_of(folder, LOOPS, LoopRow.model_validate_json)
    return tuple(sorted(rows, key=lambda row: (-row.turns, row.side, row.trajectory)))


def loop_lines(rows: Sequence[LoopRow]) -> Iterator[str]:
    """A line for each of the first runs."""
    for row in rows[:SHOWN]:
        place = capital(place_told(row.trajectory, row.file))
        yield f"{place} (task {row.task}, {row.policy}) loops, {loop_told(row)}"
    if (more := len(rows) - SHOWN) > 0:
        yield f"and {more:,} more that loop ({LOOPS})"


def loop_told(row: LoopRow) -> str:
    """`steps 3 to 17, 5 times: make; then ls`."""
    actions = [short(" ".join(action.split()), 120) for action in row.actions[:LOOPED_ACTIONS]]
    if (more := len(row.actions) - LOOPED_ACTIONS) > 0:
        actions.append(f"{more} more")
    return (
        f"steps {row.first_step} to {row.last_step}, {row.times} times: {'; then '.join(actions)}"
    )


def broken_lines(folder: Path) -> Iterator[str]:
    """A line for each rule of the prompt that runs broke: how many did, and one of them."""
    rows = [row for row in read_chains(folder) if row.broken]
    rows.sort(key=lambda row: (not row.used, row.side, row.trajectory, row.channel))
    by_rule: dict[str, list[Finding]] = {}
    for row in rows:
        if row.broken:
            by_rule.setdefault(row.broken.prompt_said, []).append(row)
    said = sorted(by_rule.items(), key=lambda item: -len(item[1]))
    for sentence, those in said[:SHOWN]:
        runs = {(row.side, row.trajectory) for row in those}
        example = next((row for row in those if row.broken and row.broken.agent_said), those[0])
        count = f"{plural(len(runs), 'run')} did it anyway"
        yield f"The prompt said: \u2018{sentence}\u2019 {count}, for example {_example(example)}"
    if (more := len(said) - SHOWN) > 0:
        yield f"and {plural(more, 'more sentence')} (findings.jsonl)"


def _example(row: Finding) -> str:
    """`run 1 in a.json (gpt) at step 7; at step 5 it said: ...`."""
    assert row.broken is not None
    rule, place = row.broken, short(place_told(row.trajectory, row.file), 200)
    word = "steps" if len(rule.steps) > 1 else "step"
    who = f" ({short(row.policy, 80)})" if row.policy else ""
    told = f"{place}{who} at {word} {', '.join(map(str, rule.steps[:6]))}"
    if rule.agent_said:
        return f"{told}; at step {rule.agent_step} it said: \u2018{rule.agent_said}\u2019"
    return f"{told}."


def read_integrity(folder: Path) -> tuple[IntegrityRow, ...]:
    """Every row on a record that does not hold, the rarest check first."""
    told = rows_of(folder, INTEGRITY, IntegrityRow.model_validate_json)
    rows = [row for row in told if not row.check.startswith(RECALL)]
    counts = Counter(row.check for row in rows)
    return tuple(sorted(rows, key=lambda row: (row.check == ROUTINE, counts[row.check], row.check)))


def integrity_lines(rows: Iterable[IntegrityRow]) -> Iterator[str]:
    """One line at most: in how many runs the record does not hold."""
    if counts := Counter(row.check for row in rows):
        each = (f"{short(check, 60)} in {plural(n, 'run')}" for check, n in counts.items())
        yield f"Unreliable records: {', '.join(each)} ({INTEGRITY})"


def integrity_rows(rows: Sequence[IntegrityRow]) -> Iterator[tuple[str, ...]]:
    """A row of cells for each of the first rows."""
    for row in rows[:SHOWN_OF_RECORD]:
        yield (
            short(f"{place_told(row.trajectory, row.file)}, {row.policy}", 160),
            short(row.check, 60),
            ", ".join(map(str, row.steps[:6])),
            short(row.quote, 200),
            short(row.why, 200),
        )


def place_told(trajectory: str, file: str | None) -> str:
    """`run a-0 in deep/a.jsonl`; `line 3 of deep/a.jsonl` of a run that a reader called so."""
    if unnamed := _unnamed(trajectory, file):
        return unnamed
    return f"run {trajectory} in {file}" if file else f"run {trajectory}"


def file_told(trajectory: str, file: str | None) -> str:
    """The file alone where the run's own name stands beside it."""
    return _unnamed(trajectory, file) or file or ""


def _unnamed(trajectory: str, file: str | None) -> str | None:
    if (found := _UNNAMED.fullmatch(trajectory)) is None:
        return None
    same = file is not None and PurePath(file).name.startswith(found[2])
    return f"{found[1]} of {file if same else found[2]}"
