"""What is told of the test of a cause (`causes`): whether what was taken out moves more than random
directions do, and where that is not shown, which of the three conditions is missing.
"""

from collections.abc import Mapping
from typing import Any, Literal

from forensics.phrases import plural

Lack = Literal["", "random", "spread", "size"]


def lacks(cause: Mapping[str, Any]) -> Lack:
    """The first condition that a cause as in `causes.json` fails: a `random` direction moves as
    much, it goes beyond all of them by no more than the tasks' `spread`, or its `size` is small.
    """
    if cause["holds"]:
        return ""
    if cause["p_value"] * len(cause["random"]) > 0.99:  # 1 / n where the n-th moves as much
        return "random"
    return "spread" if cause["beyond"]["low"] <= 0 else "size"


def shown(cause: Mapping[str, Any], other: str, size: str) -> str:
    """In words, beside each `other` thing of equal `size` that was tried."""
    tried = len(cause["random"])
    number, each = f"{plural(tried, other)} of equal {size}", f"beyond each of {tried} {other}s"
    one = f"one of {tried} does as much" if tried > 1 else "the first one does as much"
    return {
        "": f"more than {number}",
        "random": f"not shown to be more than {other}s of equal {size}, since {one}",
        "spread": f"{each} of equal {size}, but by no more than the tasks' spread explains, so not"
        " shown",
        "size": f"{each} of equal {size}, but all of it moves less than is worth a word",
    }[lacks(cause)]
