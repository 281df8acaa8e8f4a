"""The commands `diff` and `steer`. Light at import."""

from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Context, Option

from forensics.cli import (
    Before,
    EnvOptions,
    OneAfter,
    PairWorld,
    Run,
    Sampling,
    parse_options,
    say,
    study_command,
    tell,
)
from forensics.errors import UserError

KeepOutliers = Annotated[
    bool,
    Option(
        "--keep-outliers",
        help="Leave no attention sink (a row with over 10 times the median norm) out.",
    ),
]


SteeredBefore = Annotated[
    Path | None,
    Option("--before", metavar="CKPT", help="The checkpoint before training; here or in the file."),
]
SteeredAfter = Annotated[
    Path | None,
    Option("--after", metavar="CKPT", help="The checkpoint after it; here or in the file."),
]
BESIDE_A_FILE = ("experiment", "out", "resume", "force", "as_json", "device", "backend")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The options of `diff` that are fields of `DiffRequest`."""

    runs: Annotated[
        Path | None,
        Option(
            metavar="LOGS",
            help="Read these runs instead of playing: a case folder, trajectories in Parquet, or"
            " another tool's log.",
        ),
    ] = None
    texts: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="Read plain texts instead: .jsonl with a field `text`, or texts parted by empty"
            " lines.",
        ),
    ] = None
    site: Annotated[
        str, Option(metavar="SITE", help="A TransformerLens name; auto: chosen by patching.")
    ] = "auto"
    kind: Annotated[
        str | None,
        Option(
            metavar="KIND",
            help="The kind of action set against all others.  [default: the channel or kind whose"
            " use rose most]",
        ),
    ] = None
    dictionary: Annotated[
        Path | None,
        Option(
            metavar="PATH",
            help="Take this dictionary instead of training one: ours, or a SAELens SAE (of one"
            " model, or on both models' activations joined).",
        ),
    ] = None
    tokens: Annotated[
        int | None,
        Option(
            min=1,
            help="Tokens to train the dictionary on.  [default: 400000; in a network of more than"
            " 8 layers two passes over its texts, if that is less]",
        ),
    ] = None
    activations: Annotated[
        Path | None,
        Option(
            metavar="DIR",
            help="Keep here what is read of the checkpoints: another diff on the same texts, with"
            " another seed or size, reads none again.  [default: in --out, until it is done]",
        ),
    ] = None
    decisions: Annotated[
        int | None,
        Option(
            min=0,
            help="Decisions to patch at; 0 leaves patching out (then name a --site).  [default:"
            " 96; in a network of more than 8 layers 32]",
        ),
    ] = None
    seeds: Annotated[
        int,
        Option(
            min=1,
            metavar="N",
            help="First weights that the dictionary is trained from, side by side: what comes back"
            " in all of them is told. 1: stability is not measured.",
        ),
    ] = 3
    controls: Annotated[
        bool,
        Option(
            "--controls/--no-controls", help="Train the null controls too: two more dictionaries."
        ),
    ] = True
    baselines: Annotated[
        bool,
        Option(
            "--baselines/--no-baselines",
            help="Set a difference-SAE, PCA and mean differences beside it.",
        ),
    ] = True
    reader: Annotated[
        str,
        Option(
            metavar="NAME",
            help="Which reader of the difference leads the page: components or mean-after.",
        ),
    ] = "components"
    keep_outliers: KeepOutliers = False
    identical: Annotated[
        bool,
        Option(
            "--identical",
            help="Run a checkpoint against itself, as a control: nothing should be found.",
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The options of `diff` that are fields of `Shape`."""

    latents: Annotated[
        int | None, Option(min=1, help="Of the dictionary.  [default: four times the width]")
    ] = None
    after_only: Annotated[
        int | None,
        Option(
            min=0,
            help="Latents that speak of the after model alone.  [default: a 32nd of them, 8 at"
            " least]",
        ),
    ] = None
    k: Annotated[int, Option("--k", min=1, help="Active latents a token.")] = 12


@study_command
def diff(
    before: Before,
    after: OneAfter,
    asked: Asked,
    sizes: Sizes,
    env: PairWorld = None,
    env_option: EnvOptions = None,
    tasks: Annotated[int, Option(min=2, help="Held-out tasks to play.")] = 600,
    samples: Annotated[int, Option(min=1, help="Episodes for each task and checkpoint.")] = 4,
    settings: Any = None,
    *,
    run: Run,
) -> None:
    """Where and what did training change inside? Patching, then a sparse
    dictionary of both checkpoints.

    Writes diff.json, diff.html, patching.json, latents.parquet and the
    dictionary. `forensics steer` then tests what its latents cause.
    """
    from crosscoders.study.diff_files import READ_FIRST, DiffRequest, Shape
    from crosscoders.study.plan import plan
    from forensics.budget import Budget
    from forensics.study import Folder

    request = DiffRequest(
        before=before,
        after=after,
        environment=env,
        options=parse_options(env_option),
        shape=Shape(**vars(sizes)),
        budget=Budget(tasks=tasks, samples=samples, settings=settings),
        seed=run.seed,
        device=run.device,
        backend=run.backend,
        **vars(asked),
    )
    if request.dictionary is None:  # whose files may say the site
        begun = Folder(run.out.expanduser(), "diff", resume=run.resume)
        begun.require_started(request.stated(), (*READ_FIRST, "dictionary"))
    for line in plan(request, run.out if run.resume else None):
        tell(line)
    from crosscoders.study.pipeline import DiffStudy  # torch, after the plan was said

    run.carry_out(DiffStudy(request=request))


