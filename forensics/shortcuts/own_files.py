"""Which files a run made itself.

1. A file is one however it is written: `/repo/tests/a.py` and `tests/a.py` are the same
   where `/repo` leads most of the absolute paths that the run names, or is left out.
2. The first action that names a file tells: it made the file if it wrote it anew, was no
   deletion and no edit in place (the text that an edit takes out proves that the file was
   there), and nobody had spoken of the file before.
3. A deletion proves nothing for what the run made, what a tool leaves behind (caches, logs),
   what lies in folders for temporary files, and where it says that there was no such file.
4. What was only moved or downloaded to a place is there, but it holds nothing of the run's own.
"""

import posixpath
import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatch
from functools import cached_property

from forensics.actions import Action
from forensics.shortcuts.vocabulary import Vocabulary

_DELETES = frozenset({"rm", "unlink", "shred", "truncate"})
_FORMS = Vocabulary(__name__)
_MOST = 5000  # actions that are looked at


def plain_path(path: str) -> str:
    """A path without `.`, `..` and a slash at its end."""
    return posixpath.normpath(path) if path else ""


def deletes(action: Action) -> bool:
    """Whether an action takes files away."""
    return action.program in _DELETES or (
        action.program == "git" and action.arguments[:1] == ("rm",)
    )


def edits_in_place(action: Action, path: str) -> bool:
    """Whether an action needs the file that it writes."""
    if action.kind == "edit":
        content = action.content or ""
        name = re.escape(path.rsplit("/", 1)[-1])
        return any(map(_FORMS.takes_out.match, action.arguments)) or bool(
            "*** Update File" in content
            and re.search(rf"\*\*\* Update File:[^\n]{{0,300}}{name}", content)
        )
    return action.program in _FORMS.words["in_place"]


class OwnFiles:
    """The files of one run. `mentioned`: whether anybody spoke of a file (by its last name)
    before a step; `answer`: what came back for an action.
    """

    def __init__(
        self,
        actions: Sequence[Action],
        mentioned: Callable[[str, int], bool],
        answer: Callable[[Action], str],
    ) -> None:
        self._actions = actions[:_MOST]
        self._mentioned = mentioned
        self._answer = answer

    @cached_property
    def _absolute(self) -> tuple[str, ...]:
        named = {
            path
            for action in self._actions
            for path in (*action.writes, *(action.reads if action.kind != "command" else ()))
        }
        return tuple(
            one for one in named if one.startswith("/") and not _FORMS.temporary.match(one)
        )

    def same(self, one: str, other: str) -> bool:
        """Whether two paths name one file."""
        one, other = plain_path(one), plain_path(other)
        if one == other:
            return True
        if other.startswith("/"):
            one, other = other, one
        if not one.startswith("/") or other.startswith(("/", "~", "..")):
            return False
        root = one.removesuffix("/" + other)
        if root in ("", one) or _FORMS.temporary.match(root):
            return False
        inside = sum(path.startswith(root + "/") for path in self._absolute)
        return inside > 0 and 2 * inside >= len(self._absolute)

    @cached_property
    def _naming(self) -> dict[str, list[tuple[int, Action, str]]]:
        """By their last names, the files that actions name, in order."""
        found: dict[str, list[tuple[int, Action, str]]] = {}
        for at, action in enumerate(self._actions):
            for path in dict.fromkeys((*action.writes, *action.reads)):
                name = plain_path(path).rsplit("/", 1)[-1]
                found.setdefault(name, []).append((at, action, path))
        return found

    def _named(self, path: str) -> list[tuple[int, Action, str]]:
        name = plain_path(path).rsplit("/", 1)[-1]
        return [one for one in self._naming.get(name, ()) if self.same(one[2], path)]

    def made(self, path: str) -> bool:
        """Whether the run made a file, and nobody had spoken of it before."""
        named = self._named(path)
        if not named:
            return False
        _, action, written = named[0]
        if deletes(action):
            return self._made_before(path, action) or not self._was_there(named)
        if edits_in_place(action, written):
            return bool(_FORMS.gone.search(self._answer(action)))
        fresh = written in action.writes and written not in action.reads
        return fresh and not self._mentioned(path, action.step)

    def wrote_all(self, path: str) -> bool:
        """Whether all that a file holds is the run's own: it wrote it before anything read
        it, and brought it from nowhere.
        """
        named = self._named(path)
        if not named:
            return False
        _, action, written = named[0]
        brought = action.program in _FORMS.words["brings"] and action.content is None
        appends = ">>" in action.text or "-a" in action.arguments
        in_place = deletes(action) or edits_in_place(action, written)
        return written in action.writes and not (
            written in action.reads or brought or appends or in_place
        )

    def _was_there(self, named: Sequence[tuple[int, Action, str]]) -> bool:
        """Whether a first deletion shows that there was a file to delete."""
        _, action, path = named[0]
        forced = any(re.fullmatch(r"-\w*f\w*|--force", word) for word in action.arguments)
        later = any(path in one.writes and not deletes(one) for _, one, path in named[1:])
        return not (
            (forced and later)
            or "$" in path
            or _FORMS.temporary.match(path)
            or _FORMS.left_behind.search(path)
            or _FORMS.gone.search(self._answer(action)[:2000])
        )

    def _made_before(self, path: str, deletion: Action) -> bool:
        """Whether an earlier action made what a pattern or a folder stands for."""
        place = plain_path(path)
        for action in self._actions:
            if action is deletion:
                return False
            if action.program == "mkdir" and any(
                self.same(word, place) for word in action.arguments
            ):
                return True
            for one in action.writes if not deletes(action) else ():
                inside = self._below(one, place) or (
                    any(mark in place for mark in "*?[") and fnmatch(one, "*" + place)
                )
                if inside and self.made(one):
                    return True
        return False

    def _below(self, path: str, folder: str) -> bool:
        parts = plain_path(path).split("/")
        depth = range(1, len(parts))
        return any(self.same("/".join(parts[:number]) or "/", folder) for number in depth)
