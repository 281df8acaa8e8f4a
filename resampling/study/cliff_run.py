"""`forensics cliffs`: a log and the policy that goes on with its
runs opened together, everything checked before anything is sampled and against
what the folder holds; then run, and written.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, get_args

from forensics.budget import Budget
from forensics.cli.options import Sampling
from forensics.errors import UserError
from forensics.investigation.inputs import choose_environment, resolve_device
from forensics.policies import load_policy, stated_backend
from forensics.policies.checkpoints import inspect_checkpoint, require_directory
from forensics.policies.compatibility import require_loadable
from forensics.policies.completions import ServerConfig
from forensics.protocols import SamplingSettings
from forensics.records import Trajectory
from forensics.records.record import content_hash
from forensics.study import Folder, Result
from resampling.cliffs.cliffs import CliffConfig, TestedToken, cliff_config
from resampling.samplers.completion_server import checkpoint_rendering, open_server
from resampling.samplers.local_sampler import LocalSampler, traces
from resampling.study.cliff_files import cliffs_page, summary_of, write_tables
from resampling.study.cliff_study import CliffStudy, RunsToContinue, StudyConfig, study_cliffs
from resampling.study.recorded_runs import Choice, Which, read_runs

PER_RUN = 1000  # rollouts a run that search and confirmation may take unless told otherwise


def open_runs(
    log: Path,
    choice: Choice,
    checkpoint: Path,
    environment: str | None,
    options: Mapping[str, str],
    settings: SamplingSettings,
    seed: int,
    device: str,
    server: ServerConfig | None = None,
    backend: str = "huggingface",
) -> RunsToContinue:
    """Read the runs, load the policy, score the runs under it. Raises
    `UserError` for what does not fit together.

    With a `server` that one samples, and the local checkpoint only scores.
    """
    Budget(settings=settings)  # refuses settings that mean nothing
    if not 0 <= seed < 2**63:
        raise UserError(f"seed is {seed} and must be a whole number from 0 to 2^63 - 1")
    require_directory(checkpoint.expanduser())
    world = choose_environment(checkpoint, environment, options)[0]
    place = resolve_device(device)
    identity = inspect_checkpoint(checkpoint).identity
    require_loadable(checkpoint)
    runs = read_runs(log.expanduser(), choice, identity)
    scrubbed = {tuple(sorted(run.without)) for run in runs}
    if len(scrubbed) > 1:
        raise UserError(
            "these runs are of different worlds, some scrubbed and some not; choose runs of one"
            " world"
        )
    if without := scrubbed.pop():
        world = world.without(*without)
    policy = load_policy(checkpoint.expanduser(), backend=backend, device=place, identity=identity)
    _require_vocabulary(runs, policy)
    return RunsToContinue(
        runs=tuple(runs),
        traces=tuple(traces(policy, runs, settings)),
        policy=policy,
        environment=world,
        settings=settings,
        sampler=(
            LocalSampler(policy, world, runs, settings, seed)
            if server is None
            else open_server(
                server, world, runs, settings, seed, **checkpoint_rendering(checkpoint)
            )
        ),
    )


def _require_vocabulary(runs: Sequence[Trajectory], policy: Any) -> None:
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
    """What `forensics cliffs` is asked, and how it is carried out. `runs`: `None`
    takes lost ones, or won ones with `rises`.
    """

    logs: Path
    policy: Path
    environment: str | None
    options: Mapping[str, str]
    runs: str | None
    most: int
    only: tuple[str, ...]
    without: tuple[str, ...]
    rises: bool
    delta: float
    fdr: float
    budget: int | None
    delete_keep: int
    seed: int
    settings: SamplingSettings
    device: str
    backend: str = "huggingface"
    server: ServerConfig | None = None
    name: ClassVar = "cliffs"
    files: ClassVar = (
        "cliffs.jsonl",
        "potentials.parquet",
        "delete_keep.jsonl",
        "pairs.jsonl",
        "rollouts",
    )

    def choice(self) -> Choice:
        """The runs to look at. Raises `UserError` for a word that is none of lost, won, all."""
        which = self.runs or ("won" if self.rises else "lost")
        if which not in get_args(Which):
            raise UserError(f"--runs {which} is none of {', '.join(get_args(Which))}")
        return Choice(runs=which, most=self.most, only=self.only, without=self.without)  # type: ignore[arg-type]

    def cliff_config(self, runs: int) -> CliffConfig:
        return cliff_config(delta=self.delta, fdr=self.fdr, rollouts=self.budget or PER_RUN * runs)

    def check(self, folder: Folder) -> RunsToContinue:
        choice = self.choice()
        self.cliff_config(1)  # a rate or a drop that has no meaning is refused before any loading
        return open_runs(
            self.logs,
            choice,
            self.policy,
            self.environment,
            self.options,
            self.settings,
            self.seed,
            self.device,
            self.server,
            self.backend,
        )

    def inputs(self, ready: RunsToContinue) -> dict[str, Any]:
        return {
            "runs": [run.id for run in ready.runs],
            "log": content_hash([content_hash(run) for run in ready.runs]),
            "policy": ready.policy.identity,
            "environment": ready.environment.name,
            "options": dict(ready.environment.options),
            "without": list(ready.environment.scrubbed),
            "settings": ready.settings.content(),
            "seed": self.seed,
            "rises": self.rises,
            "delta": self.delta,
            "fdr": self.fdr,
            "budget": self.budget,
            "delete_keep": self.delete_keep,
            **stated_backend(self.backend),
        }

    def run(self, ready: RunsToContinue, folder: Folder) -> tuple[RunsToContinue, CliffStudy]:
        config = StudyConfig(
            cliffs=self.cliff_config(len(ready.runs)),
            rises=self.rises,
            delete_keep=self.delete_keep,
        )
        return ready, study_cliffs(ready, folder.path, config, self.seed, folder.progress)

    def write(self, found: tuple[RunsToContinue, CliffStudy], folder: Folder) -> Result:
        opened, study = found
        write_tables(folder, opened, study)
        summary = summary_of(opened, study, self.inputs(opened))
        return Result(
            summary=summary,
            sentences=tuple(summary["sentences"]),
            page=cliffs_page(opened, study, _replay(self, study.report.cliffs)),
        )


def _replay(request: CliffRun, cliffs: Sequence[TestedToken]) -> str:
    """The command with which a reader does the first cliff again."""
    if not cliffs:
        return ""
    options = [
        part
        for key, value in request.options.items()
        for part in ("--env-option", f"{key}={value}")
    ]
    world = ["--env", request.environment] if request.environment else []
    settings = [
        part
        for option in fields(Sampling)
        if (value := getattr(request.settings, option.name)) != option.default
        for part in (f"--{option.name.replace('_', '-')}", str(value))
    ]
    words = [
        "forensics",
        "resample",
        str(request.logs),
        "--at",
        f"{cliffs[0].trace}:{cliffs[0].token}",
        "--policy",
        str(request.policy),
        *world,
        *options,
        *settings,
        "--seed",
        str(request.seed + 1),
    ]
    return shlex.join(words)
