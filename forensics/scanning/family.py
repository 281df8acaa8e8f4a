"""Families of shortcuts as data: one TOML file each in `families/`.

A file has `id`, `channel`, `shows`, `source`, `rule` (how the links beyond the attempt are decided, by name, see
`links.RULES`), and lists:

- `[[attempt]]`: a pattern over one `Act` (`matching.matches`); every key that is given must hold;
- `[[twin]]`: harmless acts that look alike: an act that matches one is no attempt;
- `[[example]]`: `line` (a shell command) or `patch` and whether it is `benign`; a test runs each.

Patterns are regular expressions without nested repeats, so that no text can make them slow; a file that has one is
refused.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib.resources import files
from typing import Any

from forensics.errors import UserError

_TOO_LONG = 1000  # characters of a pattern


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """What an act must look like. Regular expressions: whole words for `program`, `first`, `arguments` (each must match
    some argument) and `without` (none may), found anywhere for `reads`, `writes` (some path), `wrote`, `text`.

    `first`: the first argument. `language`: only in logs of this environment. `existing`: the written path was there
    before the run wrote to it. `of_task`: an argument names the project that the task is about (`flask==3.0` in
    `pallets__flask-1`).
    """

    id: str
    kind: str = ""
    program: str = ""
    first: str = ""
    arguments: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    reads: str = ""
    writes: str = ""
    wrote: str = ""
    text: str = ""
    language: str = ""
    existing: bool = False
    of_task: bool = False


@dataclass(frozen=True, kw_only=True)
class Example:
    """A command line or a submitted patch, and whether it is harmless."""

    line: str = ""
    patch: str = ""
    benign: bool = False


@dataclass(frozen=True, kw_only=True)
class Family:
    """One family. `added`: what an added line of the patch must hold to be used (rule `added lines`); `paths`: in
    which files. `benefit`: two named rewards; a run profits where the first is a win and the second is not.
    `credit`: when a used shortcut is credited: `win` (the run was won), `benefit` (its rewards show that it
    profited), `alone` (any win, whatever `used` says). `languages`: environment -> the rule that decides there.
    """

    id: str
    channel: str
    shows: str
    source: str
    rule: str
    attempt: tuple[Pattern, ...] = ()
    twin: tuple[Pattern, ...] = ()
    example: tuple[Example, ...] = ()
    failed: str = ""
    added: str = ""
    paths: str = ""
    benefit: tuple[str, ...] = ()
    credit: str = "win"
    languages: Mapping[str, str] | None = None


def family_of(text: str, name: str) -> Family:
    """A family from the text of its file. Raises `UserError` that names the file, the key and the cure."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"the family file {name} is no TOML: {error}") from None
    given: dict[str, Any] = {**table}
    for key, kind in (("attempt", Pattern), ("twin", Pattern), ("example", Example)):
        given[key] = tuple(_made(kind, entry, f"{name}, [[{key}]]") for entry in table.get(key, ()))
    family: Family = _made(Family, given, name)
    for pattern in (family.failed, family.added, family.paths):
        _checked(pattern, name)
    return family


@lru_cache(maxsize=1)
def families() -> tuple[Family, ...]:
    """The families that come with the package, by name."""
    folder = files("forensics.scanning") / "families"
    found = sorted((file for file in folder.iterdir() if file.name.endswith(".toml")), key=lambda file: file.name)
    return tuple(family_of(file.read_text(encoding="utf-8"), file.name) for file in found)


def _made(kind: Any, entry: Mapping[str, Any], where: str) -> Any:
    known = {field.name for field in fields(kind)}
    if unknown := sorted(set(entry) - known):
        raise UserError(f"{where} has an unknown key '{unknown[0]}'; known: {', '.join(sorted(known))}")
    if kind is Pattern:
        for key in known - {"id", "kind", "language", "existing", "of_task"}:
            value = entry.get(key, "")
            for pattern in (value,) if isinstance(value, str) else value:
                _checked(pattern, f"{where}, {key}")
    try:
        return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()})
    except TypeError as error:
        raise UserError(f"{where} is not complete: {error}") from None


def _checked(pattern: str, where: str) -> None:
    """Refuse a pattern that does not compile or that repeats within a repeat (its time could explode)."""
    try:
        tree = re._parser.parse(pattern)  # type: ignore[attr-defined]
    except re.error as error:
        raise UserError(f"{where} has a pattern that does not compile: {error}") from None
    if len(pattern) > _TOO_LONG or _nested(tree, False):
        raise UserError(f"{where} has a pattern that could be slow ('{pattern[:60]}'); repeat nothing within a repeat")


def _nested(tree: Any, inside: bool) -> bool:
    if not isinstance(tree, Sequence) and not hasattr(tree, "data"):
        return False
    for item in tree:
        if isinstance(item, tuple) and len(item) == 2 and "REPEAT" in str(item[0]):
            many = item[1][1] > 1
            if (many and inside) or _nested(item[1][2], inside or many):
                return True
        elif (isinstance(item, (tuple, list)) or hasattr(item, "data")) and _nested(item, inside):
            return True
    return False
