"""What a run's own edits add up to, as one unified diff.

1. Edits are read from actions in order: old and new text (`old_string`, `old_str`), whole
   files (Write, `cat > FILE <<EOF`), appended text (`>>`), patches (`apply_patch`, `git
   apply`, `patch`), scripts of `sed -i` and `perl -pi` (`sed_edits`), programs in Python that
   read, change and write texts (`python_edits`), removals, copies that are put back.
2. An edit that the log shows to have failed is none. Git takes edits back (`taken_back`).
3. A file is kept as far as it was shown (`known_file`), as it was and as it is.
4. What writes code without saying what, or changes lines that nobody saw, cannot be followed;
   that is told, beside all that is known.
"""

import re
from collections.abc import Sequence
from copy import deepcopy
from typing import NamedTuple

from forensics.actions.action import Action
from forensics.actions.command_lines import script_of
from forensics.actions.known_file import MARK, KnownFile
from forensics.actions.python_edits import python_edits
from forensics.actions.python_files import replaced_texts
from forensics.actions.sed_edits import edited_in_place
from forensics.actions.shown_lines import SILENT, shown_lines, view_of
from forensics.actions.taken_back import Back, taken_back
from forensics.actions.typed_edits import LONGEST, Edit, edits_of
from forensics.actions.unknown_tools import calls_agent, edits_unknown, removes_file
from forensics.actions.untold_edits import (
    OUTSIDE,
    changes_untold,
    may_be_code,
    names_code,
    patch_file,
    writes_texts,
)
from forensics.actions.untrusted import TABLES, Words
from forensics.records import Step

MOST_FILES, MOST_COPIES = 400, 40
LOST = "edits that cannot be followed"
AGENTS = "actions of other agents that are not recorded"
UNKNOWN = "edits through tools that nobody knows"
_FAILED = re.compile(
    r"<tool_use_error>|^\s*(?:Error\b|error:|ERROR\b)|No replacement was performed"
    r"|String to replace not found|did not appear verbatim|File has not been read yet"
    r"|Your proposed edit has introduced new syntax error|Permission denied"
    r"|No such file or directory|InputValidationError|Failed to apply|patch does not apply",
    re.M,
)
_CREATED = re.compile(r"(?i)\bcreated\b")
_UPDATED = re.compile(r"(?i)\b(?:updated|overwr(?:ote|itten))\b")
_LINES = re.compile(r"(\d{1,6}):(\d{1,6})(?: <<\s?\S{1,40})?")
_COPIES = ("cp", "mv")
_REMOVES = ("rm", "unlink", *TABLES["powershell"]["removes"])


class Edited(NamedTuple):
    """What edits add up to. `patch`: `""` where nothing was edited. `lost`: why it is not whole
    (`None`: it is). `overwritten`: files that were there, and were written whole unseen.
    `taken_back`: files that were edited, and whose edits are gone.
    """

    patch: str
    lost: str | None
    overwritten: Words
    taken_back: Words


def edited_patch(steps: Sequence[Step], actions: Sequence[Action]) -> Edited:
    """What the edits of a run add up to. Pure, never raises for what is in the log."""
    work = _Work(steps)
    printing: dict[int | None, list[Action]] = {}
    for action in actions:
        if action.program not in SILENT:
            printing.setdefault(action.observation, []).append(action)
    for action in actions:
        work.add(action, view_of(action, printing.get(action.observation, ())))
    return Edited(work.patch(), work.why_lost(), work.overwritten(), work.taken_back())


