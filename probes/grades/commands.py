"""The command `grade`. Light at import."""

from pathlib import Path
from typing import Annotated, Any

import typer

from forensics.cli import (
    EnvOptions,
    Run,
    RunsWorld,
    ServerModel,
    Without,
    parse_options,
    study_command,
)

Logs = Annotated[
    Path,
    typer.Argument(
        metavar="LOGS", help="A case folder, trajectories in Parquet, or another tool's log."
    ),
]
Policy = Annotated[
    Path,
    typer.Option(
        "--policy",
        metavar="CKPT",
        help="The checkpoint after RL. Of a log with runs of several policies, its own are taken.",
    ),
]
Reference = Annotated[
    Path, typer.Option("--reference", metavar="CKPT", help="The checkpoint that RL started from.")
]
BestOf = Annotated[
    int | None,
    typer.Option(
        "--best-of",
        min=1,
        show_default=False,
        help="Choose among so many runs of a task.  [default: as many as most tasks have]",
    ),
]
Truth = Annotated[
    Path | None,
    typer.Option(
        "--truth",
        metavar="FILE",
        show_default=False,
        help=(
            "JSON lines with `trajectory` and `step`: the step that lost the run; measures failure"
            " attribution."
        ),
    ),
]
Select = Annotated[
    bool,
    typer.Option(
        "--select",
        help="Also select another aggregation on half of the tasks, and report it on the other.",
    ),
]
Beta = Annotated[
    float,
    typer.Option("--beta", help="The weight of the KL term in that RL; scales step_rewards.jsonl."),
]
Probes = Annotated[
    int,
    typer.Option(
        "--linear-probes",
        metavar="TASKS",
        min=0,
        help=(
            "Ask activations on the runs of so many tasks whether a shortcut, or success, is"
            " announced; 0 is off."
        ),
    ),
]
Site = Annotated[
    list[str] | None,
    typer.Option(
        "--site",
        metavar="SITE",
        help="Probe this TransformerLens name; may be repeated.  [default: residual streams]",
    ),
]
Diff = Annotated[
    Path | None,
    typer.Option(
        "--diff",
        metavar="DIR",
        show_default=False,
        help="A folder of `forensics diff` of this pair: how the probes lie to its latents.",
    ),
]
Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        show_default=False,
        help=(
            "A server (vLLM) that scores as the policy instead, up to and with /v1. CKPT needs no"
            " weights then."
        ),
    ),
]
ReferenceServer = Annotated[
    str | None,
    typer.Option(
        "--reference-server", metavar="URL", show_default=False, help="The same for the reference."
    ),
]
ReferenceModel = Annotated[
    str | None,
    typer.Option(
        "--reference-server-model",
        metavar="NAME",
        help="The name it serves the reference by.",
        show_default=False,
    ),
]


@study_command
def grade(
    logs: Logs,
    policy: Policy,
    reference: Reference,
    env: RunsWorld = None,
    env_option: EnvOptions = None,
    without: Without = None,
    best_of: BestOf = None,
    truth: Truth = None,
    select: Select = False,
    beta: Beta = 1.0,
    linear_probes: Probes = 0,
    site: Site = None,
    diff: Diff = None,
    server: Server = None,
    server_model: ServerModel = None,
    reference_server: ReferenceServer = None,
    reference_server_model: ReferenceModel = None,
    *,
    run: Run,
) -> None:
    """Which steps did RL make likelier? The log-ratio of the policy to its
    reference, as a grade of every step.

    Beside baselines, with intervals by task. Writes grades.parquet,
    scores.parquet, grades.json, kl_split.json, step_rewards.jsonl and
    grades.html.
    """
    from probes.grades.grade_run import GradeStudy

    run.carry_out(
        GradeStudy(
            logs=logs,
            policy=policy,
            reference=reference,
            environment=env,
            options=parse_options(env_option),
            without=tuple(without or ()),
            n=best_of,
            truth=truth,
            select=select,
            beta=beta,
            seed=run.seed,
            device=run.device,
            backend=run.backend,
            server=_server(server, server_model, "--server"),
            reference_server=_server(
                reference_server, reference_server_model, "--reference-server"
            ),
            probes=_probes(linear_probes, site, diff),
            diff=diff,
        )
    )


def _server(url: str | None, model: str | None, option: str) -> Any:
    """`None` without an address. `option`: the one that gives the address. Raises `UserError`."""
    from forensics.errors import UserError
    from forensics.policies import ServerConfig

    if url is None and model is not None:
        raise UserError(f"{option}-model names what a server serves; give {option} too")
    return None if url is None else ServerConfig(url=url, model=model)


def _probes(tasks: int, sites: list[str] | None, diff: Path | None) -> Any:
    """What is asked of activations; `None` where nothing is. Raises `UserError`
    for options that do nothing.
    """
    from forensics.errors import UserError
    from probes.linear.instrument import LinearConfig

    if not tasks and (sites or diff):
        raise UserError(
            f"{'--site' if sites else '--diff'} is for probes; give --linear-probes too, such as 60"
        )
    return LinearConfig(tasks=tasks, sites=tuple(sites or ())) if tasks else None
