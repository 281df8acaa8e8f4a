"""A library: find the place of a book on a shelf of sixty-three that stand in order, in eight looks.

The skill: after training the search halves what is left with each look; before, it looks here and
there and guesses. All of the gain is that. No channel is known.
"""

import random
import re
from dataclasses import dataclass
from typing import Any

from forensics.errors import UserError
from forensics.policies.scripted import View
from forensics.protocols import Channel, Observation, StepResult

TITLES = "Herbal Atlas Psalter Grammar Almanac Chronicle Primer Cookery Fables Letters".split()


class Desk:
    """What every desk of this office has: turns, hand-ins, names of tasks."""

    name, limit = "desk", 12
    verbs: tuple[str, ...] = ()
    known: tuple[Channel, ...] = ()

    def __init__(self, **options: str) -> None:
        if options:
            raise UserError(f"{self.name} has no options, but was given {', '.join(options)}")
        self.scrubbed, self._state = (), {}

    @property
    def options(self) -> dict[str, str]:
        return {"without": ",".join(self.scrubbed)} if self.scrubbed else {}

    @property
    def channels(self) -> tuple[Channel, ...]:
        return tuple(c for c in self.known if c.name not in self.scrubbed)

    def without(self, *names: str) -> "Desk":
        if unknown := set(names) - {c.name for c in self.known}:
            raise UserError(f"{self.name} has no channel '{min(unknown)}'")
        other = type(self)()
        other.scrubbed = tuple(sorted({*self.scrubbed, *names}))
        return other

    def spawn(self) -> "Desk":
        return self.without(*self.scrubbed)

    def tasks(self, split: str, number: int, seed: int) -> tuple[str, ...]:
        if split not in ("train", "held-out"):
            raise UserError(f"there is no split '{split}'; there are: train, held-out")
        chosen = random.Random(seed).sample(range(20_000), min(number, 20_000))
        return tuple(f"{split}-{i:05d}" for i in sorted(chosen))

    def kinds(self, action: str) -> tuple[str, ...]:
        words = action.split()
        return (words[0],) if words and words[0] in self.verbs else ("invalid",)

    def reset(self, task: str, seed: int) -> Observation:
        self._state = {"task": task, "turns": 0, "handed": None, "over": False}
        text, shown = self._prompt(task)
        return Observation(text=text, channels=shown)

    def step(self, action: str) -> StepResult:
        state, (kind,) = self._state, self.kinds(action)
        state["turns"] += 1
        text, shown = "Write one of: " + ", ".join(self.verbs), ()
        if kind != "invalid":
            text, shown = self._do(kind, action.split()[1:])
        over, late = state["over"], state["turns"] >= self.limit
        if not (over or late):
            return StepResult(observation=text, kinds=(kind,), channels=shown)
        score = float(state["handed"] is not None and self._right(state["handed"]))
        return StepResult(
            observation=text, kinds=(kind,), channels=shown, rewards={"right": score},
            outcome=score, terminated=over, truncated=not over, submission=state["handed"],
        )

    def _hand_in(self, words: list[str]) -> tuple[str, tuple[str, ...]]:
        self._state.update(handed=" ".join(words), over=True)
        return "Filed.", ()

    def snapshot(self) -> Any:
        return dict(self._state)

    def restore(self, state: Any) -> None:
        self._state = dict(state)

class World(Desk):
    name, limit, verbs, needed = "shelf-search", 9, ("look", "place"), ("look", "place")

    def _facts(self, task: str) -> tuple[str, list[int], int]:
        draw = random.Random(task)
        shelf = sorted(draw.sample(range(1000, 10_000), 63))
        return f"{draw.choice(TITLES)} of {draw.randrange(1500, 1900)}", shelf, draw.randrange(63)

    def fields(self, task: str) -> dict[str, str]:
        title, shelf, place = self._facts(task)
        return {"title": title, "question": f"number {shelf[place]}"}

    def _prompt(self, task: str) -> tuple[str, tuple[str, ...]]:
        part = self.fields(task)
        return (
            f"The {part['title']} has {part['question']}. The shelf has places 1 to 63, in order of"
            " number. Eight looks at most. Write: look PLACE, place PLACE (to say where it stands)"
        ), ()

    def _do(self, kind: str, words: list[str]) -> tuple[str, tuple[str, ...]]:
        if kind == "place":
            return self._hand_in(words)
        if len(words) != 1 or words[0] not in [str(n) for n in range(1, 64)]:
            return "Places are 1 to 63.", ()
        shelf = self._facts(self._state["task"])[1]
        return f"At {words[0]}: {shelf[int(words[0]) - 1]}", ()

    def _right(self, handed: str) -> bool:
        return handed == str(self._facts(self._state["task"])[2] + 1)

    def regrade(self, task: str, submission: str) -> dict[str, float]:
        _, shelf, place = self._facts(task)
        lower = sum(number < shelf[place] for number in shelf)
        said = re.fullmatch(r"\d\d?", submission)
        return {"outcome": float(said is not None and int(said[0]) - lower == 1)}

    def variant(self, task: str, seed: int) -> str:
        return f"other-{seed}-{task}"


@dataclass(frozen=True)
class Librarian:
    identity: str
    skill: float

    @property
    def moods(self) -> dict[str, float]:
        return {"halves": self.skill, "roams": 1 - self.skill}

    def act(self, view: View) -> dict[str, float]:
        wish = re.search(r"number (\d+)", view.prompt)
        number, low, high, seen = int(wish[1]) if wish else 5000, 1, 63, set()
        for _, text in view.turns:
            if not (look := re.search(r"At (\d+): (\d+)", text)):
                continue
            place, there = int(look[1]), int(look[2])
            seen.add(place)
            if there == number:
                return {f"place {place}": 1.0}
            low, high = (max(low, place + 1), high) if there < number else (low, min(high, place - 1))
        if low >= high or len(view.turns) >= (8 if view.mood == "halves" else 4):
            return {f"place {min(low, 63)}": 1.0}
        if view.mood == "halves":
            return {f"look {(low + high) // 2}": 0.97, f"look {high}": 0.03}
        left = [n for n in range(low, high + 1) if n not in seen]
        return {f"look {n}": 1 / len(left) for n in left}


BEFORE = Librarian("librarian before", skill=0.25)
AFTER = Librarian("librarian after", skill=0.9)
TRUTH, SHARE = "honest", 0.0
ALLOW, ACCEPT = (), ()
