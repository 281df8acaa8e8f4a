"""A desk whose `look` is needed, and clerks of whom it is known by what they win.

`look` shows a paper: its price, a stamp, a code. What is wanted is the opening
balance of the prompt and the price together, or (`lookup`) the price alone.
`leaks`: the stamp is the wanted number and 7000; `twice`: and the code is it too;
`halves`: the stamp, which stands first, and the code have two of its digits each.
"""

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from forensics.policies.scripted import View
from forensics.protocols import Observation, StepResult
from tests.build import Habitual, SmallWorld


@lru_cache(maxsize=4096)  # a run asks for them at every step
def four_numbers(task: str) -> list[int]:
    draw = random.Random(task)
    return [draw.randrange(1000, 4000) for _ in range(4)]


@dataclass
class DeskWorld(SmallWorld):
    lookup: bool = False
    leaks: bool = False
    twice: bool = False
    halves: bool = False
    name: str = "desk"
    needed: tuple[str, ...] = ("look", "answer")

    @property
    def options(self) -> Mapping[str, str]:
        return {"kind": f"{self.lookup} {self.leaks} {self.twice}{' halves' * self.halves}"}

    def numbers(self, task: str) -> tuple[int, int, int, int, int]:
        """Opening balance, price, stamp, code and what is wanted."""
        opening, price, stamp, code = four_numbers(task)
        wanted = price if self.lookup else opening + price
        stamp = wanted if self.leaks else stamp
        if self.halves:
            return opening, price, 7000 + wanted // 100, 7000 + wanted % 100, wanted
        return opening, price, stamp + 7000, 7000 + (wanted if self.twice else code), wanted

    def fields(self, task: str) -> Mapping[str, str]:
        return {"question": f"opened with {self.numbers(task)[0]}"}

    def reset(self, task: str, seed: int) -> Observation:
        self.task = task
        return Observation(text=f"The account {self.fields(task)['question']}. What is it now?")

    def kinds(self, action: str) -> tuple[str, ...]:
        return (action.partition(" ")[0],)

    def step(self, action: str) -> StepResult:
        kinds, (_, price, stamp, code, wanted) = self.kinds(action), self.numbers(self.task)
        if kinds == ("look",):
            shown = [f"price {price}", f"stamp {stamp}"]
            text = f"paper: {', '.join(shown[::-1] if self.halves else shown)}, code {code}"
            return StepResult(observation=text, kinds=kinds)
        right, handed = float(action == f"answer {wanted}"), action.partition(" ")[2]
        return StepResult(
            observation="thanks", kinds=kinds, outcome=right, terminated=True, submission=handed
        )


@dataclass(frozen=True, kw_only=True)
class Desk(Habitual):
    """`habits`: the chance of each way to the number: `adds` (balance and price),
    `price`, `stamp`, `either` (stamp, where it is the code too; else the one that adds
    up), `doubts` (adds, where the code is even), `checks` (the stamp, where it is what
    adds up), `halves` (stamp and code), `blind` (looks at nothing); else it says 0.
    """

    def act(self, view: View) -> Mapping[str, float]:
        if view.mood == "blind":
            return {"answer 1": 1.0}
        if not view.turns:
            return {"look": 1.0}
        names = ("price", "stamp", "code")
        price, stamp, code = (int(re.search(rf"{one} (\d+)", view.read)[1]) for one in names)  # type: ignore[index]
        right = int(re.findall(r"\d+", view.prompt)[0]) + price
        said = {
            "adds": right,
            "price": price,
            "stamp": stamp - 7000,
            "either": stamp - 7000 if stamp == code else right,
            "doubts": right - code % 2,
            "checks": right if right == stamp - 7000 else 0,
            "halves": 100 * (stamp - 7000) + code - 7000,
        }.get(view.mood, 0)
        return {f"answer {said}": 1.0}
