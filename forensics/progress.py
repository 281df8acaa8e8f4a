"""How long work says how far it is."""

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with what is done, how much of it is, and how much there is: `("open", 3, 8)`."""


def silent(what: str, done: int, of: int) -> None:
    """Progress that nobody watches."""
