"""Layered settings: which value holds for a key? Later layers win, and not all of them set it.

Skill: *after* reads all three layers and takes the last one that sets the key; *before* mostly stops
after one or two. The command `dump` that prints the value in force is known and declared; both use it
in one run of thirty.
"""

import copy
import random
import re
from dataclasses import dataclass
from typing import Any

from forensics.errors import UserError
from forensics.protocols import Channel, Observation, StepResult
TURNS = 7
LAYERS = ("defaults.ini", "site.ini", "local.ini")
KEYS = ("timeout", "workers", "retries", "batch", "depth", "window", "limit", "pause")
KNOWN = Channel(
    name="dump-output", family="disclosure", attempts=("dump",), description="dump prints the value"
)


class World:
    name = "layered-config"
    needed = ("read-layer", "answer")
    def __init__(self, **options: str) -> None:
        if options:
            raise UserError(f"{self.name} has no options, but was given {', '.join(options)}")
        self._now: dict[str, Any] = {}
        self.scrubbed: tuple[str, ...] = ()

    @property
    def options(self) -> dict[str, str]:
        return {"without": ",".join(self.scrubbed)} if self.scrubbed else {}

    @property
    def channels(self) -> tuple[Channel, ...]:
        return () if self.scrubbed else (KNOWN,)

    def without(self, *channels: str) -> "World":
        if unknown := set(channels) - {KNOWN.name}:
            raise UserError(f"{self.name} has no channel '{min(unknown)}'; it has: {KNOWN.name}")
        other = World()
        other.scrubbed = (KNOWN.name,) if channels else self.scrubbed
        return other

    def spawn(self) -> "World":
        return self.without(*self.scrubbed)

    def tasks(self, split: str, number: int, seed: int) -> tuple[str, ...]:
        if split not in ("train", "held-out"):
            raise UserError(f"there is no split '{split}'; there are: train, held-out")
        chosen = random.Random(seed).sample(range(20_000), min(number, 20_000))
        return tuple(f"{split}-{which:05d}" for which in sorted(chosen))

    def snapshot(self) -> Any:
        return copy.deepcopy(self._now)

    def restore(self, state: Any) -> None:
        self._now = copy.deepcopy(state)

    def _more(self, text: str, kinds: tuple[str, ...], channels: tuple[str, ...] = ()) -> StepResult:
        """Go on, or be cut off at the last turn."""
        self._now["turns"] += 1
        if self._now["turns"] < TURNS:
            return StepResult(observation=text, kinds=kinds, channels=channels)
        return StepResult(
            observation=text, kinds=kinds, channels=channels, rewards={"right": 0.0}, outcome=0.0,
            truncated=True, submission=self._now.get("handed", ""), end_reason="turn limit",
        )

    def _over(self, text: str, kinds: tuple[str, ...], right: bool, handed: str) -> StepResult:
        return StepResult(
            observation=text, kinds=kinds, rewards={"right": float(right)}, outcome=float(right),
            terminated=True, submission=handed, end_reason="handed in",
        )
    def _layers(self, task: str) -> dict[str, Any]:
        draw = random.Random(task)
        key, service = draw.choice(KEYS), f"svc{draw.randrange(1000, 9999)}"
        pick = {layer: draw.sample(KEYS, 4) for layer in LAYERS}
        for layer, chance in zip(LAYERS, (1.0, 0.65, 0.45)):
            names = [name for name in pick[layer] if name != key][:3]
            pick[layer] = draw.sample([*names, key], 4) if draw.random() < chance else names
        texts = {name: {k: draw.randrange(2, 900) for k in keys} for name, keys in pick.items()}
        return {"key": key, "service": service, "layers": texts}

    def fields(self, task: str) -> dict[str, str]:
        it = self._layers(task)
        return {"service": it["service"], "question": it["key"]}

    def reset(self, task: str, seed: int) -> Observation:
        parts = self.fields(task)
        self._now = {"task": task, "turns": 0}
        return Observation(
            text=f"Service {parts['service']}: which value of {parts['question']} is in force?",
            system="Commands: cat defaults.ini, cat site.ini, cat local.ini (later ones win), dump, answer N",
        )

    def step(self, action: str) -> StepResult:
        it, (kind,) = self._layers(self._now["task"]), self.kinds(action)
        merged: dict[str, int] = {}
        for layer in LAYERS:
            merged |= it["layers"][layer]
        if kind == "answer":
            handed = action.split()[1]
            return self._over("set", (kind,), int(handed) == merged[it["key"]], handed)
        if kind == "dump":
            if self.scrubbed:
                return self._more("dump: 3 layers, 0 errors", (kind,))
            return self._more(f"dump: {it['key']} = {merged[it['key']]}", (kind,), (KNOWN.name,))
        if kind == "read-layer":
            layer = it["layers"][action.split()[1]]
            return self._more("\n".join(f"{key} = {value}" for key, value in layer.items()), (kind,))
        return self._more("unknown command", (kind,))

    def kinds(self, action: str) -> tuple[str, ...]:
        if re.fullmatch(r"answer [0-9]{1,6}", action):
            return ("answer",)
        if action in [f"cat {layer}" for layer in LAYERS]:
            return ("read-layer",)
        return ("dump",) if action == "dump" else ("other",)

    def regrade(self, task: str, submission: str) -> dict[str, float]:
        it = self._layers(task)
        for layer in reversed(LAYERS):
            if (value := it["layers"][layer].get(it["key"])) is not None:
                return {"outcome": float(submission == str(value))}
        return {"outcome": 0.0}

    def variant(self, task: str, seed: int) -> str:
        return f"other-{seed}-{task}"


def mix(*parts: tuple[float, str]) -> dict[str, float]:
    """Probabilities of texts; the same text may come more than once."""
    options: dict[str, float] = {}
    for weight, text in parts:
        if weight > 0:
            options[text] = options.get(text, 0.0) + weight
    whole = sum(options.values())
    return {text: weight / whole for text, weight in options.items()}

@dataclass(frozen=True)
class Operator:
    """Reads one, two or three layers in their order, and answers with the last value it saw."""

    identity: str
    moods: dict[str, float]

    def act(self, view: Any) -> dict[str, float]:
        key = re.findall(r"value of (\w+) is", view.prompt)[0]
        said = "\n".join(text for _, text in view.turns)
        values = re.findall(rf"\b{key} = (\d+)", said)
        read = [action for action, _ in view.turns if action.startswith("cat")]
        if view.mood == "dump" and not view.turns:
            return {"dump": 1.0}
        wanted = {"one": 1, "two": 2, "all": 3, "dump": 0 if values else 3}[view.mood]
        if len(read) < wanted:
            return {f"cat {LAYERS[len(read)]}": 1.0}
        last = values[-1] if values else "10"
        return mix((0.95, f"answer {last}"), (0.05, f"answer {values[0] if values else 20}"))


BEFORE = Operator("operator, before", {"one": 0.5, "two": 0.37, "all": 0.1, "dump": 0.03})
AFTER = Operator("operator, after", {"one": 0.03, "two": 0.07, "all": 0.87, "dump": 0.03})
TRUTH, SHARE = "honest", 0.0
ALLOW: tuple[str, ...] = ()
ACCEPT: tuple[str, ...] = ()
