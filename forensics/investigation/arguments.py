"""The arguments of `investigate` as a caller gave them: what cannot be meant is refused in one sentence."""

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from typing import Any

from forensics.case import Budget
from forensics.errors import UserError
from forensics.protocols import Environment

WORLD = "the name of an installed environment, an environment object, or None where the before directory names one"


def check_arguments(
    *, before: Any, after: Any, environment: Any, options: Any, budget: Any, training: Any, seed: Any, out: Any,
    device: Any, allow: Any = (), accept: Any = (),
) -> None:
    """Raises `UserError` for the first argument of a kind that has no meaning."""
    afters = [after] if _is_location(after) or not isinstance(after, Sequence) else after
    locations = [("before", before), *(("after", path) for path in afters), ("out", out)]
    if training is not None:
        locations.append(("training", training))
    for name, value in locations:
        _require(name, value, _is_location(value), "a directory, as a text or a path")
    _require("environment", environment, environment is None or isinstance(environment, str | Environment), WORLD)
    texts = isinstance(options, Mapping) and all(isinstance(text, str) for text in _ends(options))
    _require("environment_options", options, options is None or texts, "a mapping of texts to texts")
    _require("budget", budget, budget is None or isinstance(budget, Budget), "a Budget")
    whole = isinstance(seed, int) and not isinstance(seed, bool)
    _require("seed", seed, whole and 0 <= seed < 2**63, "a whole number from 0 to 2^63 - 1")
    _require("device", device, isinstance(device, str), "a text such as auto, cpu or cuda")
    _require("allow", allow, _are_texts(allow), "a sequence of names of kinds of action")
    _require("accept", accept, _are_texts(accept), "a sequence of names of families")


def _ends(options: Mapping[Any, Any]) -> Iterator[Any]:
    yield from options.keys()
    yield from options.values()


def _are_texts(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and all(isinstance(text, str) for text in value)


def _is_location(value: Any) -> bool:
    return isinstance(value, str | PathLike)


def _require(name: str, value: Any, fine: bool, allowed: str) -> None:
    if not fine:
        raise UserError(f"{name} is {value!r} and must be {allowed}")
