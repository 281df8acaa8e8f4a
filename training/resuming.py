"""What a run is, written into its folder before its first step, so that only the same run can go on in it."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from forensics.errors import UserError
from forensics.records.files import read_json, write_json
from training.recipe import Recipe

FILE = "training.json"
MAY_CHANGE = frozenset({"grpo.steps", "grpo.save_every"})  # how far a run goes, and what is kept of it
SECTIONS_MAY_CHANGE = frozenset({"audit", "record", "parallel"})


def claim(folder: Path, recipe: Recipe, seed: int, start: str) -> None:
    """Note the run in `folder`, or raise `UserError` where another one is noted there, naming what differs."""
    mine = {"recipe": recipe.model_dump(mode="json"), "seed": seed, "start": start}
    path = folder / FILE
    if path.exists():
        for name, earlier, now in _differences(read_json(path), mine):
            raise UserError(
                f"{folder} holds a run with {name} = {_text(earlier)}, not {_text(now)}; resume it with the recipe "
                "and seed that it was begun with, or choose another folder"
            )
    write_json(path, mine)


def _differences(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    yield from _compare("start", earlier.get("start"), now["start"])
    yield from _compare("seed", earlier.get("seed"), now["seed"])
    yield from _compare("", earlier.get("recipe"), now["recipe"])


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
