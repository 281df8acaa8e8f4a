"""The commands in what a policy wrote: where each one stands, and of which kind it is.

1. What acts is the tool calls, else the commands of the text (`forensics.acts.heads`).
2. Kinds that the environment or the log names are dealt out in order. Where it names fewer, the last one gets the rest
   of the text (an answer in prose is one command). Where it names none, a command's kind is its head.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from forensics.acts.heads import Span, acting_spans, command_spans, head_of

UNNAMED: Final = "unnamed"  # the kind of what does not begin with a name
TEXT: Final = "text"  # what stands before the first command: thoughts, words to the reader


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command: it starts at the character `start`; what follows up to the next one's start is its own."""

    start: int
    kind: str


def commands_of(text: str, kinds: Sequence[str] = (), calls: Sequence[str] = ()) -> tuple[Command, ...]:
    """The commands of an action in order; at least one. `kinds`: as they were named; `calls`: names of tool calls."""
    spans = _calls(text, calls) if calls else [
        span for part in acting_spans(text) for span in command_spans(text, *part)]
    named = tuple(kinds) or tuple(calls) or tuple(head_of(text[start:end]) or UNNAMED for start, end in spans)
    starts = [start for start, _ in spans] or [0]
    return tuple(Command(start=start, kind=kind) for start, kind in zip(starts, named or (UNNAMED,), strict=False))


def _calls(text: str, names: Sequence[str]) -> list[Span]:
    """Where the tool calls are named; the whole text where one cannot be found."""
    found: list[Span] = []
    at = 0
    for name in names:
        start = text.find(name, at)
        if start < 0:
            return [(0, len(text))]
        at = start + len(name)
        found.append((start, at))
    return found
