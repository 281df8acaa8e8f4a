"""The tables of field names that `product` reads formats by, and where they are found."""

import logging
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from forensics.errors import UserError
from forensics.plugins import plugin_points
from forensics.readers.content import JsonObject

Paths = tuple[str, ...]
GROUP = "forensics.products"


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Entry(_Table):
    """How entries of one kind are read; every value but `role`, `tool` and `argument` is a path."""

    when: JsonObject = {}
    silent: bool = False
    unread: bool = False  # it did something in a form that is not read
    message: str | None = None
    join: Paths = ()
    whole: Paths = ()
    role: Literal["system", "user", "assistant", "tool"] = "assistant"
    role_at: str | None = None
    text: Paths = ()
    thought: Paths = ()
    calls: str = ""
    tool: str | None = None
    name: Paths = ()
    arguments: Paths = ()
    argument: str | None = None
    call_id: Paths = ()
    result: Paths = ()
    closing: Paths = ()


class Sample(_Table):
    """A file of the format and the steps that it holds: role and, of a call, its tool."""

    file: str
    text: str
    steps: tuple[tuple[str, str], ...]


class Product(_Table):
    """One format; values are paths, the first that holds something counts."""

    shows: str
    source: str
    run: Literal["file", "row"]
    known: tuple[JsonObject, ...]
    beside: str | None = None  # a file in the same folder that holds the same run
    skip: JsonObject = {}  # rows that are parts of other rows
    entries: Paths = ("",)
    group: Paths = ()
    order: Paths = ()
    latest: Paths = ()  # of entries with the same value here the last counts
    prompt: Paths = ()
    answer: Paths = ()
    id: Paths = ()
    task: Paths = ()
    policy: Paths = ()
    environment: Paths = ()
    sample_number: Paths = ()
    outcome: Paths = ()
    ended: Paths = ()
    error: Paths = ()
    entry: tuple[Entry, ...]
    sample: Sample


def products() -> Mapping[str, Product]:
    """The tables that are installed, ours and those of other packages, by name; a table of
    another package that is none is named in a warning.
    """
    ours = files(f"{__package__}.products")
    names = sorted(one.name for one in ours.iterdir() if one.name.endswith(".toml"))
    tables = {name.removesuffix(".toml"): product(name, ours / name) for name in names}
    for point in plugin_points(GROUP):
        if point.name in tables:
            raise UserError(f"{point.value} brings a second product {point.name}; rename its file")
        name = f"{point.name}.toml"
        try:
            tables[point.name] = product(f"{name} of {point.value}", files(point.value) / name)
        except UserError as error:  # logs of others are read without it
            logging.getLogger("forensics").warning("%s; it is left out", error)
    return tables


def product(name: str, source: Any) -> Product:
    """The table in a file. Raises `UserError` where it is none."""
    try:
        return Product.model_validate(tomllib.loads(source.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"the product table {name} cannot be read ({error})") from error
    except ValidationError as error:
        one = error.errors()[0]
        place = ".".join(str(key) for key in one["loc"])
        raise UserError(f"the product table {name} has a wrong {place}: {one['msg']}") from error
