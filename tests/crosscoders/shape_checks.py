"""What checks the shapes that signatures state, while tests run."""

from collections.abc import Callable
from typing import Any

from beartype import BeartypeConf, beartype
from beartype.roar import BeartypeDecorHintPep3119Exception

with_tower = beartype(conf=BeartypeConf(is_pep484_tower=True))  # a whole number is a float too


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that checks what it is given and gives back. One that names a
    protocol, which cannot be asked for while it runs, is left as it is.
    """
    try:
        return with_tower(function)
    except BeartypeDecorHintPep3119Exception:
        return function
