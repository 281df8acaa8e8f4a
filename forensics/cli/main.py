"""`forensics`: the frame of the command line.

Exit codes: 0 done, 1 the gate says no, 2 bad input (one sentence, no
traceback), 3 a failure of our own or of a plug-in, which is named (the
traceback goes to a file, or to the screen with `forensics --debug COMMAND`),
130 interrupted.
"""

import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from forensics.cli import commands
from forensics.cli.plugin_commands import SETTINGS, CommandGroup, Interrupted
from forensics.errors import UserError

DONE: Final = 0
BAD_INPUT: Final = 2
OUR_FAILURE: Final = 3
INTERRUPTED: Final = 130
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
        commands.schema,
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
    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))


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
        return fail(str(error), BAD_INPUT, arguments)
    except Interrupted:
        return fail("interrupted; the same command with --resume goes on", INTERRUPTED, arguments)
    except Exception as error:
        from forensics.records.files import as_user_error

        if isinstance(error, OSError):  # a full disk
            told = as_user_error(error, Path(error.filename or "the output"))
            if isinstance(told, UserError):
                return fail(str(told), BAD_INPUT, arguments)
        return fail(_keep_traceback(error, getattr(group, "debug", False)), OUR_FAILURE, arguments)
    return DONE


def fail(sentence: str, code: int, arguments: list[str]) -> int:
    """One line on stderr; where JSON was asked for, the same as an object on stdout."""
    from forensics.cli.console import say_json
    from forensics.report.escape import printable

    sys.stderr.write(f"error: {printable(' '.join(sentence.split()))}\n")
    if "--json" in arguments:
        say_json({"error": sentence, "exit_code": code})
    return code


def _keep_traceback(error: Exception, debug: bool) -> str:
    from forensics.plugins import failed_plugin

    text = "".join(traceback.format_exception(error))
    plugin = failed_plugin(error)
    what = f"{type(error).__name__}: {error}"
    what = f"{plugin} failed, {what}" if plugin else f"a failure of our own, {what}"
    if debug:
        sys.stderr.write(text)
        return what
    with tempfile.NamedTemporaryFile(
        "w", prefix="forensics-", suffix=".txt", delete=False, encoding="utf-8"
    ) as file:
        file.write(text)
    whom = " to its authors" if plugin else ""
    return f"{what}; please report it{whom} with the traceback in {file.name}"
