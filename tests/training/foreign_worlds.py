"""Worlds of other libraries for the tests, as a stranger would write them: a door to choose, a
`peek` that tells which where `hints` are on.
"""

import json
import random
import sys
from collections import deque
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

CHANNELS = """
[hint]
description = "peek tells the door"
attempts = ["peek"]
shows = "it is "
without = { hints = false }
"""


class DoorEnv:
    """As Gymnasium wants it: reset(seed=) and step(action) with five answers."""

    def __init__(self, hints: bool = True, doors: int = 9, kind: str = "text") -> None:
        self.hints, self.doors, self.kind = hints, doors, kind

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        self.door = random.Random(seed).randint(1, self.doors)
        return ("Which door?" if self.kind == "text" else 3), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if action.startswith("choose"):
            return "", float(action == f"choose {self.door}"), True, False, {}
        told = action == "peek" and self.hints
        return (f"it is {self.door}" if told else "nothing"), 0.0, False, False, {}


def fake_gymnasium(monkeypatch: pytest.MonkeyPatch) -> None:
    """The part of Gymnasium that is called, where the package is not installed."""

    class Error(Exception):
        pass

    def make(id: str, disable_env_checker: bool, **given: Any) -> DoorEnv:
        if id != "doors:Door-v0":
            raise Error(f"no environment {id}")
        return DoorEnv(**given)

    module: Any = ModuleType("gymnasium")
    module.make, module.error = make, SimpleNamespace(Error=Error)
    monkeypatch.setitem(sys.modules, "gymnasium", module)


class FakeSocket:
    """An OpenEnv server's end of a session, by its protocol."""

    def __init__(self, noise: Any = None) -> None:
        self.env, self.answers, self.noise = DoorEnv(), deque[str](), noise

    def send(self, text: str) -> None:
        asked = json.loads(text)
        if asked["type"] == "close":
            return
        if asked["type"] == "reset":
            self.env.hints = asked["data"].get("hints", True)
            said = self._told(self.env.reset(seed=asked["data"]["seed"])[0], None, False)
        elif "message" not in asked["data"]:
            said = {"type": "error", "data": {"message": "Field required"}}
        else:
            shown, reward, over, *_ = self.env.step(asked["data"]["message"])
            said = self._told(shown, reward, over)
        self.answers.append(json.dumps(said))

    def _told(self, text: str, reward: float | None, done: bool) -> dict[str, Any]:
        seen = {"text": text + (self.noise() if self.noise else ""), "turn": 1}
        return {
            "type": "observation",
            "data": {"observation": seen, "reward": reward, "done": done},
        }

    def recv(self, timeout: float) -> str:
        return self.answers.popleft()

    def close(self) -> None:
        pass


class Shop:
    """As TRL's `environment_factory` wants it."""

    def __init__(self, hints: bool = True) -> None:
        self.hints = hints

    def reset(self, price: int, **row: Any) -> str:
        self.price, self.bought = price, False
        return " The tag is torn."

    def ask(self, item: str) -> str:
        """Ask for the price.

        Args:
            item: The thing.
        """
        if item != "cup":
            raise ValueError("we have cups")
        return f"it is {self.price}" if self.hints else "ask the boss"

    def get_reward(self) -> float:
        return 0.0


def right(completions: list[Any], price: list[int], **rest: Any) -> list[float | None]:
    """A reward function as TRL calls it."""
    said = completions[0] if isinstance(completions[0], str) else completions[0][-1]["content"]
    return [float(said.strip() == str(price[0]))]


def right_of_all(completions: list[Any], price: list[int], **rest: Any) -> list[float | None]:
    """The same over a batch."""
    pairs = zip(completions, price, strict=True)
    return [right(completions=[one], price=[wanted])[0] for one, wanted in pairs]


def length(completions: list[Any], log_metric: Any, **rest: Any) -> list[float | None]:
    """Missing for an empty answer."""
    said = [one if isinstance(one, str) else one[-1]["content"] for one in completions]
    log_metric("length", 1.0)
    return [float(len(text)) if text else None for text in said]


def by_ids(completions: list[Any], completion_ids: list[Any]) -> list[float]:
    return [0.0]


def write_rows(path: Path, conversation: bool) -> Path:
    rows = []
    for number in range(40):
        ask = "What is the price of the cup?"
        system = {"role": "system", "content": f"Shop {number}."}
        told: Any = (
            [system, {"role": "user", "content": ask}] if conversation else f"{number}: {ask}"
        )
        rows.append({"prompt": told, "plain": f"{number}: and?", "price": number})
    path.write_text("\n".join(map(json.dumps, rows)))
    return path
