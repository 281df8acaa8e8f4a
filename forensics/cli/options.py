"""Options that several commands share. Light at import: defaults are written
out, and a test holds them.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder to write.")]
Before = Annotated[
    Path, typer.Option("--before", metavar="CKPT", help="The checkpoint before training.")
]
After = Annotated[
    list[Path],
    typer.Option(
        "--after",
        metavar="CKPT",
        help="The checkpoint after it; again for each further training seed.",
    ),
]
OneAfter = Annotated[Path, typer.Option("--after", metavar="CKPT", help="The checkpoint after it.")]
PairWorld = Annotated[
    str | None,
    typer.Option(
        "--env",
        metavar="NAME",
        show_default=False,
        help=(
            "The installed environment to run both in.  [default: what environment.json in the"
            " before checkpoint names]"
        ),
    ),
]
Device = Annotated[
    str, typer.Option("--device", help="auto (CUDA where there is one), cpu, mps, cuda or cuda:N.")
]
Allow = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="KIND",
        help="A kind of action that is part of the job; may be given again.",
    ),
]
Accept = Annotated[
    list[str] | None,
    typer.Option(
        "--accept",
        metavar="FAMILY",
        help=(
            "Accept that scrubbing, refusal or regrading is not tested; may be "
            "given again. What found something stays."
        ),
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on stdout instead of text.")
]
EnvOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--env-option", metavar="K=V", help="An option of the environment; may be given again."
    ),
]
Seed = Annotated[int, typer.Option("--seed", help="The root of every random stream.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with what the folder holds.")]
Force = Annotated[bool, typer.Option("--force", help="Start over in a folder that is not empty.")]

SAMPLING: dict[
    str, tuple[Any, Any]
] = {  # of `SamplingSettings`: the option's default, and the option
    "temperature": (
        1.0,
        Annotated[float, typer.Option("--temperature", help="Sampling temperature; 0 is greedy.")],
    ),
    "top_k": (
        0,
        Annotated[int, typer.Option("--top-k", help="Draw from the K likeliest tokens; 0 is off.")],
    ),
    "top_p": (
        1.0,
        Annotated[
            float,
            typer.Option("--top-p", help="Draw from the likeliest tokens up to P; 1 is off."),
        ],
    ),
    "repetition_penalty": (
        1.0,
        Annotated[
            float,
            typer.Option(
                "--repetition-penalty",
                help="Divides the logits of tokens that the text has; 1 is off.",
            ),
        ],
    ),
    "presence_penalty": (
        0.0,
        Annotated[
            float,
            typer.Option(
                "--presence-penalty",
                help="Taken from the logits of tokens that were drawn; 0 is off.",
            ),
        ],
    ),
    "frequency_penalty": (
        0.0,
        Annotated[
            float,
            typer.Option(
                "--frequency-penalty",
                help="The same for each time that one was drawn; 0 is off.",
            ),
        ],
    ),
    "max_turn_tokens": (
        64,
        Annotated[int, typer.Option("--max-turn-tokens", help="Tokens an action may have.")],
    ),
    "max_tokens": (
        2048,
        Annotated[
            int, typer.Option("--max-tokens", help="Tokens of an episode, the prompt included.")
        ],
    ),
}


RUN: dict[str, tuple[Any, Any]] = {  # of `Run`: the option's default, and the option
    "seed": (0, Seed),
    **SAMPLING,
    "device": ("auto", Device),
    "resume": (False, Resume),
    "force": (False, Force),
    "as_json": (False, Json),
}


@dataclass(frozen=True, kw_only=True)
class Run:
    """How a command is run. `settings`: a `SamplingSettings`."""

    seed: int
    settings: Any
    device: str
    resume: bool
    force: bool
    as_json: bool


def with_sampling(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose parameter `settings` is given by one option for each of
    the sampling settings.
    """
    return _spread(command, "settings", SAMPLING, _settings)


def with_run(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose parameter `run`, a `Run`, is given by the options that
    every command with policies has.
    """

    def gathered(given: Mapping[str, Any]) -> Run:
        own = {name: value for name, value in given.items() if name not in SAMPLING}
        return Run(**own, settings=_settings({name: given[name] for name in SAMPLING}))

    return _spread(command, "run", RUN, gathered)


def _settings(given: Mapping[str, Any]) -> Any:
    from forensics.protocols import SamplingSettings

    return SamplingSettings(**given)


def _spread(
    command: Callable[..., None],
    name: str,
    options: Mapping[str, tuple[Any, Any]],
    gathered: Callable[[Mapping[str, Any]], Any],
) -> Callable[..., None]:
    """The command with `options` in the place of its parameter `name`, which is
    `gathered` of their values.
    """

    @wraps(command)
    def taken(**given: Any) -> None:
        chosen = {option: given.pop(option) for option in options}
        command(**given, **{name: gathered(chosen)})

    signature = inspect.signature(command)
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        parameters += (
            [parameter]
            if parameter.name != name
            else [
                inspect.Parameter(
                    option,
                    inspect.Parameter.POSITIONAL_OR_KEYWORD,
                    default=default,
                    annotation=annotation,
                )
                for option, (default, annotation) in options.items()
            ]
        )
    taken.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return taken
