"""The commands in what a policy wrote: where each one stands, and of which kind it is.

1. What acts is the tool calls, else the fenced blocks, else the text outside `<think>`.
2. It is split at line ends and at `;`, `|`, `&`, `&&`, `||` outside quotes; the text of a here-document belongs to its
   command.
3. Kinds that the environment or the log names are dealt out in order. Where it names fewer, the last one gets the rest
   of the text (an answer in prose is one command). Where it names none, a command's kind is its head: the first word
   without assignments, wrappers (`sudo`) and folders, with the second word where the first names a family (`git log`).
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

FAMILIES: Final = frozenset({"apt", "apt-get", "cargo", "conda", "docker", "git", "go", "kubectl", "npm", "pip", "uv"})
WRAPPERS: Final = frozenset({"command", "env", "exec", "nice", "nohup", "sudo", "time", "xargs"})
UNNAMED: Final = "unnamed"  # the kind of what does not begin with a name
TEXT: Final = "text"  # what stands before the first command: thoughts, words to the reader
_FENCED = re.compile(r"^```[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
_THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
_END = re.compile(r"""'[^'\n]*'|"(?:\\.|[^"\\\n])*"|(?P<end>&&|\|\||[;|\n]|(?<!>)&(?!>))""")
_HERE = re.compile(r"<<-?\s*['\"]?(\w+)['\"]?")
_NAME = re.compile(r"[A-Za-z_.][\w.+-]*")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
Span = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command: it starts at the character `start`; what follows up to the next one's start is its own."""

    start: int
    kind: str


def commands_of(text: str, kinds: Sequence[str] = (), calls: Sequence[str] = ()) -> tuple[Command, ...]:
    """The commands of an action in order; at least one. `kinds`: as they were named; `calls`: names of tool calls."""
    spans = _calls(text, calls) if calls else [span for part in _acting(text) for span in _commands(text, *part)]
    named = tuple(kinds) or tuple(calls) or tuple(_head(text[start:end]) for start, end in spans)
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


def _acting(text: str) -> Iterator[Span]:
    fenced = [match.span(1) for match in _FENCED.finditer(text)]
    if fenced:
        yield from fenced
        return
    at = 0
    for match in _THOUGHT.finditer(text):
        yield at, match.start()
        at = match.end()
    yield at, len(text)


def _commands(text: str, at: int, end: int) -> Iterator[Span]:
    """The commands between two characters, without the white space before them."""
    start = at
    while start < end:
        found = _next_end(text, start, end)
        stop = end if found is None else found.start()
        if found is not None and found["end"] == "\n" and (here := _HERE.search(text, start, stop)):
            closing = re.compile(rf"^[ \t]*{here[1]}[ \t]*$", re.MULTILINE).search(text, stop, end)
            stop = end if closing is None else closing.end()
            found = None
        lead = len(text[start:stop]) - len(text[start:stop].lstrip())
        if start + lead < stop:
            yield start + lead, stop
        start = stop if found is None else found.end()
        start += found is None and start < end


def _next_end(text: str, at: int, end: int) -> re.Match[str] | None:
    return next((match for match in _END.finditer(text, at, end) if match["end"]), None)


def _head(command: str) -> str:
    rest = command.split()
    while rest and (_ASSIGNMENT.fullmatch(rest[0]) or rest[0] in WRAPPERS):
        rest.pop(0)
    first = rest[0].rpartition("/")[2] if rest else ""
    if not _NAME.fullmatch(first):
        return UNNAMED
    second = next((word for word in rest[1:] if not word.startswith("-")), "") if first in FAMILIES else ""
    return f"{first} {second}" if _NAME.fullmatch(second) else first
