"""The command `check-server`. Light at import."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from forensics.cli.options import (
    Device,
    EnvOptions,
    Force,
    Json,
    Resume,
    RunsWorld,
    Seed,
    parse_options,
    study_command,
)
from forensics.errors import UserError

ADDRESS = "The server's address, up to and with /v1; #NAME behind it where it serves several."
Kept = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Keep what it draws there, to go on where it was stopped."),
]
PROMPTS = "Draw behind these prompts, one a line, or JSON lines with `prompt`."


@dataclass(frozen=True, kw_only=True)
class Keeping:
    """Where a check keeps what it does, so that it can go on."""

    out: Kept = None
    resume: Resume = False
    force: Force = False

    @property
    def arguments(self) -> dict[str, Any]:
        """Those of `forensics.investigation.check_server`. Raises `UserError`."""
        if self.out is None and (self.resume or self.force):
            raise UserError("--resume and --force mean nothing without --out; name the folder")
        return vars(self)


@study_command
def check_server(
    server: Annotated[str, typer.Argument(metavar="URL[#MODEL]", help=ADDRESS)],
    checkpoint: Annotated[
        Path, typer.Option(metavar="DIR", help="The checkpoint that it claims to serve.")
    ],
    prompts: Annotated[Path | None, typer.Option(metavar="FILE", help=PROMPTS)] = None,
    env: RunsWorld = None,
    env_option: EnvOptions = None,
    tasks: Annotated[
        int, typer.Option(min=1, help="Episodes that the checkpoint plays here for contexts.")
    ] = 100,
    samples: Annotated[int, typer.Option(min=1, help="Draws behind each context.")] = 32,
    suspect: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="CKPT",
            help="A checkpoint that it may draw from instead, such as a drafter; repeatable.",
        ),
    ] = None,
    arithmetic: Annotated[
        str, typer.Option(metavar="DTYPE", help="The coarsest arithmetic that it may have.")
    ] = "bfloat16",
    settings: Any = None,
    seed: Seed = 0,
    device: Device = "auto",
    as_json: Json = False,
    *,
    keeping: Keeping,
) -> None:
    """Say whether a server draws from the policy that it claims to serve.

    Two tests: whether the log-probabilities that it tells are those of the
    checkpoint, and whether its draws come from it, whatever it tells. Exits
    with 0 if it draws it, 1 if it does not or there are not enough samples, 2
    for bad input.
    """
    from forensics.cli.console import progress_bars, say, say_json
    from forensics.investigation import Contexts, DrawsConfig, check_server as check
    from forensics.investigation.draws_report import report
    from forensics.investigation.inputs import choose_environment

    texts = () if prompts is None else _prompts(prompts)
    world = (
        None if texts else choose_environment(str(checkpoint), env, parse_options(env_option))[0]
    )
    config = DrawsConfig(
        settings=settings, samples=samples, seed=seed, arithmetic=arithmetic, device=device
    )
    with progress_bars() as progress:
        found = check(
            server,
            checkpoint,
            contexts=Contexts(prompts=texts, environment=world, tasks=tasks),
            suspects=suspect or (),
            config=config,
            progress=progress,
            **keeping.arguments,
        )
    say_json(found.as_json()) if as_json else say(report(found))
    raise typer.Exit(0 if found.verdict == "draws it" else 1)


def _prompts(file: Path) -> tuple[str, ...]:
    """Raises `UserError` for a file without any."""
    from forensics.records.given_files import parse_json, read_text

    cure = "write one prompt a line, or JSON lines with `prompt`"
    found: list[str] = []
    for line in filter(str.strip, read_text(file, "", cure).splitlines()):
        try:
            row = parse_json(line) if line.lstrip().startswith("{") else {"prompt": line}
        except ValueError as error:
            raise UserError(f"{file} has a line that is no JSON ({error}); {cure}") from None
        if not isinstance(row.get("prompt"), str) or not row["prompt"]:
            raise UserError(f"{file} has a line without a prompt; {cure}")
        found.append(row["prompt"])
    if not found:
        raise UserError(f"{file} holds no prompts; {cure}")
    return tuple(found)
