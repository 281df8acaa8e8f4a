"""How runs were drawn, as what a command was given says: `stated_sampling`.

1. A case folder says it in `case.json`.
2. A run of our trainer says it in `training.json`, one of TRL in the record of `ForensicsForTRL`.
3. A checkpoint that our trainer saved says it in `environment.json`: temperature, tokens of
   an action and of an episode, as in training.

A command without sampling options of its own takes these, since a policy asked otherwise
may not show what it learned.
"""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from forensics.policies.checkpoints import read_environment_hint
from forensics.protocols import SamplingSettings
from forensics.records.files import read_json

RUN = "training.json"
RECORDS = (Path("record", "run.json"), Path("forensics", "record", "run.json"))
ROOM = 1024  # tokens beside one completion, as `ForensicsForTRL` gives its audits
KNOWN = frozenset(field.name for field in fields(SamplingSettings))


class Stated(NamedTuple):
    """Fields of `SamplingSettings`, and who says them."""

    values: Mapping[str, Any]
    where: str


def stated_sampling(logs: object, checkpoints: Iterable[object]) -> Stated | None:
    """What the folder of a case or a run says, else the first checkpoint that says anything."""
    if isinstance(logs, str | PathLike):
        folder = Path(logs).expanduser()
        if (folder / "case.json").is_file():
            settings = _budget(folder / "case.json").get("settings")
            told = _known(settings) if isinstance(settings, dict) else {}
            return Stated(told, str(folder / "case.json")) if told else None
        if run := stated_run(folder):
            return Stated(_known(run["recipe"]["sampling"]), str(folder / RUN))
        for record in (folder / place for place in RECORDS if (folder / place).is_file()):
            if told := _of_trl(record):
                return Stated(told, str(record))
    for place in (Path(one) for one in checkpoints if isinstance(one, str | PathLike)):
        hint = read_environment_hint(place)
        if hint is not None and hint.sampling:
            return Stated(_known(hint.sampling), str(place / "environment.json"))
    return None


def stated_run(folder: Path) -> dict[str, Any] | None:
    """What a GRPO run of our trainer is, as its folder says; `None` for any other folder."""
    said = read_json(folder / RUN) if (folder / RUN).is_file() else None
    recipe = said.get("recipe") if isinstance(said, dict) else None
    known = isinstance(recipe, dict) and isinstance(recipe.get("sampling"), dict)
    return said if known else None


def stated_tasks(folder: Path) -> int | None:
    """How many held-out tasks the case in this folder was begun with, if there is one."""
    path = folder / "case.json"
    tasks = _budget(path).get("tasks") if path.is_file() else None
    return tasks if isinstance(tasks, int) else None


def _budget(path: Path) -> dict[str, Any]:
    said = read_json(path)
    inputs = said.get("inputs") if isinstance(said, dict) else None
    budget = inputs.get("budget") if isinstance(inputs, dict) else None
    return budget if isinstance(budget, dict) else {}


def _of_trl(path: Path) -> dict[str, Any]:
    said = read_json(path)
    recipe = said.get("recipe") if isinstance(said, dict) else None
    if not isinstance(recipe, dict) or not str(recipe.get("trainer")).startswith("trl."):
        return {}
    told, longest = dict(recipe), recipe.get("max_completion_length")
    if isinstance(longest, int):
        told |= {"max_turn_tokens": longest, "max_tokens": longest + ROOM}
    return _known(told)


def _known(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in settings.items()
        if name in KNOWN and isinstance(value, int | float) and not isinstance(value, bool)
    }
