"""`forensics`: the frame of the command line.

Exit codes: 0 done, 1 the gate says no, 2 bad input (one sentence, no
traceback), 3 a failure of our own or of a plug-in, which is named (the
traceback goes to a file, or to the screen with `forensics --debug COMMAND`),
130 interrupted.

Other packages bring commands through the entry points `forensics.commands`. Listing them
imports none of them: the one line of help is read from the source of the command's module,
which is found without running it, so `forensics --help` stays fast however heavy a plug-in is.
A command is loaded when it is called, or when its own `--help` is.

An entry point names a function with typer annotations, or a `typer.Typer` with
commands below it. What the command-line library says of a line that it cannot
read is said in our own form: one sentence with a cure.
"""

import ast
import errno
import gc
import os
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from forensics.cli import commands
from forensics.cli.commands import check_server
from forensics.cli.twin_command import twin
from forensics.errors import RunInterrupted, UserError, models_missing, outside_failure
from forensics.plugins import load_point, package_of, plugin_points, two_of_a_name
from forensics.version import PACKAGE

GROUP = "forensics.commands"
BROKEN_PIPE = 141  # what a shell reports for a writer whose reader went away
SETTINGS: dict[str, Any] = {
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,
}


class Interrupted(Exception):
    """The user pressed Ctrl-C."""


class CommandGroup(TyperGroup):
    """Our own commands, then those of plug-ins; one that takes the name of one of ours is
    refused.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *sorted(self._plugins())]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        point = self._plugins().get(cmd_name)
        return super().get_command(ctx, cmd_name) if point is None else PluginCommand(point)

    def _plugins(self) -> dict[str, EntryPoint]:
        points = {point.name: point for point in plugin_points(GROUP)}
        for name in points.keys() & self.commands.keys():
            raise two_of_a_name(GROUP, name, PACKAGE, package_of(points[name]))
        return points

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        with told_in_a_sentence():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: Any) -> Any:
        self.debug = bool(ctx.params.get("debug"))
        try:
            with told_in_a_sentence():
                return super().invoke(ctx)
        except (
            KeyboardInterrupt
        ) as stop:  # told by main(), not as the library's "Aborted!" with code 1
            raise Interrupted from stop
        except BrokenPipeError:  # the reader went away (a pipe into head): not a gate's no
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(BROKEN_PIPE) from None


class PluginCommand(TyperCommand):
    """Stands for a plug-in's command until it is called."""

    def __init__(self, point: EntryPoint) -> None:
        super().__init__(point.name, help=one_line_help(point), rich_markup_mode=None)
        self._point = point

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        return load_command(self._point).make_context(info_name, args, parent, **extra)


def load_command(point: EntryPoint) -> Any:
    """The command that an entry point names. Raises `UserError` where its
    package cannot be imported.
    """
    found = load_point(GROUP, point)
    if not isinstance(found, typer.Typer):
        app = typer.Typer(**SETTINGS)
        app.command(point.name)(found)
        found = app
    return typer.main.get_command(found)


def one_line_help(point: EntryPoint) -> str:
    """The first line of the command's docstring, read from its source without
    importing anything.
    """
    try:
        source = find_source(point.module)
        body = ast.parse(source.read_text(encoding="utf-8")).body if source else []
    except (OSError, SyntaxError, ValueError, ImportError):
        body = []
    told = next((text for node in body if (text := help_of(node, point.attr))), "")
    return told or f"Provided by {package_of(point)}."


def find_source(module: str) -> Path | None:
    """The file of a module. The finders are asked part by part, as importing
    would, but nothing is run.
    """
    place: Any = None
    spec: Any = None
    parts = module.split(".")
    for i in range(len(parts)):
        name = ".".join(parts[: i + 1])
        found = (
            finder.find_spec(name, place)
            for finder in sys.meta_path
            if hasattr(finder, "find_spec")
        )
        spec = next((spec for spec in found if spec is not None), None)
        if spec is None:
            return None
        place = spec.submodule_search_locations
    return Path(spec.origin) if spec.origin and spec.origin.endswith(".py") else None


