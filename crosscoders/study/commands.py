"""The command `diff`. Light at import."""

from pathlib import Path
from typing import Annotated, Any

import typer

from forensics.cli.options import (
    Before,
    EnvOptions,
    OneAfter,
    PairWorld,
    Run,
    parse_options,
    study_command,
)

Runs = Annotated[
    Path | None,
    typer.Option(
        "--runs",
        metavar="LOGS",
        show_default=False,
        help=(
            "Read these runs instead of playing: a case folder, trajectories in Parquet, or another"
            " tool's log."
        ),
    ),
]
Texts = Annotated[
    Path | None,
    typer.Option(
        "--texts",
        metavar="FILE",
        show_default=False,
        help=(
            "Read plain texts instead: .jsonl with a field `text`, or texts parted by empty lines."
        ),
    ),
]
Given = Annotated[
    Path | None,
    typer.Option(
        "--dictionary",
        metavar="PATH",
        show_default=False,
        help=(
            "Take this dictionary instead of training one: ours, a SAELens SAE (of one model, or on"
            " both models' activations joined), or a crosscoder of dictionary_learning."
        ),
    ),
]


Site = Annotated[
    str,
    typer.Option(
        "--site", metavar="SITE", help="A TransformerLens name; auto: chosen by patching."
    ),
]
Kind = Annotated[
    str | None,
    typer.Option(
        "--kind",
        metavar="KIND",
        show_default=False,
        help=(
            "The kind of action set against all others.  [default: the channel or kind whose"
            " use rose most]"
        ),
    ),
]
Latents = Annotated[
    int | None,
    typer.Option(
        "--latents",
        min=1,
        show_default=False,
        help="Of the dictionary.  [default: four times the width]",
    ),
]
AfterOnly = Annotated[
    int | None,
    typer.Option(
        "--after-only",
        min=0,
        show_default=False,
        help=(
            "Latents that speak of the after model alone.  [default: a 32nd of them, 8 at least]"
        ),
    ),
]
K = Annotated[int, typer.Option("--k", min=1, help="Active latents a token.")]
Opening = Annotated[
    float,
    typer.Option(
        "--opening",
        metavar="SHARE",
        help=(
            "Find after-only latents in the models' difference in this first share of the"
            " training. In worlds of "
            "ours 0.4 finds more of many planted features; it can fail where one carries all."
        ),
    ),
]
Tokens = Annotated[int, typer.Option("--tokens", min=1, help="Tokens to train the dictionary on.")]
Decisions = Annotated[
    int,
    typer.Option(
        "--decisions",
        min=0,
        help="Decisions to patch at; 0 leaves patching out (then name a --site).",
    ),
]
Controls = Annotated[
    bool,
    typer.Option(
        "--controls/--no-controls", help="Train the null controls too: three more dictionaries."
    ),
]
Baselines = Annotated[
    bool,
    typer.Option(
        "--baselines/--no-baselines",
        help="Set a difference-SAE, PCA and mean differences beside it.",
    ),
]
Tasks = Annotated[int, typer.Option("--tasks", min=2, help="Held-out tasks to play.")]
Samples = Annotated[
    int, typer.Option("--samples", min=1, help="Episodes for each task and checkpoint.")
]


@study_command
def diff(
    before: Before,
    after: OneAfter,
    env: PairWorld = None,
    env_option: EnvOptions = None,
    runs: Runs = None,
    texts: Texts = None,
    site: Site = "auto",
    kind: Kind = None,
    dictionary: Given = None,
    latents: Latents = None,
    after_only: AfterOnly = None,
    k: K = 12,
    opening: Opening = 0.0,
    tokens: Tokens = 400_000,
    decisions: Decisions = 96,
    controls: Controls = True,
    baselines: Baselines = True,
    tasks: Tasks = 600,
    samples: Samples = 4,
    settings: Any = None,
    *,
    run: Run,
) -> None:
    """Where and what did training change inside? Patching, then a sparse
    dictionary of both checkpoints.

    Writes diff.json, diff.html, patching.json, latents.parquet and the
    dictionary. `forensics steer` then tests what its latents cause.
    """
    from crosscoders.study.diff_request import DiffRequest, Shape
    from crosscoders.study.pipeline import DiffStudy
    from forensics.budget import Budget

    request = DiffRequest(
        before=before,
        after=after,
        environment=env,
        options=parse_options(env_option),
        runs=runs,
        texts=texts,
        site=site,
        kind=kind,
        shape=Shape(latents=latents, after_only=after_only, k=k, opening=opening),
        tokens=tokens,
        decisions=decisions,
        controls=controls,
        baselines=baselines,
        dictionary=dictionary,
        budget=Budget(tasks=tasks, samples=samples, settings=settings),
        seed=run.seed,
        device=run.device,
        backend=run.backend,
    )
    run.carry_out(DiffStudy(request=request))
