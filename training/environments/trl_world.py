"""`trl`: what TRL trains on as a world: reward functions over a set of prompts, and the classes of
`GRPOTrainer`'s `environment_factory` with their tools.

    --env trl --env-option file=prompts.jsonl --env-option rewards=package.module:correct
    --env trl --env-option file=prompts.jsonl --env-option environment=package.module:Shop

* `file`: JSON lines, `prompt` (a text, or messages of system and user) and the other columns that
  rewards and `reset` are given; `split` is `train` or `held-out`, else a hash of the row decides.
* `rewards`: functions with commas between them, called as TRL calls them (`prompts`, `completions`
  and every column, one row). `weights`: a number each. A `get_reward` of the environment has weight
  1. `None` is left out of the sum; where nothing gave a number there is no outcome.
* Tool calls are read as TRL's templates for Qwen write them, `<tool_call>{"name": ..., "arguments":
  {...}}</tool_call>`; an action without one is the answer and ends the episode.
* A channel's `without` holds arguments of the environment's class; `prompt` in it names the column
  whose prompt is shown instead.

Prompts that are texts are rendered bare and tools by the template, as TRL does, unless `rendering`
says otherwise. There are no token ids here: a reward that asks for them is refused.
"""

import asyncio
import copy
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

from forensics.errors import UserError, stop_outside
from forensics.policies import style_of
from forensics.records import content_hash, parse_json, read_text
from forensics.world import SPLITS, require_split
from training.environments.foreign_world import SHARED, ForeignWorld, Said

CALL: Final = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)
CURE: Final = "give JSON lines, each with a `prompt`, with --env-option file=PATH"
UNHEARD: Final = {  # what a trainer tells and is told beside
    "trainer_state": None,
    "log_extra": lambda *_: None,
    "log_metric": lambda *_: None,
}
Row = Mapping[str, Any]


class TrlWorld(ForeignWorld):
    """The environment (see the module's text)."""

    name = "trl"
    defaults = {
        "file": "",
        "rewards": "",
        "weights": "",
        "environment": "",
        **SHARED,
        "rendering": "",
    }

    def __init__(self, **options: str) -> None:
        super().__init__(**options)
        given = self.chosen
        if not given["file"]:
            raise UserError(f"trl needs a set of prompts; {CURE}")
        self.rows = _rows(Path(given["file"]).expanduser())
        self.factory = _named(given["environment"], "environment") if given["environment"] else None
        names = [name for name in given["rewards"].split(",") if name]
        self.rewards = [_reward(name) for name in names]
        self.weights = _weights(given["weights"], len(names))
        self.tools = self._tools()
        if not self.rewards and not hasattr(self.factory, "get_reward"):
            raise UserError(
                "nothing scores an episode; give --env-option rewards=package.module:function, or"
                " an environment with get_reward"
            )
        texts = all(isinstance(row["prompt"], str) for row in self.rows.values())
        self.rendering = given["rendering"] or (
            "tool" if self.tools else "bare" if texts else "auto"
        )
        style_of(self)
        content = {"file": content_hash(sorted(self.rows)), "rendering": self.rendering}
        self.chosen = given | content

    def tasks(self, split: str, number: int, seed: int) -> tuple[str, ...]:
        """Rows of a split, drawn without replacement; all where there are no more."""
        require_split(split)
        names = sorted(task for task, row in self.rows.items() if _split(task, row) == split)
        if number >= len(names):
            return tuple(names)
        chosen = np.random.default_rng(seed).choice(len(names), number, replace=False)
        return tuple(names[at] for at in sorted(chosen))

    def kinds(self, action: str) -> tuple[str, ...]:
        """The tools that a text calls, else `answer`."""
        known = {tool["function"]["name"] for tool in self.tools}
        names = [name if name in known else "invalid" for name, _ in _calls(action)]
        return tuple(names) if names and self.tools else ("answer",)

    def open_session(self, arguments: Mapping[str, Any]) -> "TrlSession":
        return TrlSession(self, dict(arguments))

    def row(self, task: str) -> Row:
        if task not in self.rows:
            raise UserError(f"these prompts have no task '{task}'; take one that tasks() gives")
        return self.rows[task]

    def _tools(self) -> list[dict[str, Any]]:
        """The schemas of the class's methods, as TRL shows them to the template."""
        if self.factory is None:
            return []
        from transformers.utils import get_json_schema

        made = self.factory(**self.twin_arguments())
        try:
            return [get_json_schema(method) for method in _methods(made).values()]
        except Exception as error:
            raise UserError(
                f"a tool of {type(made).__name__} has no schema ({error}); give it type hints and a"
                " docstring with Args, as TRL asks"
            ) from error


