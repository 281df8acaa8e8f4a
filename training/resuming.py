"""What a run is, written into its folder before its first step, so that only the same run can go on in it."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from forensics.errors import UserError
from forensics.records.files import read_json, write_json
from training.collecting import Rewards
from training.recipe import Recipe

FILE = "training.json"
MAY_CHANGE = frozenset({  # how far a run goes, and what is kept of it
    "grpo.steps", "grpo.save_every", "preference.epochs", "preference.save_every",
})
SECTIONS_MAY_CHANGE = frozenset({"audit", "record", "parallel"})


def reward_identities(rewards: Rewards) -> dict[str, dict[str, Any]]:
    """Weight of each named reward, and where its function is defined (`module:qualname`).

    A function that is edited in place keeps its identity, so such a change is not noticed.
    """
    return {name: {"weight": float(weight), "function": _defined(reward)} for name, (reward, weight) in rewards.items()}


def _defined(function: Any) -> str:
    function = getattr(function, "func", function)  # of a partial
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}:{named.__qualname__}"


def description(recipe: Recipe, seed: int, start: str, rewards: Rewards) -> dict[str, Any]:
    """What makes a run this one. `start`: content hash of the weights it begins with."""
    return {"recipe": recipe.model_dump(mode="json"), "seed": seed, "start": start,
            "rewards": reward_identities(rewards)}


def check(folder: Path, mine: Mapping[str, Any]) -> None:
    """Raise `UserError` where `folder` holds another run than the one described, naming what differs."""
    path = folder / FILE
    for name, earlier, now in _differences(read_json(path), mine) if path.exists() else ():
        if name == "start":
            raise UserError(
                f"{folder} holds a run that began with other weights than policy.checkpoint = "
                f"{mine['recipe']['policy']['checkpoint']} has now (content hash {earlier}, not {now}); resume it with "
                "the checkpoint that it was begun with, or choose another folder"
            )
        raise UserError(
            f"{folder} holds a run with {name} = {_text(earlier)}, not {_text(now)}; resume it with the recipe "
            "and seed that it was begun with, or choose another folder"
        )


def claim(folder: Path, mine: Mapping[str, Any]) -> None:
    """Note the run in `folder`."""
    write_json(folder / FILE, mine)


def _differences(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    yield from _compare("seed", earlier.get("seed"), now["seed"])
    yield from _compare("", earlier.get("recipe"), now["recipe"])
    yield from _compare("start", earlier.get("start"), now["start"])
    yield from _compare("rewards", earlier.get("rewards", now["rewards"]), now["rewards"])  # older runs noted none


def _compare(name: str, earlier: Any, now: Any) -> Iterator[tuple[str, Any, Any]]:
    if name in MAY_CHANGE | SECTIONS_MAY_CHANGE or earlier == now:
        return
    if isinstance(earlier, dict) and isinstance(now, dict):
        for key in sorted(set(earlier) | set(now)):
            yield from _compare(f"{name}.{key}".lstrip("."), earlier.get(key), now.get(key))
    else:
        yield name, earlier, now


def _text(value: Any) -> str:
    return "nothing" if value is None else str(value)
