"""What a report says in its own words, the same in every format: the label, the
facts, what is missing, the replay.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from forensics.layers.channels import WINS
from forensics.phrases import capital, joined, plural, printable
from forensics.records import ALTERED_PROMPT, Table, Trajectory, Undefined, Verdict
from forensics.records.verdict import Estimate
from forensics.report.case_logs import Tally, won
from forensics.report.data import ReportData
from forensics.report.numbers import (
    NOT_MEASURED,
    POINTS,
    SHARE,
    Unit,
    level_of,
    name_of,
    percent,
)
from forensics.report.profile import is_profile
from forensics.report.report_words import WORDING
from forensics.report.shown_runs import Pick
from forensics.report.source_rows import source_table
from forensics.subjects import Role
from forensics.verdict import is_current

LONGEST_NOTE: Final = 200
PARTS: Final = (  # field of the verdict, name, question that would answer it
    ("gain", "Gain", "gain.total"),
    ("genuine_gain", "Genuine part", "gain.genuine"),
    ("phantom_gain", "Phantom part", "gain.phantom"),
)
CHECKPOINT: Final = ("path", "weights", "tokenizer", "dtype", "parameters", "training_step")


def part_rows(data: ReportData, most: int | None = None) -> Iterator[tuple[str, str, str]]:
    """The parts of the gain, and the share of the wins through each of the channels (at most so
    many), where every run could be checked.
    """
    verdict, opening = data.verdict, data.opening
    for field, name, _ in PARTS:
        part = getattr(verdict, field)
        if part is None:
            yield name, NOT_MEASURED, ""
        else:
            yield name, *_cells(part, POINTS)
    if opening is not None and not opening.tells(WINS):
        return
    for channel, share in list(verdict.share_of_wins_via_channel.items())[:most]:
        yield f"Wins through {channel}", *_cells(share, SHARE)


def _cells(found: Estimate, unit: Unit) -> tuple[str, str]:
    return unit.value(found.estimate), f"{unit.ends(found)} ({level_of(found)})"


def title_of(data: ReportData) -> str:
    """What the page asks."""
    return "What did these runs do?" if is_profile(data.inputs) else "Is the gain real?"


def heading(data: ReportData) -> tuple[str, str]:
    """What stands on top: the answer of a case from logs, else the label and its sentence."""
    if data.opening is None:
        return headline(data.verdict)
    below = (
        WORDING["sentences"]["one_set"] if is_profile(data.inputs) else headline(data.verdict)[1]
    )
    return data.opening.headline, below


def headline(verdict: Verdict) -> tuple[str, str]:
    """The label as a heading and the verdict's sentence without the words that
    the heading already says.
    """
    rest = verdict.sentence.removeprefix(f"Verdict: {verdict.label.upper()}").lstrip(".,").strip()
    return verdict.label.capitalize(), capital(rest) or verdict.sentence


def reason(verdict: Verdict) -> str:
    """Why it is undetermined: the code and what it means; `""` for the other labels."""
    code = verdict.reason_code
    return "" if code is None else f"{code}: {WORDING['reasons'][code]}"


def next_measurement(verdict: Verdict) -> str:
    """The first gap's measurement and its cost, `""` where nothing is open."""
    if not verdict.gaps:
        return ""
    first = verdict.gaps[0]
    return f"{first.measurement} Cost: {first.cost}."


def of_what(data: ReportData) -> str:
    """What was compared, on which day, and what was left out of it."""
    logs, left = data.inputs.get("logs"), data.provenance.get("left_out")
    known = {side: path for side, path, *_ in checkpoints(data)}
    if isinstance(logs, Mapping):
        known = {side_name(data, side): str(log["path"]) for side, log in logs.items()}
    told = [
        f"{capital(side) if at == 0 else side[0].lower() + side[1:]}: {path}"
        for at, (side, path) in enumerate(known.items())
    ]
    line = "; ".join([*told, *filter(None, [data.provenance.get("day")])])
    return ". ".join(filter(None, [line, *left_out_told(left or ())]))


def left_out_told(names: Sequence[str]) -> Iterator[str]:
    """What a case left out, and how to have it."""
    if names:
        yield (
            f"Left out: {joined([*map(printable, names)])}; the same command with `--resume` and"
            " without `--quick` or `--instruments` measures them on the same runs."
        )


def altered_prompts(data: ReportData) -> Iterator[str]:
    """Of each source that carries too much one altered prompt, and the answers before and after
    training.
    """
    for row in source_table(data.verdict).rows:
        if row.source.source is None or row.stands != "over":
            continue
        for found in data.evidence:
            of_test = found.question.startswith(f"{row.source.family}.")
            if not of_test or found.about != row.source.source:
                continue
            for one in found.artifacts:
                if isinstance(one, Table) and one.title == ALTERED_PROMPT:
                    told = "; ".join(f"{name}: {text}" for name, text in one.rows if name != "task")
                    yield f"{capital(row.source.told)}: {told}"


