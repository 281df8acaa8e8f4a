"""What an action takes over into the work without typing it in, and whether that was
handed in.

1. What is taken: files that a command writes (`checkout X -- a.py`, `show X:a.py > a.py`),
   or a whole change (`cherry-pick`, `merge`, `show X | git apply`). What flows on through
   filters (`show X:a.py | sed ... > a.py`), or into the program that runs the command, is
   written by these.
2. What lies elsewhere is followed: a patch, an archive or a file under another name, a
   second work tree, a clone; applied, unpacked, copied or moved later, it is taken then. Files that
   are read while the work is at another commit show it, too.
3. It was handed in where most of what the patch adds to these files, the run typed in
   nowhere. Where something on the way may have changed it, HEAD's own lines under other
   names do not count.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from forensics.actions import Action
from forensics.actions.programs import read_options
from forensics.actions.python_source import python_effects
from forensics.shortcuts.blind_run import BlindRun
from forensics.shortcuts.git_words import subcommand, words_of
from forensics.shortcuts.shown_commits import handed_in, unwritten

MOSTLY = 0.5
_WHOLE = {"am", "cherry-pick", "merge", "pull", "rebase", "read-tree", "revert", "stash"}
_ROOTED = re.compile(r"/(?!(?:tmp|var|dev|proc|private)(?:/|$))")
_MOVES = ("checkout", "switch")
_FORGE = {"am", "apply", "checkout", "cherry-pick", "merge"}
_LOOKS = {"--stat", "--numstat", "--summary", "--check", "--dry-run"}
_UNPACKS = {"tar", "bsdtar", "unzip", "zipfile", "tarfile"}
_CHANGES = {"awk", "cut", "gawk", "grep", "perl", "python", "sed", "sort", "tr", "uniq"}
_FILTERS = _CHANGES | {"cat", "cd", "dd", "head", "sponge", "tac", "tail", "tee"}
_REFUSED = re.compile(r"^(?:fatal|error|usage): |: command not found$", re.M)


class Taken(NamedTuple):
    """`paths`: files of the work (`None`: any). `step`: where they were taken last.
    `applied`: as a change that fitted. `seen`: observations that show it meanwhile.
    `changed`: what lay between may have changed it.
    """

    paths: tuple[str, ...] | None
    step: int
    applied: bool
    seen: tuple[int, ...] = ()
    changed: bool = False


def takes(run: BlindRun, action: Action) -> Taken | None:
    """What an action takes over, there or with what follows; `None`: nothing."""
    if failed(run, action):
        return None
    if action.reads and _applies(run, action):
        return Taken(None, action.step, applied=not _backwards(action))
    at = next(i for i, one in enumerate(run.actions) if one is action)
    later = run.actions[at + 1 :]
    paths, lies = _at_once(action)
    if paths is None:
        applied = subcommand(action) not in (*_MOVES, "revert")
        return Taken(None, action.step, applied=applied, seen=_visited(run, action, later))
    into = _flows_into(action, run.actions[:at], later)
    taken = [path for one in (action._replace(writes=tuple(paths)), *into) for path in one.writes]
    elsewhere = {path.rstrip("/") for path in (*taken, *lies)}
    seen: list[int] = []
    for one in later:
        piped = one.step == action.step and not one.reads and _changes(one)
        if (piped or _from(one.reads, elsewhere)) and _applies(run, one):
            return Taken(None, one.step, applied=not _backwards(one), seen=tuple(seen))
        if one.program in _UNPACKS and _unpacks(one, action, elsewhere):
            read = read_options(one.arguments, ("-C", "--directory", "-d"))
            place = read.value("-C", "--directory", "-d") or "."
            elsewhere.add(place.rstrip("/"))
            taken.append(place)
        if _from(one.reads, elsewhere):
            seen += [one.observation] if one.observation is not None else []
            taken += one.writes
            elsewhere.update(path.rstrip("/") for path in one.writes)
    files = _files(run, taken)
    if "." in taken or "" in taken or ":/" in taken:
        return Taken(None, action.step, applied=False, seen=tuple(seen))
    changed = any(one.program in _CHANGES for one in into)
    told = Taken(files, action.step, applied=False, seen=tuple(seen), changed=changed)
    return told if files or seen else None


def failed(run: BlindRun, action: Action) -> bool:
    """Whether a command line ended badly, and git (or the shell) said that it would not do it."""
    return action.exit_code not in (None, 0) and bool(_REFUSED.search(run.answer(action)))


def was_handed_in(run: BlindRun, taken: Taken) -> bool:
    """Whether most of what the patch adds there was typed in nowhere."""
    if taken.paths == ():
        return False
    lines = handed_in(run, taken.paths)
    if taken.changed:
        old = {_form(line) for change in run.changes for line in change.removed}
        lines = [line for line in lines if _form(line) not in old]
    return bool(lines) and unwritten(run, lines) > MOSTLY


def _form(line: str) -> str:
    """A line without its names and white space."""
    return re.sub(r"\s+", "", re.sub(r"[^\W\d]\w*", "_", line))


def _flows_into(action: Action, before: Sequence[Action], later: Sequence[Action]) -> list[Action]:
    """What is given an action's output within its own command line: filters behind it, the
    program that runs it, a command that it is put into (`cp <(git show X:a.py) a.py`).
    """
    found = [
        one
        for one in before
        if one.step == action.step
        and one.program == "python"
        and action.text in python_effects(one.content or "").lines
    ]
    flows = True
    for one in later:
        if one.step != action.step:
            break
        typed = one.content is not None and "stdin" not in one.content
        flows = flows and one.program in _FILTERS and not one.reads and not typed
        if flows or any(f"({action.text})" in word for word in one.arguments):
            found.append(one)
    return found


def _at_once(action: Action) -> tuple[Sequence[str] | None, Sequence[str]]:
    """The files that an action writes (`None`: whatever a change touches), and where else
    it puts what it takes.
    """
    command, read = subcommand(action), words_of(action)
    if command == "worktree":
        return (), read.operands[1:2]
    if "clone" in action.arguments[:2]:
        return (), action.writes
    if action.program in ("gh", "glab", "hub", "lab", "tea") and _FORGE & set(action.arguments[:2]):
        return None, ()
    if action.program in _UNPACKS:
        return (() if {"-l", "-Z", "--list"} & set(action.arguments) else None), ()
    if command == "stash":
        return (None if set(read.operands) & {"apply", "pop", "branch"} else ()), ()
    if command in _WHOLE or (command == "reset" and read.operands):
        return None, ()
    if command in ("checkout", "switch") and "--" not in action.arguments and not action.writes:
        return None, ()
    return action.writes, ()


def _changes(action: Action) -> bool:
    return subcommand(action) in ("apply", "am") or action.program == "patch"


def _applies(run: BlindRun, action: Action) -> bool:
    return (
        _changes(action)
        and not _LOOKS & set(action.arguments)
        and action.content is None
        and not failed(run, action)
    )


def _visited(run: BlindRun, action: Action, later: Sequence[Action]) -> tuple[int, ...]:
    """The answers that show files of the patch while the work is at another commit."""
    seen: list[int] = []
    names = {change.path.rsplit("/", 1)[-1] for change in run.changes}
    for one in later if subcommand(action) in _MOVES else ():
        if subcommand(one) in _MOVES:
            break
        if one.observation is not None and names & {path.rsplit("/", 1)[-1] for path in one.reads}:
            seen.append(one.observation)
    return tuple(dict.fromkeys(seen))


def _unpacks(one: Action, action: Action, places: set[str]) -> bool:
    """Whether an archive is unpacked that flows from an action, or that lies at some places."""
    flows = one.step == action.step and one.program in ("tar", "bsdtar")
    return flows or _from([word for word in one.arguments if "/" in word or "." in word], places)


def _backwards(action: Action) -> bool:
    """Whether a change is taken back: what it adds is a part of HEAD."""
    return bool({"-R", "--reverse"} & set(action.arguments))


def _from(reads: Sequence[str], places: set[str]) -> bool:
    return any(
        path.rstrip("/") in places or any(path.startswith(place + "/") for place in places if place)
        for path in reads
    )


def _folders(path: str) -> tuple[str, ...]:
    """The folders of a path, as an absolute path would end with them."""
    parts = path.split("/")[:-1]
    return tuple(f"/{'/'.join(parts[:number])}/" for number in range(1, len(parts) + 1))


def _files(run: BlindRun, paths: Sequence[str]) -> tuple[str, ...]:
    """Those of the patch's files that lie at some paths."""
    named = {path.removeprefix("./").rstrip("/") for path in paths} - {""}
    return tuple(
        change.path
        for change in run.changes
        if any(
            change.path == name
            or change.path.startswith(name + "/")
            or name.endswith("/" + change.path)
            or (_ROOTED.match(name) and f"{name}/".endswith(_folders(change.path)))
            for name in named
        )
    )
