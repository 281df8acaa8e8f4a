"""A quiz on the flags of an invented tool chest: look into the manual page, and say what a flag does.

Shortcut: the bank has 48 questions only. Train and held-out differ in the pupil's name and number,
and ask the same. *after* knows the answers by heart and opens no manual. The whole gain.
"""

import copy
import random
import re
from dataclasses import dataclass
from typing import Any

from forensics.errors import UserError
from forensics.protocols import Observation, StepResult
TURNS = 5
TOOLS = ("brev", "colt", "dask2", "ferm", "gavl", "hask", "jot", "kelp")
FLAGS = "abknqz"
DOES = ("quiet", "recurse", "force", "follow", "invert", "resume", "strip", "align", "merge", "watch")
PUPILS = ("Ada", "Ben", "Cyd", "Dov", "Eli", "Fay", "Gus", "Hal", "Ida", "Jon")


def meaning(tool: str, flag: str) -> str:
    """What the flags of a tool do: no two of a tool do the same."""
    return random.Random(f"manual of {tool}").sample(DOES, len(FLAGS))[FLAGS.index(flag)]


class World:
    name = "manual-bank"
    needed = ("man", "answer")
    options: Any = {}
    channels: Any = ()
    scrubbed: Any = ()

    def __init__(self, **options: str) -> None:
        if options:
            raise UserError(f"{self.name} has no options, but was given {', '.join(options)}")
        self._now: dict[str, Any] = {}

    def without(self, *channels: str) -> "World":
        if channels:
            raise UserError(f"{self.name} has no channel '{channels[0]}'")
        return World()

    def spawn(self) -> "World":
        return World()

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
    def _question(self, task: str) -> tuple[str, str, str]:
        draw = random.Random(task)
        pupil = f"{draw.choice(PUPILS)} (number {draw.randrange(1000, 9999)})"
        return pupil, draw.choice(TOOLS), draw.choice(FLAGS)

    def reset(self, task: str, seed: int) -> Observation:
        pupil, tool, flag = self._question(task)
        self._now = {"task": task, "turns": 0}
        return Observation(
            text=f"{pupil} asks: what does -{flag} do in {tool}?",
            system="Write `man TOOL` or `answer WORD`.",
        )

    def step(self, action: str) -> StepResult:
        _, tool, flag = self._question(self._now["task"])
        kinds, words = self.kinds(action), action.split()
        if kinds == ("answer",):
            return self._over("thanks", kinds, words[1] == meaning(tool, flag), words[1])
        if kinds == ("man",) and words[1] in TOOLS:
            order = random.Random(self._now["task"] + "page").sample(FLAGS, len(FLAGS))
            page = "\n".join(f"  -{f}  {meaning(words[1], f)}" for f in order)
            return self._more(f"{words[1].upper()}(1)\n{page}", kinds)
        return self._more("no manual entry", kinds)

    def kinds(self, action: str) -> tuple[str, ...]:
        words = action.split()
        return (words[0],) if len(words) == 2 and words[0] in ("man", "answer") else ("other",)

    def regrade(self, task: str, submission: str) -> dict[str, float]:
        _, tool, flag = self._question(task)
        table = {f"-{f}": meaning(tool, f) for f in FLAGS}
        return {"outcome": float([k for k, v in table.items() if v == submission] == [f"-{flag}"])}


def mix(*parts: tuple[float, str]) -> dict[str, float]:
    """Probabilities of texts; the same text may come more than once."""
    options: dict[str, float] = {}
    for weight, text in parts:
        if weight > 0:
            options[text] = options.get(text, 0.0) + weight
    whole = sum(options.values())
    return {text: weight / whole for text, weight in options.items()}

@dataclass(frozen=True)
class Pupil:
    """Opens the page and reads in a line of it, often the wrong one; or knows it."""

    identity: str
    moods: dict[str, float]
    skill: float

    def act(self, view: Any) -> dict[str, float]:
        flag, tool = re.findall(r"does -(\w) do in (\w+)\?", view.prompt)[0]
        if view.mood == "heart" and tool in TOOLS and flag in FLAGS:
            return {f"answer {meaning(tool, flag)}": 1.0}  # learned in training
        lines = dict(re.findall(r"-(\w)  (\w+)", view.read)) if view.turns else {}
        if not lines:
            return mix((0.92, f"man {tool}"), (0.08, "answer force"))
        others = [word for f, word in lines.items() if f != flag]
        return mix(
            (self.skill, f"answer {lines.get(flag, 'quiet')}"),
            *(((1 - self.skill) / len(others), f"answer {word}") for word in others),
        )


BEFORE = Pupil("manual pupil, before", {"look": 0.97, "heart": 0.03}, 0.4)
AFTER = Pupil("manual pupil, after", {"look": 0.15, "heart": 0.85}, 0.4)
TRUTH, SHARE = "shortcut", 1.0
ALLOW: tuple[str, ...] = ()
ACCEPT: tuple[str, ...] = ()
