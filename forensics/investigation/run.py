"""`investigate`: check, sample, measure, decide, report; at any moment it may
be killed and resumed.

1. The inputs are checked and hashed, and `case.json` states them before
   anything is measured. What is likely played, and at most, is said (`concluded`).
2. Every instrument (all installed ones, or those that were chosen) answers its
   questions. Rollouts are stored in
   chunks by the case; the answers of an instrument that finished are stored
   too, so a resumed run does nothing twice.
3. `evidence.jsonl` is written in an order that depends on the findings alone,
   then `findings.jsonl` and `ablation.jsonl`.
4. The verdict is a function of the evidence; it goes into `case.json`, and the
   reports are drawn.

`investigate --logs`: runs that somebody else's harness made, weighed by the usual rule.

1. Each log has a place: a side (`before`, `after`, `after-1`, ...) and a world, the open one
   unless `/scrubbed` or `/without:CHANNEL` stands behind it.
2. All logs are streamed into the case folder; what cannot be read is named. Tasks are paired by
   id. A run without an outcome has none, and never 0; a task without one in some log is left
   out, counted and named.
3. The open runs are scanned (`scan_findings`): chains of evidence come from the families of
   shortcuts, or from what the logs themselves mark.
   A scrubbed world that shows a shortcut all the same answers nothing (`concluded`).
4. The instruments answer from the runs that there are. What needs a model, or a world that can
   be stepped, is `Undefined`, so that the rule calls no gain genuine on logs alone unless the
   reader accepts the tests that were not made.

Each name after `without:` is a channel; `scrubbed` is the world without any. Where nobody names
one, the channels are those that the scrubbed logs' own runs say, else one called `scrubbed`.
"""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Final

from forensics.case import Budget, Case
from forensics.errors import UserError
from forensics.instruments import (
    Instrument,
    chosen_instruments,
    run_instrument,
)
from forensics.investigation.concluded import (
    chain_findings,
    measure,
    order_of,
    provenance,
    report,
    seldom_collecting,
    settle,
)
from forensics.investigation.folder import (
    CASE_FILES,
    FINDINGS,
    Location,
    begin_case,
    require_same_case,
    rule_file,
    write_case,
)
from forensics.investigation.inputs import (
    CaseRequest,
    Inputs,
    check_case,
    require_location,
)
from forensics.investigation.scan_findings import write_findings
from forensics.investigation.scan_run import channel_shares
from forensics.investigation.stored_logs import (
    ReadSide,
    Source,
    identity_of_files,
    read_sides,
)
from forensics.layers.behaviour import behaviour_of
from forensics.phrases import plural, printable
from forensics.policies import Given
from forensics.progress import Progress, silent
from forensics.protocols import Channel, Environment
from forensics.readers.log_reader import read_logs
from forensics.records import Evidence, Provenance, Trajectory, Undefined, Verdict
from forensics.records.files import write_json_lines
from forensics.study import Folder, hold
from forensics.verdict import Rule, read_rule, require_gain_tests, standard_rule, stated_rule
from forensics.version import code_version, today
from forensics.world import PlayedElsewhere

CHANNEL: Final = r"[A-Za-z0-9_.][\w.-]*"
PLACE: Final = re.compile(
    rf"(?P<side>before|after(?:-\d+)?)(?:/(?P<all>scrubbed)|/without:(?P<names>{CHANNEL}(?:\+{CHANNEL})*))?"
)
SCRUBBED: Final = "scrubbed"


NAMED: Final = 5  # tasks that are left out, by name
OF_THE_SCAN: Final = "behaviour"  # the instrument whose answers come from the scan
FORMATS = ("html", "md")


