"""What a case says on the command line: progress on stderr, the verdict on stdout,
and of a scan what it read and found, counted from its folder.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from forensics.cli.console import progress_bars
from forensics.cli.options import Run
from forensics.investigation import investigate
from forensics.investigation.folder import CASE, EVIDENCE, UNREADABLE
from forensics.phrases import plural, printable
from forensics.policies import Given
from forensics.protocols import Environment
from forensics.records import Verdict
from forensics.records.files import read_findings, read_json
from forensics.report.below_findings import (
    broken_lines,
    integrity_lines,
    loop_lines,
    read_integrity,
    read_loops,
)
from forensics.report.data import few, load_case
from forensics.report.first_screen import Opening, looks_told, opening_of
from forensics.report.look_counts import read_looks
from forensics.report.profile import certain, is_profile, stands
from forensics.report.report_words import WORDING
from forensics.report.rows import read_chains
from forensics.report.words import left_out_told


def run_investigation(
    run: Run,
    before: Given | None,
    after: Sequence[Given],
    environment: Environment | str | None = None,
    **case: Any,
) -> None:
    """Investigate and say the verdict. `case`: further arguments of `investigate`."""
    with news_on_stderr(), progress_bars() as progress:
        verdict = investigate(
            before, list(after), environment, **case, **run.arguments, progress=progress
        )
    say_verdict(run, verdict)


@contextmanager
def news_on_stderr() -> Iterator[None]:
    """What the library says meanwhile, such as what it will play."""
    logger, handler = logging.getLogger("forensics"), logging.StreamHandler()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)


def say_verdict(
    run: Run,
    verdict: Verdict,
    found: Iterable[str] = (),
    opening: Opening | None = None,
    sure: Iterable[str] = (),
) -> None:
    """The verdict on stdout, with what was found, its reasons and its gaps. `opening`: what
    is said first, of logs; of one set it takes the verdict's place, of two few lines follow,
    what is `sure` first.
    """
    gaps = [
        f"open: {gap.text} To settle it: {gap.measurement} Cost: {gap.cost}."
        for gap in verdict.gaps
    ]
    first = [verdict.sentence]
    told_below: Iterable[str] = (*found, *verdict.reasons, *gaps)
    stated: dict[str, Any] = {"verdict": verdict.model_dump(mode="json")}
    if opening is not None:
        stated |= opening.stated()
        lines = [printable(line, 2000) for line in opening.told]
        judged = opening.label and opening.judged
        first = [
            *lines,
            *(
                [verdict.sentence]
                if judged
                else []
                if opening.label
                else [WORDING["sentences"]["one_set"]]
            ),
        ]
        told_below = (*sure, *found)
        if judged:
            reasons = opening.reasons(verdict.reasons)
            ranked = (*sure, *reasons[:1], *gaps, *found, *reasons[1:])
            told_below = few(ranked, "report.md, evidence.jsonl and findings.jsonl")
    left = read_json(run.out / CASE)["provenance"].get("left_out") or ()
    run.say(
        stated,
        (*first, *left_out_told(left), "", *(f"- {line}" for line in told_below)),
        "report.html",
    )


def certain_of(folder: Path, verdict: Verdict) -> Iterator[str]:
    """What is certain although two sets do not settle."""
    for line in certain(verdict, read_json(folder / CASE)["inputs"]):
        yield printable(f"certain: {line}", 2000)


def opening_of_case(folder: Path, verdict: Verdict) -> Opening | None:
    """What stands first of a scan, as its page and report.md say it."""
    content = read_json(folder / CASE)
    if is_profile(content["inputs"]):  # without the runs that a page shows
        return opening_of(folder, content, verdict, [*read_findings(folder / EVIDENCE)])
    return load_case(folder).opening


LINE = 1200  # characters of what is told of one run
NAMES = {"before": " before training", "after-0": " after training"}


def summary(folder: Path) -> Iterator[str]:
    """Lines on what was read, and on every channel that was tried: by how many
    runs, and how far it went.
    """
    logs: Mapping[str, Mapping[str, int]] = read_json(folder / CASE)["provenance"]["logs"]
    when = {side: NAMES.get(side, f", {side}") if len(logs) > 1 else "" for side in logs}
    for side in sorted(logs, key=lambda side: (side != "before", side)):
        line, counts = f"Read {plural(logs[side]['runs'], 'run')}{when[side]}", logs[side]
        if scrubbed := counts["scrubbed_left_out"]:
            line += f"; left out {plural(scrubbed, 'run')} of a scrubbed world"
        if unreadable := counts["unreadable"]:
            line += f"; unreadable: {unreadable:,} of the files or rows"
            line += f" ({folder / UNREADABLE})"
        if others := counts.get("no_logs"):
            line += f"; {plural(others, 'file')} of unknown format"
        yield f"{line}."
    tallies = _tallies(folder)
    for side, channel in sorted(tallies, key=lambda key: (key[0] != "before", key)):
        tally, runs = tallies[side, channel], plural(logs[side]["runs"], "run")
        held = [*_held("used", tally), *_held("credited", tally)]
        line = ", ".join(
            [f"{printable(channel)}{when[side]}: tried in {tally['tried']:,} of {runs}", *held]
        )
        if tally["used not known"] and not tally["used"]:
            line += "; use unknown"
        if untold := tally["credited not known"]:
            line += f"; unknown for {untold:,} whether the win came from it"
        yield f"{line}."
    yield from (printable(line, LINE) for line in looks_told(read_looks(folder)))
    yield from (printable(line, LINE) for line in loop_lines(read_loops(folder)))
    yield from (printable(line, LINE) for line in integrity_lines(read_integrity(folder)))
    yield from (printable(line, LINE) for line in broken_lines(folder))


def _held(link: str, tally: Counter[str]) -> Iterator[str]:
    """Of how many runs a link is known to hold; nothing where it is known of none."""
    held, unknown = tally[link], tally[f"{link} not known"]
    if held or not unknown:
        yield f"{link} in {'at least ' if unknown else ''}{held:,}"


def _tallies(folder: Path) -> dict[tuple[str, str], Counter[str]]:
    """Of each side and channel, how many runs tried it, used it, won by it, and
    of how many the last two are not known.
    """
    tallies: dict[tuple[str, str], Counter[str]] = {}
    for row in read_chains(folder):
        tally = tallies.setdefault((row.side, row.channel), Counter())
        tally["tried"] += 1
        tally["used"] += row.used is True or stands(row) == "used"
        tally["used not known"] += row.used is None and stands(row) not in ("used", "harmless")
        tally["credited"] += row.complete
        tally["credited not known"] += row.used is not False and row.credited is None
    return tallies
