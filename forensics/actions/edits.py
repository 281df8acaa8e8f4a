"""What a run's own edits add up to, as one unified diff.

1. Edits are read from actions in order: old and new text (`old_string`, `old_str`), whole
   files (Write, `cat > FILE <<EOF`), appended text (`>>`), patches (`apply_patch`, `git
   apply`, `patch`), simple substitutions (`sed -i s/a/b/`), removals.
2. An edit that the log shows to have failed is none. `git checkout FILE`, `git restore`,
   `git reset --hard` and a stash take edits back.
3. A file that was shown whole is kept as it was and as it is; of others each edit is a
   hunk of its own, with the rest of its lines where something shown holds them.
4. What writes code without saying what (a program, a copy, a complex script) cannot be
   followed; that is told.
"""

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from forensics.actions.action import Action
from forensics.actions.apply_patch import sections_of
from forensics.actions.unknown_tools import calls_agent, edits_unknown, removes_file
from forensics.actions.untold_edits import changes_untold, may_be_code, patch_file
from forensics.records import Step

LONGEST = 200_000  # characters of one text
MOST_LINES = 4_000  # of a file whose lines are matched up
MOST_PAIRS = 400_000  # of equal lines of two texts
MOST_FILES, MOST_PARTS = 400, 400
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
_NUMBERED = re.compile(r"^ {0,8}\d{1,6}(?:\t|→|: ?|\| ?)", re.M)
_SUBSTITUTION = re.compile(r"\s*s(?P<d>[/|#,@])(?P<a>[^\n]*?)(?P=d)(?P<b>[^\n]*?)(?P=d)g?\s*")
_PLAIN = re.compile(r"[\w\s=<>:;,\"'!@#%&~`\-+]*")
_OLD = ("old_string", "old_str", "oldText", "old_text", "search")
_APPENDS = re.compile(r">>\s*\S")


class Edit(NamedTuple):
    """One change of a file. `old` `None`: the whole file is `new`; `""`: added to it."""

    path: str
    old: str | None
    new: str


@dataclass
class _File:
    """A file as far as it is known."""

    before: str | None = None
    after: str | None = None
    new: bool = False
    deleted: bool = False
    parts: list[tuple[str, str]] = field(default_factory=list)


class Edited(NamedTuple):
    """What edits add up to. `patch`: `""` where nothing was edited. `lost`: why it is not whole
    (`None`: it is). `overwritten`: files that were there, and were written whole unseen.
    """

    patch: str
    lost: str | None
    overwritten: tuple[str, ...]


def edited_patch(steps: Sequence[Step], actions: Sequence[Action]) -> Edited:
    """What the edits of a run add up to. Pure, never raises for what is in the log."""
    work = _Work(steps)
    for action in actions:
        work.add(action)
    return Edited(work.patch(), work.lost, work.overwritten())


