"""Documents in which one part is of another kind than it should be, for the tests of readers."""

import copy
from typing import Any

from hypothesis import strategies as st

GONE = object()
odd: st.SearchStrategy[Any] = st.sampled_from(
    [
        None,
        True,
        0,
        -1,
        1e308,
        10**40,
        "",
        "x",
        "\ud800",
        "../../x",
        [],
        {},
        [None],
        [[]],
        {"a": None},
        GONE,
    ]
)


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The keys that lead to each part of a JSON value."""
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [at, *(place for key, part in inner for place in places(part, (*at, key)))]


@st.composite
def mutated(draw: st.DrawFn, value: Any) -> Any:
    """The value with one part of it replaced or taken out; not the value itself."""
    place = draw(st.sampled_from(places(value)[1:]))
    other = draw(odd)
    whole = copy.deepcopy(value)
    holder = whole
    for key in place[:-1]:
        holder = holder[key]
    if other is GONE:
        del holder[place[-1]]
    else:
        holder[place[-1]] = other
    return whole
