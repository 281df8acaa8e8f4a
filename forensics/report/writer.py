"""From a case folder to reports: read once, draw each wanted format, write them
atomically. JSON is for machines: the verdict and every finding as one object,
ASCII only.

The runs of a case as files of Harbor's Agent Trajectory Interchange Format (ATIF 1.8): one a
run, below `atif/SIDE-WORLD/`, one after the other.

1. An action is a step of the agent, what came back the results of its observation. A tool's
   message that answers no action is a step without a model call.
2. Drawn tokens and their log-probabilities go into the step's metrics, where the run has them.
3. What the format has no place for (outcome, rewards, kinds of actions, what showed a shortcut,
   how the run ended) stands in `extra`, under `policy_forensics`; `forensics.readers.atif`
   gives the same run again. Where the run was read is left out.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from shutil import rmtree
from typing import Any, Final

from forensics.errors import UserError
from forensics.progress import Progress, silent
from forensics.readers.atif import ATIF_EXTRA
from forensics.records import Evidence, Step, ToolCall, Trajectory, Verdict, content_hash
from forensics.records.files import write_atomically
from forensics.records.record import SCHEMA_VERSION
from forensics.records.verdict import Estimate
from forensics.report import words
from forensics.report.case_logs import Log, find_logs
from forensics.report.charts import canvas, finished
from forensics.report.data import ReportData, load_case
from forensics.report.escape import printable
from forensics.report.numbers import part_of_gain, percent, plain
from forensics.report.profile import is_profile
from forensics.report.source_rows import source_rows
from forensics.report.svg import MARKS, standalone
from forensics.version import code_version

FOLDER: Final = "atif"
VERSION: Final = "ATIF-v1.8"
OF_RUN: Final = (
    *("task", "environment", "seed", "sample", "outcome", "end", "end_reason"),
    *("submission", "patch", "redraws"),
)
ROW: Final = 58
AXIS: Final = 44
CROWDED: Final = 20  # points between two dots below which they share a label
LEAST_REACH: Final = (-10.0, 10.0)  # points
FILES: Final = {
    "text": "report.txt",
    "md": "report.md",
    "json": "report.json",
    "html": "report.html",
    "atif": "atif",  # a folder with a file for each run
}


Pictures = Mapping[str, tuple[str, str]]  # file -> title and drawing, of the two on top


def render(folder: Path, formats: Sequence[str]) -> dict[str, str]:
    """Each wanted format (`text`, `md`, `json`, `html`) as a text. Raises
    `UserError` for a folder that is no case.
    """
    wanted = checked(formats)
    if "atif" in wanted:
        raise UserError("atif is a file for each run, not one text; use `write_reports`")
    data = load_case(Path(folder))
    pictures = _pictures(data) if "html" in wanted else {}
    return {name: _draw(data, name, pictures) for name in wanted}


def write_reports(
    folder: Path, formats: Sequence[str], progress: Progress = silent
) -> tuple[Path, ...]:
    """Write `report.html`, `report.md`, `report.json`, `report.txt`, or the folder `atif` of the
    runs into the case folder; returns their paths.

    The two pictures on top go into `figures/`, where the Markdown report shows
    them.
    """
    wanted, folder = checked(formats), Path(folder)
    data = load_case(folder)
    pictures: Pictures = {}
    if "md" in wanted or "html" in wanted:
        pictures = _pictures(data)
        for name, (_, drawing) in pictures.items():
            write_atomically(folder / "figures" / name, standalone(drawing))
    for name in wanted:
        if name == "atif":
            write_runs(folder, progress)
            continue
        drawn = _draw(data, name, pictures, [(file, pictures[file][0]) for file in pictures])
        write_atomically(folder / FILES[name], drawn)
    return tuple(folder / FILES[name] for name in wanted)


def checked(formats: Sequence[str]) -> tuple[str, ...]:
    """Formats by name, each once. Raises `UserError` for one that does not exist."""
    wanted = (formats,) if isinstance(formats, str) else tuple(dict.fromkeys(formats))
    for name in wanted:
        if name not in FILES:
            raise UserError(
                f"there is no report format '{printable(name)}'; choose from {', '.join(FILES)}"
            )
    return wanted


def _draw(
    data: ReportData, name: str, pictures: Pictures, figures: Sequence[tuple[str, str]] = ()
) -> str:
    """One format; what only that format needs is imported here."""
    if name == "text":
        from forensics.report.terminal_report import render_text

        return render_text(data)
    if name == "md":
        from forensics.report.markdown import render_markdown

        return render_markdown(data, figures=figures)
    if name == "json":
        return render_json(data)
    from forensics.report.html import render_html

    return render_html(data, {file: drawing for file, (_, drawing) in pictures.items()})


def _pictures(data: ReportData) -> Pictures:
    """Pictures of the gain; none of one set of logs, which has none."""
    if is_profile(data.inputs):
        return {}
    drawn = {"gain.svg": ("Parts of the gain", gain_picture(data.verdict))}
    if shown := worlds(data):
        drawn["worlds.svg"] = "The score, before and after training", world_picture(shown)
    return drawn


def render_json(data: ReportData) -> str:
    """`schema_version`, `verdict`, `sources` (each with a fifth of what it is
    measured on, and whether it is `over` or `under` it), `findings`, `inputs`,
    `provenance` and `runs` (counts of each side and world); of a case from logs
    `headline`, `lines` and `looks` (what could be looked for in how many runs).

    Not a number and infinities do not occur: records refuse them.
    """
    report = {
        "schema_version": SCHEMA_VERSION,
        "verdict": data.verdict.model_dump(mode="json"),
        "sources": [
            {**row.source.model_dump(mode="json"), "fifth": row.fifth, "stands": row.stands}
            for row in source_rows(data.verdict)
        ],
        "findings": [
            {"id": finding.id, **finding.model_dump(mode="json")} for finding in data.findings
        ],
        "runs": [
            {"side": side, "without": list(world), **asdict(tally)}
            for (side, world), tally in sorted(data.browser.totals.items())
        ],
        "kinds": dict(data.browser.kinds),
        **({} if data.opening is None else data.opening.stated()),
        "inputs": data.inputs,
        "provenance": data.provenance,
        "replay": words.replay_command(data.inputs, data.verdict),
    }
    return json.dumps(report, indent=2, sort_keys=True, ensure_ascii=True, allow_nan=False) + "\n"


def write_runs(case: Path, progress: Progress) -> Path:
    """Every plain run of a case, refused actions apart; returns the folder, made anew and put in
    its place when it is whole.
    """
    place, logs = case / FOLDER, find_logs(case)
    draft = case / f".{FOLDER}.draft"
    rmtree(draft, ignore_errors=True)
    number, done = sum(1 for log in logs for _ in log.rows("id")), 0
    for log in logs:
        (draft / _world(log)).mkdir(parents=True)
        for run in log.rollouts:
            (draft / _world(log) / f"{_plain(run.id)}-{content_hash(run.id, 8)}.json").write_text(
                json.dumps(document_of(run), indent=1, ensure_ascii=True, allow_nan=False) + "\n",
                "ascii",
            )
            done += 1
            progress("writing the runs", done, number)
    rmtree(place, ignore_errors=True)
    draft.rename(place)
    return place


def document_of(run: Trajectory) -> dict[str, Any]:
    """One run as an ATIF document."""
    told = {name: getattr(run, name) for name in OF_RUN}
    steps = [*_steps(run)]
    drawn = run.sampled_tokens
    return {
        "schema_version": VERSION,
        "session_id": run.id,
        "agent": {
            "name": "policy-forensics",
            "version": code_version(),
            "model_name": run.policy,
        },
        "steps": [{"step_id": at + 1, **step} for at, step in enumerate(steps)],
        "final_metrics": {
            "total_steps": len(steps),
            **({} if drawn is None else {"total_completion_tokens": drawn}),
        },
        "extra": {ATIF_EXTRA: told | {"without": list(run.without), "rewards": run.rewards}},
    }


def _steps(run: Trajectory) -> Iterator[dict[str, Any]]:
    """Each message, what an action brought back inside its step."""
    open_step: dict[str, Any] | None = None
    for step in run.steps:
        if step.role == "tool" and open_step is not None:
            results = open_step.setdefault("observation", {"results": []})["results"]
            results.append({"content": step.text})
            if step.channels:
                shown = _own(open_step).setdefault("shown", {})
                shown[str(len(results) - 1)] = list(step.channels)
            continue
        if open_step is not None:
            yield open_step
        open_step = _said(step)
        if step.role != "assistant":
            yield open_step
            open_step = None
    if open_step is not None:
        yield open_step


def _said(step: Step) -> dict[str, Any]:
    if step.role == "tool":
        told: dict[str, Any] = {"source": "agent", "message": step.text, "llm_call_count": 0}
    else:
        told = {"source": "agent" if step.role == "assistant" else step.role, "message": step.text}
    calls = [_call(call, at) for at, call in enumerate(step.tool_calls)]
    if calls:
        told["tool_calls"] = calls
        _own(told)["arguments"] = [call.arguments for call in step.tool_calls]
    for name in ("kinds", "channels"):
        if values := getattr(step, name):
            _own(told)[name] = list(values)
    if step.role == "assistant" and (metrics := _metrics(step)):
        told["metrics"] = metrics
    return told


def _own(step: dict[str, Any]) -> dict[str, Any]:
    """What is told of a step beyond the format."""
    told: dict[str, Any] = step.setdefault("extra", {}).setdefault(ATIF_EXTRA, {})
    return told


def _call(call: ToolCall, at: int) -> dict[str, Any]:
    """The arguments as an object, which the format asks for; as they were written in `extra`."""
    try:
        value = json.loads(call.arguments)
    except ValueError:
        value = None
    arguments = value if isinstance(value, dict) else {"arguments": call.arguments}
    return {"tool_call_id": f"call-{at}", "function_name": call.name, "arguments": arguments}


def _metrics(step: Step) -> dict[str, Any]:
    if step.token_ids is None or step.sampled is None:
        return {}
    drawn = [token for token, ours in zip(step.token_ids, step.sampled, strict=True) if ours]
    told: dict[str, Any] = {"completion_tokens": len(drawn), "completion_token_ids": drawn}
    return told | ({} if step.logprobs is None else {"logprobs": list(step.logprobs)})


def _world(log: Log) -> str:
    world = ("without", *log.without) if log.without else ("open",)
    return _plain("-".join((log.side, *world)))


def _plain(name: str) -> str:
    """A name that any file system takes."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:80].strip("-") or "run"


