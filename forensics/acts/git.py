"""Git's command line: global options and aliases undone, and which files a command touches.

`git -C dir --no-pager -c key=value --git-dir=x log` is `git log` in `dir`. An alias that the same command defines
(`-c alias.x=...`) is put in its place. What a revision leads to is for the scanner to say: here it is an argument.
"""

from typing import Final, NamedTuple

from forensics.acts.options import Read, read_options

_GLOBAL: Final = ("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--super-prefix", "--exec-path",
                  "--config-env", "--attr-source")
_VALUES: Final = (
    "-m", "-F", "-C", "-c", "-n", "-S", "-G", "-b", "-B", "-s", "--source", "--author", "--grep", "--message",
    "--since", "--until", "--format", "--pretty", "--max-count", "-o", "--output", "--conflict", "--date",
)
_WRITING: Final = ("rm", "mv", "restore", "clean")


class Git(NamedTuple):
    """A git command without its global options: `words` starts with the subcommand."""

    words: tuple[str, ...]
    directory: str | None


def plain_git(rest: tuple[str, ...]) -> Git:
    """Undo the global options of `git REST`."""
    read = read_options(rest, _GLOBAL, stop=True)
    words = read.operands
    folders = [value for name, value in read.options if name in ("-C", "--work-tree") and value]
    for setting in read.values("-c"):
        key, _, value = setting.partition("=")
        if words and key == f"alias.{words[0]}" and not value.startswith("!"):
            words = (*value.split(), *words[1:])
    if not words and read.options:
        words = tuple(name for name, _ in read.options if name not in _GLOBAL)
    return Git(words, "/".join(folders) if folders else _of_git_dir(read.value("--git-dir")))


def _of_git_dir(path: str | None) -> str | None:
    """The work tree beside a `.git` folder."""
    return path.removesuffix("/.git") if path and path.endswith("/.git") else None


def git_files(words: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The paths that a git command reads and writes, as far as its words tell."""
    if not words:
        return (), ()
    command, rest = words[0], words[1:]
    cut = rest.index("--") if "--" in rest else None
    named = rest[cut + 1 :] if cut is not None else ()
    read = read_options(rest[:cut], _VALUES)
    if command in _WRITING:
        return (read.operands[:1], (*read.operands, *named)) if command == "mv" else ((), (*read.operands, *named))
    if command == "checkout":
        return (), named or tuple(word for word in read.operands[1:] if not read.has("-b", "-B"))
    if command == "apply":
        return read.operands, ()
    if command in ("show", "cat-file"):
        return tuple(word.split(":", 1)[1] for word in read.operands if ":" in word[1:]), _output(read)
    if command in ("log", "diff", "blame", "annotate", "grep", "ls-files"):
        return named or (read.operands[-1:] if command in ("blame", "annotate") else ()), _output(read)
    return (), _output(read)


def _output(read: Read) -> tuple[str, ...]:
    return read.values("--output")
