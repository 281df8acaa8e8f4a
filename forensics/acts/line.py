"""A command line as acts: wrappers undone, files named, programs read.

1. The line is parsed (`shell.parsed`) into simple commands, each peeled (`wrappers`); what a wrapper holds as text
   (`bash -c '...'`) is a command line again.
2. Paths are put below the working directory; `wrote` is the text that went into a file, or, for `python -c` and
   `python - <<EOF`, the text of the program (`writes` then names what its literals open for writing).
3. `python -m X` is told as X. A submission by command is one act of kind `submit`.
"""

from functools import lru_cache
from typing import Final, NamedTuple

from forensics.acts.act import Act
from forensics.acts.files import files_of, in_place
from forensics.acts.git import plain_git
from forensics.acts.options import read_options
from forensics.acts.patches import patched_files
from forensics.acts.places import joined, placed
from forensics.acts.programs import Effects, effects_of
from forensics.acts.shell import Simple, parsed
from forensics.acts.walk import printed
from forensics.acts.wrappers import SHELLS, unwrapped

CUT: Final = "(cut)"  # the program of an act that tells that a command line was not read to its end
DEEPEST: Final = 5  # command lines within command lines
MOST: Final = 600  # acts of one command line
_CACHED: Final = 20_000  # characters of a command line that is kept parsed
_SUBMITS: Final = ("COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT", "MINI_SWE_AGENT_FINAL_OUTPUT")


class Told(NamedTuple):
    """The acts of one command line (`step` 0, no answer yet), and where the shell stands afterwards."""

    acts: tuple[Act, ...]
    directory: str | None


def acts_of_line(text: str, directory: str | None = "", root: str | None = None) -> Told:
    """The acts of a command line that starts in `directory`; paths below `root` are told relative to it."""
    return (_kept if len(text) <= _CACHED else _told)(text, directory, root)


def _told(text: str, directory: str | None, root: str | None, depth: int = 0) -> Told:
    line = parsed(text)
    acts: list[Act] = []
    for command in line.commands:
        acts += _acts(command, directory, root, depth)
        if len(acts) >= MOST:
            break
    if line.cut or len(acts) >= MOST:
        why = line.cut or f"only its first {MOST} acts were read"
        acts = [*acts[:MOST], Act(step=0, kind="command", program=CUT, arguments=(why,), text=text[:200])]
    return Told(tuple(acts), _behind(directory, line.directory))


_kept = lru_cache(maxsize=16_384)(_told)


def _behind(start: str | None, then: str | None) -> str | None:
    return None if then is None else joined(start, then) if then else start


def _acts(command: Simple, start: str | None, root: str | None, depth: int) -> list[Act]:
    """The acts of one simple command: one, but for command lines within it."""
    inner = unwrapped(command.words, command.fed)
    directory = _behind(start, command.directory)
    if inner.directory:
        directory = joined(directory, inner.directory)
    if inner.text is not None:
        nested = _told(inner.text, directory, root, depth + 1).acts if depth < DEEPEST else ()
        return [_redirected(act, command, directory, root) for act in nested] if command.outputs else list(nested)
    words = inner.words or (("export", *command.words) if command.words else ())
    if not words:
        return []
    program, arguments = words[0], words[1:]
    if program == "python":
        return _python(command, arguments, directory, root, depth)
    if program == "find":
        found = _found(arguments)
        more = [] if found is None else _acts(command._replace(words=found, outputs=()), start, root, depth)
        return [_one(command, program, arguments, directory, root), *more]
    return [_one(command, program, arguments, directory, root)]


def _redirected(act: Act, command: Simple, directory: str | None, root: str | None) -> Act:
    return act._replace(writes=_unique((*act.writes, *(placed(directory, path, root) for path in command.outputs))))


