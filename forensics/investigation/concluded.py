"""From a case to its verdict, whatever gave its runs: measure, decide, report.

The answers of an instrument that finished are stored, so a resumed run does nothing twice.
`evidence.jsonl` is in an order that depends on the findings alone. The verdict is a function of
the evidence.

What an investigation costs, said before the first episode, and closer later.

1. Of each instrument that plays, and all together: how much is *likely*, where its
   first look settles what it asks, and at *most*, whatever it finds. An instrument
   that cannot tell names its bound alone, which then counts as likely too. A
   likely figure is no promise: a gain that is a shortcut is looked at longer. Where
   the world declares channels, also what is played if no gain survives scrubbing.
2. Time is told once some were played, at the pace of the run's own episodes so far.
   A continuation counts as an episode; replays are played by no policy.
3. When the policies' own runs are there, what is to come is known closer, and said
   again.

What lies in the folder already is not played again: how much that is, is said too, and
taken off the time. On the logger `forensics` as information, which the command line shows on
stderr.

Do runs that somebody else made in a scrubbed world show a shortcut all the same?

1. The runs of the world without any channel are scanned like those of the open world.
2. Where shortcuts surely carry more than `BAR` of the wins after training there, beyond their
   share of the wins before, the world was not scrubbed of them: every answer that rests on it is
   `Undefined`, so that a leaky copy clears no gain.
"""

import gc
import logging
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from shutil import rmtree
from typing import Any, Final

from forensics.case import Case, Rollouts
from forensics.errors import MissingInput
from forensics.instruments import (
    LAYERS,
    Instrument,
    Plays,
    installed_instruments,
    not_installed,
    plain_config,
    run_instrument,
)
from forensics.investigation.folder import ABLATION, ANSWERS, EVIDENCE, complete_case
from forensics.investigation.scan_findings import SETTINGS, SideMarks, scan_runs
from forensics.investigation.scan_run import channel_shares
from forensics.layers.channels import WINS
from forensics.layers.evidence_chain import survey
from forensics.phrases import percent, plural, printable
from forensics.progress import Progress
from forensics.records import Evidence, Provenance, Undefined, Verdict, canonical_json, content_hash
from forensics.records.case_file import AblationRow
from forensics.records.evidence import EvidenceRow
from forensics.records.files import read_findings, write_json_lines
from forensics.records.finding import Finding
from forensics.records.tables import open_whole
from forensics.runs import Condition
from forensics.verdict import Rule, decide
from forensics.version import code_version, today
from forensics.world import PlayedElsewhere

BY_A_POLICY = ("episode", "continuation")
LENGTHS = ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
logger = logging.getLogger("forensics")
BAR: Final = 0.2  # the fifth that the rule goes by
OPEN_ONLY: Final = ("gain.total", "score.before", "score.after")
CURE: Final = (
    "Take the shortcut out of the scrubbed world (`forensics scrub-git` for a history), check it"
    " (`forensics twin`), and play those runs again."
)
ALLOCATIONS = 20_000  # more objects than before, until cycles are searched for
PACKAGES = ("torch", "transformers", "numpy", "scipy")
THROUGH = "ablation.runs_through"
MEASURED = ("gain", "gain_without", "before", "before_without", "after_without")
ENDS = (("estimate", ""), ("low", "_low"), ("high", "_high"))


def report(case: Path, formats: Sequence[str], progress: Progress) -> None:
    """Draw the reports of a finished case."""
    from forensics.report import write_reports

    progress("writing the report", 0, 1)
    write_reports(case, formats)
    progress("writing the report", 1, 1)


def settle(
    case: Case,
    written: Mapping[str, Any],
    findings: Sequence[Evidence | Undefined],
    accept: Sequence[str] = (),
    rule: Rule | None = None,
) -> Verdict:
    """Decide on what was measured, and write it. `written`: what `case.json` says so far."""
    folder = case.folder
    if isinstance(case.environment, PlayedElsewhere):
        findings = withhold_leaky(findings, case)
    write_json_lines(folder / EVIDENCE, findings)
    write_json_lines(folder / ABLATION, ablation_rows(findings))
    verdict = decide(findings, rule, allowed=case.allowed, accepted=accept)
    complete_case(folder, written, verdict)
    rmtree(folder / ANSWERS, ignore_errors=True)
    return verdict


