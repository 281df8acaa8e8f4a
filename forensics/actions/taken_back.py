"""What git takes back of a run's edits: `taken_back`.

1. `checkout FILE`, with `--`, with `HEAD`, or with neither; `restore FILE`; `.` and folders.
2. `reset --hard` and `stash` take everything back; a stash comes back with `pop` or `apply`.
3. A file that is taken from another commit is as it was there, which nobody knows.
4. To go to another branch is to go away from the edits' own tree, until the run comes back.
"""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from forensics.actions.action import Action
from forensics.actions.programs import read_options
from forensics.actions.untrusted import TABLES

_HEAD, _HOME = TABLES["revisions"]["head"], TABLES["revisions"]["home"]
_FILE = re.compile(r"[^/]\.[A-Za-z]\w{0,6}$|/$|[*?]")


class Back(NamedTuple):
    """`names`: known files whose edits are gone. `paths`: as the command names them. `everything`:
    all edits are gone. `other`: the paths are now as another commit has them. `stash`: `push` or
    `pop`. `away`: the work is now that of another branch (`None`: as before).
    """

    names: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    everything: bool = False
    other: bool = False
    stash: str = ""
    away: bool | None = None


def taken_back(action: Action, named: Callable[[str], Sequence[str]]) -> Back | None:
    """What a git command takes back, `None` where it is none of these. `named`: the known files
    at a path.
    """
    command, *rest = action.arguments or ("",)
    if command == "reset" and "--hard" in rest:
        targets = [word for word in rest if not word.startswith("-")]
        return Back(everything=True, away=True if targets and targets[0] not in _HEAD else None)
    if command == "stash":
        return _stashed(rest, named)
    if command == "restore":
        if {"--staged", "-S"} & set(rest) and not {"--worktree", "-W"} & set(rest):
            return Back()
        read = read_options([word for word in rest if word != "--"], ("-s", "--source"))
        source = read.value("-s", "--source")
        return _paths(read.operands, named, source is not None and source not in _HEAD)
    if command in ("checkout", "switch"):
        return _checked_out(command, rest, named)
    return None


def _stashed(rest: Sequence[str], named: Callable[[str], Sequence[str]]) -> Back | None:
    words = [word for word in rest if not word.startswith("-")]
    if words[:1] in (["pop"], ["apply"]):
        return Back(stash="pop")
    if words[:1] == ["push"] and len(words) > 1 and "-m" not in rest:
        return _paths(words[1:], named, False)._replace(stash="push")
    if not words or words[0] in ("push", "save") or "-m" in rest:
        return Back(everything=True, stash="push")
    return None


def _checked_out(
    command: str, rest: Sequence[str], named: Callable[[str], Sequence[str]]
) -> Back | None:
    if {"-b", "-B", "-c", "-C", "--orphan"} & set(rest):
        return None
    if "--" in rest:
        at = list(rest).index("--")
        sources = [word for word in rest[:at] if not word.startswith("-")]
        return _paths(rest[at + 1 :], named, bool(sources) and sources[0] not in _HEAD)
    words = [word for word in rest if word == "-" or not word.startswith("-")]
    if not words:
        return None
    if command == "checkout" and _is_path(words[0], named):
        return _paths(words, named, False)
    if command == "checkout" and len(words) > 1:
        return _paths(words[1:], named, words[0] not in _HEAD)
    return Back(away=words[0] not in (*_HOME, *_HEAD))


def _is_path(word: str, named: Callable[[str], Sequence[str]]) -> bool:
    return word in (".", ":/") or _FILE.search(word) is not None or bool(named(word))


def _paths(words: Sequence[str], named: Callable[[str], Sequence[str]], other: bool) -> Back:
    names = tuple(dict.fromkeys(name for word in words for name in named(word)))
    every = any(word in (".", ":/", "*") for word in words)
    return Back(names, tuple(words), everything=every, other=other)