@dataclass(frozen=True, kw_only=True)
class Tested:
    """The options of `steer` that are keys of an experiment's file."""

    dictionary: Annotated[
        Path | None, Option(metavar="DIR", help="A saved dictionary of this pair.")
    ] = None
    features: Annotated[
        str | None,
        Option(
            metavar="LIST",
            help="Latents such as 12,17; or those most active before the measured behaviour: top:N"
            " of the specific ones, contrast:N of all.",
        ),
    ] = None
    at: Annotated[str, Option(help="deciding, kind:NAME or everywhere.")] = "deciding"
    latents: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="The table that top:N keeps to.  [default: latents.parquet beside the dictionary]",
        ),
    ] = None
    site: Annotated[str | None, Option(help="[default: where the dictionary was trained]")] = None
    keep_outliers: KeepOutliers = False
    tasks: Annotated[int, Option(min=2, help="Held-out tasks to report on.")] = 200
    choosing: Annotated[
        int, Option(min=2, help="Further ones, to choose latents and the measure on.")
    ] = 100
    samples: Annotated[int, Option(min=1, help="Episodes for each task and condition.")] = 4


@dataclass(frozen=True, kw_only=True)
class Changes:
    """The options of `steer` that are fields of `SteeringConfig`."""

    mode: Annotated[str, Option(help="ablate, scale or add.")] = "ablate"
    acting: Annotated[str, Option("--in", help="The model to change: after or before.")] = "after"
    strengths: Annotated[
        str | None,
        Option(
            metavar="A,B,...",
            help="All are run.  [default: 0.5,1,2 to ablate or add, 0,0.5,2 to scale]",
        ),
    ] = None
    controls: Annotated[int, Option(min=0, help="Random directions of equal norm.")] = 20
    measure: Annotated[
        str | None,
        Option(
            help="success, turns, channel:NAME or kind:NAME.  [default: the channel that changed"
            " most]"
        ),
    ] = None
    encoding: Annotated[
        str,
        Option(
            "--encode-from",
            help="both: the other model reads along (exact); own: the changed model alone, as for"
            " an SAE of one model.",
        ),
    ] = "both"


@study_command
def steer(
    experiment: Annotated[
        Path | None,
        Argument(
            metavar="EXPERIMENT.toml",
            help="A file that says all that the options below do, and what is predicted; beside it"
            " take only --out, --resume, --force, --json, --device and --backend.",
        ),
    ] = None,
    *,
    before: SteeredBefore = None,
    after: SteeredAfter = None,
    tested: Tested,
    changes: Changes,
    env: PairWorld = None,
    env_option: EnvOptions = None,
    settings: Any = None,
    context: Context,
    run: Run,
) -> None:
    """What do features of a dictionary cause? Ablate, scale or add them while
    the policy acts, next to controls.

    Writes steering.json: one row for each intervention and control, with
    channel use and success; and steering.html, its curves.
    """
    if experiment is not None:
        _experiment(experiment, context, run)
        return
    needed: dict[str, Any] = {"before": before, "after": after, **vars(tested)}
    for name in ("before", "after", "dictionary", "features"):
        if needed[name] is None:
            raise UserError(f"steer needs --{name}; give it, or an experiment in a TOML file")
    from crosscoders.steering.experiment import steering_of
    from crosscoders.steering.experiment_file import SteeringConfig

    config: dict[str, Any] = vars(changes) | {"strengths": numbers(changes.strengths)}
    study = steering_of(
        environment=env,
        options=parse_options(env_option),
        settings=settings,
        seed=run.seed,
        device=run.device,
        backend=run.backend,
        config=SteeringConfig(**config),
        **needed,
    )
    run.carry_out(study)
    _redraw(run)


def _experiment(path: Path, context: Context, run: Run) -> None:
    from crosscoders.steering.experiment_file import read_experiment

    for option in context.command.params:
        source = context.get_parameter_source(str(option.name))
        if option.name not in BESIDE_A_FILE and getattr(source, "name", "") == "COMMANDLINE":
            raise UserError(
                f"{option.opts[0]} and {path} exclude each other; say it in the file, so that its"
                " hash covers it"
            )
    read = read_experiment(path)
    tell(f"Experiment {path}, sha256 {read.sha256}")
    places = {name: place and read.place(place) for name, place in read.table.places.items()}
    stated: dict[str, Any] = read.table.sampling
    settings = Sampling(**stated).settings(places)
    from crosscoders.steering.experiment import SteeringExperiment

    study = SteeringExperiment(
        experiment=read, settings=settings, device=run.device, backend=run.backend
    )
    run.carry_out(study)
    _redraw(run)


def _redraw(run: Run) -> None:
    """The page of the diff that this folder is, or lies in, with the curves in it."""
    from crosscoders.study.diff_files import DIFF, STEERED, STEERED_READER
    from crosscoders.study.diff_page import write_page

    inside = run.out.name in (STEERED, STEERED_READER)
    places = (run.out, run.out.parent) if inside else (run.out,)
    diff = next((place for place in places if (place / DIFF).is_file()), None)
    if diff is None:
        return
    page = write_page(diff)
    if not run.as_json:
        say(f"Redrew {page}")


def numbers(text: str | None) -> tuple[float, ...]:
    """The strengths in `A,B,...`. Raises `UserError` for what are no numbers."""
    if text is None:
        return ()
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or not all(map(isfinite, found)):
        raise UserError(f"--strengths '{text}' are not numbers; give for example 0.5,1,2")
    return found
