"""`forensics cliffs` and `forensics resample`: the runs of a log and the policy
that goes on with them, opened together.

1. Runs are chosen out of the log; the log is streamed twice, first without its
   steps, so only the chosen runs are ever held.
2. World, policy and sampler are opened, and the runs scored under the policy.
3. `CliffRun`: everything is checked before anything is sampled and against what
   the folder holds; then run, and written.
"""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar

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
from forensics.records import Trajectory, content_hash, read_rows, read_trajectories
from forensics.rollout_logs import own_tables
from forensics.study import Folder, Result
from resampling.cliffs.cliff_search import CliffConfig
from resampling.samplers.local_sampler import LocalSampler, traces
from resampling.samplers.server_sampler import checkpoint_rendering, open_server
from resampling.study.cliff_files import cliffs_page, summary_of, write_tables
from resampling.study.cliff_settings import Choice, Sought, Source
from resampling.study.cliff_study import CliffStudy, RunsToContinue, StudyConfig, study_cliffs
from resampling.trace_rollouts import SUCCESS, Sampler

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
