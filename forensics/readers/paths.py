"""Places in JSON values, as tables of field names give them: `found`.

A path is made of keys between slashes: `payload/content`. `*` is every element of a list or
value of an object; `^` the object around the one where the path begins; the empty path is the
value itself. On the way

- a text that holds JSON is read as what it holds;
- a list of `key` and `value` pairs (OTLP attributes) is an object, a `value` of one kind
  (`{"stringValue": ...}`) what it holds;
- `*` of a text is the text.
"""

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from forensics.readers.content import JsonObject, UnreadableContent
from forensics.readers.json_rows import parse

_OPENS = ("{", "[")
_VALUES = ("stringValue", "intValue", "doubleValue", "boolValue", "arrayValue", "kvlistValue")


class Place(NamedTuple):
    """A value and the objects around it, the nearest first."""

    value: Any
    around: tuple[JsonObject, ...] = ()


def found(place: Place, path: str) -> Iterator[Any]:
    """Every value at a path, in order; null is none."""
    return (one.value for one in places(place, path) if one.value is not None)


def first(place: Place, paths: Sequence[str]) -> Any:
    """The first value at any of the paths, `None` where there is none."""
    return next((value for path in paths for value in found(place, path)), None)


def places(place: Place, path: str) -> list[Place]:
    """Every value at a path with what stands around it."""
    reached = [place]
    for key in path.split("/") if path else ():
        reached = [inner for one in reached for inner in _within(one, key)]
    return reached


def holds(place: Place, conditions: JsonObject) -> bool:
    """Whether some value at each path is the one that is asked for, or one of several; `true` asks
    only that there is one. A text may have `*` for any letters.
    """
    return all(_meets(found(place, path), wanted) for path, wanted in conditions.items())


def _meets(values: Iterator[Any], wanted: Any) -> bool:
    options = wanted if isinstance(wanted, list) else [wanted]
    return any(wanted is True or _equals(value, one) for value in values for one in options)


def _equals(value: Any, wanted: Any) -> bool:
    if isinstance(value, str) and isinstance(wanted, str):
        return value == wanted or fnmatchcase(value, wanted)
    return type(value) is type(wanted) and bool(value == wanted)


def _within(place: Place, key: str) -> list[Place]:
    if key == "^":
        return [Place(place.around[0], place.around[1:])] if place.around else []
    value = _opened(place.value)
    if not isinstance(value, Mapping):
        return [Place(inner, place.around) for inner in _elements(value, key)]
    inside = value.values() if key == "*" else [value[key]] if key in value else []
    return [Place(inner, (value, *place.around)) for inner in inside]


def _elements(value: Any, key: str) -> list[Any]:
    """What a list holds, or the text itself; of attributes the values under a key."""
    if key == "*":
        return value if isinstance(value, list) else [value] if isinstance(value, str) else []
    pairs = value if isinstance(value, list) else []
    return [_plain(one["value"]) for one in pairs if _is_pair(one, key)]


def _is_pair(value: Any, key: str) -> bool:
    return isinstance(value, Mapping) and value.get("key") == key and "value" in value


def _plain(value: Any) -> Any:
    """An attribute's value without its kind."""
    if isinstance(value, Mapping) and len(value) == 1:
        kind, held = next(iter(value.items()))
        if kind in _VALUES:
            values = held.get("values") if isinstance(held, Mapping) else None
            return [_plain(one) for one in values] if isinstance(values, list) else held
    return value


def _opened(value: Any) -> Any:
    """What a text that is JSON holds."""
    if not isinstance(value, str) or not value.lstrip().startswith(_OPENS):
        return value
    try:
        return parse(value)
    except UnreadableContent:
        return value
