"""A command line as actions: wrappers undone, files named, programs read.

1. The line is parsed (`bash.parsed`) into simple commands. Programs that only
   run another one (`env`, `sudo`, `timeout`, `xargs`, `bash -c`, `eval` and the
   like) are peeled off from the left; what they hold as text is a command line
   again.
2. Paths are put below the working directory; `content` is the text that went
   into a file, or, for `python -c` and `python - <<EOF`, the text of the
   program (`writes` then names what its literals open for writing).
3. `python -m X` is told as X. A submission by command is one action of kind
   `submit`.
"""

import re
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from forensics.actions.action import Action, relative_path, resolve
from forensics.actions.bash import parsed
from forensics.actions.bash_tree import SimpleCommand, printed
from forensics.actions.programs import (
    OPTIONS,
    READERS,
    SEARCHERS,
    files_of,
    in_place,
    plain_git,
    powershell,
    read_options,
)
from forensics.actions.python_source import FileEffects, python_effects
from forensics.actions.unified_diff import patched_files
from forensics.actions.untrusted import TABLES, Words

MOST_LAYERS = 12
SHELLS = frozenset(TABLES["names"]["shells"])
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=", re.S)
_IN_BIN = re.compile(r"(^|/)s?bin/[^/]+$")
_PYTHON = re.compile(r"python(\d(\.\d+)?)?|ipython3?|pypy3?")
_WRAPPERS, _RUNNERS = TABLES["wrappers"], frozenset(TABLES["names"]["runners"])
_OPERANDS = {"timeout": 1, "gtimeout": 1, "faketime": 1}  # operands of the wrapper itself
UNPARSED = "(cut)"  # the program of an action that tells of a line that was not read to its end
DEEPEST = 5  # command lines within command lines
MOST = 600  # actions of one command line
_CACHED = 20_000  # characters of a command line that is kept parsed
_SUBMITS = ("COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT", "MINI_SWE_AGENT_FINAL_OUTPUT")


class Unwrapped(NamedTuple):
    """What is left: `words`, or a command line as `text`. `directory`: a folder
    that a wrapper went to first.
    """

    words: Words
    text: str | None = None
    directory: str | None = None


def unwrapped(words: Words, stdin: str | None = None) -> Unwrapped:
    """Peel the wrappers off a simple command. `stdin`: the text on its standard
    input, where it is known.
    """
    directory: str | None = None
    for _ in range(MOST_LAYERS):
        while words and _ASSIGNMENT.match(words[0]):
            words = words[1:]
        if not words:
            return Unwrapped((), None, directory)
        program, rest = basename(words[0]), words[1:]
        if program in SHELLS or program in ("eval", "su", "script"):
            text = line_of(program, rest, stdin)
            return Unwrapped((program, *rest) if text is None else (), text, directory)
        inner, directory = _peeled(program, rest, directory)
        if not inner:
            return Unwrapped((program, *rest), None, directory)
        words = inner
    return Unwrapped(words, None, directory)


def basename(program: str) -> str:
    """A program by its own name: folders named `bin` and the version of Python
    go away; a script keeps its path.
    """
    name = program.rsplit("/", 1)[-1] if "/" in program and _IN_BIN.search(program) else program
    return "python" if _PYTHON.fullmatch(name) else name.lstrip("\\") or program


def _peeled(program: str, rest: Words, directory: str | None) -> tuple[Words, str | None]:
    """The command that a wrapper runs, none where it is no wrapper, and where it runs."""
    if program in _RUNNERS and "run" in rest[:4]:
        rest = rest[rest.index("run") + 1 :]
        return read_options(rest, OPTIONS["runner"], stop=True).operands, directory
    if program in ("docker", "podman") and rest[:1] == ("exec",):
        return read_options(rest[1:], OPTIONS["docker exec"], stop=True).operands[1:], directory
    if program not in _WRAPPERS:
        return (), directory
    read = read_options(rest, _WRAPPERS[program], stop=True)
    if program == "env":
        split = read.value("-S", "--split-string") or ""
        return (*split.split(), *read.operands), read.value("-C", "--chdir") or directory
    if program == "command" and read.has("-v", "-V"):
        return (), directory
    return read.operands[_OPERANDS.get(program, 0) :], directory


