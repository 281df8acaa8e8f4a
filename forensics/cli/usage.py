"""What the command-line library says of a line it cannot read, in our own form: one sentence with a cure."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from forensics.errors import UserError

BadUsage: Any = typer.BadParameter.__mro__[1]  # `UsageError`; the library has it under no public name
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
    """The library's message, and where the help is: ``missing option '--before'; see `forensics ... --help` ``."""
    told = " ".join(error.format_message().split()).rstrip(".")
    command = error.ctx.command_path if error.ctx is not None else "forensics COMMAND"
    return f"{told[:1].lower()}{told[1:]}; see `{command} --help`"
