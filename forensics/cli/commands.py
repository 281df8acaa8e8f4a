"""The commands of the frame: investigate, scan, report, gate, check-server, schema. Light at
import.

Defaults are written out here, because the types that own them are not loaded
for `--help`; a test holds them against each other.

What `investigate` compares, by the options that were given: checkpoints, servers of them, an
agent on served models (`--harness`), or logs (`--logs`). What means nothing together is one
sentence.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args

import typer

from forensics.cli.options import (
    Accept,
    AfterServer,
    Allow,
    BeforeServer,
    Compared,
    Device,
    EnvOptions,
    Force,
    Instruments,
    Json,
    Out,
    PlaceboRecipe,
    Quick,
    RecordedTraining,
    Resume,
    Rule,
    Run,
    RunsWorld,
    Seed,
    TrainedTasks,
    parse_logs,
    parse_options,
    study_command,
)
from forensics.errors import UserError

if TYPE_CHECKING:
    from forensics.policies import Given
    from forensics.protocols import Environment

ADDRESS = "The server's address, up to and with /v1; #NAME behind it where it serves several."
Kept = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Keep what it draws there, to go on where it was stopped."),
]
PROMPTS = "Draw behind these prompts, one a line, or JSON lines with `prompt`."
HELP = """Is the gain real? Forensics for RL-trained language-model policies.

