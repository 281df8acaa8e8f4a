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


def places(place: Place, path: str) -> Iterator[Place]:
    """Every value at a path with what stands around it."""
    if not path:
        yield place
        return
    key, _, rest = path.partition("/")
    if key == "^":
        if place.around:
            yield from places(Place(place.around[0], place.around[1:]), rest)
        return
    value = _opened(place.value)
    around = (value, *place.around) if isinstance(value, Mapping) else place.around
    for inner in _inside(value, key):
        yield from places(Place(inner, around), rest)


def holds(place: Place, conditions: JsonObject) -> bool:
    """Whether some value at each path is the one that is asked for, or one of several; `true` asks
    only that there is one. A text may have `*` for any letters.
    """
    return all(_meets(place, path, wanted) for path, wanted in conditions.items())


def _meets(place: Place, path: str, wanted: Any) -> bool:
    values = found(place, path)
    if wanted is True:
        return any(True for _ in values)
    options = wanted if isinstance(wanted, list) else [wanted]
    return any(_equals(value, option) for value in values for option in options)


def _equals(value: Any, wanted: Any) -> bool:
    if isinstance(value, str) and isinstance(wanted, str):
        return fnmatchcase(value, wanted)
    return type(value) is type(wanted) and bool(value == wanted)


def _inside(value: Any, key: str) -> Iterator[Any]:
    if key == "*":
        if isinstance(value, Mapping):
            yield from value.values()
        elif isinstance(value, list):
            yield from value
        elif isinstance(value, str):
            yield value
    elif isinstance(value, Mapping):
        if key in value:
            yield value[key]
    elif isinstance(value, list):
        yield from (_plain(one["value"]) for one in value if _is_pair(one, key))


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
