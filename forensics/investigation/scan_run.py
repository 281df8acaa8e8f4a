"""`scan`: is the gain real, from logs alone? Read, scan, measure, decide,
report; killed at any moment, resumed.

1. Both logs are streamed into the case folder; what cannot be read is named in
   `unreadable.jsonl` and counted.
2. Every run goes through the scanner; `findings.jsonl` is written as it comes.
3. The gain is bounded (`layers.bounds`), wins are shared out to channels
   (`layers.credits`), and the behaviour layer compares turns, length, action
   mix and degeneracy by permutation tests over tasks. `loops.jsonl` lists the runs that
   loop, which decides nothing.
4. The verdict follows the rule for logs (`verdict.from_logs`). With one log
   there is a profile and no gain.
5. Last, the exports that were asked for. They change none of this.

How many runs of a log are degenerate: limits on what the behaviour layer tallied.

What was done decides first: idle repeats, alternation, monologue (changing line numbers in an
error are the same answer, polling whose answer changes is no repeat). A loop (`layers.tally`)
is an event: it counts however short it is beside the whole run. Of what was written only a
loop at the very end and a text that is nearly all repeats count, since longer healthy runs
repeat more words.

The measures of each run are there already, so nothing is read again. The unit
is the task; training seeds are pooled, runs that errored are left out.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import Any

from forensics.case import Case
from forensics.errors import MissingInput, UserError
from forensics.instruments import AnswerMaker, run_instrument
from forensics.investigation.folder import (
    ANSWERS,
    CASE_FILES,
    EVIDENCE,
    LOOPS,
    Location,
    begin_case,
    complete_case,
    rule_file,
    started_case,
)
from forensics.investigation.scan_findings import Scan, SideMarks, write_findings
from forensics.investigation.stored_logs import (
    ReadSide,
    Source,
    find_sources,
    read_sides,
)
from forensics.layers.behaviour import Tallied, behaviour_of
from forensics.layers.bounds import bound_answers, questions, scored_side
from forensics.layers.channels import Credits, control_of
from forensics.layers.pair_split import pair_answers
from forensics.layers.tally import Log
from forensics.phrases import capital, percent, plural
from forensics.progress import Progress, silent
from forensics.records import Evidence, Interval, Provenance, Undefined, Verdict, canonical_json
from forensics.records.case_file import LoopRow
from forensics.records.evidence import EvidenceRow, Scalar
from forensics.records.files import write_json_lines
from forensics.shortcuts.export import Export, require_free, rows_as_lines, write_export
from forensics.shortcuts.looks import CoverageCounts
from forensics.statistics import Estimate, share_by_task
from forensics.study import Folder, hold, require_same
from forensics.verdict import Rule, decide, read_rule, require_gain_tests, stated_rule
from forensics.verdict.sentences import DEGENERATE, ONE_LOG, WINS_READ
from forensics.version import code_version, today

ACTING = {"action repetition": 0.5, "alternation": 0.5, "monologue": 0.5}
FEWEST_TURNS = 4  # of a run whose actions are measured
LIMITS = {  # shares of a run; the compression ratio in bytes per compressed byte
    **ACTING,
    "loop": 0.0,
    "longest repeated suffix": 0.5,
    "repeated n-grams": 0.9,
    "echoed observation": 0.8,
    "compression ratio": 25.0,
}
LONGEST_ACTION = 500  # characters of a repeated action as it is listed
TOLD = {  # what one run does, and what several do
    "action repetition": ("repeats its actions", "repeat their actions"),
    "alternation": ("goes back and forth between two", "go back and forth between two"),
    "monologue": ("talks instead of acting", "talk instead of acting"),
    "loop": ("loops", "loop"),
    "longest repeated suffix": ("repeats the end of its text", "repeat the end of their text"),
    "repeated n-grams": ("says most things again", "say most things again"),
    "echoed observation": ("echoes what came back", "echo what came back"),
    "compression ratio": ("writes the same throughout", "write the same throughout"),
}
METHOD = "limits on each run's measures of degeneracy"
FORMATS = ("html", "md")


def scan(
    after: Location,
    before: Location | None = None,
    *,
    out: Location,
    reader: str | None = None,
    seed: int = 0,
    resume: bool = False,
    force: bool = False,
    formats: Sequence[str] = FORMATS,
    scanner: Scan | None = None,
    exports: Sequence[Export] = (),
    accept: Sequence[str] = (),
    rule: Rule | Mapping[str, Any] | Location | None = None,
    processes: int = 1,
    progress: Progress = silent,
) -> Verdict:
    """Is the gain from the logs `before` to the logs `after` real? Answers in the folder `out`.

    Logs: a file, a folder or an archive of any format that an installed reader
    knows, or a case folder. Scores are in [0, 1]. Without `before` the case is
    a profile without a gain. `reader` names one format to read everything as;
    `scanner` takes a trajectory and gives its findings (default: the shortcut
    scanner); `exports`: files for other tools; `accept`: gain tests that need not be made;
    `rule`: one of your own (`forensics.verdict.read_rule`), under its own name;
    `progress(what, done, of)` is told how far it is. `processes`: how many scan,
    which changes no byte (guard your script, as `multiprocessing` asks). Raises
    `UserError` for bad input, a full disk, or a folder that holds something else.
    """
    path = Path(out).expanduser()
    first = Path(after).expanduser()
    second = None if before is None else Path(before).expanduser()
    given = [first] if second is None else [first, second]
    for log in given:
        if path.resolve() == log.resolve() or log.resolve() in path.resolve().parents:
            raise UserError(
                f"--out {path} lies inside the logs; choose another folder for the case"
            )
    require_gain_tests(accept)
    require_free(exports, path, given, replace=force or resume)
    asked = Asked(
        scanner=scanner,
        exports=exports,
        formats=formats,
        accept=accept,
        rule=read_rule(rule),
        processes=processes,
    )
    how = {"resume": resume, "force": force}
    with hold(Folder(path, "case", CASE_FILES, **how, progress=progress)) as folder:
        sources = find_sources(first, second, reader, progress)
        inputs = _stated(sources, seed, reader, rule_file(rule))
        if (started := started_case(folder)) is not None:
            if not isinstance(started["inputs"].get("logs"), Mapping):
                raise UserError(
                    "this case was not started by `forensics scan`; choose another --out"
                )
            require_same(path, _identities(started["inputs"]), _identities(inputs))
        folder.begin()
        return _run(folder, sources, inputs, asked)


def _stated(
    sources: Sequence[Source], seed: int, reader: str | None, rule: str | None
) -> dict[str, Any]:
    """What `case.json` states: paths are hints, hashes identify."""
    return {
        "logs": {
            source.side: {"path": str(source.given), "hash": source.key} for source in sources
        },
        "reader": reader,
        "seed": seed,
        **({"rule": rule} if rule else {}),
    }


def _identities(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """What makes a scan this scan, by the words in which a difference is told."""
    logs = {f"the log of {side}": log["hash"] for side, log in inputs["logs"].items()}
    return {**logs, "seed": inputs["seed"], "reader": inputs["reader"]}


@dataclass(frozen=True, kw_only=True)
class Asked:
    """How a scan is made, beyond its logs."""

    scanner: Scan | None
    exports: Sequence[Export]
    formats: Sequence[str]
    accept: Sequence[str]
    rule: Rule
    processes: int


def _run(
    held: Folder, sources: Sequence[Source], inputs: Mapping[str, Any], asked: Asked
) -> Verdict:
    from forensics.report import write_reports

    folder, progress = held.path, held.progress
    started = {"code": code_version(), "day": today()}
    written = begin_case(folder, inputs, started, **stated_rule(asked.rule))
    sides, reading = read_sides(held, sources, inputs["reader"])
    case = Case(
        folder=folder,
        stored={(side.side, ()): side.rollouts(folder) for side in sides},
        seed=inputs["seed"],
        progress=progress,
    )
    runs = sum(side.runs for side in sides)
    told, tallied = write_findings(case, asked.scanner, runs, progress, asked.processes)
    write_json_lines(folder / LOOPS, loop_rows(tallied))
    findings = measure_logs(case, told, tallied)
    write_json_lines(folder / EVIDENCE, findings)
    verdict = decide(findings, asked.rule, accepted=asked.accept)
    written["provenance"] |= {
        "hashes": case.input_hashes(),
        "logs": {side.side: _counted(side, told[side.side]) for side in sides},
        **({"scores": reading} if reading else {}),
    }
    complete_case(folder, written, verdict)
    progress("writing the report", 0, 1)
    write_reports(folder, asked.formats)
    progress("writing the report", 1, 1)
    rmtree(folder / ANSWERS, ignore_errors=True)
    for export in asked.exports:
        progress(f"writing {export.kind}", 0, 1)
        write_export(export.path, _exported(case, export), force=held.force)
        progress(f"writing {export.kind}", 1, 1)
    return verdict


def _counted(side: ReadSide, found: SideMarks) -> dict[str, Any]:
    """What `case.json` counts of one side."""
    return {
        **side.counts(),
        "scored": side.runs - found.dropped,
        **({"odd_rewards": found.odd} if found.odd else {}),
        "looks": found.looks.stated(),
        "integrity": dict(sorted(found.record.items())),
    }


def _exported(case: Case, export: Export) -> str:
    """What an export holds."""
    if export.kind == "jsonl":
        return rows_as_lines(case)
    from forensics.report.markdown import render_pull_request

    return render_pull_request(case.folder)


def measure_logs(case: Case, told: Mapping[str, SideMarks], tallied: Tallied) -> list[EvidenceRow]:
    """Every answer that logs give, in an order that depends on the answers alone."""
    case.progress("measuring", 0, 1)
    provenance = Provenance(
        instrument="scan", seed=case.seed, inputs=case.input_hashes(), code=case.code_version
    )
    found = [
        *_gain(told, provenance),
        *channel_shares(told, provenance),
        *_read_wins(told, provenance),
        degenerate_answer(tallied, provenance),
    ]
    if "before" in told:
        first, *others = (told[side].scored for side in _ordered(told))
        found += pair_answers(first, others, provenance)
    found += run_instrument(behaviour_of(tallied), case)
    case.progress("measuring", 1, 1)
    return sorted(
        found, key=lambda f: (f.layer, f.question, f.about or "", f.method, canonical_json(f))
    )


def _gain(told: Mapping[str, SideMarks], provenance: Provenance) -> Iterator[EvidenceRow]:
    """The gain and its bounds; `Undefined` for each of them where they cannot be had."""
    answers = AnswerMaker(layer="score", method="bounds from logs", provenance=provenance)
    try:
        if "before" not in told:
            raise MissingInput(
                ONE_LOG, "Give the logs of the policy before training with `--before`."
            )
        before, *afters = (
            scored_side(told[side].scored, told[side].dropped) for side in _ordered(told)
        )
        yield from list(bound_answers(before, afters, provenance))
    except MissingInput as missing:
        yield from (answers.undefined(question, missing) for question in questions())


def _read_wins(told: Mapping[str, SideMarks], provenance: Provenance) -> Iterator[EvidenceRow]:
    """Whether every family of shortcuts that applies could look into each win after training of
    two sets (of one there is no gain to judge). Undefined where one could not: what nobody read
    may have been won by anything.
    """
    if "before" not in told:
        return
    make = AnswerMaker(layer="score", method="status of each family", provenance=provenance)
    sides = (told[side].looks for side in _ordered(told) if side != "before")
    looks = sum(sides, start=CoverageCounts())
    wins = f"{plural(looks.wins, 'win')} after training"
    if looks.open_wins or not looks.wins:
        why = ", ".join(f"{reason} ({n:,})" for reason, n in looks.reasons.most_common(3))
        said = (
            f"In {looks.open_wins:,} of {wins} something could not be looked at: {why}."
            if looks.open_wins
            else "There is no win after training to look into."
        )
        cure = "Give logs that record what these runs did and handed in, or a reader for them."
        yield make.undefined(WINS_READ, MissingInput(said, cure))
        return
    yield make.evidence(
        WINS_READ,
        1.0,
        interval=Interval(low=1.0, high=1.0, level=0.95),
        n=looks.wins,
        clusters=looks.wins,
        unit="share of wins",
        summary=f"Every family that applies could look into {wins}.",
    )


def _ordered(told: Mapping[str, SideMarks]) -> list[str]:
    return sorted(told, key=lambda side: (side != "before", side))


def channel_shares(told: Mapping[str, SideMarks], provenance: Provenance) -> Iterator[EvidenceRow]:
    """Shares of wins and attempts by channel; none where scores are on another
    scale, which `_gain` says.
    """
    try:
        sides = {side: (scored_side(marks.scored), marks.marks) for side, marks in told.items()}
    except MissingInput:
        return
    names = [side for side in _ordered(told) if side != "before"]
    seen = sum((told[side].looks for side in names), start=CoverageCounts()).families().values()
    yield from Credits(
        before=sides.get("before"),
        afters=tuple(sides[side] for side in names),
        provenance=provenance,
        kinds=(sum(bool(one["found"] or one["not_found"]) for one in seen), len(seen)),
    ).answers()


def above(measures: Mapping[str, float | None], turns: float) -> tuple[str, ...]:
    """The names of those measures of a run with so many turns that are above their limit."""
    return tuple(
        name
        for name, limit in LIMITS.items()
        if (turns >= FEWEST_TURNS or name not in ACTING)
        and (measured := measures[name]) is not None
        and measured > limit
    )


def degenerate_answer(tallied: Tallied, provenance: Provenance) -> Evidence | Undefined:
    """The share of degenerate runs after training, with the log before
    training, where there is one, as control.
    """
    before = tallied.logs.get("before")
    afters = [log for side, log in sorted(tallied.logs.items()) if side != "before"]
    answers = AnswerMaker(layer="behaviour", method=METHOD, provenance=provenance)

    def measured() -> Evidence:
        found = _share(afters)
        control = None
        if before is not None:
            with suppress(MissingInput):
                control = _share([before])
        counts = Counter(name for log in afters for names in _above(log) for name in names)
        named = ", ".join(_told(name, count) for name, count in counts.most_common())
        counted: dict[str, Scalar] = {name: counts[name] for name in LIMITS}
        counted["errored"] = sum(log.errored for log in afters)
        return answers.evidence(
            DEGENERATE,
            found,
            unit="share of runs",
            control=control_of(control),
            diagnostics=counted,
            summary=capital(percent(found.estimate))
            + f" of the runs{'' if before is None else ' after training'} are degenerate"
            + (f" ({percent(control.estimate)} before)" if control else "")
            + (f": {named}." if named else "."),
        )

    return answers.answer(DEGENERATE, measured)


def _told(name: str, count: int) -> str:
    one, several = TOLD[name]
    return f"{count:,} {one if count == 1 else several}"


def loop_rows(tallied: Tallied) -> Iterator[LoopRow]:
    """Every run that loops, side by side in the order of the runs."""
    for side, log in sorted(tallied.logs.items(), key=lambda pair: (pair[0] != "before", pair[0])):
        for run in log.loops:
            yield LoopRow(
                trajectory=run.trajectory,
                side=side,
                task=run.task,
                policy=run.policy,
                file=run.file,
                first_step=run.loop.first,
                last_step=run.loop.last,
                turns=run.loop.turns,
                times=run.loop.times,
                actions=tuple(action[:LONGEST_ACTION] for action in run.loop.actions),
            )


def _share(logs: Sequence[Log]) -> Estimate:
    """Of degenerate runs, clustered by task. Raises `MissingInput` for fewer than two tasks."""
    rows = [
        (task, names) for log in logs for task, names in zip(log.tasks, _above(log), strict=True)
    ]
    if not rows:
        raise MissingInput("Every run errored.", "Give logs of runs that ended.")
    return share_by_task((task, float(bool(names)), 1.0) for task, names in rows)


def _above(log: Log) -> Iterator[tuple[str, ...]]:
    """Of each run, the measures above their limit."""
    if not log.tasks:
        return
    for turns, *values in zip(*(log.columns[name] for name in ("turns", *LIMITS)), strict=True):
        measures = {
            name: None if math.isnan(value) else value
            for name, value in zip(LIMITS, values, strict=True)
        }
        yield above(measures, turns)
