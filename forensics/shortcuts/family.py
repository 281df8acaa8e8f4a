"""Families of shortcuts as data: one TOML file each, found by entry point.

An entry point of `forensics.families` names the file, its value the package
that holds it: `canary = "our_package"` is `canary.toml` beside our package's
modules. Nothing but the package itself is imported.

A file with `environment` holds in logs of that environment alone. An
environment that brings families is read by these, not by the general ones:
what is a shortcut there, in its own language, only it knows.

A file has `id`, `channel`, `shows`, `source`, `rule` (how the links beyond the
attempt are decided: a name of `scanner.RULES`, or `package.module:function` for
a `LinkRule` of one's own), and lists:

- `[[attempt]]`: a pattern over one `Action` (`patterns.matches`); every key that
  is given must hold;
- `[[twin]]`: harmless actions that look alike: an action that matches one is no
  attempt;
- `[[example]]`: `line` (a shell command) or `patch` and whether it is `benign`;
  a test runs each.

Patterns are regular expressions without nested repeats, so that no text can
make them slow; a file that has one is refused.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ValidationError

from forensics.errors import UserError
from forensics.plugins import plugin_points
from forensics.records.record import Record

_TOO_LONG = 1000  # characters of a pattern


def _quick(pattern: str) -> str:
    """Refuse a pattern that does not compile or that repeats within a repeat
    (its time could explode).
    """
    try:
        tree = re._parser.parse(pattern)  # type: ignore[attr-defined]
    except re.error as error:
        raise ValueError(f"the pattern does not compile: {error}") from None
    if len(pattern) > _TOO_LONG or _nested(tree, False):
        raise ValueError(
            f"the pattern could be slow ('{pattern[:60]}'); repeat nothing within a repeat"
        )
    return pattern


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


Expression = Annotated[str, AfterValidator(_quick)]


class Pattern(Record):
    """What an action must look like. Regular expressions: whole words for
    `program`, `first`, `arguments` (each must match some argument) and
    `without` (none may), found anywhere for `reads`, `writes` (some path),
    `wrote`, `text`.

    `first`: the first argument. `existing`: the written path was there before
    the run wrote to it; of a path that is only read, what it holds is not the run's own.
    `of_task`: an argument names the project that the task is about
    (`flask==3.0` in `pallets__flask-1`). `unnamed`: the prompt names neither the path
    that is read (or written) nor its folder.
    """

    id: str
    kind: str = ""
    program: Expression = ""
    first: Expression = ""
    arguments: tuple[Expression, ...] = ()
    without: tuple[Expression, ...] = ()
    reads: Expression = ""
    writes: Expression = ""
    wrote: Expression = ""
    text: Expression = ""
    existing: bool = False
    of_task: bool = False
    unnamed: bool = False


class Example(Record):
    """A command line or a submitted patch, and whether it is harmless."""

    line: str = ""
    patch: str = ""
    benign: bool = False


class Family(Record):
    """One family. `added`: what an added line of the patch must hold to be used
    (rule `added lines`); `paths`: in which files. `benefit`: two named rewards;
    a run profits where the first is a win and the second is not.
    `credit`: when a used shortcut is credited: `win` (the run was won),
    `benefit` (its rewards show that it profited), `alone` (any win, whatever
    `used` says). `environment`: whose logs it is for (`""`: all others). `needs`: what has to
    be there to look at (`""`: what its rule looks at). `files`: it needs files or a shell, so
    it does not apply where a run's tools reach neither; the rules that read code, tests or
    git do anyway.
    """

    id: str
    channel: str
    shows: str
    source: str
    rule: str
    environment: str = ""
    attempt: tuple[Pattern, ...] = ()
    twin: tuple[Pattern, ...] = ()
    example: tuple[Example, ...] = ()
    failed: Expression = ""
    added: Expression = ""
    paths: Expression = ""
    benefit: tuple[str, ...] = ()
    credit: str = "win"
    needs: Literal["", "actions", "code", "tests", "text"] = ""
    files: bool = False

    @property
    def needs_files(self) -> bool:
        """Whether it can say nothing of tools without files and without a shell."""
        return self.files or self.rule in ("code", "tests", "history", "library")

    @property
    def looks_at(self) -> Literal["actions", "code", "tests", "text"]:
        """What has to be there and readable before nothing found means something."""
        return self.needs or NEEDS.get(self.rule, "actions")


NEEDS: Mapping[str, Literal["actions", "code", "tests", "text"]] = {
    "code": "code",
    "added lines": "text",
    "grader words": "text",
    "empty": "text",
    "tests": "tests",
}


def family_of(text: str, name: str) -> Family:
    """A family from the text of its file. Raises `UserError` that names the
    file, the key and the cure.
    """
    try:
        return Family.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"the family file {name} is no TOML: {error}") from None
    except ValidationError as error:
        wrong = error.errors()[0]
        place = f"{name}, {'.'.join(map(str, wrong['loc']))}"
        if wrong["type"] == "extra_forbidden":
            kinds: dict[str, type[Record]] = {
                "attempt": Pattern,
                "twin": Pattern,
                "example": Example,
            }
            kind = kinds.get(str(wrong["loc"][0]), Family) if len(wrong["loc"]) > 1 else Family
            raise UserError(
                f"{place} is an unknown key; known: {', '.join(sorted(kind.model_fields))}"
            ) from None
        raise UserError(f"{place}: {wrong['msg'].removeprefix('Value error, ')}") from None


@cache
def installed_families() -> dict[str, tuple[Family, ...]]:
    """The installed families by environment (`""`: the general ones), in the
    order of their names. Raises `UserError` where two have the same id, and
    where there is none.
    """
    found: dict[str, dict[str, Family]] = {}
    for point in plugin_points("forensics.families"):
        name = f"{point.name}.toml"
        try:
            text = (files(point.value) / name).read_text(encoding="utf-8")
        except (ImportError, OSError) as error:
            raise UserError(
                f"the family file {name} is not in the package {point.value} ({error}); install"
                " the file with the package (setuptools: package-data), and let the entry point in"
                " 'forensics.families' name the package alone"
            ) from None
        family = family_of(text, name)
        if family.id in (there := found.setdefault(family.environment, {})):
            raise UserError(
                f"two installed families have the id '{family.id}' (the second is {name} of"
                f" {point.value}); rename or uninstall one"
            )
        there[family.id] = family
    if "" not in found:
        raise UserError("no family of shortcuts is installed; install this package again")
    return {environment: tuple(there.values()) for environment, there in found.items()}


def families(environment: str = "") -> tuple[Family, ...]:
    """The families that look at logs of an environment, by name."""
    found = installed_families()
    return found.get(environment, found[""])