A benchmark score went up after RL: `forensics investigate` judges whether the gain is genuine,
and says why and what it did not test.
"""
MOST_GAPS = 5
TASKS, QUICK_TASKS = 600, 64
CaseFolder = Annotated[
    Path,
    typer.Argument(
        metavar="CASE_DIR", help="A folder that `forensics investigate` or `forensics scan` wrote."
    ),
]


AfterLogs = Annotated[
    Path,
    typer.Argument(
        metavar="AFTER_LOGS",
        help="Logs of the policy after training: a file, a folder or an archive.",
    ),
]
BeforeLogs = Annotated[
    Path | None,
    typer.Option(
        metavar="BEFORE_LOGS",
        help="Logs of the policy before training. Without them there is no gain to judge.",
    ),
]
ReaderName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The format of all the logs.  [default: recognised by content]",
    ),
]
Export = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KIND=PATH",
        help=(
            "Write the findings for another tool: jsonl=FILE or markdown=FILE (for a pull"
            " request); repeatable."
        ),
    ),
]


def print_version(wanted: bool) -> None:
    """Print the version and exit, where that was asked for."""
    if wanted:
        from forensics.version import code_version

        typer.echo(code_version())
        raise typer.Exit()


@study_command
def investigate(
    compared: Compared,
    training: RecordedTraining = None,
    trained_tasks: TrainedTasks = None,
    recipe: PlaceboRecipe = None,
    allow: Allow = None,
    accept: Accept = None,
    rule: Rule = None,
    instruments: Instruments = None,
    quick: Quick = False,
    tasks: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="Held-out tasks to run; all where fewer.",
            show_default=f"{TASKS}, with --quick {QUICK_TASKS}; with --resume as many as before",
        ),
    ] = None,
    samples: Annotated[int, typer.Option(help="Episodes for each task, checkpoint and world.")] = 4,
    before_server: BeforeServer = None,
    after_server: AfterServer = None,
    settings: Any = None,
    *,
    run: Run,
) -> None:
    """Say whether the gain from one checkpoint to another is real.

    Runs both checkpoints on held-out tasks, in the open world and with its
    known shortcuts scrubbed. Altered worlds then test other possible sources of
    the gain. Writes the verdict, its evidence and a report into the case folder.
    The label `genuine` needs every gain test; --accept waives one. The
    command first says how many episodes it will play, likely and at most, and
    later how long they take.
    """
    from forensics.budget import Budget
    from forensics.cli.case_output import run_investigation
    from forensics.instruments import QUICK
    from forensics.investigation.stated_settings import stated_tasks

    route, placed = route_of(compared, before_server, after_server or []), compared.log_places
    if before_server or after_server:
        from forensics.policies.server_abilities import require_whole

        require_whole(settings)
    first, others, world, options = route.sides(run.out)
    run_investigation(
        run,
        first,
        others,
        world,
        logs=None if placed is None else parse_logs(placed),
        environment_options=options,
        budget=Budget(
            tasks=tasks
            or (stated_tasks(run.out) if run.resume else None)
            or (QUICK_TASKS if quick and placed is None else TASKS),
            samples=samples,
            settings=settings,
        ),
        training=training,
        trained_tasks=trained_tasks,
        recipe=recipe,
        allow=allow or [],
        accept=accept or [],
        rule=rule,
        instruments=[
            *(QUICK if quick else ()),
            *(text.strip() for text in (instruments or "").split(",") if text.strip()),
        ],
    )


def report(
    case_dir: CaseFolder,
    formats: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FORMATS",
            help="One or more of text,md,json,html,atif, separated by commas.",
        ),
    ] = "text",
    allow: Allow = None,
    accept: Accept = None,
) -> None:
    """Draw the report of a case again, with no model and no GPU.

    Prints `text`, and writes the other formats into the case folder (report.md,
    report.json, report.html; atif/ with a file for each run). Applies today's
    rule to the stored evidence; --allow and --accept replace the case's own. A
    verdict that changes goes into case.json, and into the reports that lie there.
    """
    from forensics.cli.console import progress_bars, say
    from forensics.report import checked, render, write_reports
    from forensics.report.data import settle
    from forensics.report.writer import FILES

    wanted = [name.strip() for name in formats.split(",") if name.strip()]
    if not wanted:
        raise UserError("--format names no format; choose from text, md, json, html, atif")
    files = [name for name in wanted if name != "text"]
    checked(wanted)
    if settled := settle(case_dir, allow, accept):
        say(f"Judged again: {settled.label}.")
        stale = [name for name, file in FILES.items() if (case_dir / file).is_file()]
        files = list(dict.fromkeys([*files, *stale]))
    with progress_bars() as progress:
        written = write_reports(case_dir, files, progress) if files else ()
    if "text" in wanted:
        say(render(case_dir, ["text"])["text"])
    for path in written:
        say(f"Wrote {path}")


def gate(
    case_dir: CaseFolder,
    require: Annotated[
        str, typer.Option(metavar="LABEL", help="The verdict that passes.")
    ] = "genuine",
    allow: Annotated[
        list[str] | None,
        typer.Option(metavar="LABEL", help="A verdict that passes too; repeatable."),
    ] = None,
    rule: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Judge by the case's own rule of this name, not by the standard one.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Exit with 0 or 1 by the verdict of a case.

    For pipelines: 0 if the verdict's label is the required one or an allowed
    one, else 1 (2: bad input). Applies today's standard rule to the stored
    evidence and writes nothing. A case with a rule of its own passes by that
    rule only if --rule names it. The output repeats what `forensics
    investigate` or `forensics report` was given by --allow and --accept.
    Labels: genuine, mixed, phantom, degenerate, regression, noise,
    undetermined.
    """
    from forensics.cli.console import say, say_json
    from forensics.records.verdict import Label
    from forensics.report.data import judge_case

    passing, known = [require, *(allow or [])], get_args(Label)
    if unknown := [label for label in passing if label not in known]:
        raise UserError(f"there is no verdict '{unknown[0]}'; choose from {', '.join(known)}")
    verdict = judge_case(case_dir, rule)
    passes = verdict.label in passing
    if as_json:
        say_json(
            {
                "passes": passes,
                "label": verdict.label,
                "allowed": passing,
                "sentence": verdict.sentence,
                "rule": rule or "standard",
                "reason_code": verdict.reason_code,
                "given": {"allow": verdict.allowed, "accept": verdict.accepted},
                "open": [gap.model_dump(mode="json") for gap in verdict.gaps],
            }
        )
    else:
        why = f" ({verdict.reason_code})" if verdict.reason_code else ""
        say(f"{verdict.label}{why} {'passes' if passes else 'does not pass'}. {verdict.sentence}")
        for gap in () if passes else verdict.gaps[:MOST_GAPS]:
            say(f"- open: {gap.text} To settle it: {gap.measurement}")
    raise typer.Exit(0 if passes else 1)


