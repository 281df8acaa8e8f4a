"""Kinds of action where neither the environment nor the log names them: the heads of the commands.

What acts in an action is its tool calls, its fenced blocks, or its text without thoughts; how it is split into
commands, and what the head of one is, is told by `forensics.acts.heads`. What does not begin with a name is `other`.
"""

from collections.abc import Sequence

from forensics.acts.heads import command_spans, head_of
from forensics.layers.actions import command_of
from forensics.records import Step

OTHER = "other"


def action_kinds(text: str, named: Sequence[str]) -> tuple[str, ...]:
    """The kinds that an environment or a log names, else the heads of the commands in the text."""
    return tuple(named) if named else command_kinds(command_of(Step(role="assistant", text=text)))


def command_kinds(text: str) -> tuple[str, ...]:
    """The head of every command, in order; `()` where there is no command."""
    return tuple(head_of(text[start:end]) or OTHER for start, end in command_spans(text, shell=True))