def logs_alone(data: ReportData) -> str:
    """What a verdict from logs does not have, `""` for a re-run."""
    if data.verdict.basis == "re-run":
        return ""
    return WORDING["sentences"]["one_log" if is_profile(data.inputs) else "logs_alone"]


def facts(data: ReportData) -> Iterator[str]:
    """What the verdict rests on, in a few words each."""
    budget, world = data.inputs.get("budget"), data.inputs.get("environment")
    yield "Runs in both worlds" if data.verdict.basis == "re-run" else "From logs alone"
    if isinstance(world, Mapping) and world.get("name"):
        yield f"World: {world['name']}"
        notes = world.get("notes")
        yield from (
            printable(str(note), LONGEST_NOTE)
            for note in (notes if isinstance(notes, list) else ())
        )
    logs = data.provenance.get("logs")
    sides = logs.values() if isinstance(logs, Mapping) else ()
    counts = (side.get("unreadable") for side in sides if isinstance(side, Mapping))
    if total := sum(count for count in counts if isinstance(count, int)):
        yield f"Unreadable: {total:,} of the files or rows (`unreadable.jsonl`)"
    if is_profile(data.inputs):
        return
    scrubbed = max((world for _, world in data.browser.totals), key=len, default=())
    yield f"Scrubbed: {joined(scrubbed, 'nothing')}"
    if isinstance(budget, Mapping) and isinstance(budget.get("tasks"), int):
        tasks, samples = data.provenance.get("tasks"), budget.get("samples")
        each = f", {plural(samples, 'run')} each" if isinstance(samples, int) else ""
        yield plural(tasks if isinstance(tasks, int) else budget["tasks"], "task") + each
    if data.seeds and (data.verdict.gain is not None or data.verdict.basis == "re-run"):
        yield plural(data.seeds, "training seed") + (
            ": training noise not measured" if data.seeds == 1 else ""
        )


def not_measured(data: ReportData) -> Iterator[tuple[str, str]]:
    """The parts of the verdict that are missing: which one, and why."""
    for field, name, question in PARTS:
        if getattr(data.verdict, field) is None:
            found = next((one for one in data.findings if one.question == question), None)
            if found is None:
                yield name, f"No instrument answered `{question}`."
            elif isinstance(found, Undefined):
                yield name, found.reason
            else:
                yield name, "Its interval was not measured."


@dataclass(frozen=True, kw_only=True)
class Missing:
    """Questions that have no answer for one and the same reason."""

    questions: tuple[str, ...]
    reason: str
    cure: str


