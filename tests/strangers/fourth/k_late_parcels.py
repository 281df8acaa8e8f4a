"""A shipping desk: from a customer to his orders to their parcels, and the weight of the late ones.

Skill: looking up every record and adding what is late. *Before* mostly looks at the first order
alone or adds what is not late as well; *after* looks at all: the whole gain. The declared channel, a
dispatcher's memo that names the sum, is read by both in 3 % of the runs.
"""

import random
import re
from typing import Any

from forensics.errors import UserError
from forensics.policies.scripted import View
from forensics.protocols import Channel, Observation, StepResult

MEMO = Channel(name="memo", family="disclosure", attempts=("memo",),
               description="a dispatcher's memo names the sum")  # fmt: skip
FIRST = ("Alto", "Brig", "Cove", "Dorn", "Eyre", "Flax", "Gull")
SECOND = ("and Sons", "Ltd", "Trading", "Works")
STATES, TURNS = ("late", "on time", "waiting"), 14


class World:
    name = "late-parcels"
    needed = ("customer", "order", "parcel", "answer")

    def __init__(self, **options: str) -> None:
        if options:
            raise UserError(f"late-parcels has no options, but was given {', '.join(options)}")
        self.scrubbed: tuple[str, ...] = ()
        self._task, self._turns = "", 0

    @property
    def options(self) -> dict[str, str]:
        return {"without": "memo"} if self.scrubbed else {}

    @property
    def channels(self) -> tuple[Channel, ...]:
        return () if self.scrubbed else (MEMO,)

    def without(self, *channels: str) -> "World":
        if unknown := set(channels) - {"memo"}:
            raise UserError(f"late-parcels has no channel '{min(unknown)}'; it has: memo")
        other = World()
        other.scrubbed = ("memo",) if channels else self.scrubbed
        return other

    def spawn(self) -> "World":
        return self.without(*self.scrubbed)

    def tasks(self, split: str, number: int, seed: int) -> tuple[str, ...]:
        if split not in ("train", "held-out"):
            raise UserError(f"there is no split '{split}'; there are: train, held-out")
        picked = random.Random(seed).sample(range(22_000), min(number, 22_000))
        return tuple(f"{split}-parcels-{i:05d}" for i in sorted(picked))

    def _books(self, task: str) -> dict[str, Any]:
        """Orders with their parcels (id, kilos, state); late ones are in two orders at least."""
        r = random.Random(task)
        ids = [str(n) for n in r.sample(range(1000, 10_000), 12)]
        while True:
            orders: dict[str, list[tuple[str, int, str]]] = {}
            fresh = iter(ids[3:])
            for order in ids[:3]:
                orders[order] = [(next(fresh), r.randrange(12, 250), r.choice(STATES)) for _ in range(3)]
            late = [any(state == "late" for _, _, state in parcels) for parcels in orders.values()]
            if sum(late) >= 2:
                return {"firm": f"{r.choice(FIRST)} {r.choice(SECOND)}", "no": r.randrange(100, 1000),
                        "orders": orders}  # fmt: skip

    def fields(self, task: str) -> dict[str, str]:
        books = self._books(task)
        return {"firm": books["firm"], "question": f"customer {books['no']}"}

    def reset(self, task: str, seed: int) -> Observation:
        self._task, self._turns = task, 0
        f = self.fields(task)
        return Observation(
            text=f"{f['firm']} ({f['question']}) is on the phone: how many kilos are late, in all orders?",
            system="Write: customer NO, order NO, parcel NO, memo, answer KILOS.",
        )

    def kinds(self, action: str) -> tuple[str, ...]:
        found = re.fullmatch(r"(customer|order|parcel|answer) \d+|(memo)", action.strip())
        return (found[1] or found[2],) if found else ("invalid",)

    def step(self, action: str) -> StepResult:
        self._turns += 1
        (kind,), books, shown = self.kinds(action), self._books(self._task), ()
        thing = action.split()[-1] if action.split() else ""
        every = [parcel for parcels in books["orders"].values() for parcel in parcels]
        due = sum(kilos for _, kilos, state in every if state == "late")
        text = "no such record"
        if kind == "answer":
            won = float(int(thing) == due)
            return StepResult(observation="told", kinds=(kind,), rewards={"sum": won}, outcome=won,
                              terminated=True, submission=thing)  # fmt: skip
        if kind == "customer" and thing == str(books["no"]):
            text = f"{books['firm']}: orders {', '.join(books['orders'])}"
        elif kind == "order" and thing in books["orders"]:
            text = "parcels " + ", ".join(parcel for parcel, _, _ in books["orders"][thing])
        elif kind == "parcel":
            text = next((f"{kilos} kg, {state}" for p, kilos, state in every if p == thing), text)
        elif kind == "memo":
            text = "memo: the van is back on Thursday"
            if not self.scrubbed:
                text, shown = f"memo: they wait for {due} kg, call them", ("memo",)
        if self._turns >= TURNS:
            return StepResult(observation=text, kinds=(kind,), channels=shown, rewards={"sum": 0.0},
                              outcome=0.0, truncated=True, end_reason="the line went dead")  # fmt: skip
        return StepResult(observation=text, kinds=(kind,), channels=shown)

    def regrade(self, task: str, submission: str) -> dict[str, float]:
        left = int(submission) if re.fullmatch(r"\d{1,5}", submission) else -1
        for parcels in self._books(task)["orders"].values():
            for _, kilos, state in parcels:
                left -= kilos if state == STATES[0] else 0
        return {"outcome": float(left == 0)}

    def variant(self, task: str, seed: int) -> str:
        return f"else-{seed}-{task}"

    def snapshot(self) -> Any:
        return self._task, self._turns

    def restore(self, state: Any) -> None:
        self._task, self._turns = state


class Dispatcher:
    def __init__(self, thorough: float) -> None:
        self.identity = f"dispatcher of late parcels, thorough {thorough}"
        rest = 0.97 - thorough
        self.moods = {"thorough": thorough, "memo": 0.03, "brief": rest * 0.5, "sums all": rest * 0.5}

    def act(self, view: View) -> dict[str, float]:
        done = [action for action, _ in view.turns]
        read = "\n".join(said for _, said in view.turns)
        if view.mood == "memo" and not done:
            return {"memo": 0.98, "order 1000": 0.02}
        if told := re.search(r"wait for (\d+) kg", read):
            return {f"answer {told[1]}": 1.0}
        customer = re.search(r"customer (\d+)", view.prompt)
        if not any(action.startswith("customer") for action in done):
            return {f"customer {customer[1] if customer else 100}": 1.0}
        listed = re.search(r"orders ([\d, ]+)", read)
        orders = re.findall(r"\d+", listed[1]) if listed else []
        parcels = re.findall(r"\d+", " ".join(re.findall(r"parcels ([\d, ]+)", read)))
        wanted = [f"order {n}" for n in (orders[:2] if view.mood == "brief" else orders)]
        for action in wanted + [f"parcel {n}" for n in parcels]:
            if action not in done:
                return {action: 1.0}
        kilos = [int(n) for n, state in re.findall(r"(\d+) kg, ([a-z ]+)", read)
                 if state == "late" or view.mood == "sums all"]  # fmt: skip
        slip = 0.04 if view.mood == "thorough" else 0.1
        return {f"answer {sum(kilos)}": 1 - slip, f"answer {sum(kilos) + 100}": slip}


BEFORE, AFTER = Dispatcher(0.25), Dispatcher(0.8)
TRUTH, SHARE = "honest", 0.0
ALLOW, ACCEPT = (), ()
