"""Actions in one normal form, whatever harness wrote the log."""

from forensics.actions.action import Action, Kind
from forensics.actions.called_text import calls_in_text
from forensics.actions.command_heads import (
    Span,
    command_head,
    command_spans,
    executable_spans,
    executable_text,
)
from forensics.actions.command_lines import UNPARSED, actions_of_line
from forensics.actions.tool_calls import argument_object, command_line, head_word_actions
from forensics.actions.transcript import actions_of, exit_code
from forensics.actions.unified_diff import patched_files
from forensics.actions.unread import unread_actions
from forensics.actions.wrapped import unwrapped, unwrapped_run

__all__ = [
    "UNPARSED",
    "Action",
    "Kind",
    "Span",
    "actions_of",
    "actions_of_line",
    "argument_object",
    "calls_in_text",
    "command_head",
    "command_line",
    "command_spans",
    "executable_spans",
    "executable_text",
    "exit_code",
    "head_word_actions",
    "patched_files",
    "unread_actions",
    "unwrapped",
    "unwrapped_run",
]