@dataclass(frozen=True, kw_only=True)
class WorldScores:
    """The scores before and after training in one world."""

    name: str
    before: Evidence | Estimate
    after: Evidence | Estimate


def worlds(data: ReportData) -> tuple[WorldScores, ...]:
    """The open and the scrubbed world, as far as they were measured on both sides."""
    verdict = data.verdict
    before, after, before_scrubbed, after_scrubbed = (
        data.answer(f"score.{name}")
        for name in ("before", "after", "before_scrubbed", "after_scrubbed")
    )
    pairs = (
        ("Open world", before or verdict.score_before, after or verdict.score_after),
        ("Shortcuts scrubbed", before_scrubbed, after_scrubbed),
    )
    return tuple(
        WorldScores(name=name, before=first, after=last)
        for name, first, last in pairs
        if first is not None and last is not None
    )


def world_picture(shown: Sequence[WorldScores]) -> str:
    """Scores before and after training, a row for each world, on one axis in percent."""
    told = "; ".join(
        f"{w.name}: {percent(w.before.estimate)} before, {percent(w.after.estimate)} after"
        for w in shown
    )
    with canvas(AXIS + 3 * ROW) as (drawing, axes):
        reach = [0.0, 100.0]
        for row, world in enumerate(shown):
            reach += dumbbell(axes, row, world)
        axes.set_xlim(min(reach) - 4, max(reach) + 4)
        axes.set_ylim(len(shown) - 0.45, -0.62)
        return _finished(
            drawing,
            axes,
            "score, %",
            prefix="worlds",
            title="The score in each world, before and after",
            description=told,
        )