def line_of(program: str, rest: Words, stdin: str | None) -> str | None:
    """The command line that a shell is given as text."""
    if program == "eval":
        return " ".join(rest) or None
    read = read_options(rest, OPTIONS["shell"], stop=program not in ("su", "script"))
    if program in ("su", "script"):
        return read.value("-c", "--command")
    letters = next(
        (i for i, word in enumerate(rest) if re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", word)), None
    )
    if letters is not None:
        after = [word for word in rest[letters + 1 :] if not re.fullmatch(r"[-+][a-zA-Z]+", word)]
        return after[0] if after else None
    return stdin if not read.operands or read.has("-s") or read.operands == ("-",) else None


class LineActions(NamedTuple):
    """The actions of one command line (`step` 0, no answer yet), and where the
    shell stands afterwards.
    """

    actions: tuple[Action, ...]
    directory: str | None


def actions_of_line(text: str, directory: str | None = "", root: str | None = None) -> LineActions:
    """The actions of a command line that starts in `directory`; paths below `root`
    are told relative to it.
    """
    return (_kept if len(text) <= _CACHED else _told)(text, directory, root)


def _told(text: str, directory: str | None, root: str | None, depth: int = 0) -> LineActions:
    line = parsed(text)
    actions: list[Action] = []
    for command in line.commands:
        actions += _actions(command, directory, root, depth)
        if len(actions) >= MOST:
            break
    if line.left_out or len(actions) >= MOST:
        why = line.left_out or f"only its first {MOST} acts were read"
        actions = [
            *actions[:MOST],
            Action(0, "command", UNPARSED, (why,), text=text[:200]),
        ]
    return LineActions(tuple(actions), _behind(directory, line.directory))


_kept = lru_cache(maxsize=16_384)(_told)


def _behind(start: str | None, then: str | None) -> str | None:
    return None if then is None else resolve(start, then) if then else start


def _actions(
    command: SimpleCommand, start: str | None, root: str | None, depth: int
) -> list[Action]:
    """The actions of one simple command: one, but for command lines within it."""
    inner = unwrapped(command.words, command.stdin)
    directory = _behind(start, command.directory)
    if inner.directory:
        directory = resolve(directory, inner.directory)
    if inner.text is not None:
        nested = _told(inner.text, directory, root, depth + 1).actions if depth < DEEPEST else ()
        outputs = FileEffects(writes=command.outputs)
        return [_added(action, outputs, directory, root) for action in nested]
    words = inner.words or (("export", *command.words) if command.words else ())
    if not words:
        return []
    program, arguments = words[0], words[1:]
    if program == "python":
        return _python(command, arguments, directory, root, depth)
    actions = [_one(command, program, arguments, directory, root)]
    if program == "find" and (found := _found(arguments)):
        actions += _actions(command._replace(words=found, outputs=()), start, root, depth)
    return actions


def _added(action: Action, effects: FileEffects, directory: str | None, root: str | None) -> Action:
    """An action that reads and writes some files more."""
    reads, writes = (_placed(paths, directory, root) for paths in effects[:2])
    return action._replace(
        reads=_unique((*action.reads, *reads)), writes=_unique((*action.writes, *writes))
    )


def _one(
    command: SimpleCommand,
    program: str,
    arguments: Words,
    directory: str | None,
    root: str | None,
) -> Action:
    if program == "git":
        git = plain_git(arguments)
        directory, arguments = (
            resolve(directory, git.directory) if git.directory else directory,
            git.words,
        )
    files = files_of(program, arguments)
    changed, content = _written(command, program, arguments)
    reads = _placed((*files.reads, *command.inputs), directory, root)
    writes = _placed((*files.writes, *command.outputs, *changed), directory, root)
    if program == "echo" and arguments and arguments[0].strip() in _SUBMITS:
        return Action(0, "submit", "submit", arguments, reads, writes, command.text, content)
    return Action(0, "command", program, arguments, reads, writes, command.text, content)


def _placed(paths: Words, directory: str | None, root: str | None) -> Words:
    named = (path for path in paths if not path.startswith(("<(", ">(")))
    return _unique(tuple(relative_path(directory, path, root) for path in named)) if paths else ()


def _written(command: SimpleCommand, program: str, arguments: Words) -> tuple[Words, str | None]:
    """Files that a text names (a patch), and the text that went into files,
    where the line holds it.
    """
    git_applies = program == "git" and arguments[:1] in (("apply",), ("am",))
    if git_applies or program in ("patch", "apply_patch"):
        patch = command.stdin or next((word for word in arguments if "\n" in word), None)
        return (patched_files(patch), patch) if patch else ((), None)
    if program == "tee":
        return (), command.stdin
    if program in ("sed", "perl") and in_place(program, read_options(arguments, ("-e", "-f"))):
        read = read_options(arguments, ("-e", "-f", "--expression"))
        return (), "\n".join(read.values("-e", "--expression")) or next(iter(read.operands), None)
    if "-" in program and (told := powershell(program, arguments)) is not None:
        return (), told[1]
    return (), printed(command._replace(words=(program, *arguments))) if command.outputs else None


def _python(
    command: SimpleCommand,
    arguments: Words,
    directory: str | None,
    root: str | None,
    depth: int,
) -> list[Action]:
    read = read_options(arguments, ("-c", "-m", "-W", "-X"), stop=True)
    if (module := read.value("-m")) is not None:
        after = arguments[arguments.index("-m") + 1 :] if "-m" in arguments else read.operands
        rest = after[1:] if after[:1] == (module,) else after
        return [_one(command, module, tuple(rest), directory, root)]
    text = read.value("-c")
    if text is None and (not read.operands or read.operands[0] == "-"):
        text = command.stdin
    if text is None:
        return [_one(command, "python", arguments, directory, root)]
    rest = read.operands[1 if read.value("-c") is None else 0 :]
    action = _one(command._replace(stdin=None), "python", ("-c", *rest), directory, root)
    return with_effects(action._replace(content=text), python_effects(text), directory, root, depth)


def with_effects(
    action: Action, effects: FileEffects, directory: str | None, root: str | None, depth: int = 0
) -> list[Action]:
    """An action together with what its program text does: files on the action,
    command lines as actions behind it.
    """
    actions = [_added(action, effects, directory, root)]
    for line in effects.lines if depth < DEEPEST else ():
        actions += _told(line, directory, root, depth + 1).actions
    return actions


def _found(arguments: Words) -> Words | None:
    """The command behind `find ... -exec`, or `rm` for `-delete`."""
    at = next((i for i, word in enumerate(arguments) if word in ("-exec", "-execdir", "-ok")), None)
    if at is None:
        return None
    end = next((i for i in range(at, len(arguments)) if arguments[i] in (";", "+")), len(arguments))
    words = arguments[at + 1 : end]
    looks = words and (words[0] in READERS or words[0] in SEARCHERS)
    if looks and not in_place(words[0], read_options(words[1:])):
        name = next((b for a, b in pairwise(arguments[:at]) if a in ("-name", "-iname")), "*")
        place = f"{arguments[0].rstrip('/')}/{name}"
        words = tuple(place if word == "{}" else word for word in words)
    return words or None


def script_of(action: Action) -> str | None:
    """The script that an action runs: `python x.py`, `bash x.sh`, `source x`, `./x`."""
    program = action.program
    runs = program in ("python", "source", ".") or program in SHELLS or "/" in program
    alone = action.kind == "command" and action.content is None
    return action.reads[0] if runs and alone and action.reads else None


def with_arguments(script: str, action: Action) -> str:
    """A script of the shell with what it is given in the place of `$1`, `$2` ..."""
    words = action.arguments[0 if "/" in action.program else 1 :]
    given = [word if re.fullmatch(r"[\w./:@~^=-]{1,200}", word) else None for word in words[:9]]
    if not any(given):
        return script

    def one(found: re.Match[str]) -> str:
        at = int(found[1] or found[2]) - 1
        return (given[at] if at < len(given) else None) or found[0]

    return re.sub(r"\$(?:([1-9])|\{([1-9])\})", one, script)


def _unique(paths: Words) -> Words:
    return tuple(dict.fromkeys(paths)) if len(paths) > 1 else paths