def _one(command: Simple, program: str, arguments: tuple[str, ...], directory: str | None, root: str | None) -> Act:
    if program == "git":
        git = plain_git(arguments)
        directory, arguments = joined(directory, git.directory) if git.directory else directory, git.words
    files = files_of(program, arguments)
    changed, wrote = _written(command, program, arguments)
    reads = _placed((*files.reads, *command.inputs), directory, root)
    writes = _placed((*files.writes, *command.outputs, *changed), directory, root)
    submits = program == "echo" and arguments and arguments[0].strip() in _SUBMITS
    return Act(
        step=0, kind="submit" if submits else "command", program="submit" if submits else program, text=command.text,
        arguments=arguments, reads=reads, writes=writes, wrote=wrote,
    )


def _placed(paths: tuple[str, ...], directory: str | None, root: str | None) -> tuple[str, ...]:
    if not paths:
        return ()
    return _unique(tuple(placed(directory, path, root) for path in paths if not path.startswith(("<(", ">("))))


def _written(command: Simple, program: str, arguments: tuple[str, ...]) -> tuple[tuple[str, ...], str | None]:
    """Files that a text names (a patch), and the text that went into files, where the line holds it."""
    if program == "patch" or (program == "git" and arguments[:1] in (("apply",), ("am",))) or program == "apply_patch":
        patch = command.fed or next((word for word in arguments if "\n" in word), None)
        return (patched_files(patch), patch) if patch else ((), None)
    if program == "tee":
        return (), command.fed
    if program in ("sed", "perl") and in_place(program, read_options(arguments, ("-e", "-f"))):
        read = read_options(arguments, ("-e", "-f", "--expression"))
        return (), "\n".join(read.values("-e", "--expression")) or next(iter(read.operands), None)
    return (), printed(command._replace(words=(program, *arguments))) if command.outputs else None


def _python(
    command: Simple, arguments: tuple[str, ...], directory: str | None, root: str | None, depth: int
) -> list[Act]:
    read = read_options(arguments, ("-c", "-m", "-W", "-X"), stop=True)
    if (module := read.value("-m")) is not None:
        after = arguments[arguments.index("-m") + 1 :] if "-m" in arguments else read.operands
        rest = after[1:] if after[:1] == (module,) else after
        return [_one(command, module, tuple(rest), directory, root)]
    text = read.value("-c")
    if text is None and (not read.operands or read.operands[0] == "-"):
        text = command.fed
    if text is None:
        return [_one(command, "python", arguments, directory, root)]
    rest = read.operands[1 if read.value("-c") is None else 0 :]
    act = _one(command._replace(fed=None), "python", ("-c", *rest), directory, root)
    return with_effects(act._replace(wrote=text), effects_of(text), directory, root, depth)


def with_effects(act: Act, effects: Effects, directory: str | None, root: str | None, depth: int = 0) -> list[Act]:
    """An act together with what its program text does: files on the act, command lines as acts behind it."""
    reads = (placed(directory, path, root) for path in effects.reads)
    writes = (placed(directory, path, root) for path in effects.writes)
    whole = act._replace(reads=_unique((*act.reads, *reads)), writes=_unique((*act.writes, *writes)))
    lines = effects.lines if depth < DEEPEST else ()
    return [whole, *(more for line in lines for more in _told(line, directory, root, depth + 1).acts)]


def _found(arguments: tuple[str, ...]) -> tuple[str, ...] | None:
    """The command behind `find ... -exec`, or `rm` for `-delete`."""
    at = next((i for i, word in enumerate(arguments) if word in ("-exec", "-execdir", "-ok")), None)
    if at is None:
        return None
    end = next((i for i in range(at, len(arguments)) if arguments[i] in (";", "+")), len(arguments))
    return arguments[at + 1 : end] or None


def script_of(act: Act) -> str | None:
    """The script that an act runs: `python x.py`, `bash x.sh`, `source x`, `./x`."""
    if act.kind != "command":
        return None
    runs = act.program in ("python", "source", ".") or act.program in SHELLS or "/" in act.program
    return act.reads[0] if runs and act.reads and act.wrote is None else None


def _unique(paths: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(paths)) if len(paths) > 1 else paths