def schema() -> None:
    """Print the JSON Schema of every record.

    One JSON object: the record's name, then its schema.
    """
    from forensics.cli.console import say_json
    from forensics.schemas import schemas

    say_json(schemas())


def scan(
    after: AfterLogs,
    out: Out,
    before: BeforeLogs = None,
    reader: ReaderName = None,
    export: Export = None,
    accept: Accept = None,
    rule: Rule = None,
    seed: Seed = 0,
    resume: Resume = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Look for shortcuts in logs, and judge the gain between two sets of them.

    Needs no model. Reads any known log format, follows each shortcut step by
    step, and writes the findings, the evidence, a verdict with bounds and a
    report into the case folder.
    """
    from forensics.cli.case_output import certain_of, opening_of_case, say_verdict, summary
    from forensics.cli.console import progress_bars
    from forensics.investigation.scan_findings import usual_processes
    from forensics.investigation.scan_run import scan as scan_logs
    from forensics.shortcuts.export import export_of

    exports = [export_of(text) for text in export or ()]
    with progress_bars(ticking=False) as progress:
        verdict = scan_logs(
            after,
            before,
            out=out,
            reader=reader,
            seed=seed,
            resume=resume,
            force=force,
            exports=exports,
            processes=usual_processes(),
            progress=progress,
            accept=accept or [],
            rule=rule,
        )
    say_verdict(
        Run(out=out, as_json=as_json),
        verdict,
        () if as_json else tuple(summary(out)),
        opening_of_case(out, verdict),
        () if as_json else tuple(certain_of(out, verdict)),
    )


class Sides(NamedTuple):
    """Before and after training, and their world with its options."""

    before: "Given | None"
    afters: "Sequence[Given]"
    world: "Environment | str | None"
    options: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Route:
    """The options that say what is compared."""

    before: Path | None
    after: Sequence[Path]
    before_server: str | None
    after_server: Sequence[str]
    harness: Path | None
    logs: bool
    env: str | None
    options: Mapping[str, str]

    def sides(self, out: Path) -> Sides:
        """What they name. Raises `UserError` where they clash, or one is missing."""
        if self.harness:
            return self._of_agent(self.harness, out)
        served = self.before_server or self.after_server
        return self._of_logs() if self.logs and not served else self._of_checkpoints(out)

    def _of_logs(self) -> Sides:
        """What was given beside logs, which `investigate` refuses by name."""
        return Sides(self.before, self.after, self.env, self.options)

    def _of_agent(self, harness: Path, out: Path) -> Sides:
        from forensics.investigation.served_sides import agent_sides

        clashing = {
            "--before": self.before,
            "--after": self.after,
            "--env": self.env,
            "--env-option": self.options,
            "--logs": self.logs,
        }
        if given := [name for name, value in clashing.items() if value]:
            raise UserError(
                f"{given[0]} means nothing beside --harness, which names its own world and plays"
                " served models; leave it out"
            )
        if self.before_server is None or not self.after_server:
            raise UserError(
                "--harness plays served models; give --before-server URL#MODEL and --after-server"
                " URL#MODEL"
            )
        world, (first, *others) = agent_sides(harness, self.before_server, self.after_server, out)
        return Sides(first, others, world, {})

    def _of_checkpoints(self, out: Path) -> Sides:
        from forensics.investigation.served_sides import (
            hinted_world,
            paired_servers,
            served_sides,
        )

        if self.before is None or not self.after:
            missing = "--before" if self.before is None else "--after"
            raise UserError(
                f"there is no {missing} checkpoint; give one, an agent on served models with"
                " --harness, or --logs"
            )
        servers = paired_servers(self.before_server, self.after_server, len(self.after))
        env, options = self.env, dict(self.options)
        if self.before_server is not None:
            env, options = hinted_world(self.before, env, options)
        first, *others = served_sides([self.before, *self.after], servers, out)
        return Sides(first, others, env, options)


def route_of(compared: Compared, before_server: str | None, after_server: Sequence[str]) -> Route:
    """The route that the options of `investigate` name."""
    return Route(
        before=compared.before,
        after=compared.after or [],
        before_server=before_server,
        after_server=after_server,
        harness=compared.harness,
        logs=compared.log_places is not None,
        env=compared.env,
        options=parse_options(compared.env_option),
    )


@dataclass(frozen=True, kw_only=True)
class Keeping:
    """Where a check keeps what it does, so that it can go on."""

    out: Kept = None
    resume: Resume = False
    force: Force = False

    @property
    def arguments(self) -> dict[str, Any]:
        """Those of `forensics.investigation.check_server`. Raises `UserError`."""
        if self.out is None and (self.resume or self.force):
            raise UserError("--resume and --force mean nothing without --out; name the folder")
        return vars(self)


@study_command
def check_server(
    server: Annotated[str, typer.Argument(metavar="URL[#MODEL]", help=ADDRESS)],
    checkpoint: Annotated[
        Path, typer.Option(metavar="DIR", help="The checkpoint that it claims to serve.")
    ],
    prompts: Annotated[Path | None, typer.Option(metavar="FILE", help=PROMPTS)] = None,
    env: RunsWorld = None,
    env_option: EnvOptions = None,
    tasks: Annotated[
        int, typer.Option(min=1, help="Episodes that the checkpoint plays here for contexts.")
    ] = 100,
    samples: Annotated[int, typer.Option(min=1, help="Draws behind each context.")] = 32,
    suspect: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="CKPT",
            help="A checkpoint that it may draw from instead, such as a drafter; repeatable.",
        ),
    ] = None,
    arithmetic: Annotated[
        str, typer.Option(metavar="DTYPE", help="The coarsest arithmetic that it may have.")
    ] = "bfloat16",
    settings: Any = None,
    seed: Seed = 0,
    device: Device = "auto",
    as_json: Json = False,
    *,
    keeping: Keeping,
) -> None:
    """Say whether a server draws from the policy that it claims to serve.

    Two tests: whether the log-probabilities that it tells are those of the
    checkpoint, and whether its draws come from it, whatever it tells. Exits
    with 0 if it draws it, 1 if it does not or there are not enough samples, 2
    for bad input.
    """
    from forensics.cli.console import progress_bars, say, say_json
    from forensics.investigation import Contexts, DrawsConfig, check_server as check
    from forensics.investigation.inputs import choose_environment
    from forensics.investigation.served_draws import report

    texts = () if prompts is None else _prompts(prompts)
    world = (
        None if texts else choose_environment(str(checkpoint), env, parse_options(env_option))[0]
    )
    config = DrawsConfig(
        settings=settings, samples=samples, seed=seed, arithmetic=arithmetic, device=device
    )
    with progress_bars() as progress:
        found = check(
            server,
            checkpoint,
            contexts=Contexts(prompts=texts, environment=world, tasks=tasks),
            suspects=suspect or (),
            config=config,
            progress=progress,
            **keeping.arguments,
        )
    say_json(found.as_json()) if as_json else say(report(found))
    raise typer.Exit(0 if found.verdict == "draws it" else 1)


def _prompts(file: Path) -> tuple[str, ...]:
    """Raises `UserError` for a file without any."""
    from forensics.records.given_files import parse_json, read_text

    cure = "write one prompt a line, or JSON lines with `prompt`"
    found: list[str] = []
    for line in filter(str.strip, read_text(file, "", cure).splitlines()):
        try:
            row = parse_json(line) if line.lstrip().startswith("{") else {"prompt": line}
        except ValueError as error:
            raise UserError(f"{file} has a line that is no JSON ({error}); {cure}") from None
        if not isinstance(row.get("prompt"), str) or not row["prompt"]:
            raise UserError(f"{file} has a line without a prompt; {cure}")
        found.append(row["prompt"])
    if not found:
        raise UserError(f"{file} holds no prompts; {cure}")
    return tuple(found)
