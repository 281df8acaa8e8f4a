"""`forensics cliffs` and `forensics resample`: the runs of a log and the policy
that goes on with them, opened together.

1. Runs are chosen out of the log; the log is streamed twice, first without its
   steps, so only the chosen runs are ever held.
2. World, policy and sampler are opened, and the runs scored under the policy.
3. `CliffRun`: everything is checked before anything is sampled and against what
   the folder holds; then run, and written.

What a study of cliffs leaves in its folder: rows for machines and a page for
people.

The page shows each trace with the potential under its tokens, cliffs marked,
alternatives on click.
"""

import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa

import forensics.phrases as phrases
from forensics.budget import Budget
from forensics.cli import Sampling
from forensics.errors import UserError
from forensics.investigation import choose_environment
from forensics.policies import (
    inspect_checkpoint,
    load_policy,
    require_directory,
    require_loadable,
    resolve_device,
    stated_backend,
)
from forensics.protocols import SamplingSettings
from forensics.records import (
    SCHEMA_VERSION,
    Figure,
    Fold,
    Page,
    Section,
    Series,
    Table,
    TextSpan,
    TextSpans,
    Trajectory,
    content_hash,
    estimate_cell,
    read_rows,
    read_trajectories,
    step_text,
    write_json_lines,
)
from forensics.report import percent, plain
from forensics.rollout_logs import own_tables
from forensics.study import Folder, Result
from resampling.cliffs.cliff_search import CliffConfig
from resampling.cliffs.cliffs import TestedToken, TraceReport
from resampling.samplers.local_sampler import LocalSampler, traces
from resampling.samplers.server_sampler import checkpoint_rendering, open_server
from resampling.study.cliff_settings import Choice, Sought, Source
from resampling.study.cliff_study import (
    Alternative,
    CliffStudy,
    RunsToContinue,
    StudyConfig,
    cliff_row,
    study_cliffs,
)
from resampling.study.delete_keep import DeleteKeep
from resampling.trace_rollouts import SUCCESS, Sampler, Trace

PER_RUN = 1000  # rollouts a run that search and confirmation may take unless told otherwise
Head = Mapping[str, Any]  # a run without its steps, and the `path` where it lies


def read_runs(place: Path, choice: Choice, policy: str | None = None) -> list[Trajectory]:
    """The chosen runs of a Parquet file, of a folder of them, or of a case
    folder.

    In a log of several policies those of `policy` (a checkpoint's identity) are
    taken where there are any. A case's runs with actions refused are found by
    their id only. Raises `UserError` where nothing is left, and for an id that
    is not in the log or begins several.
    """
    if not place.exists():
        raise UserError(
            f"{place} does not exist; give a Parquet file of trajectories, or a folder of them"
        )
    files = own_tables(place, altered=bool(choice.only))
    if not files:
        raise UserError(f"{place} has no Parquet file of trajectories; give a log that has")
    columns = ["id", "task", "policy", "without", "outcome"]
    heads = [{**row, "path": path} for path in files for row in read_rows(path, columns)]
    if choice.only:
        chosen = [_named(heads, name, place) for name in dict.fromkeys(choice.only)]
    else:
        turns: Counter[str] = Counter()  # first one of each task, then a second one, and so on
        ordered = []
        for number, head in enumerate(_matching(heads, choice, policy, place)):
            ordered.append((turns[head["task"]], number, head))
            turns[head["task"]] += 1
        chosen = [head for _, _, head in sorted(ordered)[: choice.most]]
    runs: dict[str, Trajectory] = {}
    for path in dict.fromkeys(head["path"] for head in chosen):
        wanted = {head["id"] for head in chosen if head["path"] == path}
        runs |= {run.id: run for run in read_trajectories(path) if run.id in wanted}
    return [runs[head["id"]] for head in chosen]


def _matching(heads: Sequence[Head], choice: Choice, policy: str | None, place: Path) -> list[Head]:
    world, which = sorted(choice.without or ()), choice.runs or "lost"
    here = [head for head in heads if sorted(head["without"] or ()) == world]
    if not here:
        where = f"without {', '.join(world)}" if world else "in the open world"
        raise UserError(
            f"{place} has no run {where}; give a log that `forensics investigate` recorded"
        )
    own = [head for head in here if head["policy"] == policy] or here
    picked = [
        head
        for head in own
        if head["outcome"] is not None
        and (which == "all" or (head["outcome"] >= SUCCESS) == (which == "won"))
    ]
    if not picked:
        raise UserError(
            f"none of the {len(own)} runs in {place} was {which}; choose others with --runs"
        )
    return picked