class _Work:
    """The files of a run while its actions go by."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = steps
        self._files: dict[str, _File] = {}
        self._shown: dict[str, str] = {}
        self._whole: dict[str, str] = {}
        self._patches: list[str] = []
        self.lost: str | None = None

    def add(self, action: Action) -> None:
        """What one action shows or changes."""
        answer = self._answer(action)
        if action.program == "git" and self._taken_back(action):
            return
        if calls_agent(action):
            self.lost = AGENTS
            return
        if edits_unknown(action):
            self._add_unknown(action, answer)
            return
        if not action.writes:
            self._untold(action)
            self._look(action, answer)
            return
        failed = action.exit_code not in (None, 0)
        removes = action.program in ("rm", "unlink") or action.arguments[:1] == ("rm",)
        removes = removes or removes_file(action)
        if failed or ((action.kind == "edit" or removes) and _FAILED.search(answer[:2000])):
            return
        if _is_patch(action):
            self._patches.append((action.content or "")[:LONGEST])
            return
        edits = list(edits_of(action))
        for edit in edits:
            self._edit(edit, answer[:300], action.step)
        if removes:
            for path in action.writes:
                self._remove(self._name(path))
        elif not edits:
            self._lose(any(map(may_be_code, action.writes)) or changes_untold(action))

    def _add_unknown(self, action: Action, answer: str) -> None:
        """A call that may have changed files: what it put there is known at most."""
        if action.exit_code not in (None, 0) or _FAILED.search(answer[:2000]):
            return
        self.lost = self.lost or UNKNOWN
        if action.content is not None and action.writes:
            self._edit(Edit(action.writes[0], "", action.content[:LONGEST]), "", action.step)

    def _untold(self, action: Action) -> None:
        """A change that the action does not tell: another file may."""
        source = patch_file(action)
        known = self._files.get(self._name(source)) if source else None
        if known is not None and known.after:
            self._patches.append(known.after[:LONGEST])
        elif source is not None or changes_untold(action):
            self._lose(action.exit_code in (None, 0))

    def _lose(self, lost: bool) -> None:
        """Not all that was changed can be told; the first reason stays."""
        if lost:
            self.lost = self.lost or LOST

    def _answer(self, action: Action) -> str:
        at = action.observation
        return "" if at is None else self._steps[at].text[:LONGEST]

    def _look(self, action: Action, answer: str) -> None:
        if len(action.reads) != 1 or not answer.strip():
            return
        text = _NUMBERED.sub("", answer)
        self._shown[action.reads[0]] = text
        given = " ".join(action.arguments)
        part = re.search(r"offset=|limit=|view_range=|line_start|start_line", given)
        if (action.program == "cat" or action.kind == "tool") and part is None:
            self._whole[action.reads[0]] = text

    def _taken_back(self, action: Action) -> bool:
        command, *rest = action.arguments or ("",)
        paths = [word for word in rest if not word.startswith("-")]
        if (command == "reset" and "--hard" in rest) or (
            command == "stash" and (not paths or paths[0] in ("push", "save"))
        ):
            self._files.clear()
            self._patches.clear()
            return True
        if command == "restore" or (command == "checkout" and "--" in rest):
            for path in paths:
                self._files.pop(self._name(path), None)
            if "." in paths:
                self._files.clear()
                self._patches.clear()
            return True
        return False

    def _name(self, path: str) -> str:
        """The path under which a file is known: a relative one may be the end of another."""
        known = (*self._files, *self._shown)
        if path in known:
            return path
        short = path.removeprefix("./")
        ends = [one for one in known if one.endswith("/" + short)]
        ends += [one for one in known if "/" in one and path.endswith("/" + one)]
        return ends[0] if len(set(ends)) == 1 else path

    def _edit(self, edit: Edit, answer: str, step: int) -> None:
        path = self._name(edit.path)
        if path not in self._files and len(self._files) >= MOST_FILES:
            return
        file = self._files.setdefault(path, self._known(path))
        file.deleted = False
        if edit.old is None:
            created = _CREATED.search(answer) is not None
            unheard = _UPDATED.search(answer) is None and self._unheard_of(path, file)
            file.new = file.new or created or (unheard and not self._mentioned(path, step))
            file.after = edit.new
            file.parts.clear()
        elif file.after is not None:
            if edit.old in file.after:
                file.after = file.after.replace(edit.old, edit.new, 1 if edit.old else 0)
                file.after += edit.new if not edit.old else ""
        else:
            self._part(file, self._full_lines(path, edit))

    def _known(self, path: str) -> _File:
        text = self._whole.get(path)
        return _File(before=text, after=text)

    def _unheard_of(self, path: str, file: _File) -> bool:
        return file.before is None and path not in self._shown and not file.parts

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

    def _part(self, file: _File, part: tuple[str, str]) -> None:
        old, new = part
        for number, (first, now) in enumerate(file.parts):
            if old and old in now:  # an edit of what was edited before
                file.parts[number] = (first, now.replace(old, new, 1))
                return
        if len(file.parts) < MOST_PARTS:
            file.parts.append(part)

    def _remove(self, path: str) -> None:
        known = self._files.get(path)
        if known is not None and known.new:
            del self._files[path]
        elif known is not None or path in self._shown:
            file = self._files.setdefault(path, self._known(path))
            file.deleted, file.after = True, None
            file.parts.clear()

    def overwritten(self) -> tuple[str, ...]:
        """Files that were there, and of which only what they are now is known."""
        return tuple(
            path
            for path, file in self._files.items()
            if file.after is not None and file.before is None and not file.new
        )

    def patch(self) -> str:
        """All that is left of the edits, as a unified diff."""
        found = [diff for path, file in self._files.items() if (diff := _diff(path, file))]
        return "\n".join([*found, *self._patches])


def edits_of(action: Action) -> Iterator[Edit]:
    """What an action says that it puts into files."""
    content = action.content
    given = dict(argument.split("=", 1) for argument in action.arguments if "=" in argument[:40])
    if content is not None and content.lstrip()[:16].startswith("*** Begin Patch"):
        for path, old, new in sections_of(content[:LONGEST]):
            yield Edit(path, old, new)
    elif content is None or not action.writes:
        return
    elif action.kind == "edit":
        old = next((given[name] for name in _OLD if name in given), None)
        adds = action.program in ("append", "insert") or given.get("command") == "insert"
        if action.program == "edit" and old is None and "new_string" not in given:
            adds = True  # the lines that it takes the place of are not said
        yield Edit(action.writes[0], "" if adds else old, content[:LONGEST])
    elif action.program == "sed":
        yield from _substituted(action, content)
    elif action.program in ("cat", "tee", "echo", "printf"):
        adds = "-a" in action.arguments or _APPENDS.search(action.text[:2000]) is not None
        for path in action.writes:
            yield Edit(path, "" if adds else None, content[:LONGEST])


def _substituted(action: Action, script: str) -> Iterator[Edit]:
    found = _SUBSTITUTION.fullmatch(script[:2000])
    if found is None or not _PLAIN.fullmatch(found["a"]) or not _PLAIN.fullmatch(found["b"]):
        return
    for path in action.writes:
        yield Edit(path, found["a"], found["b"])


def _is_patch(action: Action) -> bool:
    text = (action.content or "").lstrip()[:200]
    applied = action.program == "patch" or action.arguments[:1] in (("apply",), ("am",))
    return text.startswith("diff --git ") or (applied and text.startswith("--- "))


def _diff(path: str, file: _File) -> str:
    name = path.lstrip("/")
    old = "/dev/null" if file.new else f"a/{name}"
    new = "/dev/null" if file.deleted else f"b/{name}"
    pairs: Iterable[tuple[str, str]] = file.parts
    if file.deleted:
        pairs = [(file.before or "", "")]
    elif file.after is not None:
        pairs = [(file.before or "", file.after)]
    hunks = [line for pair in pairs for line in _hunk(*pair)]
    if not hunks and not file.deleted:
        return ""
    return "\n".join([f"--- {old}", f"+++ {new}", *hunks])


def _hunk(old: str, new: str) -> list[str]:
    """Two texts as hunks. Too long ones are told as taken out and put in."""
    first, second = old.splitlines(), new.splitlines()
    if max(len(first), len(second)) > MOST_LINES or _pairs(first, second) > MOST_PAIRS:
        return [
            f"@@ -1,{len(first)} +1,{len(second)} @@",
            *(f"-{line}" for line in first),
            *(f"+{line}" for line in second),
        ]
    return list(difflib.unified_diff(first, second, lineterm=""))[2:]


def _pairs(first: list[str], second: list[str]) -> int:
    """How many pairs of equal lines there are: what matching them up takes."""
    counts, others = Counter(first), Counter(second)
    return sum(count * others[line] for line, count in counts.items())