class TrlSession:
    """One episode: a row, an instance of the class where there is one, the messages so far."""

    def __init__(self, world: TrlWorld, arguments: dict[str, Any]) -> None:
        self.world = world
        self.column = arguments.pop("prompt", "prompt")
        self.made = world.factory(**arguments) if world.factory else None
        self.messages: list[dict[str, Any]] = []
        self.row: Row = {}
        self.prompt: Any = ""

    def __deepcopy__(self, memo: Any) -> "TrlSession":
        """The world is shared, the episode is not."""
        other = copy.copy(self)
        other.made = copy.deepcopy(self.made, memo)
        other.messages = copy.deepcopy(self.messages, memo)
        return other

    def start(self, task: str, seed: int) -> Said:
        self.row = self.world.row(task)
        if self.column not in self.row:
            raise UserError(f"a row of the prompts has no column '{self.column}'; add it to each")
        self.prompt = self.row[self.column]
        system, text = _parts(self.prompt)
        more = self.made.reset(**self.row) if self.made is not None else None
        return Said(text=text + (more or ""), system=system)

    def act(self, action: str) -> Said:
        self.messages.append({"role": "assistant", "content": action})
        calls = _calls(action) if self.world.tools else []
        if not calls:
            return self.scored(Said(text="", terminated=True, submission=action, kinds=("answer",)))
        told = [self._called(name, arguments) for name, arguments in calls]
        return Said(text="\n".join(told), kinds=self.world.kinds(action))

    def scored(self, said: Said) -> Said:
        """The same with every reward: at the answer, or where the episode is cut off."""
        named = {one.__name__: self._reward(one) for one in self.world.rewards}
        weights = dict(zip(named, self.world.weights, strict=True))
        if (own := getattr(self.made, "get_reward", None)) is not None:
            name = type(self.made).__name__
            named[name], weights[name] = _number(_waited(own())), 1.0
        known = [weights[name] * value for name, value in named.items() if value is not None]
        return replace(said, reward=sum(known) if known else None, rewards=named)

    def _called(self, name: str, arguments: Any) -> str:
        """What a tool gives; an error is told to the policy, as TRL does."""
        try:
            result = str(_waited(_methods(self.made)[name](**arguments)))
        except Exception as error:
            stop_outside(error)
            result = str(
                {"error": f"Unknown tool {name}" if isinstance(error, KeyError) else str(error)}
            )
        self.messages.append({"role": "tool", "name": name, "content": result})
        return result

    def _reward(self, function: Callable[..., Any]) -> float | None:
        plain = isinstance(self.prompt, str) and self.made is None
        said = self.messages[-1]["content"] if plain else list(self.messages)
        columns = {key: [value] for key, value in self.row.items() if key != "prompt"}
        given = {"prompts": [self.prompt], "completions": [said], **UNHEARD, **columns}
        if self.made is not None:
            given["environments"] = [self.made]
        takes = inspect.signature(function).parameters
        if not any(one.kind is inspect.Parameter.VAR_KEYWORD for one in takes.values()):
            given = {key: value for key, value in given.items() if key in takes}
        (reward,) = _waited(function(**given))
        return _number(reward)


def _rows(path: Path) -> dict[str, Row]:
    """The rows by a name that follows from their content. Raises `UserError` by line."""
    rows: dict[str, Row] = {}
    for number, line in enumerate(read_text(path, "the prompts ", CURE).split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = parse_json(line)
            _parts(row["prompt"])
            split = row.get("split", "train")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{path.name} line {number} is no row ({error!r}); {CURE}") from None
        require_split(split)
        rows[f"prompt-{content_hash(row, 12)}"] = row
    if not rows:
        raise UserError(f"{path} holds no rows; {CURE}")
    return rows


def _split(task: str, row: Row) -> str:
    return str(row.get("split", SPLITS[int(content_hash(["split", task], 8), 16) % 2]))


def _parts(prompt: Any) -> tuple[str | None, str]:
    """System text and user text of a prompt."""
    if isinstance(prompt, str):
        return None, prompt
    roles = [message["role"] for message in prompt]
    texts = [message["content"] for message in prompt]
    if roles not in (["user"], ["system", "user"]) or not all(isinstance(t, str) for t in texts):
        raise ValueError("a prompt is a text, or a message of the user after one of the system")
    return (texts[0] if len(texts) == 2 else None), texts[-1]


def _calls(action: str) -> list[tuple[str, Any]]:
    """Name and arguments of each call; one that cannot be read has the name `invalid`."""
    found: list[tuple[str, Any]] = []
    for text in CALL.findall(action):
        try:
            call = parse_json(text)
            found.append((str(call["name"]), dict(call.get("arguments") or {})))
        except (ValueError, KeyError, TypeError):
            found.append(("invalid", {}))
    return found


def _methods(made: Any) -> dict[str, Callable[..., Any]]:
    """The tools of an instance: its public methods but `reset` and `get_reward`, as in TRL, and
    but what another library hung on every object (nnsight's `save`).
    """
    found = inspect.getmembers(type(made), predicate=inspect.isfunction)
    own = [name for name, method in found if getattr(object, name, None) is not method]
    names = [name for name in own if not name.startswith("_")]
    return {name: getattr(made, name) for name in names if name not in ("reset", "get_reward")}


def _named(text: str, what: str) -> Any:
    """What `package.module:NAME` names. Raises `UserError`."""
    module, _, name = text.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(
            f"the {what} {text} cannot be loaded ({error}); give package.module:NAME of what is"
            " installed or in PYTHONPATH"
        ) from error


def _reward(text: str) -> Any:
    function = _named(text, "reward")
    if not callable(function) or "completion_ids" in inspect.signature(function).parameters:
        raise UserError(
            f"the reward {text} is no function of texts (a world has no completion_ids); give one"
            " of prompts, completions and columns"
        )
    return function


def _weights(text: str, number: int) -> Sequence[float]:
    try:
        found = [float(one) for one in text.split(",")] if text else [1.0] * number
    except ValueError:
        found = []
    if len(found) != number:
        raise UserError(f"weights of trl is '{text}'; give {number} numbers, one for each reward")
    return found


def _number(value: Any) -> float | None:
    return None if value is None or value != value else float(value)


def _waited(value: Any) -> Any:
    """What a coroutine gives; anything else as it is."""
    return asyncio.run(value) if inspect.iscoroutine(value) else value
