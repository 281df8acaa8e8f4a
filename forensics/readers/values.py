"""Values of any kind as what a reader needs: objects, lists, numbers and scores.
What is no number stays `None`, never 0.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

WORDS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}


def number(value: Any) -> float | None:
    """A finite number: of a number, of Inspect's letters (C, P, I, N), of yes
    and no, or of digits in a text.
    """
    if isinstance(value, str):
        found = WORDS.get(value, WORDS.get(value.strip().lower()))
        try:
            value = float(value) if found is None else found
        except ValueError:
            return None
    if not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def score_of(value: Any) -> float | None:
    """The value as an outcome: a number in [0, 1], else `None`."""
    found = number(value)
    return found if found is not None and 0 <= found <= 1 else None


def named(name: str, value: Any) -> Iterator[tuple[str, float | None]]:
    """A score as named numbers: one, or one for each entry of an object or a list."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield f"{name}.{key}", number(part)
    elif isinstance(value, list):
        for key, part in enumerate(value):
            yield f"{name}.{key}", number(part)
    else:
        yield name, number(value)


def integer(value: Any) -> int | None:
    """A whole number as it stands in a record, small enough for a file; `None`
    for anything else.
    """
    fits = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 31
    return value if fits else None


def as_mapping(value: Any) -> Mapping[str, Any]:
    """The value where it is an object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def as_list(value: Any) -> list[Any]:
    """The value where it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def dig(value: Any, *keys: str) -> Any:
    """`value[key][key]...`, `None` where one of them is missing."""
    for key in keys:
        value = as_mapping(value).get(key)
    return value
