"""Kinds of action where neither the environment nor the log names them: the heads of the commands.

1. What acts in an action is its tool calls, its fenced blocks, or its text without thoughts.
2. Line by line, it is split into commands at `;`, `|`, `&&` and `||` outside quotes; the text of a here-document is
   left out.
3. The head of a command is its first word without assignments (`X=1`), wrappers (`sudo`, `time`) and folders, with the
   second word where the first names a family (`git log`, `pip install`); `python -m tool` is `tool`.

Small on purpose: no shell is read here, only heads. What does not begin with a name is `other`.
"""

import re
import shlex
from collections.abc import Iterator, Sequence

from forensics.layers.actions import command_of
from forensics.records import Step

FAMILIES = frozenset({"apt", "apt-get", "cargo", "conda", "docker", "git", "go", "kubectl", "npm", "pip", "uv", "yarn"})
WRAPPERS = frozenset({"builtin", "command", "env", "exec", "nice", "nohup", "sudo", "time", "xargs"})
VALUED = frozenset({"-C", "-c", "--git-dir", "--work-tree"})  # options of git that take the next word
ENDS = frozenset({";", "|", "&", "&&", "||", ";;", "|&", "(", ")"})
OTHER = "other"
_NAME = re.compile(r"[A-Za-z_.][\w.+-]*")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_HERE = re.compile(r"<<-?\s*['\"]?(\w+)['\"]?")


def action_kinds(text: str, named: Sequence[str]) -> tuple[str, ...]:
    """The kinds that an environment or a log names, else the heads of the commands in the text."""
    return tuple(named) if named else command_kinds(command_of(Step(role="assistant", text=text)))


def command_kinds(text: str) -> tuple[str, ...]:
    """The head of every command, in order; `()` where there is no command."""
    return tuple(_head(words) for line in _lines(text) for words in _commands(line))


def _lines(text: str) -> Iterator[str]:
    """The lines of a script without the bodies of here-documents."""
    until: str | None = None
    for line in text.replace("\\\n", " ").splitlines():
        if until is not None:
            until = None if line.strip() == until else until
            continue
        started = _HERE.search(line)
        until = started[1] if started else None
        yield line


def _commands(line: str) -> Iterator[list[str]]:
    words: list[str] = []
    for word in _words(line):
        if word in ENDS:
            if words:
                yield words
            words = []
        else:
            words.append(word)
    if words:
        yield words


def _words(line: str) -> list[str]:
    """The words as a shell splits them; where a quote stays open, split at white space."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";|&()")
    lexer.whitespace_split = True
    try:
        return list(lexer)
    except ValueError:
        return line.split()


def _head(words: list[str]) -> str:
    rest = list(words)
    while rest and (_ASSIGNMENT.fullmatch(rest[0]) or rest[0] in WRAPPERS):
        rest.pop(0)
    if not rest or not _NAME.fullmatch(first := rest[0].rpartition("/")[2]):
        return OTHER
    if first.startswith("python") and rest[1:2] == ["-m"] and len(rest) > 2:
        return rest[2]
    second = next(_plain(rest[1:]), "") if first in FAMILIES else ""
    return f"{first} {second}" if _NAME.fullmatch(second) else first


def _plain(words: Sequence[str]) -> Iterator[str]:
    """The words that are neither options nor their values."""
    skip = False
    for word in words:
        if not skip and not word.startswith("-"):
            yield word
        skip = word in VALUED
