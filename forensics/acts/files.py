"""Which files a program reads and writes, from its arguments (a table for the programs that agents use).

What is not in the table reads and writes nothing that can be told. Globs stay as they are.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from forensics.acts.git import git_files
from forensics.acts.options import Read, read_options


class Files(NamedTuple):
    """Paths as the command names them."""

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()


_READERS: Final[dict[str, tuple[str, ...]]] = {  # program -> its options that take a value
    "cat": (), "tac": (), "head": ("-n", "-c"), "tail": ("-n", "-c"), "less": ("-p",), "more": (),
    "nl": ("-b", "-w", "-s"),
    "wc": (), "diff": ("-U", "-C", "-x", "-I"), "cmp": ("-n",), "sort": ("-k", "-t", "-S", "-T"), "uniq": ("-f", "-s"),
    "cut": ("-d", "-f", "-c", "-b"), "xxd": ("-l", "-s", "-c"), "od": ("-A", "-t", "-N", "-j"), "strings": ("-n",),
    "hexdump": ("-n", "-s", "-e"), "file": (), "md5sum": (), "sha256sum": (), "base64": ("-w",), "zcat": (), "bat": (),
    "source": (), ".": (), "jq": (), "ls": (), "stat": ("-c",), "tree": ("-L", "-I", "-P"),
}
_PATTERNED: Final[dict[str, tuple[str, ...]]] = {  # their first operand is a pattern or program
    "grep": ("-e", "-f", "-m", "-A", "-B", "-C", "-d", "--include", "--exclude", "--exclude-dir", "--color"),
    "rg": ("-e", "-f", "-g", "-t", "-m", "-A", "-B", "-C", "--glob"), "ag": ("-A", "-B", "-C", "-G"),
    "awk": ("-f", "-F", "-v"), "gawk": ("-f", "-F", "-v"), "sed": ("-e", "-f", "-l", "--expression", "--file"),
    "perl": ("-e", "-E", "-I", "-M", "-F"), "egrep": ("-e", "-f"), "fgrep": ("-e", "-f"),
}
_WRITERS: Final[dict[str, tuple[str, ...]]] = {
    "tee": (), "touch": ("-d", "-t", "-r"), "rm": (), "rmdir": (), "unlink": (), "truncate": ("-s", "-r"),
    "shred": ("-n",),
}
_DOWNLOADS: Final = {"curl": ("-o", "--output"), "wget": ("-O", "--output-document"), "sort": ("-o", "--output")}


def files_of(program: str, arguments: tuple[str, ...]) -> Files:
    """The files that one simple command names, redirections apart."""
    special = _SPECIAL.get(program)
    if special is not None:
        return special(arguments)
    if program == "git":
        return Files(*git_files(arguments))
    if program in _PATTERNED:
        return _patterned(program, read_options(arguments, _PATTERNED[program]))
    if program in _WRITERS:
        return Files((), read_options(arguments, _WRITERS[program]).operands)
    if program in _READERS:
        read = read_options(arguments, (*_READERS[program], *_DOWNLOADS.get(program, ())))
        return Files(_without_counts(read.operands), read.values(*_DOWNLOADS.get(program, ())))
    if program in _DOWNLOADS:
        return Files((), read_options(arguments, (*_DOWNLOADS[program], "-H", "-d", "-X")).values(*_DOWNLOADS[program]))
    return Files((program,)) if "/" in program else Files()


def _without_counts(operands: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word for word in operands if word != "-" and not word.startswith(("<(", "+")))


def _patterned(program: str, read: Read) -> Files:
    given = read.has("-e", "-f", "-E", "--expression", "--file")
    operands = _without_counts(read.operands if given else read.operands[1:])
    if in_place(program, read):
        return Files(operands, operands)
    return Files((*operands, *read.values("-f")))


def in_place(program: str, read: Read) -> bool:
    """Whether `sed -i` or `perl -pi` writes back what it reads."""
    return program in ("sed", "perl", "gawk") and read.has("-i", "--in-place")


def _copied(arguments: tuple[str, ...]) -> Files:
    """`cp`, `ln`, `install`: the last operand is written, or files of the same names within it."""
    read = read_options(arguments, ("-t", "--target-directory", "-S", "-m", "-o", "-g"))
    folder = read.value("-t", "--target-directory")
    sources = read.operands if folder else read.operands[:-1]
    target = folder or next(iter(read.operands[-1:]), "")
    if not sources or not target:
        return Files(read.operands)
    if folder or target.endswith("/") or len(sources) > 1:
        names = (source.rstrip("/").rsplit("/", 1)[-1] for source in sources)
        return Files(sources, tuple(f"{target.rstrip('/')}/{name}" for name in names))
    return Files(sources, (target,))


def _moved(arguments: tuple[str, ...]) -> Files:
    copied = _copied(arguments)
    return Files(copied.reads, (*copied.reads, *copied.writes))


def _dd(arguments: tuple[str, ...]) -> Files:
    values = dict(word.split("=", 1) for word in arguments if "=" in word)
    return Files(*(tuple(values[key] for key in (name,) if key in values) for name in ("if", "of")))


def _patch(arguments: tuple[str, ...]) -> Files:
    read = read_options(arguments, ("-i", "--input", "-p", "--strip", "-d", "--directory", "-o", "-r", "-F", "-D"))
    return Files((*read.operands[1:], *read.values("-i", "--input")), read.operands[:1])


def _interpreted(arguments: tuple[str, ...]) -> Files:
    """`python script.py args`: the script is read."""
    read = read_options(arguments, ("-c", "-m", "-W", "-X", "-O", "-o"), stop=True)
    script = read.operands[:1] if not read.has("-c", "-m") else ()
    return Files(tuple(word for word in script if word != "-"))


_SPECIAL: Final[dict[str, Callable[[tuple[str, ...]], Files]]] = {
    "cp": _copied, "ln": _copied, "install": _copied, "mv": _moved, "dd": _dd, "patch": _patch, "python": _interpreted,
    "node": _interpreted, "ruby": _interpreted, "bash": _interpreted, "sh": _interpreted, "zsh": _interpreted,
    "pytest": lambda arguments: Files(tuple(
        word.split("::")[0] for word in read_options(arguments, ("-k", "-m", "-p", "-c", "-o", "-n", "-W")).operands
    )),
}