def help_of(node: ast.stmt, name: str) -> str:
    """The help of `def NAME` (its docstring) or of `NAME = typer.Typer(help=...)`."""
    if isinstance(node, ast.FunctionDef) and node.name == name:
        return (ast.get_docstring(node) or "").split("\n")[0]
    if isinstance(node, ast.Assign) and any(
        isinstance(t, ast.Name) and t.id == name for t in node.targets
    ):
        words = node.value.keywords if isinstance(node.value, ast.Call) else []
        texts = [
            word.value.value
            for word in words
            if word.arg == "help" and isinstance(word.value, ast.Constant)
        ]
        return str(texts[0]).strip().split("\n")[0] if texts else ""
    return ""


BadUsage: Any = typer.BadParameter.__mro__[
    1
]  # `UsageError`; the library has it under no public name
PLAIN_HELP = "NoArgsIsHelpError"  # a command group without a command: its help page, not a sentence


@contextmanager
def told_in_a_sentence() -> Iterator[None]:
    """Turn what the library raises for a bad command line into `UserError`."""
    try:
        yield
    except BadUsage as error:
        if type(error).__name__ == PLAIN_HELP:
            raise
        raise UserError(usage_sentence(error)) from None


def usage_sentence(error: Any) -> str:
    """The library's message, and where the help is: ``missing option
    '--before'; see `forensics ... --help` ``.
    """
    told = " ".join(error.format_message().split()).rstrip(".")
    command = error.ctx.command_path if error.ctx is not None else "forensics COMMAND"
    return f"{told[:1].lower()}{told[1:]}; see `{command} --help`"


DONE: Final = 0
BAD_INPUT: Final = 2
OUR_FAILURE: Final = 3
INTERRUPTED: Final = 130
RESUMED: Final = ("run again with --resume", "use --resume")
NOT_RESUMED: Final = frozenset(
    {
        "gate",
        "leaks",
        "report",
        "resample",
        "schema",
        "scrub-git",
        "twin",
        "validate",
        "watch",
    }
)
LOOP: Final = "Symlink loop from"  # as Python says it of a path that is resolved
PATHS: Final = {errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EACCES}
# OpenMP's idle threads give way: spinning is ten times slower where another job wants a
# core
SPINS: Final = "1000"


def build_app() -> typer.Typer:
    """The command line with our own commands; those of plug-ins are found when
    they are asked for.
    """
    app = typer.Typer(cls=CommandGroup, no_args_is_help=True, help=commands.HELP, **SETTINGS)
    app.callback()(_options)
    for command in (
        commands.investigate,
        commands.scan,
        commands.report,
        commands.gate,
        check_server,
        commands.schema,
        twin,
    ):
        app.command()(command)
    return app


def _options(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of a failure.")
    ] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the version and exit.",
            callback=commands.print_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """The options before a command."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command line and exit with its code."""
    os.environ.setdefault(
        "GOMP_SPINCOUNT", SPINS
    )  # read when torch is loaded, which no command has done yet
    code = run(list(sys.argv[1:] if arguments is None else arguments))
    gc.freeze()  # at its end Python searches nothing for cycles: seconds behind the last word
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run one command line; returns the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(
                errors="backslashreplace"
            )  # a terminal that lacks a letter is no failure
    group: Any = typer.main.get_command(build_app())
    try:
        group.main(args=arguments, prog_name="forensics")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else DONE
    except UserError as error:
        if getattr(group, "debug", False):
            sys.stderr.write("".join(traceback.format_exception(error)))
        return fail(_way_on(str(error), arguments), BAD_INPUT, arguments)
    except Interrupted as stop:
        return fail(_interrupted(stop.__cause__, arguments), INTERRUPTED, arguments)
    except Exception as error:
        if (missing := models_missing(error)) is not None:
            return fail(str(missing), BAD_INPUT, arguments)
        from forensics.records.files import as_user_error

        if isinstance(error, OSError):  # a full disk
            told = as_user_error(error, Path(error.filename or "the output"))
            if isinstance(told, UserError):
                return fail(_way_on(str(told), arguments), BAD_INPUT, arguments)
        if (refused := _about_a_given_path(error, arguments)) is not None:
            return fail(refused, BAD_INPUT, arguments)
        if (failure := outside_failure(error)) is not None:  # of the machine, not of ours
            return fail(_way_on(str(failure), arguments), BAD_INPUT, arguments)
        return fail(_keep_traceback(error, getattr(group, "debug", False)), OUR_FAILURE, arguments)
    return DONE