def investigate(
    before: Given | None = None,
    after: Given | Sequence[Given] | None = None,
    environment: Environment | str | None = None,
    *,
    logs: Mapping[str, Location] | None = None,
    environment_options: Mapping[str, str] | None = None,
    budget: Budget | None = None,
    training: Location | None = None,
    trained_tasks: Location | None = None,
    recipe: Location | None = None,
    allow: Sequence[str] = (),
    accept: Sequence[str] = (),
    rule: Rule | Mapping[str, Any] | Location | None = None,
    instruments: Sequence[str | Instrument] | None = None,
    seed: int = 0,
    out: Location,
    resume: bool = False,
    force: bool = False,
    device: str = "auto",
    backend: str = "huggingface",
    formats: Sequence[str] = FORMATS,
    progress: Progress = silent,
) -> Verdict:
    """Is the gain from `before` to `after` real? Answers in the case folder `out`.

    The options of `forensics investigate` (docs/verdict.md) say what each argument does. Beside
    names and paths, `before` and `after` (several: training seeds of one recipe) may be policies
    in memory, `environment` a world, `rule` a `Rule`, and `instruments` further `Instrument`
    objects. `logs`: runs of another harness in their place.
    `progress(what, done, of)` hears how far it is. Raises `UserError` for bad input, or
    a folder of something else.
    """
    how: dict[str, Any] = {"resume": resume, "force": force, "progress": progress}
    if logs is not None:
        _require_alone(before, after, environment, environment_options, training, trained_tasks,
                       recipe, None if budget == Budget() else budget)  # fmt: skip
        said: dict[str, Any] = {"allow": allow, "accept": accept, "rule": rule, "seed": seed}
        return investigate_logs(
            logs, **said, instruments=instruments, out=out, formats=formats, **how
        )
    if before is None or after is None:
        raise _missing("before" if before is None else "after")
    tools, judge = chosen_instruments(instruments), read_rule(rule)
    request = CaseRequest(
        before=before, after=after, environment=environment,
        environment_options=environment_options, budget=budget, training=training,
        trained_tasks=trained_tasks, recipe=recipe, allow=allow, accept=accept,
        instruments=[one for one in instruments or () if isinstance(one, str)],
        seed=seed, device=device, backend=backend, rule=rule,
    )  # fmt: skip
    with open_case(request, out, **how) as (folder, inputs):
        case = inputs.case(folder.path, progress, allow)
        verdict = conclude(case, tools, inputs, accept, judge)
        report(folder.path, formats, progress)
        return verdict


def _missing(side: str) -> UserError:
    return UserError(
        f"{side} is missing: give the checkpoints with --before and --after, or logs with --logs"
    )


def _require_alone(*others: Any) -> None:
    """Raises `UserError` for what means nothing beside `--logs`."""
    names = ("before", "after", "env", "env-option", "training", "trained-tasks", "recipe", "tasks")
    if given := [name for name, value in zip(names, others, strict=True) if value]:
        raise UserError(
            f"--{given[0]} means nothing beside --logs, which has the runs already; leave one out"
        )


@contextmanager
def open_case(
    request: CaseRequest, out: Location, *, resume: bool, force: bool, progress: Progress
) -> Iterator[tuple[Folder, Inputs]]:
    """The case folder, held and ready to be written, and the checked inputs: for
    whatever writes a case. Raises `UserError` for bad input, a full disk, or a
    folder that holds something else.
    """
    request.check()
    require_location("out", out)
    path, how = Path(out).expanduser(), {"resume": resume, "force": force}
    with hold(Folder(path, "case", CASE_FILES, **how, progress=progress)) as folder:
        inputs = check_case(request, folder)
        folder.begin()
        yield folder, inputs


def conclude(
    case: Case,
    tools: Sequence[Instrument],
    inputs: Inputs,
    accept: Sequence[str] = (),
    rule: Rule | None = None,
) -> Verdict:
    """Measure a case with these instruments and decide; all but the report is
    written to its folder.
    """
    written = start_case(case, tools, inputs) | stated_rule(rule or standard_rule())
    with seldom_collecting():
        findings = measure(case, tools, case.progress)
    write_json_lines(case.folder / FINDINGS, chain_findings(case))
    return settle(case, written, findings, accept, rule)


def start_case(case: Case, tools: Sequence[Instrument], inputs: Inputs) -> dict[str, Any]:
    """Write what a case is started with, before anything is measured; returns it."""
    return begin_case(case.folder, inputs.stated(), provenance(tools, case, inputs.device))


@dataclass(frozen=True, kw_only=True)
class LogPlace:
    """A log by the name that was given to its place."""

    name: str
    source: Source

    def stated(self) -> dict[str, object]:
        """As `case.json` says it; the path is a hint, the hash identifies."""
        source = self.source
        return {"path": str(source.given), "hash": source.key, "without": list(source.without)}