def provenance(tools: Sequence[Instrument], case: Case, device: str) -> dict[str, Any]:
    """What is needed to replay a case: code, libraries, instruments with their
    settings, hashes; and the day (that of `SOURCE_DATE_EPOCH`, where it is set), but no times.
    `left_out`: what is usually measured, and was not to be.
    """
    chosen = {tool.name for tool in tools}
    return {
        "day": today(),
        "left_out": [
            *(one.name for one in installed_instruments() if one.usual and one.name not in chosen),
            *not_installed(),
        ],
        "code": code_version(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "device": device,
        "instruments": {
            tool.name: {
                "layer": tool.layer,
                "questions": list(tool.questions),
                "config": plain_config(tool.config),
            }
            for tool in tools
        },
        "hashes": case.input_hashes(),
        "tasks": len(case.tasks),
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def measure(
    case: Case, tools: Sequence[Instrument], progress: Progress
) -> list[Evidence | Undefined]:
    """The answers of all instruments, in an order that depends on the answers alone.

    What reads the runs that there are comes before what plays further ones: by
    layer, then by name.
    """
    findings: list[Evidence | Undefined] = []
    ordered = sorted(tools, key=lambda tool: (LAYERS.index(tool.layer), tool.name))
    costs = Costs(case)
    closer = costs.say(ordered)
    for number, tool in enumerate(ordered):
        progress("measuring", number, len(tools))
        key = content_hash([canonical_json(tool.provenance(case)), case.tasks])
        stored = case.folder / ANSWERS / f"{tool.name}-{key}.jsonl"
        if not stored.exists():  # else it finished before this run was killed
            write_json_lines(stored, list(run_instrument(tool, case)))
        findings += read_findings(stored)
        if not closer and own_runs_are_there(case):
            closer = costs.say(ordered[number + 1 :])
    progress("measuring", len(tools), len(tools))
    return sorted(findings, key=order_of)


@contextmanager
def seldom_collecting() -> Iterator[None]:
    """Rows and steps are made by the hundred thousand, and none is in a cycle. Python's
    search for cycles took a quarter of the time, so it looks more seldom meanwhile.
    """
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], ALLOCATIONS) if before[0] else 0, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def order_of(finding: Evidence | Undefined) -> tuple[str, ...]:
    """By layer, question, what it is about and which after; the content settles what is left."""
    details = finding.diagnostics if isinstance(finding, Evidence) else {}
    after = str(details.get("after", details.get("side", "")))
    return (
        finding.layer,
        finding.question,
        finding.about or "",
        after,
        finding.method,
        canonical_json(finding),
    )


def chain_findings(case: Case) -> Iterator[Finding]:
    """The rows of `findings.jsonl`; none where the case has no logs to read."""
    from forensics.layers.evidence_chain import chain_rows

    try:
        yield from chain_rows(case)
    except MissingInput:
        return


def ablation_rows(findings: Iterable[Evidence | Undefined]) -> Iterator[dict[str, Any]]:
    """The rows of `ablation.jsonl`: one for each kind of action (or pair) that
    was refused to both policies.

    Scores and gains carry `estimate`, `low` and `high`. A kind that only a
    pilot saw, because the before policy needs it or too few runs go on without
    it, has no row; the evidence says so.
    """
    for finding in findings:
        if not isinstance(finding, Evidence) or finding.question != THROUGH:
            continue
        told = finding.diagnostics
        if "gain_without" not in told:
            continue
        row: dict[str, Any] = {
            "kind": finding.about,
            "runs_through": finding.estimate == 1,
            "summary": finding.summary,
            **{name: told[name] for name in ("contains_answer", "q_value", "missing")},
        }
        for name in MEASURED:
            ends = {end: told[f"{name}{suffix}"] for end, suffix in ENDS}
            row[name] = {"level": told["level"], **ends}
        yield AblationRow.model_validate(row).model_dump(mode="json")


