"""The commands of the frame: investigate, scan, report, gate, schema. Light at
import.

Defaults are written out here, because the types that own them are not loaded
for `--help`; a test holds them against each other.
"""

from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from forensics.cli.options import (
    Accept,
    AfterServer,
    Allow,
    BeforeServer,
    Compared,
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
    Seed,
    TrainedTasks,
    parse_logs,
    study_command,
)
from forensics.errors import UserError

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
    from forensics.cli.routes import route_of
    from forensics.instruments import QUICK
    from forensics.investigation.stated_settings import stated_tasks

    route, placed = route_of(compared, before_server, after_server or []), compared.log_places
    if before_server or after_server:
        from forensics.policies.server import require_whole

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
    from forensics.investigation.scan_parts import usual_processes
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
