"""Rules of the prompt that runs broke, quoted: what a finding says of them, and a list."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from forensics.phrases import plural
from forensics.records.case_file import BrokenRule
from forensics.report.chains import ChainRow, read_chains
from forensics.report.escape import short
from forensics.report.places import place_told

SHOWN: Final = 10  # lines


def broken_lines(folder: Path) -> Iterator[str]:
    """A line for each broken rule: how many runs broke it, and one of them."""
    rows: list[ChainRow] = [row for row in read_chains(folder) if row.broken]
    rows.sort(key=lambda row: (not row.used, row.side, row.trajectory, row.channel))
    by_rule: dict[str, list[ChainRow]] = {}
    for row in rows:
        by_rule.setdefault(_rule(row).prompt_said, []).append(row)
    said = sorted(by_rule.items(), key=lambda item: -len(item[1]))
    for sentence, those in said[:SHOWN]:
        runs = {(row.side, row.trajectory) for row in those}
        example = next((row for row in those if _rule(row).agent_said), those[0])
        count = f"{plural(len(runs), 'run')} did so all the same"
        yield f"The prompt said: \u2018{sentence}\u2019 {count}, for example {_example(example)}"
    if (more := len(said) - SHOWN) > 0:
        yield f"and {plural(more, 'more sentence')} (findings.jsonl)"


def _rule(row: ChainRow) -> BrokenRule:
    assert row.broken is not None
    return row.broken


def _example(row: ChainRow) -> str:
    """`run 1 in a.json (gpt) at step 7; at step 5 it said: ...`."""
    rule = _rule(row)
    place = short(place_told(row.trajectory, row.file), 200)
    steps = ", ".join(map(str, rule.steps[:6]))
    word = "steps" if len(rule.steps) > 1 else "step"
    who = f" ({short(row.policy, 80)})" if row.policy else ""
    told = f"{place}{who} at {word} {steps}"
    if rule.agent_said:
        return f"{told}; at step {rule.agent_step} it said: \u2018{rule.agent_said}\u2019"
    return f"{told}."
