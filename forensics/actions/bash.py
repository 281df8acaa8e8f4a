"""Command lines of the shell, by a real grammar (tree-sitter-bash): simple
commands in the order in which they run.

1. Heredocs are lifted out (`heredocs`).
2. The rest is parsed. A line that takes too long, or is too large, is parsed up to
   a cut, and the cut is told (`Line.left_out`): nothing is dropped without a word.
3. The tree is walked (`bash_tree`): words without their quotes, redirections
   where they belong (a `> f` behind `a && b` is b's), what flows through a pipe
   where it is known, the working directory behind every `cd`, `$name` and `for`
   where the values stand in the line. Commands within `$(...)`, backticks and
   `<(...)` run before the command that they stand in.

Limits: conditions are not judged, so both arms of an `if` count; globs stay as
they are.
"""

from functools import cache
from time import thread_time
from typing import TYPE_CHECKING, NamedTuple

from forensics.actions.bash_tree import MOST_COMMANDS, SimpleCommand, TreeWalk
from forensics.actions.heredocs import extract_heredocs

if TYPE_CHECKING:
    from tree_sitter import Parser, Tree

LONGEST = 64_000  # characters of a command line (heredocs apart) that are parsed
MOST_PIPES = 500  # the grammar's time grows with the square of these
SECONDS = 0.25  # of processor time for one command line: a busy machine gives it no less
_ASCII = bytes(range(128)) + b"x" * 128
"""What the grammar sees: every byte of a character outside ASCII as a letter
(places stay, and the words are cut from the text as it is). Its scanner asks
C's `isdigit` about any code point, and crashes on large ones (0.25.1)."""


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
    source, left_out = _bounded(lifted.text)
    tree = _tree(source.encode(errors="replace"))
    if tree is None:
        source = source[:2000]
        left_out = "too tangled to parse: only its first 2000 characters were tried"
        tree = _tree(source.encode(errors="replace"))
    walk = TreeWalk(source.encode(errors="replace"), lifted)
    if tree is not None:
        walk.body(tree.root_node)
    if walk.full and left_out is None:
        left_out = f"only its first {MOST_COMMANDS} commands were read"
    return Line(commands=tuple(walk.commands), directory=walk.directory, left_out=left_out)


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
