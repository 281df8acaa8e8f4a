"""Command lines of the shell, by a real grammar (tree-sitter-bash): simple
commands in the order in which they run.

1. Heredocs are lifted out (`heredocs`).
2. A quick way reads plain lines: words, quotes without substitutions, `&&`,
   `||`, `|`, `;`, new lines, and files behind `<`, `>` and `>>` at the end of a
   command. It tells what the grammar and the walk over its tree tell, oddities
   included (a redirection takes in all that stands before it on its line, so a
   pipe behind it starts over where that stood).
3. Anything else is parsed. A line that takes too long, or is too large, is
   parsed up to a cut, and the cut is told (`Line.left_out`): nothing is dropped
   without a word.
4. The tree is walked (`bash_tree`): words without their quotes, redirections
   where they belong (a `> f` behind `a && b` is b's), what flows through a pipe
   where it is known, the working directory behind every `cd`, `$name` and `for`
   where the values stand in the line. Commands within `$(...)`, backticks and
   `<(...)` run before the command that they stand in.

Limits: conditions are not judged, so both arms of an `if` count; globs stay as
they are.
"""

import re
from functools import cache
from time import thread_time
from typing import TYPE_CHECKING, NamedTuple

from forensics.actions.bash_tree import (
    MOST_COMMANDS,
    SimpleCommand,
    TreeWalk,
    is_file,
    printed,
    unescaped_in_string,
)
from forensics.actions.heredocs import Lifted, extract_heredocs
from forensics.actions.programs import TABLES

if TYPE_CHECKING:
    from tree_sitter import Parser, Tree

LONGEST_QUICK = 4000  # characters of a line that is tried
_NAME = r"[A-Za-z_./][\w./+-]*+"
_WORD = r"(?:[\w./:@%+,=^~*?-]++|'[^']*+'|\"(?:[^\"\\$`]|\\[ -~])*+\")++"
_NEXT = r"(?=[ \t\n;|]|&&|\Z)"
_COMMAND = re.compile(
    rf"(?P<name>{_NAME}){_NEXT}(?P<rest>(?:[ \t]++{_WORD}{_NEXT})*+)"
    rf"(?P<files>(?:[ \t]*+(?:2>&1|(?:2?>>?|<)[ \t]*+[\w./-]++){_NEXT})*+)"
    r"[ \t]*+(?P<sign>(?:&&|\|\||\||;|\n|\Z)[ \t\n]*+)",
    re.A,
)
_EACH = re.compile(_WORD, re.A)
_PART = re.compile(r"'([^']*)'|\"((?:[^\"\\]|\\.)*)\"|([^'\"]+)")
_FILE = re.compile(r"(?:2>&1|(2?>>?|<)[ \t]*([\w./-]+))", re.A)
_KEYWORDS = frozenset(TABLES["names"]["keywords"])
LONGEST = 64_000  # characters of a command line (heredocs apart) that are parsed
MOST_PIPES = 500  # the grammar's time grows with the square of these
SECONDS = 0.25  # of processor time for one command line: a busy machine gives it no less
_ASCII = bytes(range(128)) + b"x" * 128
"""What the grammar sees: every byte of a character outside ASCII as a letter
(places stay, and the words are cut from the text as it is). Its scanner asks
C's `isdigit` about any code point, and crashes on large ones (0.25.1)."""


class _Command(NamedTuple):
    """A simple command as it stands: its text, its words, the files behind its
    redirections, what comes before it.
    """

    text: str
    words: tuple[str, ...]
    files: tuple[tuple[str, str], ...]
    redirected: bool
    behind: str


def plain_walk(lifted: Lifted) -> TreeWalk | None:
    """The walk over a plain command line; `None` for one that only the grammar can read."""
    commands = (
        _commands(lifted.text)
        if len(lifted.text) <= LONGEST_QUICK and lifted.text.isascii()
        else None
    )
    if commands is None:
        return None
    walk = TreeWalk(b"", lifted)
    start = left = walk.directory  # where the statement, and the left side of a pipe, started
    for at, command in enumerate(commands):
        stdin = None
        if command.behind == "|":
            left = start if commands[at - 1].redirected else left
            walk.directory, stdin = left, printed(walk.commands[-1])
        else:
            left = walk.directory
            start = start if command.behind in ("&&", "||") else left
        simple = SimpleCommand(
            words=command.words,
            directory=walk.directory,
            text=lifted.written(command.text),
            stdin=stdin,
        )
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
        if None in words or (
            match["files"] and "-" in words
        ):  # the grammar takes `- 2>&1` in its own way
            return None
        body = text[at : match.start("sign")]
        kept = tuple((sign, name) for sign, name in files if sign)
        found.append(
            _Command(
                body, tuple(word for word in words if word is not None), kept, bool(files), behind
            )
        )
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


def _with_files(
    simple: SimpleCommand, files: tuple[tuple[str, str], ...], lifted: Lifted
) -> SimpleCommand:
    inputs: list[str] = []
    outputs: list[str] = []
    stdin = simple.stdin
    for sign, name in files:
        text = lifted.stdin(name)
        stdin = stdin if text is None else text
        if text is None and is_file(name):
            (inputs if sign == "<" else outputs).append(name)
    return simple._replace(inputs=tuple(inputs), outputs=tuple(outputs), stdin=stdin)


class Line(NamedTuple):
    """A command line. `directory`: where the shell stands afterwards. `left_out`:
    what was left out, in words.
    """

    commands: tuple[SimpleCommand, ...]
    directory: str | None = ""
    left_out: str | None = None


def parsed(text: str) -> Line:
    """Parse a command line. Never raises for what is in it, and takes less than
    about a second whatever it is.
    """
    lifted = extract_heredocs(text.replace("\r\n", "\n"))
    walk, left_out = plain_walk(lifted), None
    if walk is None:
        walk, left_out = walked_tree(lifted)
    left_out = left_out or (
        f"only its first {MOST_COMMANDS} commands were read" if walk.full else None
    )
    return Line(commands=tuple(walk.commands), directory=walk.directory, left_out=left_out)


def walked_tree(lifted: Lifted) -> tuple[TreeWalk, str | None]:
    """The walk over what the grammar makes of a line, and what was left out."""
    source, left_out = _bounded(lifted.text)
    tree = _tree(source.encode(errors="replace"))
    if tree is None:
        source, left_out = (
            source[:2000],
            "too tangled to parse: only its first 2000 characters were tried",
        )
        tree = _tree(source.encode(errors="replace"))
    walk = TreeWalk(source.encode(errors="replace"), lifted)
    if tree is not None:
        walk.body(tree.root_node)
    return walk, left_out


def _bounded(text: str) -> tuple[str, str | None]:
    pipes = text.split("|", MOST_PIPES)
    if len(pipes) > MOST_PIPES:
        return (
            text[: min(len(text) - len(pipes[-1]) - 1, LONGEST)],
            f"only its first {MOST_PIPES} pipes were read",
        )
    return text[:LONGEST], (
        f"only its first {LONGEST} characters were read" if len(text) > LONGEST else None
    )


def _tree(source: bytes) -> "Tree | None":
    """The tree, or `None` where parsing took too long."""
    end = thread_time() + SECONDS
    safe = source.translate(_ASCII)
    try:
        return _parser().parse(
            lambda at, _: safe[at : at + 65536], progress_callback=lambda *_: thread_time() > end
        )
    except ValueError:
        _parser().reset()
        return None


@cache
def _parser() -> "Parser":
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))
