"""`forensics grade`: a log under two checkpoints, graded, compared
and split.

1. The log is opened and the two checkpoints are hashed; a folder that holds
   another grading is refused.
2. Both models go over the log once; what they say is kept in the folder, so
   that a run that was killed goes on.
3. Grades, the table with its baselines and the KL split are made from that.
4. Where they are asked for, linear probes read the activations of some of the
   runs (`probes.linear`).

The policy and its reference as a grading reads them: checkpoints here, servers
that score instead, or a LoRA adapter against its base.

An adapter (a directory that peft wrote, safetensors; needs the extra `lora`) and
its base are one copy of the weights: it is switched off to read the reference.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar, Final

from forensics.errors import MissingInput, UserError
from forensics.investigation import choose_environment, stated_sampling
from forensics.policies import (
    SAVED_ADAPTER,
    Agreement,
    PolicyRef,
    ServerConfig,
    inspect_checkpoint,
    load_adapter,
    read_environment_hint,
    require,
    require_directory,
    require_loadable,
    resolve_device,
    stated_backend,
    stored_scores,
)
from forensics.progress import Progress
from forensics.protocols import Channel, SamplingSettings
from forensics.records import content_hash
from forensics.rollout_logs import OpenedLog, Rollouts, open_rollouts, own_tables
from forensics.study import Folder, Result
from forensics.subjects import BEFORE, CheckpointSubject, Role, ServedPolicy
from probes.grades.comparison import (
    Grades,
    compare_scores,
    contrast,
    failure_attribution,
    grades_by,
    read_truth,
    select,
)
from probes.grades.grade_files import (
    UNNAMED,
    Grading,
    grading_page,
    probe_tables,
    score_table,
    summary_of,
    write_tables,
)
from probes.grades.step_grades import GradedRun, TopConfidence, grade, untruncated
from probes.kl.kl_split import KlTally, plan_kl, split_of
from probes.linear.instrument import (
    Decoders,
    LinearConfig,
    Probed,
    probe_runs,
    read_decoders,
    usual_sites,
)
from probes.linear.probe_data import RunActivations
from probes.linear.probe_evaluation import ProbeConfig

NO_RUNS: Final = "The log holds no runs of the reference."
NO_CHANNEL: Final = (
    "No shortcut is declared for this world, so the probes were asked about success alone."
)


@dataclass(frozen=True, kw_only=True)
class Opened:
    """What a grading works on, checked. `missing`: what is known to be missing from it."""

    sides: tuple[PolicyRef, PolicyRef]
    identities: tuple[str, str]
    log: OpenedLog
    truth: Mapping[str, int] | None
    channels: Sequence[Channel]
    decoders: Decoders | None
    missing: tuple[str, ...]
    settings: SamplingSettings


@dataclass(frozen=True, kw_only=True)
class GradeStudy:
    """What `forensics grade` is asked, and how it is carried out. `server`,
    `reference_server`: who scores instead of the checkpoint here. `probes`: what is
    asked of activations; `diff`: a folder of `forensics diff` whose decoders they
    are held against.
    """

    logs: Path
    policy: Path
    reference: Path
    environment: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    truth: Path | None = None
    n: int | None = None
    select: bool = False
    beta: float = 1.0
    seed: int = 0
    device: str = "auto"
    backend: str = "huggingface"
    server: ServerConfig | None = None
    reference_server: ServerConfig | None = None
    probes: LinearConfig | None = None
    diff: Path | None = None
    name: ClassVar = "grades"
    files: ClassVar = (
        "grades.parquet",
        "scores.parquet",
        "kl_split.json",
        "step_rewards.jsonl",
        "scores",
        "reference-runs",
    )

    def check(self, folder: Folder) -> Opened:
        """Raises `UserError` for what does not fit together. A log that is wanted
        in part, or a foreign one, is copied into the folder.
        """
        sides, identities = open_sides(
            self.policy,
            self.reference,
            (self.server, self.reference_server),
            self.device,
            self.backend,
        )
        log = open_rollouts(
            self.logs.expanduser(),
            policy=identities[0],
            without=self.without,
            copies=folder.copies,
        )
        truth = None if self.truth is None else read_truth(self.truth)
        missing: list[str] = []
        channels = channels_of(self, missing)
        # what a case says its runs were drawn from; the model's own where nothing says it
        stated = stated_sampling(self.logs, ())
        return Opened(
            sides=sides,
            identities=identities,
            log=log,
            truth=truth,
            channels=channels,
            decoders=open_probes(self, sides, identities, channels, missing),
            missing=tuple(missing),
            settings=untruncated(SamplingSettings(**(stated.values if stated else {}))),
        )

    def inputs(self, ready: Opened) -> dict[str, Any]:
        probes = self.probes and {
            "tasks": self.probes.tasks,
            "sites": list(self.probes.sites),
            "diff": ready.decoders
            and content_hash([ready.decoders.site, ready.decoders.directions.tolist()]),
        }
        return {
            "log": ready.log.rollouts.key,
            "runs": ready.log.runs,
            "policy": ready.identities[0],
            "reference": ready.identities[1],
            "without": sorted(self.without),
            "channels": [channel.name for channel in ready.channels],
            "n": self.n,
            "select": self.select,
            "beta": self.beta,
            "seed": self.seed,
            "truth": None if ready.truth is None else content_hash(ready.truth),
            "probes": probes,
            **({} if ready.settings == SamplingSettings() else {"settings": vars(ready.settings)}),
            **stated_backend(self.backend),
        }

    def run(self, ready: Opened, folder: Folder) -> Grading:
        log, channels, missing = ready.log, ready.channels, [*ready.missing]
        scores = folder.path / "scores"
        read = _read(log, ready.sides, ready.settings, scores, self.select, folder.progress)
        runs = read.runs
        missing += [] if log.unreadable is None else [log.unreadable]
        split = measured(lambda: split_of(read.tally, channels), missing, "The KL split")
        shortcuts = {
            channel.name: measured(
                partial(contrast, runs, channel.attempts),
                missing,
                f"Whether the grade rewards {channel.name}",
            )
            for channel in channels
        }
        attributed = selected = None
        if (truth := ready.truth) is not None:
            attributed = measured(
                lambda: failure_attribution(runs, truth), missing, "Failure attribution"
            )
        if self.select:
            outcomes, tasks = [run.outcome for run in runs], [run.task for run in runs]
            selected = measured(
                lambda: select(read.grades, outcomes, tasks, self.seed),
                missing,
                "Another aggregation",
            )
        return Grading(
            log=log,
            runs=tuple(runs),
            policy=ready.identities[0],
            reference=ready.identities[1],
            beta=self.beta,
            attempts={channel.name: channel.attempts for channel in channels},
            comparison=compare_scores(runs, n=self.n, seed=self.seed),
            split=split,
            shortcuts={name: one for name, one in shortcuts.items() if one is not None},
            attribution=tuple(attributed or ()),
            selected=selected,
            missing=tuple(missing),
            inputs=self.inputs(ready),
            agreement=read.agreement if log.own else None,
            probes=probe_log(self, ready, folder) if self.probes is not None else (),
        )

    def write(self, found: Grading, folder: Folder) -> Result:
        write_tables(folder, found)
        summary = summary_of(found)
        return Result(
            summary=summary,
            tables=(score_table(found.comparison), *probe_tables(found.probes)),
            sentences=tuple(summary["sentences"]),
            page=grading_page(found),
        )


def channels_of(request: GradeStudy, missing: list[str]) -> Sequence[Channel]:
    """Shortcuts that the world of the runs declares; none where nothing says
    which world that is.
    """
    named = next(
        (path for path in (request.policy, request.reference) if read_environment_hint(path)),
        request.policy,
    )
    if request.environment is None and read_environment_hint(named) is None:
        missing.append(
            "No environment is named, so no step is known to try a shortcut; name it with --env."
        )
        return ()
    world = choose_environment(named, request.environment, request.options)[0]
    return tuple((world.without(*request.without) if request.without else world).channels)


def open_probes(
    request: GradeStudy,
    sides: tuple[PolicyRef, PolicyRef],
    identities: tuple[str, str],
    channels: Sequence[Channel],
    missing: list[str],
) -> Decoders | None:
    """Looks at everything that can be refused of the probes; the decoders of
    the diff. `missing` is told where no shortcut is known.

    Raises `UserError`: a server, an unknown site, another diff.
    """
    if request.probes is None:
        return None
    if sides[0].identity is None:
        raise UserError(
            "a server shows no activations; leave out --linear-probes, or leave out --server"
        )
    if not channels:
        missing.append(NO_CHANNEL)
    decoders = None if request.diff is None else read_decoders(request.diff, identities[0])
    require_activations(
        sides[0].load(), (*request.probes.sites, *([decoders.site] if decoders else ()))
    )
    return decoders


def probe_log(request: GradeStudy, ready: Opened, folder: Folder) -> tuple[Probed, ...]:
    """An answer to each question to the probes. Raises `UserError` for an unknown
    site or a policy that shows no activations.
    """
    assert request.probes is not None
    log, decoders = ready.log, ready.decoders
    place, before = request.logs.expanduser(), None
    if own_tables(place):  # a foreign log names no policy by its hash
        theirs = open_rollouts(
            place,
            policy=ready.identities[1],
            without=request.without,
            copies=folder.path / "reference-runs",
        )
        before = theirs.rollouts if theirs.own else None
    ours = ready.sides[0].load()
    sites = request.probes.sites or usual_sites(ours)
    tasks = set(sorted({run.task for run in log.rollouts})[: request.probes.tasks])

    def read(policy: Any, runs: Rollouts, at: Sequence[str], name: str) -> RunActivations:
        require_activations(policy, at)
        chosen = (run for run in runs if run.task in tasks)
        return RunActivations.of(
            policy,
            chosen,
            at,
            lambda done, of: folder.progress(f"activations of the {name}", done, of),
        )

    def read_before() -> RunActivations:
        if before is None:
            raise MissingInput(
                NO_RUNS, "Give a case folder, or a log with runs of both checkpoints."
            )
        return read(ready.sides[1].load(), before, sites, "reference")

    own = (*sites, *({decoders.site} - set(sites) if decoders else ()))
    return tuple(
        probe_runs(
            lambda: read(ours, log.rollouts, own, "policy"),
            read_before,
            ready.channels,
            ProbeConfig(shuffles=request.probes.shuffles, seed=request.seed),
            sites=sites,
            decoders=decoders,
        )
    )


def require_activations(policy: Any, sites: Sequence[str] = ()) -> None:
    """Raises `UserError` where a policy shows none, or does not have one of the sites."""
    from forensics.policies import locate

    require(policy, "activations", task="--linear-probes")
    for site in sites if "weights" in policy.capabilities else ():
        locate(policy.model, site)


@dataclass(frozen=True, kw_only=True)
class GradedLog:
    """What one pass over the log gives: grades, the KL counted, how far sampler
    and scorer are apart, and, where they are asked for, grades under every
    aggregation.
    """

    tally: KlTally
    runs: list[GradedRun] = field(default_factory=list)
    agreement: Agreement = field(default_factory=Agreement)
    grades: list[Grades] = field(default_factory=list)


def _read(
    log: OpenedLog,
    sides: tuple[PolicyRef, PolicyRef],
    settings: SamplingSettings,
    folder: Path,
    selecting: bool,
    progress: Progress,
) -> GradedLog:
    """One pass over the log."""
    plan = plan_kl(log.rollouts, sides[0].load())
    reading = GradedLog(tally=KlTally(plan=plan))
    scores = stored_scores(
        folder,
        log.rollouts,
        *sides,
        settings=settings,
        readouts=(TopConfidence(), plan.readout),
        progress=lambda done, of: progress("scoring runs", done, of),
    )
    for scored in scores:
        reading.tally.add(scored)
        reading.runs.append(grade(scored))
        reading.agreement.add(scored)
        if selecting:
            reading.grades.append(grades_by(scored))
    return reading


def measured(measure: Callable[[], Any], missing: list[str], what: str) -> Any:
    """The measurement, or `None` with the reason."""
    try:
        return measure()
    except MissingInput as error:
        missing.append(f"{what} cannot be told: {error.reason[0].lower()}{error.reason[1:]}")
        return None


def open_sides(
    policy: Path,
    reference: Path,
    servers: tuple[ServerConfig | None, ServerConfig | None],
    device: str,
    backend: str,
) -> tuple[tuple[PolicyRef, PolicyRef], tuple[str, str]]:
    """The policy and its reference, and their identities. `servers`: who scores
    instead of the checkpoints here. Raises `UserError` for what cannot be loaded
    or reached.
    """
    how = {"backend": backend, "device": resolve_device(device)}
    if (policy / SAVED_ADAPTER[0]).is_file() and servers[0] is None:
        if servers[1] is not None:
            raise UserError(
                "an adapter is read here with its base; leave out --reference-server, or give"
                " --server too"
            )
        return _adapted(policy, reference, **how)
    ours, theirs = (
        _side(role, path, served, how)
        for role, path, served in zip((Role(0), BEFORE), (policy, reference), servers, strict=True)
    )
    served, other = servers
    if served and other and ours[0].load().identity == theirs[0].load().identity:
        raise UserError(
            f"{served.url} serves one model as the policy and as the reference; name two"
            " with --server-model and --reference-server-model, or give another address"
        )
    return (ours[0], theirs[0]), (ours[1], theirs[1])


def _side(
    role: Role, path: Path, served: ServerConfig | None, how: Mapping[str, str]
) -> tuple[PolicyRef, str]:
    """A checkpoint and its name in records."""
    require_directory(path.expanduser())
    if served is not None:
        subject = ServedPolicy(role=role, url=served.url, model=served.model, checkpoint=path)
        policy: Any = subject.open()
        weights = any(path.expanduser().glob("model*.safetensors"))
        name = inspect_checkpoint(path).identity if weights else f"{UNNAMED}{policy.served_as}"
        return PolicyRef(identity=None, load=lambda: policy), name
    here = CheckpointSubject(role=role, stated=inspect_checkpoint(path), **how)
    require_loadable(path)
    # one copy in memory, however many files the log has
    return PolicyRef(identity=here.identity, load=cache(here.open)), here.identity


def _adapted(
    adapter: Path, base: Path, *, backend: str, device: str
) -> tuple[tuple[PolicyRef, PolicyRef], tuple[str, str]]:
    """A LoRA adapter against its base, with one copy of the weights."""
    if backend != "huggingface":
        raise UserError("an adapter is read by the backend huggingface; leave out --backend")
    require_loadable(base)
    policy, reference = load_adapter(adapter, base.expanduser(), device=device)
    ours = PolicyRef(identity=policy.identity, load=lambda: policy)
    theirs = PolicyRef(identity=reference.identity, load=lambda: reference)
    return (ours, theirs), (policy.identity, reference.identity)
