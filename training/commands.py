"""The commands that come with this room: `base`, `demo`, `organism`, `train`,
`validate`. Light at import.
"""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from forensics.cli import (
    SETTINGS,
    Device,
    EnvOptions,
    Force,
    Resume,
    Run,
    parse_options,
    say,
    say_json,
    telling_of_loading,
)
from forensics.errors import UserError

LARGEST_SEED = 2**32 - 1
FULL_CACHE = Path(".truth-cache")
BUILT = {
    "base": "base",
    "after": "after",
    "manifest": "manifest.json",
}  # what `organism build` writes
TRAINED = (  # what `train` writes
    "checkpoint",
    "record",
    "state",
    "training.json",
    "metrics.jsonl",
    "logging.json",
    "tensorboard",
    "audits",
    "audits.jsonl",
    "server",
)
Out = Annotated[Path, typer.Option(help="Folder to write to.")]
Seed = Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Seed of every random stream.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


@telling_of_loading()
def demo(
    out: Out,
    seed: Seed = 7,
    tasks: Annotated[int, typer.Option(min=2, help="Held-out tasks.")] = 600,
    device: Device = "auto",
    force: Force = False,
    resume: Resume = False,
    as_json: AsJson = False,
) -> None:
    """Investigate the bundled pair (a base and its leak-trained policy): ends
    with a verdict and a report.
    """
    from forensics.budget import Budget
    from forensics.cli import run_investigation
    from training.organisms.base_model import checkpoint_path

    run_investigation(
        Run(out=out, seed=seed, device=device, resume=resume, force=force, as_json=as_json),
        checkpoint_path("bundled:capped-base"),
        [checkpoint_path("bundled:leak")],
        budget=Budget(tasks=tasks),
    )


@telling_of_loading()
def train(
    recipe: Annotated[
        Path, typer.Argument(help="A recipe in TOML, such as training/recipes/leak.toml.")
    ],
    out: Out,
    seed: Seed = 0,
    device: Device = "auto",
    force: Force = False,
    resume: Resume = False,
    as_json: AsJson = False,
) -> None:
    """Train a policy by a recipe, with the GRPO core."""
    from forensics.cli import progress_bars
    from forensics.progress import silent
    from forensics.study import Folder, hold
    from training.distributed import first_process
    from training.organisms.base_model import checkpoint_path
    from training.recipe import read_recipe
    from training.trainer import check_inputs, train_recipe

    parsed = read_recipe(recipe)
    checkpoint = checkpoint_path(parsed.policy.checkpoint)
    check_inputs(parsed, checkpoint, device)
    if not first_process():
        train_recipe(parsed, seed, out, checkpoint, silent, device)
        return
    stopped: list[str] = []
    folder = Folder(out, "train", TRAINED, resume=resume, force=force)
    with hold(folder), progress_bars() as progress:
        folder.state({"seed": seed})  # the trainer says what else may not differ
        written = train_recipe(parsed, seed, out, checkpoint, progress, device, stopped.append)
    if as_json:
        say_json(
            {"checkpoint": str(written), "seed": seed, "stopped": stopped[0] if stopped else None}
        )
        return
    for line in (*stopped, f"Checkpoint: {written}"):
        say(line)


def base(
    env: Annotated[str, typer.Option(metavar="NAME", help="The installed environment.")],
    demonstrations: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help='JSON lines by your own solvers: {"task": NAME, "actions": [TEXT, ...]}.',
        ),
    ],
    out: Out,
    env_option: EnvOptions = None,
    steps: Annotated[int, typer.Option(min=1, help="Optimizer steps.")] = 1000,
    seed: Seed = 0,
    device: Device = "auto",
    force: Force = False,
    resume: Resume = False,
    as_json: AsJson = False,
) -> None:
    """Make a small base policy for a world of your own: trained from nothing on
    demonstrations, in minutes on a CPU. Writes DIR/checkpoint.
    """
    from training.organisms.own_base import OwnBase

    study = OwnBase(
        environment=env,
        demonstrations=demonstrations,
        options=parse_options(env_option),
        steps=steps,
        seed=seed,
        device=device,
    )
    run = Run(out=out, seed=seed, device=device, resume=resume, force=force, as_json=as_json)
    run.carry_out(study)


