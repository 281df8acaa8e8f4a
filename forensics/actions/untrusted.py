"""Texts that nobody trusts, as values, and the tables of words that they are looked up in.

A text is read as data and never run. What is none gives `None`, whatever it holds.
"""

import ast
import json
import tomllib
import warnings
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Any

Words = tuple[str, ...]


def first_of(values: Mapping[str, Any], names: Iterable[str], kind: Any = object) -> Any:
    """The first value of this kind under one of several names, `None` where there is none."""
    found = (values.get(name) for name in names)
    return next((one for one in found if one is not None and isinstance(one, kind)), None)


def json_value(text: str, **options: Any) -> Any:
    """The value of a JSON text. `options`: of `json.loads`."""
    try:
        return json.loads(text, **options)
    except (ValueError, RecursionError):
        return None


def python_tree(program: str) -> ast.Module | None:
    """The syntax of a program in Python that is not too long."""
    if len(program) > 64_000 or program.count("(") + program.count("[") > 20_000:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(program)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def python_literal(text: str) -> Any:
    """The value that a text writes down as Python does."""
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None


def word_tables(package: str, name: str) -> dict[str, dict[str, Words]]:
    """The tables of a TOML file beside a package's code: words in a text, or a list of texts."""
    tables = tomllib.loads((files(package) / name).read_text(encoding="utf-8"))
    return {
        table: {
            key: tuple(one.split() if isinstance(one, str) else one) for key, one in rows.items()
        }
        for table, rows in tables.items()
    }


TABLES = word_tables("forensics.actions", "programs.toml")  # table -> name -> words
