"""The command `grade`. Light at import."""

from pathlib import Path
from typing import Annotated

import typer

from forensics.cli.console import say, say_json
from forensics.cli.options import Device, EnvOptions, Force, Json, Out, Resume, Seed


def grade(
    logs: Annotated[Path, typer.Argument(
        metavar="LOGS", help="A case folder, trajectories in Parquet, or another tool's log.")],
    policy: Annotated[Path, typer.Option(
        "--policy", metavar="CKPT",
        help="The checkpoint after RL. Of a log with runs of several policies, its own are taken.")],
    reference: Annotated[Path, typer.Option(
        "--reference", metavar="CKPT", help="The checkpoint that RL started from.")],
    out: Out,
    env: Annotated[str | None, typer.Option(
        "--env", metavar="NAME", show_default=False,
        help="The environment of the runs, which knows its shortcuts.  [default: what environment.json in the "
        "checkpoint names]")] = None,
    env_option: EnvOptions = None,
    without: Annotated[list[str] | None, typer.Option(
        "--without", metavar="CHANNEL", help="Grade runs of the world scrubbed of it; may be repeated.")] = None,
    best_of: Annotated[int | None, typer.Option(
        "--best-of", min=1, show_default=False,
        help="Choose among so many runs of a task.  [default: as many as most tasks have]")] = None,
    truth: Annotated[Path | None, typer.Option(
        "--truth", metavar="FILE", show_default=False,
        help="JSON lines with `trajectory` and `step`: the step that lost the run; measures failure attribution.",
    )] = None,
    select: Annotated[bool, typer.Option(
        "--select", help="Also select another aggregation on half of the tasks, and report it on the other.")] = False,
    beta: Annotated[float, typer.Option(
        "--beta", help="The weight of the KL term in that RL; scales step_rewards.jsonl.")] = 1.0,
    seed: Seed = 0,
    device: Device = "auto",
    resume: Resume = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Which steps did RL make likelier? The log-ratio of the policy to its reference, as a grade of every step.

    Beside baselines, with intervals by task. Writes grades.parquet, scores.parquet, grades.json, kl_split.json,
    step_rewards.jsonl and grades.html.
    """
    from forensics.cli.folders import claimed_folder
    from forensics.cli.investigating import parse_options
    from forensics.cli.progress import progress_bars
    from probes.grades.opening import GradeRun
    from probes.grades.running import grade_log
    from probes.grades.writing import table_lines, write_grading

    asked = GradeRun(
        logs=logs, policy=policy, reference=reference, environment=env, options=parse_options(env_option or []),
        without=tuple(without or ()), n=best_of, truth=truth, select=select, beta=beta, seed=seed, device=device,
    )
    with claimed_folder(out, force=force, resume=resume), progress_bars() as progress:
        grading = grade_log(asked, out, progress)
        summary = write_grading(out, grading)
    if as_json:
        say_json(summary)
        return
    for line in (*table_lines(grading), "", *summary["sentences"]):
        say(line)
    say(f"\nReport: {out / 'grades.html'}")