def _way_on(sentence: str, arguments: list[str]) -> str:
    """How to go on after a failure of the machine: a command without `--resume` is run again."""
    name = next((word for word in arguments if not word.startswith("-")), "")
    if name in NOT_RESUMED:
        for resumed in RESUMED:
            sentence = sentence.replace(resumed, "run again")
    return sentence


def fail(sentence: str, code: int, arguments: list[str]) -> int:
    """One line on stderr; where JSON was asked for, the same as an object on stdout. Where
    neither can be written, the code still tells: it must not become a gate's no.
    """
    from forensics.cli.console import say_json
    from forensics.report.escape import printable

    with _dropped_where_full(sys.stderr):
        sys.stderr.write(f"error: {printable(' '.join(sentence.split()))}\n")
    with _dropped_where_full(sys.stdout):
        if "--json" in arguments:
            say_json({"error": sentence, "exit_code": code})
    return code


@contextmanager
def _dropped_where_full(stream: Any) -> Iterator[None]:
    """What a full disk does not take goes nowhere, also what is left to write at the end."""
    try:
        yield
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _about_a_given_path(error: Exception, arguments: list[str]) -> str | None:
    """What is wrong with a path that was given, where the system refuses it; `None` for an
    error about anything else.
    """
    if isinstance(error, RuntimeError) and str(error).startswith(LOOP):
        place = str(error)[len(LOOP) :].strip(" '")
        return f"{place} is a link that leads back to itself; give another path"
    if not isinstance(error, OSError) or error.errno not in PATHS or not error.filename:
        return None
    place = os.fsdecode(error.filename)
    given = [word.partition("=")[2] or word for word in arguments]
    if not any(word and place.startswith(word.rstrip("/")) for word in given):
        return None
    return f"{place[:200]} cannot be opened ({error.strerror}); give another path"


def _interrupted(stop: BaseException | None, arguments: list[str]) -> str:
    """Whether the command can be gone on with, by what it left."""
    if not isinstance(stop, RunInterrupted):
        return "interrupted"
    if not stop.kept:
        return "interrupted before anything was stored; run the same command again"
    if "--resume" in arguments:
        return "interrupted; the same command goes on"
    instead = " instead of --force" if "--force" in arguments else ""
    return f"interrupted; the same command with --resume{instead} goes on"


def _keep_traceback(error: Exception, debug: bool) -> str:
    from forensics.plugins import failed_plugin

    text = "".join(traceback.format_exception(error))
    plugin = failed_plugin(error)
    what = f"{type(error).__name__}: {error}"
    what = f"{plugin} failed, {what}" if plugin else f"a failure of our own, {what}"
    if debug:
        sys.stderr.write(text)
        return what
    whom = " to its authors" if plugin else ""
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="forensics-", suffix=".txt", delete=False, encoding="utf-8"
        ) as file:
            file.write(text)
    except OSError:
        return f"{what}; please report it{whom} with the traceback that `forensics --debug` shows"
    return f"{what}; please report it{whom} with the traceback in {file.name}"
