"""The commands `cliffs` and `resample`. Light at import."""

from pathlib import Path
from typing import Annotated, Any

import typer

from forensics.cli.console import say, say_json
from forensics.cli.options import (
    Backend,
    Device,
    EnvOptions,
    Json,
    Run,
    RunsWorld,
    Seed,
    ServerModel,
    Without,
    parse_options,
    study_command,
)

Logs = Annotated[
    Path, typer.Argument(metavar="LOGS", help="A case folder, a Parquet file, or a folder of them.")
]
Checkpoint = Annotated[
    Path,
    typer.Option(
        "--policy",
        metavar="CKPT",
        help=(
            "The checkpoint that continues the runs. Of a log with runs of several, its own are"
            " taken."
        ),
    ),
]
ServerUrl = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        show_default=False,
        help="A server of completions (vLLM, SGLang) that samples instead, up to and with /v1.",
    ),
]


Runs = Annotated[
    str | None,
    typer.Option(
        "--runs",
        metavar="lost|won|all",
        show_default=False,
        help="Which runs.  [default: lost; with --rises won]",
    ),
]
Most = Annotated[
    int, typer.Option("--most", min=1, help="How many runs at most, spread over the tasks.")
]
Only = Annotated[
    list[str] | None,
    typer.Option("--trajectory", metavar="ID", help="This run; may be given again."),
]
Rises = Annotated[bool, typer.Option("--rises", help="Look for tokens that win a run instead.")]
Delta = Annotated[
    float,
    typer.Option("--delta", help="The drop of the chance of success that should be found."),
]
Fdr = Annotated[
    float, typer.Option("--fdr", help="Share of false ones among the reported, at most.")
]
Budget = Annotated[
    int | None,
    typer.Option(
        "--budget",
        min=1,
        show_default=False,
        help="Rollouts that search and confirmation may take.  [default: 1,000 a run]",
    ),
]
DeleteKeep = Annotated[
    int,
    typer.Option(
        "--delete-keep",
        min=0,
        help="Fresh rollouts before and after each cliff; 0 leaves them out.",
    ),
]


@study_command
def cliffs(
    logs: Logs,
    policy: Checkpoint,
    env: RunsWorld = None,
    env_option: EnvOptions = None,
    runs: Runs = None,
    most: Most = 20,
    only: Only = None,
    without: Without = None,
    rises: Rises = False,
    delta: Delta = 0.2,
    fdr: Fdr = 0.05,
    budget: Budget = None,
    delete_keep: DeleteKeep = 64,
    settings: Any = None,
    server: ServerUrl = None,
    server_model: ServerModel = None,
    *,
    run: Run,
) -> None:
    """At which tokens were these runs lost? Confirmed by sampling again, with
    an error guarantee.

    Writes cliffs.jsonl, cliffs.html, potentials.parquet, delete_keep.jsonl and
    pairs.jsonl.
    """
    from resampling.study.cliff_run import CliffRun

    run.carry_out(
        CliffRun(
            logs=logs,
            policy=policy,
            environment=env,
            options=parse_options(env_option),
            runs=runs,
            most=most,
            only=tuple(only or ()),
            without=tuple(without or ()),
            rises=rises,
            delta=delta,
            fdr=fdr,
            budget=budget,
            delete_keep=delete_keep,
            seed=run.seed,
            settings=settings,
            device=run.device,
            backend=run.backend,
            server=_server(server, server_model),
        )
    )


@study_command
def resample(
    logs: Logs,
    at: Annotated[
        list[str],
        typer.Option(
            "--at",
            metavar="TRAJECTORY:TOKEN",
            help=(
                "A sampled token of a run, counted from 0; the first letters of its id do. May be"
                " repeated."
            ),
        ),
    ],
    policy: Checkpoint,
    env: RunsWorld = None,
    env_option: EnvOptions = None,
    rollouts: Annotated[
        int, typer.Option("--rollouts", "-n", min=1, help="Continuations of each arm.")
    ] = 64,
    seed: Seed = 0,
    settings: Any = None,
    device: Device = "auto",
    backend: Backend = "huggingface",
    server: ServerUrl = None,
    server_model: ServerModel = None,
    as_json: Json = False,
) -> None:
    """Does this token decide? Cut a run before it, after it, or put others
    there, and sample afresh.

    The replay of what `forensics cliffs` reports, by anyone, with other random
    numbers.
    """
    from resampling.study.cliff_run import open_runs, parse_places
    from resampling.study.delete_keep import replay_tokens
    from resampling.study.recorded_runs import Choice

    places = parse_places(at)
    choice = Choice(only=tuple(name for name, _ in places))
    sampling = _server(server, server_model)
    opened = open_runs(
        logs,
        choice,
        policy,
        env,
        parse_options(env_option),
        settings,
        seed,
        device,
        sampling,
        backend,
    )
    wanted = [
        (next(t for t in opened.traces if t.id.startswith(name)), token) for name, token in places
    ]
    found = replay_tokens(wanted, opened.sampler, rollouts)
    if as_json:
        say_json({"tokens": [one.row() for one in found]})
        return
    for (trace, token), one in zip(wanted, found, strict=True):
        _say_replayed(opened.token_text(trace.tokens[token]), one)


def _server(url: str | None, model: str | None) -> Any:
    from forensics.errors import UserError
    from forensics.policies.completions import ServerConfig

    if url is None and model is not None:
        raise UserError("--server-model names what a server serves; give --server too")
    return None if url is None else ServerConfig(url=url, model=model)


def _say_replayed(text: str, one: Any) -> None:
    from forensics.report.numbers import percent, plain

    def told(arm: Any) -> str:
        if arm is None:
            return "no other token can be drawn"
        if arm.share is None:
            return f"none of {arm.missing} came back"
        lost = f", {arm.missing} missing" if arm.missing else ""
        ends = f"{percent(arm.share.low)} to {percent(arm.share.high)}"
        return f"{arm.successes} of {arm.share.n:g} succeed ({ends}){lost}"

    say(
        f"{one.trace} token {one.token} {text!r}, drawn with probability {percent(one.probability)}"
    )
    for name, arm in (
        ("cut before it", one.deleted),
        ("kept", one.kept),
        ("another instead", one.others),
    ):
        say(f"  {name + ':':<17} {told(arm)}")
    if one.restored is not None:
        restored, low, high = (plain(100 * end, 1, plus=True) for end in one.restored.ends)
        say(f"  deleting it restores {restored} points ({low} to {high})")