class _Work:
    """The files of a run while its actions go by."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = steps
        self._files: dict[str, KnownFile] = {}
        self._shown: dict[str, str] = {}
        self._patches: list[str] = []
        self._stashed: list[tuple[dict[str, KnownFile], list[str]]] = []
        self._copies: dict[str, tuple[str, KnownFile | None]] = {}
        self._back: set[str] = set()
        self._away = False
        self._outside: int | None = None  # the step whose shell went to a temporary folder
        self._lost: str | None = None

    def add(self, action: Action, view: Action | None) -> None:
        """What one action shows or changes. `view`: what came back is that of this action
        (`None`: of several).
        """
        answer = self._answer(action)
        failed = action.exit_code not in (None, 0)
        back = taken_back(action, self._named) if action.program == "git" else None
        if back is not None:
            self._take_back(back, failed)
        elif calls_agent(action):
            self._lost = AGENTS
        elif edits_unknown(action):
            self._add_unknown(action, failed or _FAILED.search(answer[:2000]) is not None)
        elif action.program == "python" and (program := self._program(action)) is not None:
            self._python(action, program, failed)
        elif action.writes and action.program != "touch":
            self._change(action, answer, failed)
        else:
            self._untold(action)
            self._look(view or action, answer, view is not None)

    def _change(self, action: Action, answer: str, failed: bool) -> None:
        removes = action.program.casefold() in _REMOVES or action.arguments[:1] == ("rm",)
        removes = removes or removes_file(action)
        if failed or ((action.kind == "edit" or removes) and _FAILED.search(answer[:2000])):
            return
        if _is_patch(action):
            self._patches.append((action.content or "")[:LONGEST])
        elif removes:
            for path in action.writes:
                self._remove(self._name(path))
        elif action.program in ("sed", "perl") and set(action.writes) & set(action.reads):
            for path in action.writes:
                self._lose(not edited_in_place(action, self._file(path)), path)
        elif action.program == "edit" and (lines := _LINES.fullmatch(" ".join(action.arguments))):
            start, last = int(lines[1]), int(lines[2])
            file = self._file(action.writes[0])
            file.put_lines(start, last, (action.content or "")[:LONGEST])
        elif action.program in _COPIES and len(action.writes) <= 2 and action.reads:
            self._copy(action)
        elif action.program == "create" and action.kind == "edit" and action.content is None:
            self._edit(Edit(action.writes[0], None, ""), "created", action.step)
        else:
            edits = list(edits_of(action))
            self._lose(action.program == "edit" and any(one.old == "" for one in edits))
            for edit in edits:
                self._edit(edit, answer[:300], action.step)
            for path in () if edits else action.writes:
                self._lose(True, path)
            self._lose(not edits and changes_untold(action))

    def _add_unknown(self, action: Action, failed: bool) -> None:
        """A call that may have changed files: what it put there is known at most."""
        if failed:
            return
        self._lost = self._lost or UNKNOWN
        if action.content is not None and action.writes:
            self._file(action.writes[0]).add_part("", action.content[:LONGEST])

    def _untold(self, action: Action) -> None:
        """A change that the action does not tell: another file may."""
        source = patch_file(action)
        known = self._files.get(self._name(source)) if source else None
        if known is not None and known.whole and known.after:
            self._patches.append(known.text[:LONGEST])
        elif action.program == "cd":
            went = any(map(OUTSIDE.match, action.arguments[:1]))
            self._outside = action.step if went else None
        elif source is not None or (self._outside != action.step and changes_untold(action)):
            self._lose(action.exit_code in (None, 0))

    def _lose(self, lost: bool, path: str = "a.py") -> None:
        """Not all that was changed can be told; the first reason stays."""
        if lost and may_be_code(path):
            self._lost = self._lost or LOST

    def _answer(self, action: Action) -> str:
        at = action.observation
        return "" if at is None else self._steps[at].text[:LONGEST]

    def _look(self, action: Action, answer: str, alone: bool) -> None:
        if len(action.reads) != 1 or not answer.strip():
            return
        seen = shown_lines(action, answer, alone)
        path = self._name(action.reads[0])
        self._shown[path] = seen.text
        if seen.start:
            self._file(path).show(seen.start, seen.text.splitlines(), seen.whole)

    def _program(self, action: Action) -> str | None:
        """The program that a `python` action runs, where it may write texts to files."""
        program = action.content
        if program is None and (script := script_of(action)) is not None:
            known = self._files.get(self._name(script))
            program = known.text if known is not None and known.whole else None
        return program if program is not None and writes_texts(program) else None

    def _python(self, action: Action, program: str, failed: bool) -> None:
        """Follow a program; where that fails, what it is seen to write is not known."""
        if failed:
            return
        files = _Files(self, action)
        if python_edits(program, files):
            return
        code = [path for path in action.writes if may_be_code(path)]
        self._lose(bool(code) or (not action.writes and names_code(program)))
        if len(code) == 1 and not files.wrote:
            for old, new in replaced_texts(program):
                self._file(code[0]).replace(old, new)

    def _copy(self, action: Action) -> None:
        """A copy is remembered; a file that comes back from one is as it was then."""
        source, target = self._name(action.reads[0]), self._name(action.writes[-1])
        first, was = self._copies.get(source, ("", None))
        if first == target:
            self._back.add(target)
            self._files.pop(target, None)
            if was is not None:
                self._files[target] = deepcopy(was)
            return
        self._lose(changes_untold(action))
        known = self._files.get(source)
        if known is not None and known.whole:
            self._edit(Edit(target, None, known.text), "", action.step)
        elif len(self._copies) < MOST_COPIES:
            self._copies[target] = (source, deepcopy(known))
            self._lose(True, target)
        if action.program == "mv":
            self._remove(source)

    def _take_back(self, back: Back, failed: bool) -> None:
        """What git takes back, sets aside, or puts there instead."""
        if failed:
            return
        if back.stash == "pop" and self._stashed:
            files, patches = self._stashed.pop()
            self._files.update(files)
            self._patches += patches
            return
        gone = list(self._files) if back.everything else back.names
        kept = {name: self._files.pop(name) for name in gone if name in self._files}
        self._back.update(kept if not back.other else ())
        patches = [*self._patches] if back.everything else []
        if back.everything:
            self._patches.clear()
        if back.stash == "push":
            self._stashed.append((kept, patches))
        for path in back.paths if back.other else ():
            self._lose(True, path)
        self._away = self._away if back.away is None else back.away

    def _named(self, path: str) -> list[str]:
        """The known files at a path: itself, or what lies in the folder."""
        name = self._name(path)
        folder = path.rstrip("/").removeprefix("./") + "/"
        return [one for one in self._files if one == name or f"/{one}".find("/" + folder) >= 0]

    def _name(self, path: str) -> str:
        """The path under which a file is known: a relative one may be the end of another."""
        known = (*self._files, *self._shown)
        if path in known:
            return path
        short = path.removeprefix("./")
        ends = [one for one in known if one.endswith("/" + short)]
        ends += [one for one in known if "/" in one and path.endswith("/" + one)]
        return ends[0] if len(set(ends)) == 1 else path

    def _file(self, path: str) -> KnownFile:
        """A file as far as it is known; what is one too many is known to nobody."""
        name = self._name(path)
        if name not in self._files and len(self._files) >= MOST_FILES:
            return KnownFile()
        return self._files.setdefault(name, KnownFile())

    def _edit(self, edit: Edit, answer: str, step: int) -> None:
        path, file = self._name(edit.path), self._file(edit.path)
        if edit.old is None:
            seen = file.known or path in self._shown
            created = _CREATED.search(answer) is not None
            unheard = _UPDATED.search(answer) is None and not seen
            new = created or (unheard and not self._mentioned(path, step))
            file.write(edit.new, file.new or new)
        elif edit.old and edit.old in file.text:
            file.replace(edit.old, edit.new, 1)
        elif edit.old and not file.whole:
            file.add_part(*self._full_lines(path, edit))
        elif not edit.old:
            file.add(edit.new)

    def _mentioned(self, path: str, step: int) -> bool:
        """Whether anybody spoke of the file before the run wrote it."""
        name = path.rsplit("/", 1)[-1]
        return any(
            name in one.text or any(name in call.arguments for call in one.tool_calls)
            for one in self._steps[:step]
        )

    def _full_lines(self, path: str, edit: Edit) -> tuple[str, str]:
        """The edit with the rest of its lines, where something shown holds them once."""
        old, new = edit.old or "", edit.new
        text = self._shown.get(path, "")
        if not old or text.count(old) != 1:
            return old, new
        at = text.index(old)
        start = text.rfind("\n", 0, at) + 1
        end = text.find("\n", at + len(old))
        end = len(text) if end < 0 else end
        return text[start:end], text[start:at] + new + text[at + len(old) : end]

    def _remove(self, path: str) -> None:
        known = self._files.get(path)
        if known is not None and known.new:
            del self._files[path]
        elif known is not None or path in self._shown:
            self._file(path).remove(self._shown.get(path, ""))

    def why_lost(self) -> str | None:
        """Why the edits are not all there, `None` where they are."""
        if self._away or any(file.lost and may_be_code(path) for path, file in self._files.items()):
            self._lose(True)
        return self._lost

    def taken_back(self) -> Words:
        """Files whose edits were taken back, and of which no others are left."""
        left = {path for path, file in self._files.items() if file.deleted or file.hunks()}
        return tuple(sorted(self._back - left))

    def overwritten(self) -> Words:
        """Files that were there, and of which only what they are now is known."""
        return tuple(path for path, file in self._files.items() if file.unseen)

    def patch(self) -> str:
        """All that is left of the edits, as a unified diff."""
        found = [diff for path, file in self._files.items() if (diff := _diff(path, file))]
        return "\n".join([*found, *self._patches])


class _Files:
    """The files of a run as a program that it runs sees them."""

    def __init__(self, work: _Work, action: Action) -> None:
        self._work, self._action, self.wrote = work, action, False

    def _path(self, path: str) -> str:
        named = (*self._action.writes, *self._action.reads)
        ends = "/" + path.removeprefix("./").lstrip("/")
        return next((one for one in named if ("/" + one).endswith(ends)), path)

    def read(self, path: str, last: int) -> str:
        """A file's text, counted up to a line."""
        file = self._work._file(self._path(path))
        if not file.whole:
            file.reach(max(last, len(file.after) + 2))
        return file.text

    def write(self, path: str, text: str, missed: tuple[tuple[str, str], ...]) -> None:
        """A file's text from now on."""
        self.wrote = True
        path = self._path(path)
        file = self._work._file(path)
        if file.whole or MARK in text:
            file.put(text)
        else:
            self._work._edit(Edit(path, None, text), "", self._action.step)
        for old, new in missed:
            file.add_part(old, new)

    def append(self, path: str, text: str) -> None:
        """A text is added at the end of a file."""
        self.wrote = True
        self._work._edit(Edit(self._path(path), "", text), "", self._action.step)


def _is_patch(action: Action) -> bool:
    text = (action.content or "").lstrip()[:200]
    applied = action.program == "patch" or action.arguments[:1] in (("apply",), ("am",))
    return text.startswith("diff --git ") or (applied and text.startswith("--- "))


def _diff(path: str, file: KnownFile) -> str:
    name = path.lstrip("/")
    old = "/dev/null" if file.new else f"a/{name}"
    new = "/dev/null" if file.deleted else f"b/{name}"
    hunks = file.hunks()
    if not hunks and not file.deleted:
        return ""
    return "\n".join([f"--- {old}", f"+++ {new}", *hunks])