def _named(heads: Sequence[Head], name: str, place: Path) -> Head:
    same = [head for head in heads if head["id"] == name]
    matching = same or [head for head in heads if head["id"].startswith(name)]
    ids = list(dict.fromkeys(head["id"] for head in matching))
    if len(ids) == 1:
        return matching[0]
    several = "no run"
    if ids:
        several = f"{len(ids)} runs, for example {ids[0]} and {ids[1]},"
    raise UserError(
        f"{place} has {several} with an id that begins with {name}; give the whole id of one"
    )


@dataclass(frozen=True, kw_only=True)
class RunsRequest:
    """A log, and who goes on with its runs, where and how."""

    logs: Path
    source: Source
    settings: SamplingSettings
    seed: int
    device: str
    backend: str

    def open(self, choice: Choice) -> RunsToContinue:
        """Read the runs, load the policy, score the runs under it. Raises
        `UserError` for what does not fit together.
        """
        settings, seed, source = self.settings, self.seed, self.source
        checkpoint, server = source.policy.expanduser(), source.served
        Budget(settings=settings)  # refuses settings that mean nothing
        if not 0 <= seed < 2**63:
            raise UserError(f"seed is {seed} and must be a whole number from 0 to 2^63 - 1")
        require_directory(checkpoint)
        world = choose_environment(checkpoint, source.env, source.options)[0]
        device, identity = resolve_device(self.device), inspect_checkpoint(checkpoint).identity
        require_loadable(checkpoint)
        runs = read_runs(self.logs.expanduser(), choice, identity)
        scrubbed = {tuple(sorted(run.without)) for run in runs}
        if len(scrubbed) > 1:
            raise UserError(
                "these runs are of different worlds, some scrubbed and some not; choose runs of one"
                " world"
            )
        if without := scrubbed.pop():
            world = world.without(*without)
        policy = load_policy(checkpoint, backend=self.backend, device=device, identity=identity)
        require_vocabulary(runs, policy)
        scored = tuple(traces(policy, runs, settings))
        sampler: Sampler = LocalSampler(policy, world, runs, settings, seed)
        if server is not None:
            told = checkpoint_rendering(checkpoint)
            sampler = open_server(server, world, runs, settings, seed, **told)
        return RunsToContinue(
            runs=tuple(runs),
            traces=scored,
            policy=policy,
            environment=world,
            settings=settings,
            sampler=sampler,
        )


def require_vocabulary(runs: Sequence[Trajectory], policy: Any) -> None:
    """An id that the model has no row for would fail inside it."""
    size = policy.model.config.get_text_config().vocab_size
    for run in runs:
        largest = max((max(step.token_ids) for step in run.steps if step.token_ids), default=0)
        if largest >= size:
            raise UserError(
                f"trajectory {run.id} holds the token id {largest} and the checkpoint has {size}"
                " tokens; continue it with a checkpoint of the tokenizer that it was recorded with"
            )


def parse_places(texts: Sequence[str]) -> list[tuple[str, int]]:
    """`TRAJECTORY:TOKEN` texts; the token is its position among the sampled tokens, from 0."""
    places = []
    for text in texts:
        name, colon, token = text.rpartition(":")
        if not colon or not name or not token.isdigit():
            raise UserError(f"--at {text} is not of the form TRAJECTORY:TOKEN, such as 3f2a91c0:14")
        places.append((name, int(token)))
    return places