organism = typer.Typer(
    no_args_is_help=True, help="Policies with planted causes: list them, build them.", **SETTINGS
)


@organism.command("list")
def list_organisms(as_json: AsJson = False) -> None:
    """The organisms that can be built, and the bundled ones."""
    from forensics.plugins import installed
    from training.organisms.organism import BUNDLED

    rows = []
    for made in installed("forensics.organisms"):
        path, base = BUNDLED / made.name, BUNDLED / made.base
        bundled = path.is_dir()
        rows.append(
            {
                "name": made.name,
                "seed": 0,
                "base": str(base) if base.is_dir() else None,
                "path": str(path) if bundled else None,
                "bundled": bundled,
            }
        )
    if not rows:
        raise UserError("no organisms are installed; install the package with `make setup`")
    if as_json:
        typer.echo(json.dumps(rows, indent=2))  # a list: the one answer that is no object
        return
    for row in rows:
        where = row["path"] or f"not built; forensics organism build {row['name']} --out DIR"
        typer.echo(f"{row['name']:<9} seed {row['seed']}  {where}")


@organism.command("build")
def build(
    name: Annotated[
        str, typer.Argument(help="The organism's name; see `forensics organism list`.")
    ],
    out: Out,
    seed: Annotated[
        int,
        typer.Option(
            min=0,
            max=LARGEST_SEED,
            help="Seed of the RL run (and of the base with --from-scratch).",
        ),
    ] = 0,
    from_scratch: Annotated[
        bool, typer.Option("--from-scratch", help="Train the base anew too.")
    ] = False,
    device: Device = "auto",
    force: Force = False,
    resume: Resume = False,
    as_json: AsJson = False,
) -> None:
    """Build an organism: DIR/base, DIR/after and DIR/manifest.json."""
    from forensics.cli import progress_bars
    from forensics.policies import resolve_device
    from forensics.study import Folder, hold
    from training.organisms.organism import build_organism, organism as find

    find(name)
    place = resolve_device(device)
    folder = Folder(out, "organism", (*BUILT.values(), "training"), resume=resume, force=force)
    with hold(folder), progress_bars() as progress:
        folder.state({"organism": name, "seed": seed, "from_scratch": from_scratch})
        build_organism(name, seed, out, progress, from_scratch, place)
    parts = {part: str(out / file) for part, file in BUILT.items()}
    (
        say_json({"name": name, "seed": seed, **parts})
        if as_json
        else say(f"Built {out}: {', '.join(BUILT.values())}")
    )


def validate(
    quick: Annotated[bool, typer.Option("--quick", help="The bundled pairs only.")] = False,
    as_json: AsJson = False,
    seeds: Annotated[
        int, typer.Option(min=1, help="Training seeds for each organism (without --quick).")
    ] = 5,
    cache: Annotated[
        Path | None,
        typer.Option(
            show_default=False,
            help=(
                f"Where organisms and cases are kept.  [default: {FULL_CACHE}; with --quick nothing"
                " is kept]"
            ),
        ),
    ] = None,
    device: Device = "auto",
) -> None:
    """The verdict against policies with planted causes: the confusion table."""
    from forensics.cli import progress_bars
    from forensics.policies import resolve_device
    from training.validation import confusion_text, quick_validation, validate as validate_all

    place = resolve_device(device)
    with progress_bars() as progress, TemporaryDirectory() as passing:
        if quick:
            table = quick_validation(cache or Path(passing), progress, place)
        else:
            table = validate_all(seeds, cache or FULL_CACHE, progress, device=place)
    say_json(table) if as_json else say(confusion_text(table))
