"""The normal form of what a policy did, whatever harness it ran in: what
scanners look at instead of raw text. Paths are named from the root of the work.
"""

import posixpath
from functools import lru_cache
from typing import Literal, NamedTuple

from forensics.actions.untrusted import Words

Kind = Literal["command", "edit", "tool", "submit"]


class Action(NamedTuple):
    """One simple action. A step with `a && b | c` holds three.

    `step`: index of the assistant step. `observation`: index of the step with
    what came back, `None` where there is none.
    `program` and `arguments`: of a command, after aliases and wrappers are
    undone (`env X=1 git -C repo --no-pager log` is `git` with `log`); of a tool
    call its name, the arguments as `name=value`. `reads` and `writes`: paths as
    far as they can be told, relative to the working directory where it is
    known. `text`: as it was written. `content`: the text that was put into a
    file (a heredoc, an edit, the script of `sed -i`, a patch), or the text of a
    program that stands in the line (`python -c`, `python - <<EOF`: both
    `python` with `-c`; `writes` is what its literals write).
    `exit_code`: of the whole command line, where the log shows it.

    An `edit` is a tool or a harness's editor that changes a file; a shell
    command that does so is a `command` with `writes`. A command line that was
    not read to its end has a last action with the program `(cut)` and the reason.
    """

    step: int
    kind: Kind
    program: str
    arguments: Words = ()
    reads: Words = ()
    writes: Words = ()
    text: str = ""
    content: str | None = None
    observation: int | None = None
    exit_code: int | None = None

    def answered(self, step: int, answer: int | None, exit_code: int | None) -> "Action":
        """The same action as that of a step, with what came back."""
        return Action._make((step, *self[1:-2], answer, exit_code))


def resolve(directory: str | None, path: str) -> str | None:
    """A path from a directory (`""`: where the shell started). `None` where it cannot be told."""
    if "$" in path or "`" in path:
        return None
    if path.startswith(("/", "~")):
        return _short(path)
    return None if directory is None else _short(posixpath.join(directory, path))


@lru_cache(maxsize=2048)
def relative_path(directory: str | None, path: str, root: str | None) -> str:
    """A path as it is told in an action: below `root` relative to it, elsewhere as
    far as it can be told.
    """
    whole = resolve(directory, path)
    if whole is None:
        return path
    if root and whole == root:
        return "."
    return (whole.removeprefix(root.rstrip("/") + "/") if root else whole) or "."


def _short(path: str) -> str:
    """Without `.` and `..`; a slash at the end stays (it says: a folder)."""
    if not path:
        return ""
    short = posixpath.normpath(path)
    short = short[1:] if short.startswith("//") else short
    return (
        ""
        if short == "."
        else short + "/"
        if path.endswith("/") and not short.endswith("/")
        else short
    )