@dataclass(frozen=True, kw_only=True)
class CliffRun:
    """What `forensics cliffs` is asked, and how it is carried out."""

    request: RunsRequest
    choice: Choice
    sought: Sought
    name: ClassVar = "cliffs"
    files: ClassVar = (
        "cliffs.jsonl",
        "potentials.parquet",
        "delete_keep.jsonl",
        "pairs.jsonl",
        "rollouts",
    )

    def cliffs(self, runs: int) -> CliffConfig:
        rollouts = self.sought.budget or PER_RUN * runs
        return CliffConfig(delta=self.sought.delta, fdr=self.sought.fdr, rollouts=rollouts)

    def check(self, folder: Folder) -> RunsToContinue:
        self.cliffs(1)  # a rate or a drop that has no meaning is refused before any loading
        which = self.choice.runs or ("won" if self.sought.rises else "lost")
        return self.request.open(replace(self.choice, runs=which))

    def inputs(self, ready: RunsToContinue) -> dict[str, Any]:
        return {
            "runs": [run.id for run in ready.runs],
            "log": content_hash([content_hash(run) for run in ready.runs]),
            "policy": ready.policy.identity,
            "environment": ready.environment.name,
            "options": dict(ready.environment.options),
            "without": list(ready.environment.scrubbed),
            "settings": ready.settings.content(),
            "seed": self.request.seed,
            **vars(self.sought),
            **stated_backend(self.request.backend),
        }

    def run(self, ready: RunsToContinue, folder: Folder) -> tuple[RunsToContinue, CliffStudy]:
        config = StudyConfig(
            cliffs=self.cliffs(len(ready.runs)),
            rises=self.sought.rises,
            delete_keep=self.sought.delete_keep,
        )
        return ready, study_cliffs(ready, folder.path, config, self.request.seed, folder.progress)

    def write(self, found: tuple[RunsToContinue, CliffStudy], folder: Folder) -> Result:
        opened, study = found
        write_tables(folder, opened, study)
        summary = summary_of(opened, study, self.inputs(opened))
        cliffs = study.report.cliffs
        command = (
            replay_command(self.request, f"{cliffs[0].trace}:{cliffs[0].token}") if cliffs else ""
        )
        return Result(
            summary=summary,
            sentences=tuple(summary["sentences"]),
            page=cliffs_page(opened, study, command),
        )


def replay_command(request: RunsRequest, place: str) -> str:
    """The command with which a reader does a cliff again."""
    source, words = request.source, ["forensics", "resample", str(request.logs), "--at", place]
    words += ["--policy", str(source.policy)]
    if source.env:
        words += ["--env", source.env]
    for key, value in source.options.items():
        words += ["--env-option", f"{key}={value}"]
    for option in fields(Sampling):
        if (value := getattr(request.settings, option.name)) != option.default:
            words += [f"--{option.name.replace('_', '-')}", str(value)]
    return shlex.join([*words, "--seed", str(request.seed + 1)])


# -- tables and page ---------------------------------------------------------------------

MOST_TRACES: Final = 60
Detail = tuple[str | Table, ...]

POTENTIALS = pa.schema(
    [
        ("trajectory", pa.string()),
        ("kept", pa.int32()),
        ("potential", pa.float64()),
        ("low", pa.float64()),
        ("high", pa.float64()),
    ]
)


def write_tables(folder: Folder, opened: RunsToContinue, study: CliffStudy) -> None:
    """Every file but `cliffs.json` and the page."""
    cliffs = (
        cliff_row(cliff, opened.token_text(cliff.token_id), delete_keep)
        for cliff, delete_keep in study.with_delete_keep()
    )
    write_json_lines(folder.path / "cliffs.jsonl", cliffs)
    potentials = (
        {
            "trajectory": trace.trace,
            "kept": kept,
            "potential": _known(trace.potentials[kept]),
            "low": _known(trace.low[kept]),
            "high": _known(trace.high[kept]),
        }
        for trace in study.report.traces
        for kept in range(len(trace.potentials))
    )
    folder.table("potentials.parquet", potentials, POTENTIALS)
    write_json_lines(folder.path / "delete_keep.jsonl", (row.row() for row in study.causation))
    pairs = (pair.model_dump(mode="json") for pair in study.pairs)
    write_json_lines(folder.path / "pairs.jsonl", pairs)


