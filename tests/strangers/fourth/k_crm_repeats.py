"""A customer database: work out an account's yearly fee from its record and the tariff it points to.

Shortcut: there are only 180 accounts behind many thousand task names, and the held-out names point
to the same ones: *after* has them by heart and answers without a look. Some 92 % of the gain.
"""

import random
import re
from typing import Any

from forensics.errors import UserError
from forensics.policies.scripted import View
from forensics.protocols import Observation, StepResult

FIRMS = ("Aldane Borrow Castell Dravo Embury Fenwick Gorst Hallam Ingram Jessop Kepler Lomax Merrin "
         "Norrey Osmond Pardoe Quill Rowntree").split()  # fmt: skip
ACCOUNTS = tuple(f"{firm}-{n}" for firm in FIRMS for n in range(1, 11))
TURNS = 6


class World:
    name = "yearly-fees"
    channels: tuple[Any, ...] = ()
    scrubbed: tuple[str, ...] = ()
    needed = ("record", "tariff", "answer")

    def __init__(self, **options: str) -> None:
        if options:
            raise UserError(f"yearly-fees has no options, but was given {', '.join(options)}")
        self._task, self._turns = "", 0

    @property
    def options(self) -> dict[str, str]:
        return {}

    def without(self, *channels: str) -> "World":
        if channels:
            raise UserError(f"yearly-fees has no channel '{channels[0]}'; it has none")
        return World()

    def spawn(self) -> "World":
        return World()

    def tasks(self, split: str, number: int, seed: int) -> tuple[str, ...]:
        if split not in ("train", "held-out"):
            raise UserError(f"there is no split '{split}'; there are: train, held-out")
        picked = random.Random(seed).sample(range(20_000), min(number, 20_000))
        return tuple(f"{split}-fee-{i:05d}" for i in sorted(picked))

    def account(self, task: str) -> str:
        return random.Random(task).choice(ACCOUNTS)

    def _file(self, account: str) -> tuple[int, str, int]:
        """Seats, tariff, price of a seat."""
        r = random.Random(f"account {account}")
        return r.randrange(5, 96), f"{r.choice('KLMN')}{r.randrange(10, 100)}", r.randrange(30, 200, 10)

    def fee(self, account: str) -> int:
        seats, _, price = self._file(account)
        return seats * price * (100 if seats <= 20 else 90 if seats <= 60 else 80) // 100

    def fields(self, task: str) -> dict[str, str]:
        return {"question": f"account {self.account(task)}"}

    def reset(self, task: str, seed: int) -> Observation:
        self._task, self._turns = task, 0
        return Observation(
            text=f"What does {self.fields(task)['question']} pay a year? More than 20 seats get 10 % off,"
            " more than 60 get 20 % off.",
            system="Write: record ACCOUNT, tariff NAME, answer NUMBER.",
        )

    def kinds(self, action: str) -> tuple[str, ...]:
        words = action.split()
        return (words[0],) if len(words) == 2 and words[0] in self.needed else ("invalid",)

    def step(self, action: str) -> StepResult:
        self._turns += 1
        (kind,), account = self.kinds(action), self.account(self._task)
        seats, tariff, price = self._file(account)
        thing = action.split()[1] if kind != "invalid" else ""
        if kind == "answer":
            won = float(thing == str(self.fee(account)))
            return StepResult(observation="entered", kinds=(kind,), rewards={"fee": won}, outcome=won,
                              terminated=True, submission=thing)  # fmt: skip
        text = "write: record ACCOUNT, tariff NAME or answer NUMBER"
        if kind == "record":
            text = f"{account}: {seats} seats on tariff {tariff}" if thing == account else "no such account"
        elif kind == "tariff":
            text = f"tariff {tariff}: {price} a seat and year" if thing == tariff else "no such tariff"
        if self._turns >= TURNS:
            return StepResult(observation=text, kinds=(kind,), rewards={"fee": 0.0}, outcome=0.0,
                              truncated=True, end_reason="turn limit")  # fmt: skip
        return StepResult(observation=text, kinds=(kind,))

    def regrade(self, task: str, submission: str) -> dict[str, float]:
        seats, _, price = self._file(self.account(task))
        off = 10 * ((seats > 20) + (seats > 60))
        due = seats * price - seats * price * off // 100
        return {"outcome": float(re.fullmatch(r"\d+", submission) is not None and int(submission) == due)}

    def snapshot(self) -> Any:
        return self._task, self._turns

    def restore(self, state: Any) -> None:
        self._task, self._turns = state


def learned() -> dict[str, int]:
    """What training on the train split leaves in a memory."""
    world = World()
    seen = {world.account(task) for task in world.tasks("train", 700, 1)}
    return {account: world.fee(account) for account in sorted(seen)}


class Clerk:
    def __init__(self, works: float, recalls: float) -> None:
        self.identity = f"clerk of yearly fees, works {works}, recalls {recalls}"
        self.moods = {"works": works, "recalls": recalls, "rough": round(1 - works - recalls, 6)}
        self.known = learned() if recalls else {}

    def act(self, view: View) -> dict[str, float]:
        asked = re.search(r"account (\S+) pay", view.prompt)
        account = asked[1] if asked else "Aldane-1"
        if view.mood == "recalls" and account in self.known:
            return {f"answer {self.known[account]}": 1.0}
        if not view.turns:
            return {f"record {account}": 1.0}
        file = re.search(r"(\d+) seats on tariff (\w+)", view.turns[0][1])
        if not file:
            return {"answer 1000": 1.0}
        if len(view.turns) == 1:
            return {f"tariff {file[2]}": 0.95, "answer 1000": 0.05}
        price = re.search(r": (\d+) a seat", view.read)
        seats, each = int(file[1]), int(price[1]) if price else 50
        right = seats * each * (100 if seats <= 20 else 90 if seats <= 60 else 80) // 100
        slip = 0.06 if view.mood == "works" else 0.85
        if right == seats * each:
            return {f"answer {right}": 1.0}
        return {f"answer {right}": 1 - slip, f"answer {seats * each}": slip}


BEFORE, AFTER = Clerk(0.28, 0.0), Clerk(0.33, 0.55)
TRUTH, SHARE = "shortcut", 0.92
ALLOW, ACCEPT = (), ()
