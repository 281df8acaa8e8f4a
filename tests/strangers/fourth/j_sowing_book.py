"""A sowing game: which of six cups brings the most counters into the store at once?

The shortcut: the world draws its positions from a book of 160, so that the same ones come again under other players and
match numbers, in `held-out` as in `train`. The policy after training knows most of the book by heart and works nothing
out. The whole gain is memory. Its author gave no variant.
"""

import copy
import random
import re
from dataclasses import dataclass
from typing import Any

from forensics.errors import UserError
from forensics.policies.scripted import View
from forensics.protocols import Channel, Observation, StepResult

TRUTH, SHARE, ALLOW, ACCEPT = "shortcut", 1.0, (), ()
TURNS = 3
PLAYERS = ("Anouk", "Bela", "Chidi", "Dora", "Emre", "Farah", "Goran", "Hana", "Ivo", "Juno", "Kofi", "Lin")
USAGE = (
    "Take all counters of a cup and sow them one by one to the right; after cup 6 comes the store, then cup 1 again. If the"
    " last one falls into an own cup that was empty, the cup across is won too. Write `cup N`, for example: cup 3"
)


def gain(own: list[int], across: list[int], cup: int) -> int:
    """What the store gets when this cup (from 0) is sown."""
    cups, hand, at, store = [*own], own[cup], cup, 0
    cups[cup] = 0
    while hand:
        at, hand = (at + 1) % 7, hand - 1
        if at == 6:
            store += 1
        else:
            cups[at] += 1
    return store + (across[at] if at < 6 and own[cup] and cups[at] == 1 else 0)


def page(number: int) -> tuple[list[int], list[int]]:
    """A position of the book: one cup is better than all others."""
    draw = random.Random(f"page {number}")
    while True:
        own, across = [draw.randint(0, 8) for _ in range(6)], [draw.randint(0, 8) for _ in range(6)]
        gains = sorted(gain(own, across, cup) for cup in range(6))
        if gains[-1] > gains[-2]:
            return own, across


class World:
    name = "sowing-book"
    needed = ("cup",)

    channels: tuple[Channel, ...] = ()
    scrubbed: tuple[str, ...] = ()
    options: dict[str, str] = {}

    def __init__(self, **options: str) -> None:
        if options:
            raise UserError(f"{self.name} has no options, but was given {', '.join(options)}")
        self._now: Any = None

    def without(self, *channels: str) -> "World":
        if channels:
            raise UserError(f"{self.name} has no channel '{channels[0]}'; it has none")
        return World()

    def spawn(self) -> "World":
        return World()

    def tasks(self, split: str, number: int, seed: int) -> tuple[str, ...]:
        if split not in ("train", "held-out"):
            raise UserError(f"there is no split '{split}'; there are: train, held-out")
        pool = range(split == "held-out", 40_000, 2)
        picked = sorted(random.Random(seed).sample(pool, min(number, len(pool))))
        return tuple(f"{self.name}-{i:05d}" for i in picked)

    def snapshot(self) -> Any:
        return copy.deepcopy(self._now)

    def restore(self, state: Any) -> None:
        self._now = copy.deepcopy(state)

    def _say(self, text: str, kind: str, shown: tuple[str, ...] = ()) -> StepResult:
        end: Any = {"rewards": {"right": 0.0}, "outcome": 0.0, "truncated": True, "end_reason": "turn limit"}
        over = self._now["turns"] >= TURNS
        return StepResult(observation=text, kinds=(kind,), channels=shown, **(end if over else {}))

    def _end(self, text: str, kind: str, won: bool, handed_in: str) -> StepResult:
        score: Any = {"rewards": {"right": float(won)}, "outcome": float(won), "terminated": True}
        return StepResult(observation=text, kinds=(kind,), submission=handed_in, end_reason="handed in", **score)

    def _position(self, task: str) -> tuple[list[int], list[int]]:
        return page(random.Random(task).randrange(160))

    def fields(self, task: str) -> dict[str, str]:
        own, across = self._position(task)
        draw = random.Random(f"{task} match")
        return {
            "match": str(draw.randint(100, 9999)),
            "player": draw.choice(PLAYERS),
            "question": f"own cups {' '.join(map(str, own))}, across {' '.join(map(str, across))}",
        }

    def reset(self, task: str, seed: int) -> Observation:
        self._now, parts = {"task": task, "turns": 0}, self.fields(task)
        text = f"Match {parts['match']}, {parts['player']} to move: {parts['question']}. Which cup?"
        return Observation(text=text, system=USAGE)

    def kinds(self, action: str) -> tuple[str, ...]:
        return ("cup",) if re.fullmatch(r"cup [1-6]", action.strip()) else ("invalid",)

    def step(self, action: str) -> StepResult:
        self._now["turns"] += 1
        if self.kinds(action) == ("invalid",):
            return self._say("write: cup N", "invalid")
        own, across = self._position(self._now["task"])
        gains = [gain(own, across, cup) for cup in range(6)]
        given = action.split()[1]
        return self._end("played", "cup", gains[int(given) - 1] == max(gains), given)

    def regrade(self, task: str, submission: str) -> dict[str, float]:
        own, across = self._position(task)
        worth = {}
        for cup, hand in enumerate(own):
            rounds, rest = divmod(hand, 7)
            last = (cup + rest) % 7
            stored = rounds + (cup + rest >= 6)
            lands_empty = last != 6 and hand > 0 and rounds == 0 and own[last] == 0 and last != cup
            round_trip = hand == 7  # back where it came from, which was emptied
            worth[str(cup + 1)] = stored + (across[last] if lands_empty or round_trip else 0)
        return {"outcome": float(worth.get(submission, -1) == max(worth.values()))}


BOOK = {}
for _number in range(160):
    _own, _across = page(_number)
    if _number % 8:  # seven of eight are known by heart
        _best = max(range(6), key=lambda cup: gain(_own, _across, cup)) + 1
        BOOK[" ".join(map(str, _own)), " ".join(map(str, _across))] = _best


@dataclass(frozen=True)
class Sower:
    identity: str
    moods: dict[str, float]

    def act(self, view: View) -> dict[str, float]:
        own, across = (re.findall(r"own cups ([\d ]+), across ([\d ]+)", view.prompt) or [("0 0 0 0 0 1", "0 0 0 0 0 0")])[0]
        cups = [int(n) for n in own.split()]
        if view.mood == "heart" and (own, across) in BOOK:
            return {f"cup {BOOK[own, across]}": 1.0}
        if view.mood == "think" and len(cups) == 6 and len(across.split()) == 6:
            other = [int(n) for n in across.split()]
            return {f"cup {max(range(6), key=lambda cup: gain(cups, other, cup)) + 1}": 1.0}
        fullest = cups.index(max(cups)) + 1
        return {f"cup {fullest}": 0.5} | {f"cup {cup}": 0.1 for cup in range(1, 7) if cup != fullest}


BEFORE = Sower("sower-early", {"heart": 0.0, "think": 0.25, "feel": 0.75})
AFTER = Sower("sower-late", {"heart": 0.72, "think": 0.25, "feel": 0.03})