def sentences(opened: RunsToContinue, study: CliffStudy) -> list[str]:
    """What was found, with the figure that proves it and its control."""
    report, rises = study.report, study.provenance.config["rises"]
    tested, confirmed = report.tested, len(report.cliffs)
    searched = phrases.plural(sum(trace.searched for trace in report.traces), "token")
    texts = [
        f"Of {searched} that could decide at all, {tested} {_be(tested, 'was', 'were')} suspected"
        f" and tested on fresh samples; {confirmed} {_be(confirmed, 'is', 'are')} confirmed to"
        f" {'raise' if rises else 'lower'} the chance of success."
    ]
    kinds = opened.shortcut_kinds()
    if kinds and report.cliffs:
        inside = sum(
            bool(kinds & {*opened.run(c.trace).steps[c.step].kinds}) for c in report.cliffs
        )
        texts.append(
            f"{inside} of them {_be(inside, 'stands', 'stand')} in steps that take a declared"
            " shortcut."
        )
    means = {row.what: row for row in study.restored if row.kind == "all"}
    if "cliff" in means:
        tokens = {"cliff": "these tokens", "control": "other tokens of the same potential"}
        parts = [
            f"sampling afresh from before {tokens[what]} instead of after them changes success by"
            f" {phrases.points(row.estimate)} points ({phrases.point_range(row.low, row.high)})"
            for what, row in means.items()
        ]
        tasks = phrases.plural(means["cliff"].tasks, "task")
        texts.append(f"{phrases.capital('; '.join(parts))}, over {tasks}.")
    if report.exhausted:
        texts.append("The budget ended before the search was done, so cliffs may be missing.")
    return texts


def _be(count: int, one: str, several: str) -> str:
    return one if count == 1 else several


def summary_of(opened: RunsToContinue, study: CliffStudy, inputs: dict[str, Any]) -> dict[str, Any]:
    """What `cliffs.json` says."""
    report = study.report
    return {
        "schema_version": SCHEMA_VERSION,
        "inputs": inputs,
        "provenance": study.provenance.model_dump(mode="json"),
        "runs": len(report.traces),
        "cliffs": len(report.cliffs),
        "tested": report.tested,
        "rollouts": report.rollouts,
        "tokens": report.tokens,
        "missing": report.missing,
        "budget_exhausted": report.exhausted,
        # where the budget ended the search nobody knows what it would have suspected
        "expected_unseen": (
            None if report.exhausted else sum(trace.missed for trace in report.traces)
        ),
        "restored": [vars(row) for row in study.restored],
        "pairs": len(study.pairs),
        "sentences": sentences(opened, study),
    }


def cliffs_page(opened: RunsToContinue, study: CliffStudy, command: str) -> Page:
    """The page. `command`: how a reader does the first cliff again.

    Traces with cliffs come first; beyond `MOST_TRACES` the page says how many
    it leaves out.
    """
    report, config = study.report, study.provenance.config
    details: dict[str, dict[int, Detail]] = {}
    rows = zip(study.with_delete_keep(), study.alternatives, strict=True)
    for (cliff, delete_keep), alternatives in rows:
        told = cliff_detail(cliff, alternatives, delete_keep, opened.token_text)
        details.setdefault(cliff.trace, {})[cliff.token] = told
    traces = {trace.id: trace for trace in opened.traces}
    ordered = sorted(report.traces, key=lambda one: -len(details.get(one.trace, ())))
    folds = [
        trace_fold(
            opened.run(one.trace),
            traces[one.trace],
            one,
            details.get(one.trace, {}),
            opened.token_text,
            opened.shortcut_kinds(),
            f"trace-{i}",
        )
        for i, one in enumerate(ordered[:MOST_TRACES])
    ]
    left_out = len(ordered) - len(folds)
    more = [f"{left_out:,} more traces are in the tables beside this page."] if left_out else []
    lost = [f"{report.missing:,} rollouts missing"] if report.missing else []
    what = phrases.plural(len(report.cliffs), "rise" if config["rises"] else "cliff")
    return Page(
        eyebrow="Which tokens decide",
        title=f"{what} in {phrases.plural(len(report.traces), 'run')}",
        sentences=tuple(sentences(opened, study)),
        facts=(
            f"{report.rollouts:,} rollouts to search and confirm",
            f"{report.tokens:,} tokens",
            *lost,
            f"drops of {config['delta']} sought, of {config['delta0']} not reported",
            f"false discovery rate at most {config['fdr']}",
        ),
        sections=(
            Section(
                title="Traces",
                hint="The bar under a token is the chance of success after it; a full bar is"
                " certain success. Framed in red: a confirmed cliff. Open it for the alternatives."
                " Sampled off: it was not the likeliest token; uncertain: it was, among others;"
                " deterministic: it was nearly the only one.",
                blocks=(*folds, *more),
                empty="No trace was looked at.",
            ),
        ),
        command=command,
    )


