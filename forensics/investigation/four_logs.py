"""`investigate --logs`: runs that somebody else's harness made, weighed by the usual rule.

1. Each log has a place: a side (`before`, `after`, `after-1`, ...) and a world, the open one
   unless `/scrubbed` or `/without:CHANNEL` stands behind it (`places`).
2. All logs are streamed into the case folder; what cannot be read is named. Tasks are paired by
   id. A run without an outcome has none, and never 0; a task without one in some log is left
   out, counted and named.
3. The open runs are scanned (`scan_parts`): chains of evidence come from the families of
   shortcuts, or from what the logs themselves mark.
   A scrubbed world that shows a shortcut all the same answers nothing (`leftovers`).
4. The instruments answer from the runs that there are. What needs a model, or a world that can
   be stepped, is `Undefined`, so that the rule calls no gain genuine on logs alone unless the
   reader accepts the tests that were not made.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from forensics.case import Budget, Case
from forensics.errors import UserError
from forensics.instruments import Instrument, chosen_instruments, run_instrument
from forensics.investigation.concluded import measure, order_of, provenance, report, settle
from forensics.investigation.folder import (
    CASE_FILES,
    UNREADABLE,
    Location,
    require_same_case,
    rule_file,
    write_case,
)
from forensics.investigation.places import LogPlace, find_places
from forensics.investigation.scan_parts import write_findings
from forensics.investigation.scan_run import channel_shares
from forensics.investigation.stored_logs import (
    ReadSide,
    no_runs,
    read_side,
    scores_read,
    tell_tasks_apart,
)
from forensics.layers.behaviour import behaviour_of
from forensics.layers.channels import ATTEMPTS, WINS
from forensics.phrases import plural, printable
from forensics.played_elsewhere import PlayedElsewhere
from forensics.progress import Progress, silent
from forensics.protocols import Channel
from forensics.records import Evidence, Provenance, Undefined, Verdict
from forensics.records.files import write_json_lines
from forensics.records.record import SCHEMA_VERSION
from forensics.study import Folder, hold
from forensics.verdict import Rule, read_rule, require_gain_tests, stated_rule
from forensics.version import code_version, today

FORMATS = ("html", "md")
NAMED: Final = 5  # tasks that are left out, by name
OF_THE_SCAN: Final = "behaviour"  # the instrument whose answers come from the scan


def investigate_logs(
    logs: Mapping[str, Location],
    *,
    allow: Sequence[str] = (),
    accept: Sequence[str] = (),
    rule: Rule | Mapping[str, Any] | Location | None = None,
    instruments: Sequence[str | Instrument] | None = None,
    seed: int = 0,
    out: Location,
    resume: bool = False,
    force: bool = False,
    formats: Sequence[str] = FORMATS,
    progress: Progress = silent,
) -> Verdict:
    """Is the gain real? From logs by place: `before`, `before/scrubbed`, `after`,
    `after/scrubbed`, `after-1` (another training seed), `after/without:CHANNEL`.

    Scores are in [0, 1]. Raises `UserError` for an unknown place, a missing or broken log,
    logs that share fewer than two tasks, and a folder that holds something else.
    """
    tools, judge = chosen_instruments(instruments), read_rule(rule)
    require_gain_tests(accept)
    path, how = Path(out).expanduser(), {"resume": resume, "force": force}
    with hold(Folder(path, "case", CASE_FILES, **how, progress=progress)) as folder:
        places = find_places(logs, path, progress)
        chosen = [one for one in instruments or () if isinstance(one, str)]
        stated: dict[str, Any] = {
            "runs": {one.name: one.stated() for one in places},
            "seed": seed,
            **({"instruments": chosen} if chosen else {}),
            **({"rule": told} if (told := rule_file(rule)) else {}),
        }
        require_same_case(folder, stated)
        folder.begin()
        written = {
            "schema_version": SCHEMA_VERSION,
            "status": "running",
            "verdict": None,
            "inputs": stated,
            "provenance": {"code": code_version(), "day": today()},
        }
        write_case(path, written)
        sides, reading = _read(folder, places)
        case = _case(folder, places, sides, reading, seed, allow)
        written["inputs"] = stated | _world_stated(case)
        written["provenance"] = provenance(tools, case, "none") | {
            "logs": {place.name: side.counts() for place, side in sides.items()}
        }
        written |= stated_rule(judge)
        write_case(path, written)
        findings = _measured(case, tools)
        verdict = settle(case, written, findings, accept, judge)
        report(path, formats, progress)
        return verdict


def _read(
    folder: Folder, places: Sequence[LogPlace]
) -> tuple[dict[LogPlace, ReadSide], str | None]:
    """Every log, and how their scores are read. One without a run is refused, and leaves no
    case behind.
    """
    sides: dict[LogPlace, ReadSide] = {}
    for place in places:
        source = place.source
        side = read_side(source, folder.path, None, folder.progress)
        if not side.runs:
            folder.clear()
            raise UserError(f"{place.name}: {no_runs(source, side)}")
        sides[place] = side
    reading = scores_read(folder, [*sides.values()])
    if any(_mixed(side, folder.path) for side in sides.values()):
        tell_tasks_apart(folder.path, [*sides.values()])
    rows = (row for side in sides.values() for row in side.not_read())
    write_json_lines(folder.path / UNREADABLE, rows)
    return sides, reading


def _mixed(side: ReadSide, folder: Path) -> bool:
    """Whether one name stands for tasks of several environments within one log. Two logs may
    call one benchmark differently.
    """
    known: dict[str, str] = {}
    rows = side.rollouts(folder).rows("task", "environment")
    return any(known.setdefault(row["task"], row["environment"]) != row["environment"]
               for row in rows)  # fmt: skip


def _case(
    folder: Folder,
    places: Sequence[LogPlace],
    sides: Mapping[LogPlace, ReadSide],
    reading: str | None,
    seed: int,
    allow: Sequence[str],
) -> Case:
    """The case over the tasks that every log has scored."""
    scored = {place: _scored(side, folder.path) for place, side in sides.items()}
    common = sorted(set.intersection(*scored.values()))
    try:
        _require_pairs(scored, common)
    except UserError:
        folder.clear()
        raise
    notes = [*_left_out(scored, common), *_without_outcome(sides, folder.path)]
    notes += [reading] if reading else []
    for note in notes:
        logging.getLogger("forensics").warning("%s", note)
    names = sorted({name for place in places for name in place.source.without}) or ["scrubbed"]
    channels = [
        Channel(name=name, family="disclosure", attempts=(), description="Scrubbed by a harness.")
        for name in names
    ]
    world = PlayedElsewhere(_world_name(sides, folder.path), {"held-out": common}, channels,
                            notes=notes)  # fmt: skip
    return Case(
        folder=folder.path,
        environment=world,
        stored={(s.side, s.without): s.rollouts(folder.path) for s in sides.values()},
        allowed=tuple(sorted(set(allow))),
        budget=Budget(tasks=len(common)),
        seed=seed,
        progress=folder.progress,
    )


def _scored(side: ReadSide, folder: Path) -> set[str]:
    """The tasks with a run that has an outcome."""
    return {
        row["task"]
        for row in side.rollouts(folder).rows("task", "outcome", "end")
        if row["outcome"] is not None and row["end"] != "errored"
    }


def _require_pairs(scored: Mapping[LogPlace, set[str]], common: Sequence[str]) -> None:
    for place, tasks in scored.items():
        if not tasks:
            raise UserError(
                f"no run of {place.name} ({place.source.given}) has an outcome, so there is no"
                " score to compare; give logs that hold the score of each run"
            )
    if len(common) < 2:
        told = "; ".join(f"{p.name} has {printable(min(tasks))}" for p, tasks in scored.items())
        raise UserError(
            f"the logs share {plural(len(common), 'task')} by id and at least 2 are needed"
            f" ({told}); give runs of the same tasks under the same ids"
        )


def _left_out(scored: Mapping[LogPlace, set[str]], common: Sequence[str]) -> Iterator[str]:
    """Of tasks that not every log has scored: how many, and the first by name."""
    others = sorted(set().union(*scored.values()) - set(common))
    if others:
        names = ", ".join(printable(name, 60) for name in others[:NAMED])
        more = ", ..." if len(others) > NAMED else ""
        count = plural(len(others), "task")
        yield f"{count} left out, since not every log has a score of them: {names}{more}"


def _without_outcome(sides: Mapping[LogPlace, ReadSide], folder: Path) -> Iterator[str]:
    for place, side in sides.items():
        rows = side.rollouts(folder).rows("outcome", "end")
        if missing := sum(row["outcome"] is None or row["end"] == "errored" for row in rows):
            runs = plural(side.runs, "run")
            yield f"{place.name}: left out {missing:,} of {runs}, without an outcome"


def _world_name(sides: Mapping[LogPlace, ReadSide], folder: Path) -> str:
    """The name that all logs give to their environment, `logs` where there are several."""
    names = {
        row["environment"]
        for side in sides.values()
        for row in side.rollouts(folder).rows("environment")
    }
    return names.pop() if len(names) == 1 else "logs"


def _world_stated(case: Case) -> dict[str, Any]:
    world = case.environment
    assert isinstance(world, PlayedElsewhere)
    return {
        "environment": {
            "name": world.name,
            "channels": [asdict(channel) for channel in world.channels],
            **({"notes": list(world.notes)} if world.notes else {}),
        },
    }


def _measured(case: Case, tools: Sequence[Instrument]) -> list[Evidence | Undefined]:
    """The answers of the instruments; what runs did is told by the scan."""
    found = measure(case, [tool for tool in tools if tool.name != OF_THE_SCAN], case.progress)
    scanned = replace(case, environment=None)  # of which nothing says what its steps mean
    runs = sum(1 for side in ("before", *case.afters) for _ in case.rollouts(side).rows("id"))
    told, tallied = write_findings(scanned, None, runs, case.progress)
    by_the_scan = Provenance(
        instrument="scan", seed=case.seed, inputs=case.input_hashes(), code=case.code_version
    )
    if any(tool.name == OF_THE_SCAN for tool in tools):
        behaved = run_instrument(behaviour_of(tallied), scanned)
        found += [answer for answer in behaved if answer.question not in (WINS, ATTEMPTS)]
        found += channel_shares(told, by_the_scan)
    return sorted(found, key=order_of)
