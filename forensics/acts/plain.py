"""A quick way through plain command lines: words, quotes without substitutions, `&&`, `||`, `|`, `;`, new lines, and
files behind `<`, `>` and `>>` at the end of a command.

What it tells is what the grammar and the walk over its tree tell, oddities included (a redirection takes in all that
stands before it on its line, so a pipe behind it starts over where that stood). Anything else is left to the grammar.
"""

import re
from typing import Final, NamedTuple

from forensics.acts.heredocs import Lifted
from forensics.acts.shell import MOST_COMMANDS, Simple
from forensics.acts.strings import unescaped_in_string
from forensics.acts.walk import Walk, is_file, printed

LONGEST: Final = 4000  # characters of a line that is tried
_NAME: Final = r"[A-Za-z_./][\w./+-]*+"
_WORD: Final = r"(?:[\w./:@%+,=^~*?-]++|'[^']*+'|\"(?:[^\"\\$`]|\\[ -~])*+\")++"
_NEXT: Final = r"(?=[ \t\n;|]|&&|\Z)"
_COMMAND: Final = re.compile(
    rf"(?P<name>{_NAME}){_NEXT}(?P<rest>(?:[ \t]++{_WORD}{_NEXT})*+)"
    rf"(?P<files>(?:[ \t]*+(?:2>&1|(?:2?>>?|<)[ \t]*+[\w./-]++){_NEXT})*+)"
    r"[ \t]*+(?P<sign>(?:&&|\|\||\||;|\n|\Z)[ \t\n]*+)", re.A,
)
_EACH: Final = re.compile(_WORD, re.A)
_PART: Final = re.compile(r"'([^']*)'|\"((?:[^\"\\]|\\.)*)\"|([^'\"]+)")
_FILE: Final = re.compile(r"(?:2>&1|(2?>>?|<)[ \t]*([\w./-]+))", re.A)
_KEYWORDS: Final = frozenset((
    "if", "then", "else", "elif", "fi", "case", "esac", "for", "select", "while", "until", "do", "done", "in",
    "function", "time", "coproc", "declare", "typeset", "export", "readonly", "local", "unset", "unsetenv",
))


class _Command(NamedTuple):
    """A simple command as it stands: its text, its words, the files behind its redirections, what comes before it."""

    text: str
    words: tuple[str, ...]
    files: tuple[tuple[str, str], ...]
    redirected: bool
    behind: str


def plain_walk(lifted: Lifted) -> Walk | None:
    """The walk over a plain command line; `None` for one that only the grammar can read."""
    commands = _commands(lifted.text) if len(lifted.text) <= LONGEST and lifted.text.isascii() else None
    if commands is None:
        return None
    walk = Walk(b"", lifted)
    start = left = walk.directory  # where the statement, and the left side of a pipe, started
    for at, command in enumerate(commands):
        fed = None
        if command.behind == "|":
            left = start if commands[at - 1].redirected else left
            walk.directory, fed = left, printed(walk.commands[-1])
        else:
            left = walk.directory
            start = start if command.behind in ("&&", "||") else left
        simple = Simple(words=command.words, directory=walk.directory, text=lifted.written(command.text), fed=fed)
        walk.add(_with_files(simple, command.files, lifted) if command.redirected else simple)
        walk.directory = left if command.behind == "|" else walk.directory
    return walk


def _commands(text: str) -> list[_Command] | None:
    found, at, behind = [], len(text) - len(text.lstrip(" \t\n")), ""
    while at < len(text):
        match = _COMMAND.match(text, at)
        if match is None or match["name"] in _KEYWORDS:
            return None
        words = [match["name"], *map(_value, _EACH.findall(match["rest"]))]
        files = _FILE.findall(match["files"])
        if None in words or (match["files"] and "-" in words):  # the grammar takes `- 2>&1` in its own way
            return None
        body = text[at : match.start("sign")]
        kept = tuple((sign, name) for sign, name in files if sign)
        found.append(_Command(body, tuple(word for word in words if word is not None), kept, bool(files), behind))
        at, behind = match.end(), match["sign"].strip()
    return None if behind in ("&&", "||", "|") or not 0 < len(found) < MOST_COMMANDS else found


def _value(word: str) -> str | None:
    """A word without its quotes; `None` where braces in it could stand for several."""
    if "'" not in word and '"' not in word:
        return word
    parts = _PART.findall(word)
    if len(parts) > 1 and "{" in word:
        return None
    return "".join(raw or unescaped_in_string(string) or bare for raw, string, bare in parts)


def _with_files(simple: Simple, files: tuple[tuple[str, str], ...], lifted: Lifted) -> Simple:
    inputs: list[str] = []
    outputs: list[str] = []
    fed = simple.fed
    for sign, name in files:
        text = lifted.fed(name)
        fed = fed if text is None else text
        if text is None and is_file(name):
            (inputs if sign == "<" else outputs).append(name)
    return simple._replace(inputs=tuple(inputs), outputs=tuple(outputs), fed=fed)
