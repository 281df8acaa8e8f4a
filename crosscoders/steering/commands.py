"""The command `steer`. Light at import."""

from pathlib import Path
from typing import Annotated, Any

import typer

from forensics.cli.console import say
from forensics.cli.options import (
    Before,
    EnvOptions,
    OneAfter,
    PairWorld,
    Run,
    parse_options,
    study_command,
)

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


Dictionary = Annotated[
    Path, typer.Option("--dictionary", metavar="DIR", help="A saved dictionary of this pair.")
]
Mode = Annotated[str, typer.Option("--mode", help="ablate, scale or add.")]
Acting = Annotated[str, typer.Option("--in", help="The model to change: after or before.")]
At = Annotated[str, typer.Option("--at", help="deciding, kind:NAME or everywhere.")]
Controls = Annotated[
    int, typer.Option("--controls", min=0, help="Random directions of equal norm.")
]
Against = Annotated[
    Path | None,
    typer.Option("--against", metavar="DIR", help="A second dictionary, for the saturation curve."),
]
Site = Annotated[
    str | None,
    typer.Option("--site", show_default=False, help="[default: where the dictionary was trained]"),
]
Tasks = Annotated[int, typer.Option("--tasks", min=2, help="Held-out tasks to report on.")]
Choosing = Annotated[
    int, typer.Option("--choosing", min=2, help="Further ones, to choose strengths on.")
]
Samples = Annotated[
    int, typer.Option("--samples", min=1, help="Episodes for each task and condition.")
]


@study_command
def steer(
    before: Before,
    after: OneAfter,
    dictionary: Dictionary,
    features: Features,
    env: PairWorld = None,
    env_option: EnvOptions = None,
    mode: Mode = "ablate",
    acting: Acting = "after",
    at: At = "deciding",
    strengths: Strengths = None,
    controls: Controls = 20,
    against: Against = None,
    latents: Table = None,
    site: Site = None,
    measure: Measure = None,
    encode_from: EncodeFrom = "both",
    tasks: Tasks = 200,
    choosing: Choosing = 100,
    samples: Samples = 4,
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
            config=_config(mode, acting, strengths, controls, measure, encode_from),
        )
    )
    if (page := _redrawn(run.out)) and not run.as_json:
        say(f"Redrew {page}")


def _redrawn(out: Path) -> Path | None:
    """The page of the diff that this folder is, or lies in, with the curves in it."""
    from crosscoders.study.diff_files import DIFF, STEERED
    from crosscoders.study.diff_page import write_page

    diff = out if (out / DIFF).is_file() else out.parent if out.name == STEERED else None
    return write_page(diff) if diff and (diff / DIFF).is_file() else None


def _config(
    mode: str,
    acting: str,
    strengths: str | None,
    controls: int,
    measure: str | None,
    encode_from: str,
) -> Any:
    """The settings of a study from texts of the command line."""
    from crosscoders.steering.steer_study import SteeringConfig

    return SteeringConfig(
        mode=_one_of("--mode", mode, ("ablate", "scale", "add")),
        acting=_one_of("--in", acting, ("after", "before")),
        strengths=() if strengths is None else _numbers(strengths),
        controls=controls,
        measure=measure,
        encoding=_one_of("--encode-from", encode_from, ("both", "own")),
    )


def _one_of(option: str, value: str, known: tuple[str, ...]) -> Any:
    from forensics.errors import UserError

    if value not in known:
        raise UserError(f"{option} is '{value}'; use {', '.join(known[:-1])} or {known[-1]}")
    return value


def _numbers(text: str) -> tuple[float, ...]:
    from math import isfinite

    from forensics.errors import UserError

    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or not all(map(isfinite, found)):
        raise UserError(f"--strengths '{text}' are not numbers; give for example 0.5,1,2")
    return found
