"""The command `scan`. Light at import."""

from pathlib import Path
from typing import Annotated

import typer

from forensics.cli.options import Accept, Force, Json, Resume, Seed

Case = Annotated[Path, typer.Option("--out", metavar="DIR", help="The case folder to write.")]


def scan(
    after: Annotated[Path, typer.Argument(
        metavar="AFTER_LOGS", help="Logs of the policy after training: a file, a folder or an archive.")],
    out: Case,
    before: Annotated[Path | None, typer.Option(
        "--before", metavar="BEFORE_LOGS", show_default=False,
        help="Logs of the policy before it. Without them there is a profile and no gain.")] = None,
    reader: Annotated[str | None, typer.Option(
        "--reader", metavar="NAME", show_default=False, help="Read everything as this format.  [default: by its look]",
    )] = None,
    reviewer: Annotated[str | None, typer.Option(
        "--reviewer", metavar="URL", show_default=False,
        help="An OpenAI-compatible server (up to /v1) whose model reads the flagged steps, too. It changes no verdict.",
    )] = None,
    reviewer_model: Annotated[str | None, typer.Option(
        "--reviewer-model", metavar="NAME", show_default=False, help="The reviewer's model.")] = None,
    reviewer_key_env: Annotated[str | None, typer.Option(
        "--reviewer-key-env", metavar="VAR", show_default=False,
        help="The environment variable that holds the reviewer's key.")] = None,
    export: Annotated[list[str] | None, typer.Option(
        "--export", metavar="KIND=PATH", show_default=False,
        help="Write the findings for another tool: scout=FOLDER (Inspect Scout), jsonl=FILE or markdown=FILE (for a "
        "pull request); may be given again.")] = None,
    accept: Accept = None,
    seed: Seed = 0,
    resume: Resume = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Say what logs alone can tell of a gain, without a model.

    Reads the logs of any known format, follows shortcuts step by step, and writes the verdict with bounds, its
    evidence, the findings and a report into the case folder.
    """
    from forensics.cli.console import say_json
    from forensics.cli.investigating import say_verdict
    from forensics.cli.progress import progress_bars
    from forensics.cli.scan_summary import summary
    from forensics.investigation.scan_parts import usual_processes
    from forensics.investigation.scan_run import scan as scan_logs
    from forensics.scanning.export import export_of
    from forensics.scanning.review_options import reviewer_of

    second_reader = reviewer_of(reviewer, reviewer_model, reviewer_key_env)
    exports = [export_of(text) for text in export or ()]
    with progress_bars(ticking=False) as progress:
        verdict = scan_logs(
            after, before, out=out, reader=reader, seed=seed, resume=resume, force=force, reviewer=second_reader,
            exports=exports, processes=usual_processes(), progress=progress, accept=accept or [],
        )
    if as_json:
        say_json({"case": str(out), "verdict": verdict.model_dump(mode="json")})
    else:
        say_verdict(verdict, out, summary(out))