class Costs:
    """What is still to be played of a case, and the saying of it."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._left, self._counted_at = Plays(0, 0), 0
        self._there = episodes_in(case.folder)
        case.pace.told = self.say_time

    def say(self, tools: Sequence[Instrument]) -> bool:
        """What these play. Whether the runs in the open and in the scrubbed world were
        there, so that there is nothing closer to say.
        """
        if not self._case.runs_models:
            return True
        known = own_runs_are_there(self._case)
        plays, units = plays_of(self._case, tools), {tool.name: tool.unit for tool in tools}
        if plays and known:
            logger.info("The policies' own runs are there, which makes the figures closer:")
        for line in cost_lines(plays, units):
            logger.info("%s", line)
        if self._case.channels and not known:
            self._say_without_a_gain(plays, tools, units)
        by_unit = together(plays, units)
        left = _sum(by_unit.get(unit, Plays(0, 0)) for unit in BY_A_POLICY)
        if plays and self._there:
            there = plural(self._there, "episode")
            logger.info("%s lie in the folder already and are not played again.", there)
        self._left = Plays(*(max(number - self._there, 0) for number in left))
        self._there, self._counted_at = 0, self._case.pace.episodes  # of what follows none is there
        self.say_time()
        return known

    def _say_without_a_gain(
        self, plays: Mapping[str, Plays], tools: Sequence[Instrument], units: Mapping[str, str]
    ) -> None:
        """The sum without what is played on the part of the gain that survives scrubbing."""
        rest = {
            tool.name: plays[tool.name]
            for tool in tools
            if tool.name in plays and all(test.kind == "declared" for test in tool.gain_tests)
        }
        if rest and len(rest) < len(plays):
            logger.info("If no gain survives scrubbing: %s", _sums(rest, units))

    def say_time(self) -> None:
        """How long that takes; nothing while no pace is known, or nothing is left."""
        pace, played = self._case.pace, self._case.pace.episodes - self._counted_at
        left = Plays(*(max(number - played, 0) for number in self._left))
        if pace.a_second and left.most:
            logger.info("%s", time_line(pace.a_second, left))


def episodes_in(folder: Path) -> int:
    """How many episodes a case folder holds, of both sides and in all worlds."""
    number = 0
    for path in (folder / "trajectories").glob("*.parquet"):
        with open_whole(path) as file:
            number += file.metadata.num_rows
    return number


def own_runs_are_there(case: Case) -> bool:
    """Whether both policies played the open world and the one without any channel."""
    channels = tuple(channel.name for channel in case.channels)
    return all(case.has_played(Condition(scrubbed=world)) for world in ((), channels))


def plays_of(case: Case, tools: Sequence[Instrument]) -> dict[str, Plays]:
    """What each instrument plays (in its unit), in their order; none that plays none."""
    found = {}
    for tool in tools:
        try:
            told = 0 if tool.episodes is None else tool.episodes(case, tool.config)
        except MissingInput:  # it will say so itself, and plays nothing
            continue
        plays = told if isinstance(told, Plays) else Plays(told, told)
        if plays.most > 0:
            found[tool.name] = Plays(min(plays.likely, plays.most), plays.most)
    return found


def together(plays: Mapping[str, Plays], units: Mapping[str, str]) -> dict[str, Plays]:
    """The sums, by what is counted."""
    found: dict[str, Plays] = {}
    for name, one in plays.items():
        unit = units.get(name, "episode")
        found[unit] = _sum((found.get(unit, Plays(0, 0)), one))
    return found


def _sum(plays: Iterable[Plays]) -> Plays:
    likely, most = map(sum, zip((0, 0), *plays, strict=True))
    return Plays(likely, most)


def cost_lines(plays: Mapping[str, Plays], units: Mapping[str, str]) -> Iterator[str]:
    """`renaming: likely some 600, at most 2,400 episodes`, and the sum by what is counted."""
    for name, one in plays.items():
        yield f"{printable(name)}: {_told(one, units.get(name, 'episode'))}"
    if plays:
        yield f"All together: {_sums(plays, units)}"


def _sums(plays: Mapping[str, Plays], units: Mapping[str, str]) -> str:
    return "; ".join(_told(one, unit) for unit, one in together(plays, units).items())


def _told(plays: Plays, unit: str) -> str:
    most = f"at most {plural(plays.most, unit)}"
    if plays.likely == plays.most:
        return most
    some = min(round(plays.likely, 2 - len(str(plays.likely))), plays.most)
    return f"likely {f'some {some:,}' if some else 'none'}, {most}"


def time_line(a_second: float, left: Plays) -> str:
    """How long it takes to play what is left."""
    likely, most = (_length(number / a_second) for number in left)
    pace = f"{a_second:,.0f}" if a_second >= 10 else f"{a_second:.2g}"
    takes = (
        f"likely takes some {likely}, at most {most}" if likely != most else f"takes at most {most}"
    )
    episodes = "episode" if pace == "1" else "episodes"
    return f"At {pace} {episodes} a second so far, what is left to play {takes}."


def _length(seconds: float) -> str:
    """`40 minutes`, in the largest unit of which it is two."""
    size, unit = next((one for one in LENGTHS if seconds >= 2 * one[0]), LENGTHS[-1])
    return plural(max(round(seconds / size), 1), unit)


def withhold_leaky(found: Sequence[EvidenceRow], case: Case) -> list[EvidenceRow]:
    """The answers, those that rest on a scrubbed world `Undefined` where it shows a shortcut."""
    provenance = Provenance(
        instrument="scan", seed=case.seed, inputs=case.input_hashes(), code=case.code_version
    )
    shown = [*_carried(case, provenance)]
    if not shown:
        return [*found]
    told = " and ".join(
        f"{printable(one.about or 'a shortcut')} ({percent(one.estimate)} of the wins)"
        for one in shown
    )
    reason = f"The scrubbed runs after training win by a shortcut all the same: {told}."
    logging.getLogger("forensics").warning("%s %s", reason, CURE)
    return [_withheld(one, reason) if _rests_on_scrubbed(one) else one for one in found]


def _carried(case: Case, provenance: Provenance) -> Iterator[Evidence]:
    """Shortcuts that carry more than the bar of the scrubbed wins."""
    scrubbed = Condition(scrubbed=tuple(sorted(channel.name for channel in case.channels)))
    if not case.channels or not case.has_played(scrubbed):
        return
    runs: dict[tuple[str, tuple[str, ...]], Rollouts] = {
        (side, ()): case.rollouts(side, scrubbed) for side in ("before", *case.afters)
    }
    world = replace(case, environment=None, stored=runs)
    known = survey(world, [side for side, _ in runs], tasks=SETTINGS.control_tasks)
    told: dict[str, SideMarks] = {}
    for number, ((side, _), log) in enumerate(sorted(runs.items())):
        case.progress("scanning the scrubbed runs", number, len(runs))
        told[side] = scan_runs(side, log, known).marks
    case.progress("scanning the scrubbed runs", 1, 1)
    for answer in channel_shares(told, provenance):
        if answer.question == WINS and answer.about is not None and isinstance(answer, Evidence):
            before = answer.control and answer.control.estimate
            if answer.interval and answer.interval.low - (before or 0.0) > BAR:
                yield answer


def _rests_on_scrubbed(one: EvidenceRow) -> bool:
    return isinstance(one, Evidence) and one.layer == "score" and one.question not in OPEN_ONLY


def _withheld(one: EvidenceRow, reason: str) -> Undefined:
    return Undefined(
        question=one.question,
        about=one.about,
        layer=one.layer,
        method=one.method,
        provenance=one.provenance,
        reason=reason,
        cure=CURE,
    )
