"""Programs that only run another one are undone: `env`, `sudo`, `timeout`, `xargs`, `bash -c`, `eval` and the like.

1. `unwrapped` peels words from the left until a program is left that does something itself.
2. What comes out is either words (another simple command) or text (another command line, to be parsed).
"""

import re
from typing import Final, NamedTuple

from forensics.acts.options import Read, read_options

MOST_LAYERS: Final = 12
SHELLS: Final = frozenset({"bash", "sh", "zsh", "dash", "ksh", "ash"})
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=", re.S)
_IN_BIN: Final = re.compile(r"(^|/)s?bin/[^/]+$")
_PYTHON: Final = re.compile(r"python(\d(\.\d+)?)?|ipython3?|pypy3?")
_PLAIN: Final[dict[str, tuple[str, ...]]] = {  # wrapper -> its options that take a value
    "nohup": (), "command": (), "builtin": (), "exec": ("-a",), "time": ("-f", "-o", "--format", "--output"),
    "nice": ("-n", "--adjustment"), "ionice": ("-c", "-n"), "setsid": (), "unbuffer": (), "chronic": (),
    "stdbuf": ("-i", "-o", "-e", "--input", "--output", "--error"), "catchsegv": (), "faketime": (),
    "sudo": ("-u", "-g", "-h", "-p", "-C", "-r", "-t", "-U", "--user", "--group", "--host", "--prompt"),
    "doas": ("-u", "-C"), "xvfb-run": ("-n", "-s", "-e"), "coverage-run": (), "strace": ("-e", "-o", "-p", "-s"),
    "xargs": ("-I", "-n", "-L", "-P", "-d", "-a", "-s", "-E", "--max-args", "--max-procs", "--delimiter", "--replace"),
    "env": ("-u", "-C", "-S", "--unset", "--chdir", "--split-string"),
    "timeout": ("-k", "-s", "--kill-after", "--signal"), "watch": ("-n", "--interval"),
    "parallel": ("-j", "--jobs"), "gtimeout": ("-k", "-s"),
}
_OPERANDS: Final = {"timeout": 1, "gtimeout": 1, "faketime": 1}  # operands of the wrapper itself
_RUNNERS: Final = {"poetry", "uv", "pipenv", "hatch", "pdm", "rye", "conda", "mamba", "micromamba"}
_RUNNER_VALUES: Final = ("-n", "-p", "--name", "--prefix", "--python", "--with", "--project", "--directory", "--extra")


class Unwrapped(NamedTuple):
    """What is left: `words`, or a command line as `text`. `directory`: a folder that a wrapper went to first."""

    words: tuple[str, ...]
    text: str | None = None
    directory: str | None = None


def unwrapped(words: tuple[str, ...], fed: str | None = None) -> Unwrapped:
    """Peel the wrappers off a simple command. `fed`: the text on its standard input, where it is known."""
    directory: str | None = None
    for _ in range(MOST_LAYERS):
        while words and _ASSIGNMENT.match(words[0]):
            words = words[1:]
        if not words:
            return Unwrapped((), None, directory)
        program, rest = basename(words[0]), words[1:]
        if program in SHELLS or program in ("eval", "su", "script"):
            text = _line_of(program, rest, fed)
            return Unwrapped((program, *rest) if text is None else (), text, directory)
        inner, directory = _peeled(program, rest, directory)
        if inner is None:
            return Unwrapped((program, *rest), None, directory)
        words = inner
    return Unwrapped(words, None, directory)


def basename(program: str) -> str:
    """A program by its own name: folders named `bin` and the version of Python go away; a script keeps its path."""
    name = program.rsplit("/", 1)[-1] if "/" in program and _IN_BIN.search(program) else program
    return "python" if _PYTHON.fullmatch(name) else name.lstrip("\\") or program


def _peeled(program: str, rest: tuple[str, ...], directory: str | None) -> tuple[tuple[str, ...] | None, str | None]:
    if program in _RUNNERS and "run" in rest[:4]:
        return _of(read_options(rest[rest.index("run") + 1 :], _RUNNER_VALUES, stop=True).operands), directory
    if program in ("docker", "podman") and rest[:1] == ("exec",):
        values = ("-u", "-w", "-e", "--user", "--workdir", "--env")
        return _of(read_options(rest[1:], values, stop=True).operands[1:]), directory
    if program not in _PLAIN:
        return None, directory
    read = read_options(rest, _PLAIN[program], stop=True)
    if program == "env":
        return _env(read), read.value("-C", "--chdir") or directory
    if program == "command" and read.has("-v", "-V"):
        return None, directory
    return _of(read.operands[_OPERANDS.get(program, 0) :]), directory


def _env(read: Read) -> tuple[str, ...] | None:
    split = read.value("-S", "--split-string")
    return _of((*(split.split() if split else ()), *read.operands))


def _of(words: tuple[str, ...]) -> tuple[str, ...] | None:
    return words or None


def _line_of(program: str, rest: tuple[str, ...], fed: str | None) -> str | None:
    """The command line that a shell is given as text."""
    if program == "eval":
        return " ".join(rest) or None
    values = ("-c", "-o", "-O", "--rcfile", "--init-file", "--command")
    read = read_options(rest, values, stop=program not in ("su", "script"))
    if program in ("su", "script"):
        return read.value("-c", "--command")
    letters = next((i for i, word in enumerate(rest) if re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", word)), None)
    if letters is not None:
        after = [word for word in rest[letters + 1 :] if not re.fullmatch(r"[-+][a-zA-Z]+", word)]
        return after[0] if after else None
    return fed if not read.operands or read.has("-s") or read.operands == ("-",) else None
