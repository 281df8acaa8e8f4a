"""Commands in a text by their heads: where each one stands, and which program
it names.

1. What acts in a text is its fenced blocks, else what stands outside `<think>`.
2. It is split at line ends and at `;`, `|`, `&`, `&&`, `||` outside quotes; the
   text of a here-document belongs to the last command of its line.
3. The head of a command is its first word without assignments (`X=1`), wrappers
   (`sudo`, `time`) and folders, with the second word where the first names a
   family (`git log`, `pip install`); `python -m tool` is `tool`.

Small on purpose, for texts that may be no shell at all and for places within
them: no grammar is read here. What a command line does is told by
`forensics.actions.command_lines`.
"""

import re
from collections.abc import Iterator

from forensics.actions.untrusted import TABLES

FAMILIES = frozenset(TABLES["names"]["head_families"])
WRAPPERS = frozenset(TABLES["names"]["head_wrappers"])
VALUED = ("-C", "-c", "--git-dir", "--work-tree")  # options of git that take the next word
Span = tuple[int, int]
_FENCED = re.compile(  # line by line: a lazy `.` is slow
    r"^```[^\n]*\n((?:(?!```)[^\n]*\n)*+)```", re.MULTILINE
)
_THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
_QUOTED = r"""\\[\s\S]|'[^'\n]*'|"(?:\\.|[^"\\\n])*\""""
_END = re.compile(rf"{_QUOTED}|(?P<end>&&|\|\||[;|\n]|(?<!>)&(?!>))")
_SHELL_END = re.compile(rf"{_QUOTED}|(?<!\S)\#[^\n]*|(?P<end>&&|\|\||[;|()\n]|(?<!>)&(?!>))")
_HERE = re.compile(r"(?<!<)<<-?(?!<)\s*['\"]?([A-Za-z_]\w*)['\"]?")
_WORD = re.compile(r"""(?:\\.|'[^']*'|"(?:\\.|[^"\\])*"|\S)+""", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_.][\w.+-]*")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)


def executable_spans(text: str) -> Iterator[Span]:
    """Where a text actions."""
    first = text.find("```")
    fenced = [match.span(1) for match in _FENCED.finditer(text, first)] if first >= 0 else []
    if fenced:
        yield from fenced
        return
    at = 0
    for match in _THOUGHT.finditer(text):
        yield at, match.start()
        at = match.end()
    yield at, len(text)


def executable_text(text: str) -> str:
    """What acts in a text, a fenced block under the other; around thoughts nothing is put in."""
    first = text.find("```")
    fenced = _FENCED.findall(text, first) if first >= 0 else []
    return "\n".join(fenced) if fenced else _THOUGHT.sub("", text)


def command_spans(
    text: str, at: int = 0, end: int | None = None, *, shell: bool = False
) -> Iterator[Span]:
    """The commands between two characters, without the white space before them.

    `shell`: the text is a shell's and nothing else, so comments are no
    commands, and what stands in `(...)` and `$(...)` is a command of its own.
    """
    last = len(text) if end is None else end
    start = at
    while start < last:
        ends = (_SHELL_END if shell else _END).finditer(text, start, last)
        found = next((match for match in ends if match["end"]), None)
        stop = last if found is None else found.start()
        if found is not None and found["end"] == "\n" and (here := _here(text, at, stop)):
            closing = re.compile(rf"^[ \t]*{here}[ \t]*$", re.MULTILINE).search(text, stop, last)
            stop = last if closing is None else closing.end()
            found = None
        lead = len(text[start:stop]) - len(text[start:stop].lstrip())
        if start + lead < stop and not (shell and text[start + lead] == "#"):
            yield start + lead, stop
        start = stop if found is None else found.end()
        start += found is None and start < last


def _here(text: str, at: int, end: int) -> str | None:
    """The word that ends a here-document which the line that ends at `end` opens."""
    found = _HERE.search(text, max(at, text.rfind("\n", 0, end) + 1), end)
    return found and found[1]


def command_head(command: str) -> str | None:
    """The head of one command; `None` where it does not begin with a name."""
    words = _words(command)
    first = next(
        (word for word in words if not _ASSIGNMENT.fullmatch(word) and word not in WRAPPERS), ""
    )
    first = first.rpartition("/")[2]
    if not _NAME.fullmatch(first):
        return None
    if first.startswith("python"):
        is_module = next(words, "") == "-m"
        return (next(words, "").strip() if is_module else "") or first
    second = subcommand(words) if first in FAMILIES else ""
    return f"{first} {second}" if _NAME.fullmatch(second) else first


def _words(command: str) -> Iterator[str]:
    """The words one by one, without quotes."""
    for match in _WORD.finditer(command.replace("\\\n", "  ")):
        yield re.sub("['\"]", "", match[0])


def subcommand(words: Iterator[str]) -> str:
    """The first word that is no option nor the value of one; an option at the
    end has no value to take.
    """
    value = ""
    skip = False
    for word in words:
        if word.startswith("-"):
            skip = word in VALUED
        elif skip:
            value, skip = value or word, False
        else:
            return word
    return value