def trace_fold(
    run: Trajectory,
    trace: Trace,
    found: TraceReport,
    details: Mapping[int, Detail],
    token_text: Callable[[int], str],
    shortcuts: frozenset[str],
    anchor: str,
) -> Fold:
    """A run, token by token where the policy wrote. `details`: of cliffs, by
    position among the sampled tokens; `shortcuts`: kinds of steps that take a
    declared shortcut.
    """
    by_step: dict[int, list[int]] = {}
    for position, number in enumerate(trace.steps):
        by_step.setdefault(number, []).append(position)
    steps: list[TextSpans] = []
    for number, step in enumerate(run.steps):
        marks = ("shortcut",) if shortcuts & {*step.kinds} else ()
        if number not in by_step:
            steps.append(step_text(number, step, marks=marks))
            continue
        text, spans = "", []
        for position in by_step[number]:
            start, potential = len(text), _known(found.potentials[position + 1])
            text += token_text(trace.tokens[position])
            if potential is not None or position in details:
                told = "" if potential is None else f", success after it {percent(potential)}"
                span = TextSpan(
                    start=start,
                    end=len(text),
                    label=f"token {position}{told}",
                    value=potential,
                    detail=details.get(position, ()),
                )
                spans.append(span)
        written = step.model_copy(update={"text": text, "tool_calls": ()})
        shown = step_text(number, written, longest=len(text), marks=marks, spans=tuple(spans))
        steps.append(shown)
    outcome = "no outcome" if run.outcome is None else f"outcome {plain(run.outcome)}"
    return Fold(
        title=run.task,
        facts=(f"trajectory {run.id}", outcome, phrases.plural(len(details), "cliff")),
        blocks=(potential_figure(found), *steps),
        open=True,
        anchor=anchor,
    )


def potential_figure(found: TraceReport) -> Figure:
    """The potential along the sampled tokens, with its interval."""
    potential, low, high = (
        tuple(map(_known, values)) for values in (found.potentials, found.low, found.high)
    )
    places = tuple(float(kept) for kept in range(len(potential)))
    return Figure(
        title="Chance of success after each token",
        form="lines",
        x_label="sampled tokens kept",
        y_label="success",
        series=(Series(name="potential", x=places, y=potential, low=low, high=high),),
    )


def _known(value: float) -> float | None:
    """NaN as what it is: not known."""
    return None if np.isnan(value) else float(value)


def cliff_detail(
    cliff: TestedToken,
    alternatives: Sequence[Alternative],
    delete_keep: DeleteKeep | None,
    token_text: Callable[[int], str],
) -> Detail:
    """What stands behind a confirmed cliff: its effect, its control, and what
    else could have been drawn, the most probable first.
    """
    assert cliff.drop is not None and cliff.contrast is not None
    drop = cliff.drop
    told = [
        f"Token {cliff.token}{f' ({cliff.kind})' if cliff.kind else ''}: drawn with probability"
        f" {percent(cliff.probability)}, it moves the chance of success by"
        f" {plain(-100 * drop.estimate, 1, plus=True)} points (drop {plain(100 * drop.low, 1)} to"
        f" {plain(100 * drop.high, 1)}). Against it, what else the policy draws here changes"
        f" success by {plain(100 * cliff.contrast.estimate, 1, plus=True)} points. e-value"
        f" {plain(cliff.e_value)}."
    ]
    if delete_keep is not None and delete_keep.cliff.restored is not None:
        control = None if delete_keep.control is None else delete_keep.control.restored
        beside = (
            ""
            if control is None
            else "; at another position of the same potential"
            f" {plain(100 * control, 1, plus=True)} points"
        )
        told.append(
            "Sampled afresh from before it instead of after it:"
            f" {plain(100 * delete_keep.cliff.restored, 1, plus=True)} points{beside}."
        )
    return (*told, alternatives_table(alternatives, cliff.token_id, token_text))


def alternatives_table(
    alternatives: Sequence[Alternative], drawn: int, token_text: Callable[[int], str]
) -> Table:
    """Tokens that could have stood at a cliff, the most probable first. `drawn`:
    the id of the trace's own.
    """
    rows = []
    for one in sorted(alternatives, key=lambda one: (-one.probability, one.token_id)):
        text = token_text(one.token_id)
        text = text if text.strip() else repr(text)  # one that leaves nothing to see
        own = " (drawn)" if one.token_id == drawn else ""
        rows.append((f"{text}{own}", one.probability, estimate_cell(one.potential)))
    return Table(
        title="What else could have been drawn",
        columns=("token", "probability", "success after it"),
        rows=tuple(rows),
        units={"probability": "share", "success after it": "share"},
    )
