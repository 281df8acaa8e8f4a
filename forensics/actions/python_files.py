"""The files of a program that is followed (`python_edits`): what it reads of them, replaces in
their texts, and writes.

A text may hold placeholders for lines that nobody saw. A `replace` of what no known line holds is
kept as *missed*, and goes along with the next text that is written. `doubtful`: something was
looked for among lines that nobody saw; `changed`: something was written that was not read so.
"""

import ast
from collections.abc import Iterator
from typing import Any, Protocol

from forensics.actions.known_file import MARK
from forensics.actions.python_values import (
    LONGEST_TEXT,
    Handle,
    PathText,
    Unread,
    bounded,
    joined,
    list_method,
    many,
    text_method,
    told,
)
from forensics.actions.untrusted import python_tree


class Files(Protocol):
    """Where texts are read and written."""

    def read(self, path: str, last: int) -> str:
        """A file's text with placeholders, counted up to a line at least."""

    def write(self, path: str, text: str, missed: tuple[tuple[str, str], ...]) -> None:
        """A file's text from now on, and the changes (old, new) whose place is not known."""

    def append(self, path: str, text: str) -> None:
        """A text is added at the end of a file."""


def replaced_texts(program: str) -> Iterator[tuple[str, str]]:
    """The plain pairs of `replace(old, new)` in a program."""
    nodes = list(ast.walk(python_tree(program) or ast.Module([], [])))
    names = {
        node.targets[0].id: node.value.value
        for node in nodes
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
    }
    for node in nodes:
        method = node.func if isinstance(node, ast.Call) else None
        if isinstance(method, ast.Attribute) and method.attr == "replace":
            given = [
                one.value if isinstance(one, ast.Constant) else names.get(getattr(one, "id", ""))
                for one in node.args[:2]  # type: ignore[attr-defined]
            ]
            if len(given) == 2 and isinstance(given[0], str) and isinstance(given[1], str):
                yield given[0], given[1]


class SeenFiles:
    """The files of one program. `last`: the line up to which they are counted at least."""

    def __init__(self, files: Files, last: int) -> None:
        self._files, self._last = files, last
        self._missed: list[tuple[str, str]] = []
        self._seen: dict[str, str] = {}
        self.changed = self.doubtful = False

    def replaced(self, text: str, old: str, new: str, count: int = -1) -> str:
        """A text with another in place of one."""
        if not all(isinstance(one, str) for one in (text, old, new)):
            raise Unread
        if text.count(old) * len(new) > LONGEST_TEXT:
            raise Unread
        if old not in text and MARK in text and "\n" in text[:-1]:
            self._missed.append((old, new))
        return text.replace(old, new, count)

    def open(self, path: str, mode: str) -> Handle:
        """An open file."""
        if "b" in mode:
            raise Unread
        text = "" if set(mode) & set("wx") else self.read(path)
        return Handle(path, mode, text)

    def read(self, path: str) -> str:
        """A file's text."""
        self._seen[path] = self._files.read(path, self._last)
        return self._seen[path]

    def close(self, handle: Handle) -> None:
        """What was written to an open file is in it."""
        if handle.wrote is not None:
            self.write(handle.path, handle.wrote)

    def write(self, path: str, text: str) -> None:
        """A file's text from now on."""
        if not isinstance(text, str):
            raise Unread
        self.changed |= bool(self._missed) or text != self._seen.get(path)
        self._files.write(path, text, tuple(self._missed))
        self._missed.clear()

    def method(self, value: Any, name: str, given: list[Any], named: dict[str, Any]) -> Any:
        """What a method of a value does, and gives back."""
        if isinstance(value, Handle):
            return self._of_handle(value, name, given)
        if isinstance(value, PathText):
            return self._of_path(value, name, given, named)
        if isinstance(value, str):
            self.doubtful |= name in ("startswith", "endswith", "find") and MARK in value
            replaces = name == "replace"
            return (
                self.replaced(value, *given) if replaces else text_method(value, name, given, named)
            )
        if isinstance(value, list):
            return list_method(value, name, given)
        if isinstance(value, dict) and name in ("items", "keys", "values", "get"):
            found = getattr(value, name)(*given)
            return found if name == "get" else list(found)
        raise Unread

    def _of_path(self, value: PathText, name: str, given: list[Any], named: dict[str, Any]) -> Any:
        if name == "read_text":
            return self.read(value)
        if name == "write_text":
            return self.write(value, given[0])
        if name == "open":
            return self.open(value, str(given[0] if given else named.get("mode", "r")))
        if name in ("exists", "is_file"):
            return True
        raise Unread

    def _of_handle(self, value: Handle, name: str, given: list[Any]) -> Any:
        if name == "read" and not given:
            return value.text
        if name in ("readlines", "readline") and not given:
            lines = value.text.splitlines(keepends=True)
            return lines if name == "readlines" else lines[0]
        if name in ("write", "writelines"):
            text = told(given[0]) if name == "write" else joined(list(many(given[0])))
            return self._put_in(value, text)
        if name in ("seek", "truncate"):
            value.wrote = "" if value.wrote is None else value.wrote
            return None
        if name in ("close", "flush"):
            return self.close(value) if name == "close" else None
        raise Unread

    def _put_in(self, handle: Handle, text: str) -> None:
        if "a" in handle.mode:
            self._files.append(handle.path, text)
        elif handle.wrote is None:
            raise Unread
        else:
            handle.wrote = bounded(handle.wrote + text)
            self.close(handle)