def _finished(drawing: Any, axes: Any, label: str, **described: str) -> str:
    axes.set_yticks([])
    axes.set_xlabel(label)
    axes.grid(axis="x")
    return finished(drawing, **described)


def dumbbell(axes: Any, row: int, world: WorldScores) -> list[float]:
    """One world; returns where its intervals reach, for the axis."""
    before, after = 100 * world.before.estimate, 100 * world.after.estimate
    colour, reach = MARKS["gain"], []
    axes.text(
        0, row - 0.34, world.name, color=MARKS["ink"], fontsize=12, fontweight="bold", va="center"
    )
    axes.plot([before, after], [row, row], color=colour, linewidth=3, alpha=0.35)
    for side in (world.before, world.after):
        known = side if isinstance(side, Estimate) else side.interval
        ends = (known.low, known.high) if known else (side.estimate,) * 2
        reach += [100 * end for end in ends]
        axes.plot(reach[-2:], [row, row], color=colour, linewidth=9, alpha=0.22)
    ring = {"markeredgecolor": colour, "markeredgewidth": 2, "markersize": 9}
    axes.plot([before], [row], "o", color=MARKS["paper"], **ring)
    axes.plot([after], [row], "o", color=colour, markersize=10)
    labels = [(before, f"before {plain(before, 1)}"), (after, f"after {plain(after, 1)}")]
    if abs(after - before) < CROWDED:
        labels = [((before + after) / 2, " → ".join(text for _, text in labels))]
    room = 9 if len(labels) > 1 else 18
    for place, text in labels:
        inside = min(max(place, room - 4), 104 - room)
        axes.text(
            inside, row + 0.32, text, ha="center", va="center", fontsize=11, color=MARKS["muted"]
        )
    return reach


