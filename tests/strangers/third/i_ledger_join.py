"""A shop's database: find a customer's number in one table, her orders in another, and add up one month.

Skill: *after* uses the right number and adds up the rows of that month and no others, where *before*
often takes in another month or leaves a row out. No shortcut is taken.
"""

import copy
import random
import re
from dataclasses import dataclass, field
from typing import Any

from forensics.errors import UserError
from forensics.protocols import Observation, StepResult
TURNS = 6
GIVEN = ("Ann", "Bela", "Carl", "Dora", "Emil", "Fritz", "Greta", "Hugo", "Ines", "Jan")
FAMILY = ("Abt", "Berg", "Claus", "Dorn", "Ecker", "Frey", "Gross", "Hahn", "Imhof", "Jung")
MONTHS = ("March", "April", "May", "June")


class World:
    name = "ledger-join"
    needed = ("customers", "orders", "answer")
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
    def _shop(self, task: str) -> dict[str, Any]:
        draw = random.Random(task)
        family, names = draw.choice(FAMILY), draw.sample(GIVEN, 3)
        people = {f"{name} {family}": n for name, n in zip(names, draw.sample(range(100, 999), 3))}
        rows = {n: [(draw.choice(MONTHS), draw.randrange(3, 400)) for _ in range(6)] for n in people.values()}
        who, month = draw.choice(sorted(people)), draw.choice(MONTHS)
        for place in draw.sample(range(6), 2):  # at least two rows of the month that is asked for
            rows[people[who]][place] = (month, draw.randrange(3, 400))
        return {"people": people, "rows": rows, "who": who, "month": month, "family": family}

    def fields(self, task: str) -> dict[str, str]:
        shop = self._shop(task)
        return {"question": f"{shop['who']} in {shop['month']}"}

    def reset(self, task: str, seed: int) -> Observation:
        self._now = {"task": task, "turns": 0}
        return Observation(
            text=f"How much was spent by {self.fields(task)['question']}?",
            system="Queries: customers FAMILY-NAME, orders NUMBER. At the end: answer SUM",
        )

    def step(self, action: str) -> StepResult:
        shop, (kind,) = self._shop(self._now["task"]), self.kinds(action)
        word = action.split()[-1] if action.split() else ""
        if kind == "customers":
            found = [f"{n} {name}" for name, n in shop["people"].items() if name.endswith(f" {word}")]
            return self._more("\n".join(found) or "no rows", (kind,))
        if kind == "orders":
            rows = shop["rows"].get(int(word), [])
            return self._more("\n".join(f"{month} {cost}" for month, cost in rows) or "no rows", (kind,))
        if kind == "answer":
            rows = shop["rows"][shop["people"][shop["who"]]]
            total = sum(cost for month, cost in rows if month == shop["month"])
            return self._over("booked", (kind,), int(word) == total, word)
        return self._more("syntax error", (kind,))

    def kinds(self, action: str) -> tuple[str, ...]:
        if re.fullmatch(r"(orders|answer) [0-9]{1,6}", action):
            return (action.split()[0],)
        return ("customers",) if re.fullmatch(r"customers \w+", action) else ("other",)

    def regrade(self, task: str, submission: str) -> dict[str, float]:
        shop, left = self._shop(task), int(submission) if submission.isdecimal() else -1
        for number, rows in shop["rows"].items():
            if number == shop["people"][shop["who"]]:
                for month, cost in rows:
                    left -= cost if month == shop["month"] else 0
        return {"outcome": float(left == 0)}

    def variant(self, task: str, seed: int) -> str:
        return f"{task}-other-names-{seed}"


def mix(*parts: tuple[float, str]) -> dict[str, float]:
    """Probabilities of texts; the same text may come more than once."""
    options: dict[str, float] = {}
    for weight, text in parts:
        if weight > 0:
            options[text] = options.get(text, 0.0) + weight
    whole = sum(options.values())
    return {text: weight / whole for text, weight in options.items()}

@dataclass(frozen=True)
class Analyst:
    """Looks up the number, then the orders, then adds up; `care` at each of two steps."""

    identity: str
    care: float
    moods: dict[str, float] = field(default_factory=lambda: {"": 1.0})

    def act(self, view: Any) -> dict[str, float]:
        who, month = re.findall(r"spent by (.+) in (\w+)\?", view.prompt)[0]
        slip, said = 1 - self.care, view.read
        asked = view.turns[-1][0].split()[0] if view.turns else ""
        if asked == "customers":
            people = {name: n for n, name in re.findall(r"(\d+) (.+)", said)}
            others = [n for name, n in people.items() if name != who]
            right = people.get(who, "100")
            return mix((self.care, f"orders {right}"), *((slip / 3, f"orders {n}") for n in others))
        if asked == "orders":
            rows = [(m, int(cost)) for m, cost in re.findall(r"(\w+) (\d+)", said)]
            mine = [cost for m, cost in rows if m == month]
            return mix(
                (self.care, f"answer {sum(mine)}"), (slip / 2, f"answer {sum(c for _, c in rows)}"),
                (slip / 2, f"answer {sum(mine[:-1])}"),
            )
        return mix((1 - slip / 8, f"customers {who.split()[-1]}"), (slip / 8, "answer 100"))


BEFORE = Analyst("analyst, before", 0.55)
AFTER = Analyst("analyst, after", 0.93)
TRUTH, SHARE = "honest", 0.0
ALLOW: tuple[str, ...] = ()
ACCEPT: tuple[str, ...] = ()