def missing(data: ReportData) -> tuple[Missing, ...]:
    """Every question without an answer, those with one reason together."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for gap in data.undefined:
        groups.setdefault((gap.layer, gap.reason, gap.cure), []).append(name_of(gap))
    return tuple(
        Missing(reason=reason, cure=cure, questions=tuple(names))
        for (_, reason, cure), names in groups.items()
    )


def kind_of(data: ReportData, pick: Pick) -> str:
    """What a run is an example of; without chains of evidence nobody looked for a shortcut."""
    if pick.kind == "win" and not data.chains.read:
        return "Win, not checked for shortcuts"
    if pick.kind == "win" and data.opening is not None:  # not all of it may have been looked at
        return "Win without a finding"
    return WORDING["kinds"][pick.kind].format(channel=pick.channel)


def kinds_of(data: ReportData) -> Iterator[tuple[str, int]]:
    """How many runs after training are of each kind; without chains a win is only a win."""
    words = WORDING["counted"] | _wins_left(data)
    counts = data.browser.kinds
    yield from ((word, counts[kind]) for kind, word in words.items() if counts.get(kind))


def _wins_left(data: ReportData) -> dict[str, str]:
    """Wins without a finding, where not all of them may have been checked."""
    if not data.chains.read:
        return {"win": "wins, not checked for shortcuts"}
    return {} if data.opening is None else {"win": "wins without a finding"}


def outcome_of(run: Trajectory) -> str:
    """How a run came out, and how it ended."""
    scored = {True: "won", False: "lost", None: "no score"}[won(run.outcome)]
    score = f" with {run.outcome:g}" if run.outcome not in (0.0, 1.0, None) else ""
    reason = f": {run.end_reason}" if run.end_reason else ""
    return f"{scored}{score}, {run.end}{reason}"


def side_name(data: ReportData, side: str) -> str:
    """`before` and `after-0` in words; seeds are numbered where there are several. One set
    of logs is after nothing.
    """
    if is_profile(data.inputs) and data.seeds <= 1:
        return "These logs"
    role = Role.named(side)
    seed = f", seed {role.seed}" if role.seed is not None and data.seeds > 1 else ""
    return f"{role.phase.capitalize()} training{seed}"


def totals(data: ReportData) -> Iterator[tuple[str, str, Tally]]:
    """Side, world and counts of each log: the open world first, in it the
    policy before training.
    """
    order = sorted(
        data.browser.totals, key=lambda place: (place[1], place[0] != "before", place[0])
    )
    for side, world in order:
        name = f"Without {joined(world)}" if world else "Open world"
        yield side_name(data, side), name, data.browser.totals[side, world]


def wins_of(tally: Tally) -> str:
    """`238 of 240 runs won (99.2 %)`; the share is of the runs with a score."""
    left = tally.runs - tally.scored
    share = f" ({percent(tally.wins / tally.scored)})" if tally.scored else ""
    return f"{tally.wins:,} of {plural(tally.scored, 'scored run')} won{share}" + (
        f", {plural(left, 'run')} without a score" if left else ""
    )


PENALTIES_OFF: Final = {
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}


def replay_command(inputs: Mapping[str, Any], verdict: Verdict | None = None) -> str | None:
    """The command that makes the case again, `None` where the inputs are not
    those of one command.
    """
    terms: list[tuple[str, Any]] = []
    if verdict is not None:
        terms += [("allow", kind) for kind in verdict.allowed]
        terms += [("accept", family) for family in verdict.accepted]
        terms += [] if is_current(verdict) else [("rule", inputs.get("rule", "FILE"))]
    try:
        known = {"logs": _scanned, "runs": _of_logs}
        of = next((made for name, made in known.items() if name in inputs), _investigated)
        command, *lines = of(inputs)
    except (KeyError, TypeError, AttributeError, ValueError):
        return None
    told = (
        " ".join(
            f"--{name.replace('_', '-')} {shlex.quote(str(value))}"
            for name, value in line
            if value is not None
        )
        for line in (*lines, terms, [("out", "replay")])
    )
    return " \\\n  ".join([command, *filter(None, told)])


def _investigated(inputs: Mapping[str, Any]) -> Iterator[Any]:
    """The command and its options, line by line."""
    world, budget = inputs["environment"], dict(inputs["budget"])
    settings = budget.pop("settings")
    options = {**(world.get("given") or {}), **(world.get("options") or {})}
    yield "forensics investigate"
    yield [("before", inputs["before"]["path"])]
    yield from ([("after", after["path"])] for after in inputs["after"])
    yield [
        ("env", world["name"]),
        *(("env-option", f"{key}={value}") for key, value in options.items()),
    ]
    files = ("training", "trained_tasks", "recipe")
    yield [(name, inputs[name]["path"]) for name in files if name in inputs]
    yield [("instruments", ",".join(inputs.get("instruments", ())) or None)]
    yield [("seed", inputs["seed"]), *budget.items()]
    yield [(key, value) for key, value in settings.items() if value != PENALTIES_OFF.get(key)]
    yield [("backend", inputs.get("backend"))]


def _scanned(inputs: Mapping[str, Any]) -> Iterator[Any]:
    paths = {side: str(log["path"]) for side, log in inputs["logs"].items()}
    (after, *_) = (path for side, path in paths.items() if side != "before")
    yield f"forensics scan {shlex.quote(after)}"
    yield [("before", paths.get("before"))]
    yield [("reader", inputs["reader"])]
    yield [("seed", inputs["seed"])]


def _of_logs(inputs: Mapping[str, Any]) -> Iterator[Any]:
    """Of a case of logs by place (`forensics investigate --logs`)."""
    yield "forensics investigate"
    yield from ([("logs", f"{place}={log['path']}")] for place, log in inputs["runs"].items())
    yield [("instruments", ",".join(inputs.get("instruments", ())) or None)]
    yield [("seed", inputs["seed"])]


def checkpoints(data: ReportData) -> Iterator[tuple[str, ...]]:
    """Each checkpoint's side, path, hashes, type, parameters and training step,
    where the inputs state them.
    """
    before, after = data.inputs.get("before"), data.inputs.get("after")
    sides = {"before": before} | {
        f"after-{i}": one for i, one in enumerate(after if isinstance(after, list) else ())
    }
    for side, checkpoint in sides.items():
        if isinstance(checkpoint, Mapping):
            named = {"path": checkpoint.get("policy"), **checkpoint}
            fields = (named.get(name, "not stated") for name in CHECKPOINT)
            told = (f"{field:,}" if isinstance(field, int) else field for field in fields)
            yield side_name(data, side), *("not stated" if t is None else str(t) for t in told)


def other_inputs(data: ReportData) -> Iterator[tuple[str, str]]:
    """The inputs beside the checkpoints."""
    listed = ("before", "after") if any(checkpoints(data)) else ()
    return flat({name: value for name, value in data.inputs.items() if name not in listed})


def flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Nested values as rows of a dotted name and a text."""
    listed = isinstance(value, list | tuple)
    if listed and any(isinstance(inner, Mapping) for inner in value):
        value = dict(enumerate(value))
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from flat(inner, f"{name}.{key}" if name else str(key))
    elif listed:
        yield name, ", ".join(map(str, value)) or "none"
    else:
        yield name, "none" if value is None else str(value)
