"""Command lines of the shell, by a real grammar (tree-sitter-bash): simple commands in the order in which they run.

1. Heredocs are lifted out (`heredocs`), the rest is parsed. A line that takes too long, or is too large, is parsed up
   to a cut, and the cut is told (`Line.cut`): nothing is dropped without a word.
2. The tree is walked: words without their quotes, redirections where they belong (a `> f` behind `a && b` is b's),
   what flows through a pipe where it is known, the working directory behind every `cd`, `$name` and `for` where the
   values stand in the line.
3. Commands within `$(...)`, backticks and `<(...)` run before the command that they stand in.

Limits: conditions are not judged, so both arms of an `if` count; globs stay as they are.
"""

from functools import cache
from time import thread_time
from typing import TYPE_CHECKING, Final, NamedTuple

from forensics.acts.heredocs import Lifted, lift

if TYPE_CHECKING:
    from tree_sitter import Parser, Tree

    from forensics.acts.walk import Walk

LONGEST: Final = 64_000  # characters of a command line (heredocs apart) that are parsed
MOST_PIPES: Final = 500  # the grammar's time grows with the square of these
SECONDS: Final = 0.25  # of processor time for one command line: a busy machine gives it no less
MOST_COMMANDS: Final = 400  # simple commands of one command line
_ASCII: Final = bytes(range(128)) + b"x" * 128
"""What the grammar sees: every byte of a character outside ASCII as a letter (places stay, and the words are cut from
the text as it is). Its scanner asks C's `isdigit` about any code point, and crashes on large ones (0.25.1)."""


class Simple(NamedTuple):
    """One simple command, as the shell would see it.

    `words`: the program and its arguments, without quotes. `inputs`, `outputs`: files behind `<` and `>`.
    `fed`: the text on its standard input, where the line holds it. `directory`: where it runs, relative to where the
    line starts (`None`: cannot be told). `text`: as written (a heredoc by its operator alone).
    """

    words: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    fed: str | None = None
    directory: str | None = ""
    text: str = ""


class Line(NamedTuple):
    """A command line. `directory`: where the shell stands afterwards. `cut`: what was left out, in words."""

    commands: tuple[Simple, ...]
    directory: str | None = ""
    cut: str | None = None


def parsed(text: str) -> Line:
    """Parse a command line. Never raises for what is in it, and takes less than about a second whatever it is."""
    from forensics.acts.plain import plain_walk

    lifted = lift(text.replace("\r\n", "\n"))
    walk, cut = plain_walk(lifted), None
    if walk is None:
        walk, cut = walked_tree(lifted)
    cut = cut or (f"only its first {MOST_COMMANDS} commands were read" if walk.full else None)
    return Line(commands=tuple(walk.commands), directory=walk.directory, cut=cut)


def walked_tree(lifted: Lifted) -> "tuple[Walk, str | None]":
    """The walk over what the grammar makes of a line, and what was left out."""
    from forensics.acts.walk import Walk

    source, cut = _bounded(lifted.text)
    tree = _tree(source.encode(errors="replace"))
    if tree is None:
        source, cut = source[:2000], "too tangled to parse: only its first 2000 characters were tried"
        tree = _tree(source.encode(errors="replace"))
    walk = Walk(source.encode(errors="replace"), lifted)
    if tree is not None:
        walk.body(tree.root_node)
    return walk, cut


def _bounded(text: str) -> tuple[str, str | None]:
    pipes = text.split("|", MOST_PIPES)
    if len(pipes) > MOST_PIPES:
        return text[: min(len(text) - len(pipes[-1]) - 1, LONGEST)], f"only its first {MOST_PIPES} pipes were read"
    return text[:LONGEST], f"only its first {LONGEST} characters were read" if len(text) > LONGEST else None


def _tree(source: bytes) -> "Tree | None":
    """The tree, or `None` where parsing took too long."""
    end = thread_time() + SECONDS
    safe = source.translate(_ASCII)
    try:
        return _parser().parse(lambda at, _: safe[at : at + 65536], progress_callback=lambda *_: thread_time() > end)
    except ValueError:
        _parser().reset()
        return None


@cache
def _parser() -> "Parser":
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))
