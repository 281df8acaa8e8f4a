"""The commands `diff` and `steer`. Light at import."""

from math import isfinite
from pathlib import Path
from typing import Annotated, Any

import typer

from forensics.cli.console import say, tell
from forensics.cli.options import (
    Before,
    EnvOptions,
    OneAfter,
    PairWorld,
    Run,
    parse_options,
    study_command,
)
from forensics.errors import UserError

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
Tokens = Annotated[
    int | None,
    typer.Option(
        "--tokens",
        min=1,
        show_default=False,
        help=(
            "Tokens to train the dictionary on.  [default: 400000; in a network of more than 8"
            " layers two passes over its texts, if that is less]"
        ),
    ),
]
Decisions = Annotated[
    int | None,
    typer.Option(
        "--decisions",
        min=0,
        show_default=False,
        help=(
            "Decisions to patch at; 0 leaves patching out (then name a --site).  [default: 96; in"
            " a network of more than 8 layers 32]"
        ),
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
KeepOutliers = Annotated[
    bool,
    typer.Option(
        "--keep-outliers",
        help="Leave no attention sink (a row with over 10 times the median norm) out.",
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
    tokens: Tokens = None,
    decisions: Decisions = None,
    controls: Controls = True,
    baselines: Baselines = True,
    keep_outliers: KeepOutliers = False,
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
    from crosscoders.study.diff_files import DiffRequest, Shape
    from crosscoders.study.plan import plan
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
        keep_outliers=keep_outliers,
        dictionary=dictionary,
        budget=Budget(tasks=tasks, samples=samples, settings=settings),
        seed=run.seed,
        device=run.device,
        backend=run.backend,
    )
    for line in plan(request, run.out if run.resume else None):
        tell(line)
    from crosscoders.study.pipeline import DiffStudy  # torch, after the plan was said

    run.carry_out(DiffStudy(request=request))


Features = Annotated[
    str,
    typer.Option(
        "--features",
        metavar="LIST",
        help=(
            "Latents such as 12,17; or those most active before the measured behaviour: top:N of"
            " the specific ones, contrast:N of all."
        ),
    ),
]
Table = Annotated[
    Path | None,
    typer.Option(
        "--latents",
        metavar="FILE",
        show_default=False,
        help="The table that top:N keeps to.  [default: latents.parquet beside the dictionary]",
    ),
]
Measure = Annotated[
    str | None,
    typer.Option(
        "--measure",
        show_default=False,
        help="success, turns, channel:NAME or kind:NAME.  [default: the channel that changed most]",
    ),
]
EncodeFrom = Annotated[
    str,
    typer.Option(
        "--encode-from",
        help=(
            "both: the other model reads along (exact); own: the changed model alone, as for an SAE"
            " of one model."
        ),
    ),
]
Strengths = Annotated[
    str | None,
    typer.Option(
        "--strengths",
        metavar="A,B,...",
        show_default=False,
        help=(
            "What to choose from on the first split.  [default: 0.5,1,2 to ablate, 0,0.5,2 to"
            " scale, 0.5,1,2,4 to add]"
        ),
    ),
]


Saved = Annotated[
    Path, typer.Option("--dictionary", metavar="DIR", help="A saved dictionary of this pair.")
]
Mode = Annotated[str, typer.Option("--mode", help="ablate, scale or add.")]
Acting = Annotated[str, typer.Option("--in", help="The model to change: after or before.")]
At = Annotated[str, typer.Option("--at", help="deciding, kind:NAME or everywhere.")]
Directions = Annotated[
    int, typer.Option("--controls", min=0, help="Random directions of equal norm.")
]
Against = Annotated[
    Path | None,
    typer.Option("--against", metavar="DIR", help="A second dictionary, for the saturation curve."),
]
SteerSite = Annotated[
    str | None,
    typer.Option("--site", show_default=False, help="[default: where the dictionary was trained]"),
]
Reported = Annotated[int, typer.Option("--tasks", min=2, help="Held-out tasks to report on.")]
Choosing = Annotated[
    int, typer.Option("--choosing", min=2, help="Further ones, to choose strengths on.")
]
SteerSamples = Annotated[
    int, typer.Option("--samples", min=1, help="Episodes for each task and condition.")
]


@study_command
def steer(
    before: Before,
    after: OneAfter,
    dictionary: Saved,
    features: Features,
    env: PairWorld = None,
    env_option: EnvOptions = None,
    mode: Mode = "ablate",
    acting: Acting = "after",
    at: At = "deciding",
    strengths: Strengths = None,
    controls: Directions = 20,
    against: Against = None,
    latents: Table = None,
    site: SteerSite = None,
    measure: Measure = None,
    encode_from: EncodeFrom = "both",
    keep_outliers: KeepOutliers = False,
    tasks: Reported = 200,
    choosing: Choosing = 100,
    samples: SteerSamples = 4,
    settings: Any = None,
    *,
    run: Run,
) -> None:
    """What do features of a dictionary cause? Ablate, scale or add them while
    the policy acts, next to controls.

    Writes steering.json: one row for each intervention and control, with
    channel use and success.
    """
    from crosscoders.steering.causal_test import Steer
    from crosscoders.steering.conditions import SteeringConfig

    config: dict[str, Any] = {"mode": mode, "acting": acting, "encoding": encode_from}
    config |= {"controls": controls, "measure": measure, "strengths": _numbers(strengths)}
    run.carry_out(
        Steer(
            before=before,
            after=after,
            environment=env,
            options=parse_options(env_option),
            dictionary=dictionary,
            features=features,
            against=against,
            latents=latents,
            site=site,
            at=at,
            tasks=tasks,
            choosing=choosing,
            samples=samples,
            settings=settings,
            seed=run.seed,
            device=run.device,
            backend=run.backend,
            keep_outliers=keep_outliers,
            config=SteeringConfig(**config),
        )
    )
    _redraw(run)


def _redraw(run: Run) -> None:
    """The page of the diff that this folder is, or lies in, with the curves in it."""
    from crosscoders.study.diff_files import DIFF, STEERED
    from crosscoders.study.diff_page import write_page

    places = (run.out, run.out.parent) if run.out.name == STEERED else (run.out,)
    diff = next((place for place in places if (place / DIFF).is_file()), None)
    if diff is None:
        return
    page = write_page(diff)
    if not run.as_json:
        say(f"Redrew {page}")


def _numbers(text: str | None) -> tuple[float, ...]:
    if text is None:
        return ()
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or not all(map(isfinite, found)):
        raise UserError(f"--strengths '{text}' are not numbers; give for example 0.5,1,2")
    return found
