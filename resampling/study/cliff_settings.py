"""The options of `cliffs` and `resample`: which runs, who goes on with them, and
what is sought. Light at import.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from forensics.cli import EnvOptions, RunsWorld, ServerModel, Without, parse_options
from forensics.errors import UserError

if TYPE_CHECKING:
    from forensics.policies import ServerConfig

WHICH: Final = ("lost", "won", "all")


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which runs of a log are looked at.

    `runs`: by outcome. `most`: how many, spread evenly over the tasks in the
    order of the log. `only`: these ids (or the first letters of them); then
    `runs` and `most` do not count. `without`: the scrubbed channels of their
    world.
    """

    runs: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(WHICH),
            show_default=False,
            help="Which runs.  [default: lost; with --rises won]",
        ),
    ] = None
    most: Annotated[
        int, typer.Option(min=1, help="How many runs at most, spread over the tasks.")
    ] = 20
    only: Annotated[
        list[str] | None,
        typer.Option("--trajectory", metavar="ID", help="This run; repeatable."),
    ] = None
    without: Without = None

    def __post_init__(self) -> None:
        if self.runs not in (None, *WHICH):
            raise UserError(f"--runs {self.runs} is none of {', '.join(WHICH)}")


@dataclass(frozen=True, kw_only=True)
class Source:
    """Who goes on with the runs, and in which world. With a `server` that one
    samples, and the local checkpoint only scores.
    """

    policy: Annotated[
        Path,
        typer.Option(
            metavar="CKPT",
            help=(
                "The checkpoint that continues the runs. Of a log with runs of several, its own"
                " are taken."
            ),
        ),
    ]
    env: RunsWorld = None
    env_option: EnvOptions = None
    server: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            show_default=False,
            help="A server of completions (vLLM, SGLang) that samples instead, up to and with /v1.",
        ),
    ] = None
    server_model: ServerModel = None

    @property
    def options(self) -> dict[str, str]:
        """Of the environment. Raises `UserError` where they are not `K=V`."""
        return parse_options(self.env_option)

    @property
    def served(self) -> "ServerConfig | None":
        """The server. Raises `UserError` where only the name of a model is given."""
        from forensics.policies import ServerConfig

        if self.server is None:
            if self.server_model is not None:
                raise UserError("--server-model names what a server serves; give --server too")
            return None
        return ServerConfig(url=self.server, model=self.server_model)


@dataclass(frozen=True, kw_only=True)
class Sought:
    """What is looked for, how surely, and what it may cost."""

    rises: Annotated[
        bool, typer.Option("--rises", help="Look for tokens that win a run instead.")
    ] = False
    delta: Annotated[
        float, typer.Option(help="The drop of the chance of success that should be found.")
    ] = 0.2
    fdr: Annotated[float, typer.Option(help="Share of false ones among the reported, at most.")] = (
        0.05
    )
    budget: Annotated[
        int | None,
        typer.Option(
            min=1,
            show_default=False,
            help="Rollouts that search and confirmation may take.  [default: 1,000 a run]",
        ),
    ] = None
    delete_keep: Annotated[
        int,
        typer.Option(min=0, help="Fresh rollouts before and after each cliff; 0 leaves them out."),
    ] = 64
