"""The values of a program that is followed (`python_edits`), and what may be done with them.

Each value is bounded: a text by `LONGEST_TEXT`, a list by `LONGEST_LIST`, so that no program can
make the look at it slow or large. What is not here is not followed: `Unread`.
"""

import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

from forensics.actions.known_file import MARK
from forensics.actions.untrusted import TABLES

LONGEST_TEXT = 400_000  # characters
LONGEST_LIST = 20_000
_NAMES = TABLES["python methods"]
_SPECIAL = re.compile(r"[\\*+?\[\](){}|^$]")


class Unread(Exception):
    """Something that is not followed."""


class PathText(str):
    """A path."""


class Handle:
    """An open file. `wrote`: what was written to it (`None`: it is read)."""

    def __init__(self, path: str, mode: str, text: str) -> None:
        self.path, self.mode, self.text = path, mode, text
        self.wrote: str | None = "" if set(mode) & set("wx") else None


class Named:
    """A module, a function of one, or a method of a value, by its name."""

    def __init__(self, kind: str, name: str, owner: Any = None) -> None:
        self.kind, self.name, self.owner = kind, name, owner


def bounded(value: Any) -> Any:
    """A value that is not too long."""
    longest = LONGEST_TEXT if isinstance(value, str) else LONGEST_LIST
    if isinstance(value, str | list | tuple) and len(value) > longest:
        raise Unread
    return value


def many(value: Any) -> Iterator[Any]:
    """What a loop goes over."""
    if isinstance(value, Handle):
        value = value.text.splitlines(keepends=True)
    if not isinstance(value, list | tuple | dict):
        raise Unread
    yield from list(bounded(value))


def told(value: Any) -> str:
    """A value in a text."""
    if isinstance(value, str | int):
        return str(value)
    raise Unread


def joined(parts: list[Any], between: str = "") -> str:
    """Texts, one behind the other."""
    if sum(len(part) + len(between) for part in parts) > LONGEST_TEXT:
        raise Unread
    return between.join(parts)


_PLAIN: dict[str, Callable[..., Any]] = {
    **{
        one.__name__: one
        for one in (len, min, max, any, all, bool, int, textwrap.dedent, re.escape)
    },
    "str": told,
}


def function(name: str, given: list[Any], named: dict[str, Any]) -> Any:
    """What a function of the language or of its library gives back."""
    if name in ("print", "makedirs", "mkdir"):
        return None
    if name in ("exists", "isfile"):
        return True
    if name in ("Path", "PurePath", "join"):
        path = joined(given, "/")
        return path if name == "join" else PathText(path)
    if name == "range":
        numbers = range(*given)
        return list(numbers) if len(numbers) <= LONGEST_LIST else bounded([0] * (LONGEST_LIST + 1))
    if name == "enumerate":
        start = given[1] if len(given) > 1 else named.get("start", 0)
        return list(enumerate(many(given[0]), start))
    if name in ("list", "tuple", "zip", "reversed"):
        several = [list(many(one)) for one in given] or [[]]
        if name == "zip":
            return list(zip(*several, strict=False))
        return several[0][::-1] if name == "reversed" else several[0]
    if name not in _PLAIN or named:
        raise Unread
    return _PLAIN[name](*given)


def list_method(value: list[Any], name: str, given: list[Any]) -> Any:
    """What a method of a list does, and gives back."""
    if name not in _NAMES["lists"]:
        raise Unread
    given = [list(many(given[0]))] if name == "extend" else given
    if len(value) + (len(given[0]) if name == "extend" else 1) > LONGEST_LIST:
        raise Unread
    return getattr(value, name)(*given)


def text_method(value: str, name: str, given: list[Any], named: dict[str, Any]) -> Any:
    """What a method of a text gives back."""
    if name == "join":
        return joined(list(many(given[0])), value)
    if name not in _NAMES["texts"]:
        raise Unread
    if name in _NAMES["places"] and MARK in value and given[0] not in value:
        raise Unread  # it may stand where nobody saw it
    return getattr(value, name)(*given, **named)


def plain_pattern(pattern: Any, new: Any) -> tuple[str, str]:
    """The texts of `re.sub(pattern, new, ...)` where both are plain."""
    if not isinstance(pattern, str) or not isinstance(new, str) or re.search(r"\\[\dg]", new):
        raise Unread
    bare = re.sub(r"\\[^\w]|\\[nt]", "", pattern)
    if _SPECIAL.search(bare):
        raise Unread
    return _unescaped(pattern), _unescaped(new)


def _unescaped(text: str) -> str:
    signs = {"n": "\n", "t": "\t"}
    return re.sub(r"\\(.)", lambda one: signs.get(one[1], one[1]), text, flags=re.S)
