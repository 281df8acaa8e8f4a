"""What a program reads and writes, from its arguments.

1. Arguments are split into options, which may take a value, and operands.
2. Git's global options and aliases are undone: `git -C dir --no-pager -c
   key=value --git-dir=x log` is `git log` in `dir`, and an alias that the same
   command defines (`-c alias.x=...`) is put in its place. What a revision leads
   to is for the scanner to say: here it is an argument.
3. A table tells the files of the programs that agents use. What is not in it
   reads and writes nothing that can be told. Globs stay as they are.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from forensics.actions.python_source import FileEffects

_GLOBAL = (
    "-C",
    "-c",
    "--git-dir",
    "--work-tree",
    "--namespace",
    "--super-prefix",
    "--exec-path",
    "--config-env",
    "--attr-source",
)
_VALUES = (
    "-m",
    "-F",
    "-C",
    "-c",
    "-n",
    "-S",
    "-G",
    "-b",
    "-B",
    "-s",
    "--source",
    "--author",
    "--grep",
    "--message",
    "--since",
    "--until",
    "--format",
    "--pretty",
    "--max-count",
    "-o",
    "--output",
    "--conflict",
    "--date",
)
_WRITING = ("rm", "mv", "restore", "clean")


class Read(NamedTuple):
    """Arguments, read: `options` with their values (`None`: no value), and the operands."""

    options: tuple[tuple[str, str | None], ...]
    operands: tuple[str, ...]

    def value(self, *names: str) -> str | None:
        """The last value that one of these options has."""
        return next(
            (
                value
                for name, value in reversed(self.options)
                if name in names and value is not None
            ),
            None,
        )

    def values(self, *names: str) -> tuple[str, ...]:
        """Every value that one of these options has."""
        return tuple(value for name, value in self.options if name in names and value is not None)

    def has(self, *names: str) -> bool:
        """Whether one of these options is there."""
        return any(name in names for name, _ in self.options)


def read_options(
    arguments: Sequence[str], valued: tuple[str, ...] = (), *, stop: bool = False
) -> Read:
    """Tell options from operands. `valued`: options that take a value. `stop`:
    the first operand ends the options.

    Short options may be joined (`-la`), and a value may stick to its option
    (`-n5`, `--lines=5`).
    """
    options: list[tuple[str, str | None]] = []
    at = 0
    operands: list[str] = []
    while at < len(arguments):
        word = arguments[at]
        at += 1
        if word == "--":
            operands += arguments[at:]
            break
        if not word.startswith("-") or word == "-":
            operands.append(word)
            if stop:
                operands += arguments[at:]
                break
            continue
        found, takes = _option(word, valued)
        options += found
        if takes and at < len(arguments):
            options[-1] = (options[-1][0], arguments[at])
            at += 1
    return Read(tuple(options), tuple(operands))


@lru_cache(maxsize=4096)
def _option(word: str, valued: tuple[str, ...]) -> tuple[tuple[tuple[str, str | None], ...], bool]:
    """The options in one word, and whether the next word is the value of the last."""
    if word.startswith("--") or word in valued:
        name, equals, value = word.partition("=")
        return ((name, value if equals else None),), name in valued and not equals
    found: list[tuple[str, str | None]] = []
    for at, letter in enumerate(word[1:], 1):
        if f"-{letter}" in valued:
            rest = word[at + 1 :]
            return (*found, (f"-{letter}", rest or None)), not rest
        found.append((f"-{letter}", None))
    return tuple(found), False


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
    dashes = rest.index("--") if "--" in rest else None
    named = rest[dashes + 1 :] if dashes is not None else ()
    read = read_options(rest[:dashes], _VALUES)
    if command in _WRITING:
        return (
            (read.operands[:1], (*read.operands, *named))
            if command == "mv"
            else ((), (*read.operands, *named))
        )
    if command == "checkout":
        return (), named or tuple(word for word in read.operands[1:] if not read.has("-b", "-B"))
    if command == "apply":
        return read.operands, ()
    if command in ("show", "cat-file"):
        return tuple(word.split(":", 1)[1] for word in read.operands if ":" in word[1:]), _output(
            read
        )
    if command in ("log", "diff", "blame", "annotate", "grep", "ls-files"):
        return named or (read.operands[-1:] if command in ("blame", "annotate") else ()), _output(
            read
        )
    return (), _output(read)


def _output(read: Read) -> tuple[str, ...]:
    return read.values("--output")


_READERS: dict[str, tuple[str, ...]] = {  # program -> its options that take a value
    "cat": (),
    "tac": (),
    "head": ("-n", "-c"),
    "tail": ("-n", "-c"),
    "less": ("-p",),
    "more": (),
    "nl": ("-b", "-w", "-s"),
    "wc": (),
    "diff": ("-U", "-C", "-x", "-I"),
    "cmp": ("-n",),
    "sort": ("-k", "-t", "-S", "-T"),
    "uniq": ("-f", "-s"),
    "cut": ("-d", "-f", "-c", "-b"),
    "xxd": ("-l", "-s", "-c"),
    "od": ("-A", "-t", "-N", "-j"),
    "strings": ("-n",),
    "hexdump": ("-n", "-s", "-e"),
    "file": (),
    "md5sum": (),
    "sha256sum": (),
    "base64": ("-w",),
    "zcat": (),
    "bat": (),
    "source": (),
    ".": (),
    "jq": (),
    "ls": (),
    "stat": ("-c",),
    "tree": ("-L", "-I", "-P"),
}


_PATTERNED: dict[str, tuple[str, ...]] = {  # their first operand is a pattern or program
    "grep": (
        "-e",
        "-f",
        "-m",
        "-A",
        "-B",
        "-C",
        "-d",
        "--include",
        "--exclude",
        "--exclude-dir",
        "--color",
    ),
    "rg": ("-e", "-f", "-g", "-t", "-m", "-A", "-B", "-C", "--glob"),
    "ag": ("-A", "-B", "-C", "-G"),
    "awk": ("-f", "-F", "-v"),
    "gawk": ("-f", "-F", "-v"),
    "sed": ("-e", "-f", "-l", "--expression", "--file"),
    "perl": ("-e", "-E", "-I", "-M", "-F"),
    "egrep": ("-e", "-f"),
    "fgrep": ("-e", "-f"),
}


_WRITERS: dict[str, tuple[str, ...]] = {
    "tee": (),
    "touch": ("-d", "-t", "-r"),
    "rm": (),
    "rmdir": (),
    "unlink": (),
    "truncate": ("-s", "-r"),
    "shred": ("-n",),
}


_DOWNLOADS = {
    "curl": ("-o", "--output"),
    "wget": ("-O", "--output-document"),
    "sort": ("-o", "--output"),
}


def files_of(program: str, arguments: tuple[str, ...]) -> FileEffects:
    """The files that one simple command names, redirections apart."""
    special = _SPECIAL.get(program)
    if special is not None:
        return special(arguments)
    if program == "git":
        return FileEffects(*git_files(arguments))
    if program in _PATTERNED:
        return _patterned(program, read_options(arguments, _PATTERNED[program]))
    if program in _WRITERS:
        return FileEffects((), read_options(arguments, _WRITERS[program]).operands)
    if program in _READERS:
        read = read_options(arguments, (*_READERS[program], *_DOWNLOADS.get(program, ())))
        return FileEffects(
            _without_counts(read.operands), read.values(*_DOWNLOADS.get(program, ()))
        )
    if program in _DOWNLOADS:
        return FileEffects(
            (),
            read_options(arguments, (*_DOWNLOADS[program], "-H", "-d", "-X")).values(
                *_DOWNLOADS[program]
            ),
        )
    return FileEffects((program,)) if "/" in program else FileEffects()


def _without_counts(operands: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word for word in operands if word != "-" and not word.startswith(("<(", "+")))


def _patterned(program: str, read: Read) -> FileEffects:
    given = read.has("-e", "-f", "-E", "--expression", "--file")
    operands = _without_counts(read.operands if given else read.operands[1:])
    if in_place(program, read):
        return FileEffects(operands, operands)
    return FileEffects((*operands, *read.values("-f")))


def in_place(program: str, read: Read) -> bool:
    """Whether `sed -i` or `perl -pi` writes back what it reads."""
    return program in ("sed", "perl", "gawk") and read.has("-i", "--in-place")


def _copied(arguments: tuple[str, ...]) -> FileEffects:
    """`cp`, `ln`, `install`: the last operand is written, or files of the same names within it."""
    read = read_options(arguments, ("-t", "--target-directory", "-S", "-m", "-o", "-g"))
    folder = read.value("-t", "--target-directory")
    sources = read.operands if folder else read.operands[:-1]
    target = folder or next(iter(read.operands[-1:]), "")
    if not sources or not target:
        return FileEffects(read.operands)
    if folder or target.endswith("/") or len(sources) > 1:
        names = (source.rstrip("/").rsplit("/", 1)[-1] for source in sources)
        return FileEffects(sources, tuple(f"{target.rstrip('/')}/{name}" for name in names))
    return FileEffects(sources, (target,))


def _moved(arguments: tuple[str, ...]) -> FileEffects:
    copied = _copied(arguments)
    return FileEffects(copied.reads, (*copied.reads, *copied.writes))


def _dd(arguments: tuple[str, ...]) -> FileEffects:
    values = dict(word.split("=", 1) for word in arguments if "=" in word)
    return FileEffects(
        *(tuple(values[key] for key in (name,) if key in values) for name in ("if", "of"))
    )


def _patch(arguments: tuple[str, ...]) -> FileEffects:
    read = read_options(
        arguments, ("-i", "--input", "-p", "--strip", "-d", "--directory", "-o", "-r", "-F", "-D")
    )
    return FileEffects((*read.operands[1:], *read.values("-i", "--input")), read.operands[:1])


def _interpreted(arguments: tuple[str, ...]) -> FileEffects:
    """`python script.py args`: the script is read."""
    read = read_options(arguments, ("-c", "-m", "-W", "-X", "-O", "-o"), stop=True)
    script = read.operands[:1] if not read.has("-c", "-m") else ()
    return FileEffects(tuple(word for word in script if word != "-"))


_SPECIAL: dict[str, Callable[[tuple[str, ...]], FileEffects]] = {
    "cp": _copied,
    "ln": _copied,
    "install": _copied,
    "mv": _moved,
    "dd": _dd,
    "patch": _patch,
    "python": _interpreted,
    "node": _interpreted,
    "ruby": _interpreted,
    "bash": _interpreted,
    "sh": _interpreted,
    "zsh": _interpreted,
    "pytest": lambda arguments: FileEffects(
        tuple(
            word.split("::")[0]
            for word in read_options(arguments, ("-k", "-m", "-p", "-c", "-o", "-n", "-W")).operands
        )
    ),
}