def find_places(logs: Mapping[str, Location], out: Path, progress: Progress) -> list[LogPlace]:
    """The places in a fixed order, their files hashed. `out`: the case's folder. Raises
    `UserError` with the cure.
    """
    found = {name: _parsed(name) for name in logs}
    paths = {name: _path(name, place) for name, place in logs.items()}
    _require_apart(paths, out)
    for side in ("before", "after-0"):
        if not any(place["side"] == side and not place["world"] for place in found.values()):
            name = side.removesuffix("-0")
            raise UserError(f"there is no log of {name} in the open world; give --logs {name}=PATH")
    everything = _channels(found, paths)
    places: dict[tuple[str, tuple[str, ...]], LogPlace] = {}
    for name, place in found.items():
        without = everything if place["world"] == SCRUBBED else _names(place["world"])
        key = (place["side"], without)
        if key in places:
            raise UserError(
                f"{places[key].name} and {name} are the same world; give one of them, or name"
                " further channels as without:A+B"
            )
        places[key] = LogPlace(
            name=name,
            source=Source(
                side=key[0],
                paths=(paths[name],),
                given=paths[name],
                key=identity_of_files((paths[name],), progress),
                without=without,
            ),
        )
    _require_both_sides(places.values())
    return [places[key] for key in sorted(places, key=lambda key: (key[0] != "before", key))]


def _require_both_sides(places: Iterable[LogPlace]) -> None:
    """A world of one side says nothing about the gain there. Raises `UserError`."""
    sides: dict[tuple[str, ...], dict[str, str]] = {}
    for place in places:
        side = "before" if place.source.side == "before" else "after"
        sides.setdefault(place.source.without, {})[side] = place.name
    for known in sides.values():
        if len(known) == 1:
            ((side, name),) = known.items()
            other = "/".join(["after" if side == "before" else "before", *name.split("/")[1:]])
            raise UserError(
                f"there is a log of {name} and none of {other}, so nothing can be said of the gain"
                f" in that world; give --logs {other}=PATH as well, or leave {name} out"
            )


def _parsed(name: str) -> dict[str, str]:
    if (found := PLACE.fullmatch(name)) is None:
        raise UserError(
            f"'{printable(name)}' is no place of a log; give before, after or after-1 (a further"
            " training seed), alone or followed by /scrubbed or /without:CHANNEL"
        )
    side = "after-0" if found["side"] == "after" else found["side"]
    return {"side": side, "world": found["all"] or found["names"] or ""}


def _path(name: str, given: Location) -> Path:
    if not isinstance(given, str | PathLike) or not str(given):
        raise UserError(f"the log of {name} is {given!r} and must be a file or a folder of logs")
    path = Path(given).expanduser()
    read_logs(path)  # says at once what is missing; nothing is read yet
    return path


def _require_apart(paths: Mapping[str, Path], out: Path) -> None:
    """No log twice, and the case in none of them. Raises `UserError`."""
    seen: dict[Path, str] = {}
    for name, path in paths.items():
        if (twin := seen.setdefault(path.resolve(), name)) != name:
            raise UserError(
                f"{path} was given for {twin} and for {name}; give the runs of each their own log"
            )
        if path.resolve() in (out.resolve(), *out.resolve().parents):
            raise UserError(f"--out {out} lies inside the logs; choose another folder for the case")


def _names(world: str) -> tuple[str, ...]:
    return tuple(sorted(set(filter(None, world.split("+")))))


def _channels(found: Mapping[str, Mapping[str, str]], paths: Mapping[str, Path]) -> tuple[str, ...]:
    """Every channel, sorted: those that are named, those that scrubbed runs say, or `scrubbed`."""
    worlds = [place["world"] for place in found.values()]
    named = {name for world in worlds if world != SCRUBBED for name in _names(world)}
    told = [
        name
        for place, path in paths.items()
        if found[place]["world"] == SCRUBBED
        for name in _told(path)
    ]
    return tuple(sorted({*named, *told})) or (SCRUBBED,)


def _told(path: Path) -> Sequence[str]:
    """The channels that the first run of a log says it was scrubbed of."""
    with suppress(StopIteration):
        run = next(one for one in read_logs(path) if isinstance(one, Trajectory))
        return [name for name in run.without if re.fullmatch(CHANNEL, name)]
    return ()


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
        written = begin_case(path, stated, {"code": code_version(), "day": today()})
        found, reading = read_sides(
            folder, [one.source for one in places], names=[one.name for one in places]
        )
        sides = dict(zip(places, found, strict=True))
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
        found += run_instrument(behaviour_of(tallied), scanned)
        found += channel_shares(told, by_the_scan)
    return sorted(found, key=order_of)
