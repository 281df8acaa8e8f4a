"""The kinds of the actions in an answer, read by the parser that reads logs."""

from collections.abc import Sequence
from typing import Any

from forensics.actions import Action, actions_of
from forensics.actions.command_heads import FAMILIES, subcommand
from forensics.readers.messages import steps_of
from forensics.readers.values import run_of


def answer_kinds(messages: Sequence[Any], environment: str = "") -> tuple[str, ...]:
    """The kinds of the actions in the last answer of a conversation, in order: `edit`, `submit`,
    the name of a tool, the program of a command (`cat`), with its verb where it has some
    (`git log`). `environment`: whose language they are written in, where one is installed.
    """
    run = run_of(steps_of(list(messages)), id="", environment=environment)
    last = max((at for at, _ in run.actions), default=-1)
    return tuple(kind_of(action) for action in actions_of(run) if action.step == last)


def kind_of(action: Action) -> str:
    """The kind of one action."""
    if action.kind in ("edit", "submit"):
        return action.kind
    name = action.program.rpartition("/")[2] or action.program
    if action.kind != "command" or name not in FAMILIES:
        return name
    verb = subcommand(iter(action.arguments))
    return f"{name} {verb}" if verb.isidentifier() or "-" in verb else name
