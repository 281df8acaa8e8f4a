"""Options that several commands share. Light at import: defaults are written
out, and a test holds them.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from forensics.errors import UserError

Out = Annotated[Path, typer.Option(metavar="DIR", help="The folder to write.")]
Before = Annotated[Path, typer.Option(metavar="CKPT", help="The checkpoint before training.")]
After = Annotated[
    list[Path],
    typer.Option(
        metavar="CKPT",
        help="The checkpoint after it; again for each further training seed.",
    ),
]
BeforeOrServer = Annotated[
    Path | None,
    typer.Option(
        "--before", metavar="CKPT", help="The checkpoint before training; not with --harness."
    ),
]
AfterOrServer = Annotated[
    list[Path] | None,
    typer.Option(
        "--after", metavar="CKPT", help="The checkpoint after it; again for each training seed."
    ),
]
HarnessFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Let your own agent play: a harness.toml with its command, tasks and channels. Takes"
        " --before-server and --after-server, and no checkpoints.",
    ),
]
PlacedLogs = Annotated[
    list[str] | None,
    typer.Option(
        "--logs",
        metavar="SIDE[/WORLD]=PATH",
        help=(
            "Logs of another harness, in place of checkpoints: before, before/scrubbed, after,"
            " after/scrubbed, after/without:CHANNEL; after-1 for a further training seed."
        ),
    ),
]
OneAfter = Annotated[Path, typer.Option(metavar="CKPT", help="The checkpoint after it.")]
PairWorld = Annotated[
    str | None,
    typer.Option(
        "--env",
        metavar="NAME",
        help=(
            "The installed environment to run both in: prompts (your own questions), mini-repo"
            " (made for small policies), or yours.  [default: the one that environment.json in"
            " the before checkpoint names]"
        ),
    ),
]
RecordedTraining = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="The folder of the recorded training run: ours, or what verl, TRL or prime-rl dumped.",
    ),
]
TrainedTasks = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help=(
            "The training tasks, one name or prompt a line; held-out tasks that repeat them are"
            " listed, or audits of another kind of question told."
        ),
    ),
]
PlaceboRecipe = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="The training recipe, to train a placebo that a coin flip rewards.",
    ),
]
Instruments = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES",
        help="Measure with these only, separated by commas; -NAME leaves one out, +NAME adds one.",
    ),
]
Quick = Annotated[
    bool,
    typer.Option(
        "--quick",
        help="A first answer in minutes: the score, scrubbing, the prompt's parts, the grader, on"
        " fewer tasks. Says what it left out; --resume without it measures that on these tasks.",
    ),
]
RunsWorld = Annotated[
    str | None,
    typer.Option(
        "--env",
        metavar="NAME",
        help=(
            "The environment of the runs.  [default: the one in the checkpoint's environment.json]"
        ),
    ),
]
Without = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CHANNEL",
        help="Use runs of the world without this channel; repeatable.",
    ),
]
ServerModel = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The model name that the server uses for the checkpoint.",
    ),
]
BeforeServer = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help=(
            "A server that plays the checkpoint before training, up to and with /v1; #NAME behind"
            " it where it serves several. CKPT needs its tokenizer only."
        ),
    ),
]
AfterServer = Annotated[
    list[str] | None,
    typer.Option(metavar="URL", help="The same for the checkpoint after it; again for each."),
]
Device = Annotated[
    str, typer.Option(help="auto (CUDA where there is one), cpu, mps, cuda or cuda:N.")
]
Backend = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="What runs the checkpoints: huggingface, transformer-lens, nnsight, or your own.",
    ),
]
Allow = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KIND",
        help="A kind of action that is part of the job; repeatable.",
    ),
]
Rule = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help=(
            "Judge by a rule of your own: a TOML file with `version` (its name) and any of level,"
            " margin, widest."
        ),
    ),
]
Accept = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TEST",
        help=(
            "Waive a gain test (`interventions`: all but scrubbing); repeatable. You cannot waive"
            " a test that found something."
        ),
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on stdout instead of text.")
]
EnvOptions = Annotated[
    list[str] | None,
    typer.Option(metavar="K=V", help="An option of the environment; repeatable."),
]
Seed = Annotated[int, typer.Option(help="The seed of every random stream.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue from what the folder holds.")]
Force = Annotated[bool, typer.Option("--force", help="Start over in a folder that is not empty.")]


STATED = "[default: as in the case or the training, else {}]"


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """The options of `SamplingSettings`; `None` where none was given."""

    temperature: Annotated[
        float | None,
        typer.Option(help=f"Sampling temperature; 0 is greedy.  {STATED.format('1.0')}"),
    ] = None
    top_k: Annotated[
        int | None,
        typer.Option(help=f"Sample from the K likeliest tokens; 0 is off.  {STATED.format('0')}"),
    ] = None
    top_p: Annotated[
        float | None,
        typer.Option(
            help=f"Sample from the likeliest tokens up to P; 1 is off.  {STATED.format('1.0')}"
        ),
    ] = None
    repetition_penalty: Annotated[
        float | None,
        typer.Option(
            help=f"Divide the logits of tokens already in the text; 1 is off.  {STATED.format('1')}"
        ),
    ] = None
    presence_penalty: Annotated[
        float | None,
        typer.Option(
            help=f"Subtract this from the logits of sampled tokens; 0 is off.  {STATED.format('0')}"
        ),
    ] = None
    frequency_penalty: Annotated[
        float | None,
        typer.Option(
            help=f"Subtract this for each time a token was sampled; 0 is off.  {STATED.format('0')}"
        ),
    ] = None
    max_turn_tokens: Annotated[
        int | None, typer.Option(help=f"Most tokens of one action.  {STATED.format('64')}")
    ] = None
    max_tokens: Annotated[
        int | None,
        typer.Option(
            help=f"Most tokens of an episode, including the prompt.  {STATED.format('2048')}"
        ),
    ] = None

    def settings(self, given: Mapping[str, Any]) -> Any:
        """The `SamplingSettings`, which are not loaded for `--help`. What no option says is taken
        from what the command was `given`: a case folder, checkpoints or a training.
        """
        from forensics.investigation.stated_settings import stated_sampling
        from forensics.protocols import SamplingSettings

        own = {name: value for name, value in vars(self).items() if value is not None}
        after = given.get("after", given.get("before"))
        checkpoints = [*(after if isinstance(after, list | tuple) else [after])]
        stated = stated_sampling(
            given.get("logs") or given.get("runs"),
            [given.get("policy"), given.get("checkpoint"), *checkpoints],
        ) or stated_sampling(given.get("training"), ())
        taken = {} if stated is None else {n: v for n, v in stated.values.items() if n not in own}
        if given.get("harness"):  # an agent's turns are long
            own = {"max_turn_tokens": 4096, "max_tokens": 131_072} | own
        settings = SamplingSettings(**taken | own)
        usual = vars(SamplingSettings())
        told = [f"{name} {value:g}" for name, value in taken.items() if value != usual[name]]
        if stated is not None and told:
            typer.echo(f"Sampling as {stated.where} says: {', '.join(told)}", err=True)
        return settings


@dataclass(frozen=True, kw_only=True)
class Run:
    """How a command that makes a folder is run."""

    out: Out
    seed: Seed = 0
    device: Device = "auto"
    backend: Backend = "huggingface"
    resume: Resume = False
    force: Force = False
    as_json: Json = False

    @property
    def arguments(self) -> dict[str, Any]:
        """Those that functions which make a folder share."""
        return {name: value for name, value in vars(self).items() if name != "as_json"}

    def carry_out(self, study: Any) -> None:
        """Run a `forensics.study.Study` in the folder, with progress on stderr,
        and say what it found.
        """
        from forensics.cli.console import progress_bars
        from forensics.report import table_text
        from forensics.study import run_study

        with progress_bars() as progress:
            result = run_study(
                study, self.out, resume=self.resume, force=self.force, progress=progress
            )
        suffix = "json" if result.page is None else "html"
        told = [*map(table_text, result.tables), *result.sentences]
        self.say(result.summary, told, f"{study.name}.{suffix}")

    def say(self, summary: Mapping[str, Any], told: Iterable[str], file: str) -> None:
        """The answer on stdout: one JSON object, or text and the file to look at."""
        from forensics.cli.console import say, say_json

        if self.as_json:
            say_json({"case": str(self.out), **summary})
            return
        say("\n".join(told))
        say(f"\n{'Report:' if file.endswith('.html') else 'Wrote'} {self.out / file}")


def parse_options(texts: Sequence[str] | None) -> dict[str, str]:
    """`K=V` texts as a mapping; a key without a value, or one given twice, is refused."""
    options: dict[str, str] = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise UserError(f"--env-option '{text}' is not of the form K=V")
        if key in options:
            raise UserError(f"--env-option {key} was given twice; give it once")
        options[key] = value
    return options


def parse_logs(texts: Sequence[str]) -> dict[str, Path]:
    """`SIDE[/WORLD]=PATH` texts as a mapping; a place that was given twice is refused."""
    places: dict[str, Path] = {}
    for text in texts:
        place, equals, path = text.partition("=")
        if not place or not equals or not path:
            raise UserError(f"--logs '{text}' is not of the form SIDE[/WORLD]=PATH")
        if place in places:
            raise UserError(f"--logs {place} was given twice; give one file or folder for it")
        places[place] = Path(path)
    return places


@dataclass(frozen=True, kw_only=True)
class Compared:
    """What `investigate` compares, and in which world."""

    before: BeforeOrServer = None
    after: AfterOrServer = None
    log_places: PlacedLogs = None
    env: PairWorld = None
    env_option: EnvOptions = None
    harness: HarnessFile = None


def study_command(command: Callable[..., None]) -> Callable[..., None]:
    """A command of which each parameter that is a dataclass, such as `Run`, is
    given by one option for each of its fields, and `settings`, a
    `SamplingSettings`, by those of `Sampling`.
    """
    own = inspect.signature(command).parameters.values()
    kinds: dict[str, Any] = {p.name: p.annotation for p in own if is_dataclass(p.annotation)}
    kinds |= {p.name: Sampling for p in own if p.name == "settings"}
    spread = {name: inspect.signature(kind).parameters for name, kind in kinds.items()}

    @wraps(command)
    def taken(**given: Any) -> None:
        from forensics.cli.console import telling_of_loading

        told = dict(given)
        with telling_of_loading(models=not given.get("log_places")):
            for name, options in spread.items():
                made = kinds[name](**{option: given.pop(option) for option in options})
                given[name] = made.settings(told) if name == "settings" else made
            command(**given)

    parameters = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for one in own
        for parameter in (spread[one.name].values() if one.name in spread else [one])
    ]
    taken.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return taken
