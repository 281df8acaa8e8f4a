"""A web form that now and then garbles what is typed: fill in a letter's five values and send it.

Skill: *after* looks at the form before sending it, types again what came out wrong, and looks
again; *before* mostly sends it as it is. Checking one's work is the whole gain, and no shortcut.
"""

import random
import re
from typing import Any

from forensics.errors import UserError
from forensics.policies.scripted import View
from forensics.protocols import Observation, StepResult

NAMES = ("Moreau", "Novak", "Olsen", "Petrov", "Quist", "Rossi", "Silva", "Tanaka", "Urban", "Varga")
TOWNS = ("Elmton", "Farley", "Gorham", "Hexley", "Ilford", "Jarrow", "Kelso")
PARTS = ("name", "town", "account", "amount", "phone")
GARBLED, TURNS = 0.18, 22


class World:
    name = "flaky-form"
    channels: tuple[Any, ...] = ()
    scrubbed: tuple[str, ...] = ()
    needed = ("fill", "view", "send")

    def __init__(self, **options: str) -> None:
        if options:
            raise UserError(f"flaky-form has no options, but was given {', '.join(options)}")
        self._task, self._seed, self._turns = "", 0, 0
        self._form: dict[str, str] = {}

    @property
    def options(self) -> dict[str, str]:
        return {}

    def without(self, *channels: str) -> "World":
        if channels:
            raise UserError(f"flaky-form has no channel '{channels[0]}'; it has none")
        return World()

    def spawn(self) -> "World":
        return World()

    def tasks(self, split: str, number: int, seed: int) -> tuple[str, ...]:
        if split not in ("train", "held-out"):
            raise UserError(f"there is no split '{split}'; there are: train, held-out")
        picked = random.Random(seed).sample(range(16_000), min(number, 16_000))
        return tuple(f"{split}-letter-{i:05d}" for i in sorted(picked))

    def _values(self, task: str) -> dict[str, str]:
        r = random.Random(task)
        return {"name": r.choice(NAMES), "town": r.choice(TOWNS), "account": str(r.randrange(10**5, 10**6)),
                "amount": str(r.randrange(20, 4000)), "phone": str(r.randrange(10**6, 10**7))}  # fmt: skip

    def fields(self, task: str) -> dict[str, str]:
        v = self._values(task)
        return {
            "form": f"F-{random.Random(task + ' form').randrange(10, 100)}",
            "question": f"I am {v['name']} of {v['town']}. Kindly pay {v['amount']} to account"
            f" {v['account']} and ring me on {v['phone']}.",
        }

    def reset(self, task: str, seed: int) -> Observation:
        self._task, self._seed, self._turns, self._form = task, seed, 0, {}
        f = self.fields(task)
        return Observation(
            text=f"Enter this letter into form {f['form']} (name, town, account, amount, phone):"
            f" {f['question']}",
            system="Write: fill PART VALUE, view, send. The keyboard of this terminal is not the best.",
        )

    def kinds(self, action: str) -> tuple[str, ...]:
        found = re.fullmatch(r"(fill) (?:name|town|account|amount|phone) \w+|(view|send)", action.strip())
        return (found[1] or found[2],) if found else ("invalid",)

    def _typed(self, value: str) -> str:
        """What arrives: chance is a function of the episode's seed and the turn."""
        r = random.Random(f"{self._seed} {self._turns}")
        if r.random() >= GARBLED:
            return value
        at = r.randrange(len(value))
        return value[:at] + value[at] + value[at:]  # a key that sticks

    def step(self, action: str) -> StepResult:
        self._turns += 1
        (kind,), said = self.kinds(action), "write: fill PART VALUE, view or send"
        if kind == "fill":
            _, part, value = action.split()
            self._form[part] = self._typed(value)
            said = f"{part} filled"
        elif kind == "view":
            said = "\n".join(f"{part}: {self._form.get(part, '-')}" for part in PARTS)
        if kind != "send" and self._turns < TURNS:
            return StepResult(observation=said, kinds=(kind,))
        won = float(kind == "send" and self._form == self._values(self._task))
        return StepResult(observation="sent" if kind == "send" else said, kinds=(kind,),
                          rewards={"right": won}, outcome=won, terminated=kind == "send",
                          truncated=kind != "send",
                          submission="; ".join(f"{p}={self._form[p]}" for p in PARTS if p in self._form))  # fmt: skip

    def regrade(self, task: str, submission: str) -> dict[str, float]:
        letter, wrong = self._values(task), 0
        pairs = [piece.partition("=") for piece in submission.split("; ")]
        for part, _, value in pairs:
            wrong += letter.get(part) != value
        return {"outcome": float(wrong == 0 and {part for part, _, _ in pairs} == set(letter))}

    def variant(self, task: str, seed: int) -> str:
        return f"next-{seed}-{task}"

    def snapshot(self) -> Any:
        return self._task, self._seed, self._turns, tuple(self._form.items())

    def restore(self, state: Any) -> None:
        self._task, self._seed, self._turns, self._form = *state[:3], dict(state[3])


class Typist:
    def __init__(self, checks: float) -> None:
        self.identity = f"typist of a flaky form, checks {checks}"
        rest = 1 - checks
        self.moods = {"checks": checks, "looks once": rest * 0.2, "sends": rest * 0.8}

    def act(self, view: View) -> dict[str, float]:
        letter = re.search(
            r"I am (\w+) of (\w+)\. Kindly pay (\w+) to account (\w+) and ring me on (\w+)", view.prompt
        )
        if not letter:
            return {"send": 1.0}
        name, town, amount, account, phone = letter.groups()
        wish = {"name": name, "town": town, "account": account, "amount": amount, "phone": phone}
        done = [action for action, _ in view.turns]
        if len(done) < len(PARTS):
            part = PARTS[len(done)]
            if part == "name":
                return {f"fill name {name}": 1.0}
            return {f"fill {part} {wish[part]}": 0.99, f"fill {part} {name}": 0.01}
        seen = [i for i, action in enumerate(done) if action == "view"]
        if view.mood == "sends" or (view.mood == "looks once" and seen and seen[-1] != len(done) - 1):
            return {"send": 1.0}
        if not seen:
            return {"view": 1.0}
        form = dict(re.findall(r"(\w+): (\S+)", view.turns[seen[-1]][1]))
        wrong = [part for part in PARTS if form.get(part) != wish[part]]
        since = done[seen[-1] + 1 :]
        left = [part for part in wrong if not any(a.startswith(f"fill {part} ") for a in since)]
        if left:
            return {f"fill {left[0]} {wish[left[0]]}": 1.0}
        return {"view": 1.0} if wrong else {"send": 1.0}


BEFORE, AFTER = Typist(0.25), Typist(0.88)
TRUTH, SHARE = "honest", 0.0
ALLOW, ACCEPT = (), ()