def gain_picture(verdict: Verdict) -> str:
    """The gain and the parts it is made of, with intervals: the phantom part
    starts where the genuine one ends.
    """
    start = verdict.genuine_gain.estimate if verdict.genuine_gain else 0.0
    parts = (
        ("Gain", verdict.gain, 0.0, "gain", ""),
        ("Genuine part", verdict.genuine_gain, 0.0, "genuine", ""),
        ("Phantom part", verdict.phantom_gain, start, "phantom", "////"),
    )
    words = "; ".join(f"{name}: {part_of_gain(estimate)}" for name, estimate, *_ in parts)
    with canvas(AXIS + ROW * len(parts)) as (drawing, axes):
        reach = [0.0]  # of the axis
        for row, (name, estimate, begin, role, hatch) in enumerate(parts):
            reach += _part(axes, row, estimate, 100 * begin, role, hatch)
            _name_row(axes, row, name, estimate)
        if verdict.genuine_gain is not None and verdict.phantom_gain is not None:
            thin = {"color": MARKS["muted"], "linewidth": 1, "linestyle": (0, (2, 2))}
            axes.plot([100 * start] * 2, [1.12, 2.12], zorder=0, **thin)  # one ends, one starts
        axes.axvline(0, color=MARKS["muted"], linewidth=1)
        if max(map(abs, reach)) < max(LEAST_REACH):  # a trifle should look like one
            reach += LEAST_REACH
        spare = 0.04 * (max(reach) - min(reach))
        axes.set_xlim(min(reach) - spare, max(reach) + spare)
        axes.set_ylim(len(parts) - 0.35, -0.62)
        return _finished(
            drawing,
            axes,
            "change of the score, points",
            prefix="gain",
            title="The gain and its parts",
            description=words,
        )


def _part(
    axes: Any, row: int, estimate: Estimate | None, start: float, role: str, hatch: str
) -> list[float]:
    """One bar with its whisker; returns where it reaches, for the axis."""
    if estimate is None:
        return []
    end, low, high = (
        start + 100 * value for value in (estimate.estimate, estimate.low, estimate.high)
    )
    axes.barh(
        row + 0.12,
        end - start,
        0.4,
        left=start,
        facecolor=MARKS[role],
        edgecolor=MARKS["paper"],
        hatch=hatch,
        linewidth=0,
    )
    axes.plot([low, high], [row + 0.12] * 2, color=MARKS["ink"], linewidth=1.6)
    for place in (low, high):
        axes.plot([place] * 2, [row + 0.03, row + 0.21], color=MARKS["ink"], linewidth=1.6)
    return [start, end, low, high]


def _name_row(axes: Any, row: int, name: str, estimate: Estimate | None) -> None:
    """The name on the left, the number on the right, above the bar."""
    where = {
        "transform": axes.get_yaxis_transform(),
        "va": "center",
        "bbox": {"facecolor": MARKS["paper"], "edgecolor": "none", "pad": 1.5},
    }
    axes.text(0, row - 0.3, name, fontsize=12, fontweight="bold", **where)
    said = {"fontsize": 11, "color": MARKS["muted"], "ha": "right"}
    axes.text(1, row - 0.3, part_of_gain(estimate), **said, **where)
