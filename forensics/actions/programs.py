"""What a program reads and writes, from its arguments.

1. Arguments are split into options, which may take a value, and operands.
2. Git's global options and aliases are undone: `git -C dir --no-pager -c
   key=value --git-dir=x log` is `git log` in `dir`, and an alias that the same
   command defines (`-c alias.x=...`) is put in its place. What a revision leads
   to is for the scanner to say: here it is an argument.
3. Tables (`programs.toml`) tell the files of the programs that agents use. What is
   not in them reads and writes nothing that can be told. Globs stay as they are.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from forensics.actions.python_source import FileEffects
from forensics.actions.untrusted import TABLES, Words

_ARCHIVE = re.compile(r"^[^-].*\.(?:tar(?:\.\w{1,4})?|t[gbx]z|zip|jar|whl|crate)$", re.S)
OPTIONS, OUTPUTS = TABLES["options"], TABLES["outputs"]
READERS, SEARCHERS, WRITERS = TABLES["readers"], TABLES["searchers"], TABLES["writers"]


class Read(NamedTuple):
    """Arguments, read: `options` with their values (`None`: no value), and the operands."""

    options: tuple[tuple[str, str | None], ...]
    operands: Words

    def value(self, *names: str) -> str | None:
        """The last value that one of these options has."""
        return next(reversed(self.values(*names)), None)

    def values(self, *names: str) -> Words:
        """Every value that one of these options has."""
        return tuple(value for name, value in self.options if name in names and value is not None)

    def has(self, *names: str) -> bool:
        """Whether one of these options is there."""
        return any(name in names for name, _ in self.options)


def read_options(arguments: Sequence[str], valued: Words = (), *, stop: bool = False) -> Read:
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
def _option(word: str, valued: Words) -> tuple[tuple[tuple[str, str | None], ...], bool]:
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

    words: Words
    directory: str | None


def plain_git(rest: Words) -> Git:
    """Undo the global options of `git REST`."""
    read = read_options(rest, OPTIONS["git"], stop=True)
    words, git_dir = read.operands, read.value("--git-dir") or ""
    folders = [value for name, value in read.options if name in ("-C", "--work-tree") and value]
    if not folders and git_dir.endswith("/.git"):
        folders = [git_dir.removesuffix("/.git")]  # the work tree beside it
    for setting in read.values("-c"):
        key, _, value = setting.partition("=")
        if words and key == f"alias.{words[0]}" and not value.startswith("!"):
            words = (*value.split(), *words[1:])
    if not words:
        words = tuple(name for name, _ in read.options if name not in OPTIONS["git"])
    return Git(words, "/".join(folders) or None)


def git_files(words: Words) -> FileEffects:
    """The paths that a git command reads and writes, as far as its words tell."""
    command, rest = words[0] if words else "", words[1:]
    dashes = rest.index("--") if "--" in rest else len(rest)
    named = rest[dashes + 1 :]
    read = read_options(rest[:dashes], OPTIONS["git subcommand"])
    operands, output = read.operands, read.values("--output")
    if command in ("rm", "mv", "restore", "clean"):
        return FileEffects(operands[:1] if command == "mv" else (), (*operands, *named))
    if command == "checkout":
        return FileEffects((), named or (() if read.has("-b", "-B") else operands[1:]))
    if command == "apply":
        return FileEffects(_without_counts(operands))
    if command == "clone":
        return FileEffects((), _cloned(operands))
    if command in ("show", "cat-file"):
        shown = (word.split(":", 1)[1] for word in operands if ":" in word[1:])
        return FileEffects(tuple(shown), output)
    if command in ("blame", "annotate"):
        return FileEffects(named or operands[-1:], output)
    return FileEffects(named if command in ("log", "diff", "grep", "ls-files") else (), output)


def files_of(program: str, arguments: Words) -> FileEffects:
    """The files that one simple command names, redirections apart."""
    special, outputs = _SPECIAL.get(program), OUTPUTS.get(program, ())
    if special is not None:
        return special(arguments)
    if program in SEARCHERS:
        return _searched(program, read_options(arguments, SEARCHERS[program]))
    if program in WRITERS:
        return FileEffects((), read_options(arguments, WRITERS[program]).operands)
    if program in READERS:
        read = read_options(arguments, (*READERS[program], *outputs))
        return FileEffects(_without_counts(read.operands), read.values(*outputs))
    if outputs:
        read = read_options(arguments, (*outputs, *OPTIONS[program]))
        return FileEffects((), read.values(*outputs))
    if "-" in program and (told := powershell(program, arguments)) is not None:
        return told[0]
    return FileEffects((program,)) if "/" in program else FileEffects()


def powershell(program: str, arguments: Sequence[str]) -> tuple[FileEffects, str | None] | None:
    """The files that a command of PowerShell reads and writes, and the text that it puts there;
    `None` where it is none. Names count in any case; what is piped in is not known.
    """
    names, name = TABLES["powershell"], program.casefold()
    if name not in (*names["reads"], *names["writes"], *names["removes"]):
        return None
    words = (word.casefold() if word.startswith("-") else word for word in arguments)
    read = read_options(tuple(words), (*names["paths"], *names["valued"]))
    named, operands = read.value(*names["paths"]), read.operands
    operands = operands[1:] if named is None and name == "select-string" else operands
    paths, rest = (operands[:1], operands[1:]) if named is None else ((named,), operands)
    if name in names["reads"]:
        return FileEffects(paths), None
    puts = name in ("set-content", "add-content")
    content = next(iter((*read.values("-value"), *rest)), None) if puts else None
    return FileEffects((), paths), content


def _cloned(operands: Words) -> Words:
    """The folder that a clone makes: the one behind the address, else as the address ends."""
    at = next((i for i, word in enumerate(operands) if "/" in word or ":" in word), None)
    if at is None:
        return ()
    place = (*operands[at + 1 :], operands[at].rstrip("/").removesuffix(".git"))[0]
    return (f"{place if operands[at + 1 :] else re.split('[/:]', place)[-1]}/",)


def _without_counts(operands: Words) -> Words:
    return tuple(word for word in operands if word != "-" and not word.startswith(("<(", "+")))


def _searched(program: str, read: Read) -> FileEffects:
    given = read.has("-e", "-f", "-E", "--expression", "--file")
    operands = _without_counts(read.operands if given else read.operands[1:])
    if in_place(program, read):
        return FileEffects(operands, operands)
    return FileEffects((*operands, *read.values("-f")))


def in_place(program: str, read: Read) -> bool:
    """Whether `sed -i` or `perl -pi` writes back what it reads."""
    return program in ("sed", "perl", "gawk") and read.has("-i", "--in-place")


def _copied(arguments: Words) -> FileEffects:
    """`cp`, `ln`, `install`: the last operand is written, or files of the same names within it."""
    read = read_options(arguments, OPTIONS["copy"])
    folder = read.value("-t", "--target-directory")
    sources = read.operands if folder else read.operands[:-1]
    target = folder or next(iter(read.operands[-1:]), "")
    if not sources or not target:
        return FileEffects(read.operands)
    if folder or target.endswith("/") or len(sources) > 1:
        names = (source.rstrip("/").rsplit("/", 1)[-1] for source in sources)
        return FileEffects(sources, tuple(f"{target.rstrip('/')}/{name}" for name in names))
    return FileEffects(sources, (target,))


def _forge(arguments: Words) -> FileEffects:
    """`gh repo clone owner/name`, `hub clone owner/name`."""
    if "clone" not in arguments[:2]:
        return FileEffects()
    rest = arguments[arguments.index("clone") + 1 :]
    return FileEffects((), _cloned(read_options(rest).operands))


def _exported(arguments: Words) -> FileEffects:
    """`svn export URL PATH`"""
    operands = read_options(arguments, ("-r", "--revision")).operands
    brings = operands[:1] in (("export",), ("checkout",), ("co",))
    return FileEffects((), _cloned(operands[1:]) if brings else ())


def _unpacked(arguments: Words) -> FileEffects:
    """The archive that `tar` or `unzip` reads."""
    creates = arguments and re.fullmatch(r"-?[a-zA-Z]{0,6}c[a-zA-Z]{0,6}|--create", arguments[0])
    names = () if creates else arguments
    return FileEffects(tuple(word for word in names if _ARCHIVE.search(word))[:1])


def _synced(arguments: Words) -> FileEffects:
    read = read_options(arguments, OPTIONS["rsync"])
    return FileEffects(read.operands[:-1], read.operands[-1:])


def _moved(arguments: Words) -> FileEffects:
    copied = _copied(arguments)
    return FileEffects(copied.reads, (*copied.reads, *copied.writes))


def _dd(arguments: Words) -> FileEffects:
    values = dict(word.split("=", 1) for word in arguments if "=" in word)
    return FileEffects(
        *(tuple(values[key] for key in (name,) if key in values) for name in ("if", "of"))
    )


def _patch(arguments: Words) -> FileEffects:
    read = read_options(arguments, OPTIONS["patch"])
    return FileEffects((*read.operands[1:], *read.values("-i", "--input")), read.operands[:1])


def _interpreted(arguments: Words) -> FileEffects:
    """`python script.py args`: the script is read."""
    read = read_options(arguments, OPTIONS["interpreter"], stop=True)
    script = read.operands[:1] if not read.has("-c", "-m") else ()
    return FileEffects(tuple(word for word in script if word != "-"))


def _pytest(arguments: Words) -> FileEffects:
    tests = read_options(arguments, OPTIONS["pytest"]).operands
    return FileEffects(tuple(word.split("::")[0] for word in tests))


_SPECIAL: dict[str, Callable[[Words], FileEffects]] = {
    **dict.fromkeys(("cp", "ln", "install"), _copied),
    **dict.fromkeys(("python", "node", "ruby", "bash", "sh", "zsh"), _interpreted),
    "mv": _moved,
    "rsync": _synced,
    **dict.fromkeys(("gh", "glab", "hub"), _forge),
    **dict.fromkeys(("tar", "bsdtar", "unzip"), _unpacked),
    "svn": _exported,
    "dd": _dd,
    "git": git_files,
    "patch": _patch,
    "pytest": _pytest,
}
