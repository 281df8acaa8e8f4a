"""What checks the shapes that signatures state, while tests run."""

from collections.abc import Callable
from typing import Any, get_args

from beartype import beartype
from jaxtyping import AbstractArray


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that checks the tensors that it is given and gives back; other
    types are mypy's business.
    """
    hints = function.__annotations__
    function.__annotations__ = {name: hint for name, hint in hints.items() if _states_shape(hint)}
    return beartype(function)


def _states_shape(hint: Any) -> bool:
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        return True
    return any(map(_states_shape, get_args(hint)))
