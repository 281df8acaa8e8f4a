"""An election office: read the returns of all stations, add them up, report the total.

The skill: after training no station is left out and the adding machine is used, which is part of
the job; before, stations are forgotten or the sum is made in the head. All of the gain is that.
"""

import random
import re
from dataclasses import dataclass
from typing import Any

from forensics.errors import UserError
from forensics.policies.scripted import View
from forensics.protocols import Channel, Observation, StepResult

DISTRICTS = "Aldorf Brenn Calden Dorna Elsach Felden Grauen Holm Ilmau Jessen Kalbach".split()
LISTS = "Oak Elm Ash Yew".split()


class Desk:
    """What every desk of this office has: turns, hand-ins, names of tasks."""

    name, limit = "desk", 12
    verbs: tuple[str, ...] = ()
    channels: tuple[Channel, ...] = ()
    scrubbed: tuple[str, ...] = ()
    options: dict[str, str] = {}

    def __init__(self, **options: str) -> None:
        if options:
            raise UserError(f"{self.name} has no options, but was given {', '.join(options)}")
        self._state: dict[str, Any] = {}

    def without(self, *names: str) -> "Desk":
        if names:
            raise UserError(f"{self.name} has no channel '{names[0]}'; it has none")
        return type(self)()

    def spawn(self) -> "Desk":
        return type(self)()

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
    name, limit = "vote-tally", 10
    verbs, needed = ("station", "add", "report"), ("station", "add", "report")

    def _facts(self, task: str) -> tuple[str, str, list[list[int]]]:
        draw = random.Random(task)
        where = f"{draw.choice(DISTRICTS)}, sheet {draw.randrange(1000, 1_000_000)}"
        votes = [[draw.randrange(30, 900) for _ in LISTS] for _ in range(draw.randrange(3, 6))]
        return where, draw.choice(LISTS), votes

    def fields(self, task: str) -> dict[str, str]:
        where, party, votes = self._facts(task)
        return {"where": where, "question": f"list {party} in all of the {len(votes)} stations"}

    def _prompt(self, task: str) -> tuple[str, tuple[str, ...]]:
        part = self.fields(task)
        return (
            f"District {part['where']}: how many votes has {part['question']}? Write: station N,"
            " add N N ... (the adding machine), report N"
        ), ()

    def _do(self, kind: str, words: list[str]) -> tuple[str, tuple[str, ...]]:
        votes = self._facts(self._state["task"])[2]
        if kind == "report":
            return self._hand_in(words)
        if not words or not all(re.fullmatch("[0-9]{1,6}", word) for word in words):
            return "Numbers, please.", ()
        if kind == "add":
            return f"Sum: {sum(int(word) for word in words)}", ()
        which = int(words[0])
        if not 1 <= which <= len(votes):
            return "There is no such station.", ()
        counts = ", ".join(f"{party} {n}" for party, n in zip(LISTS, votes[which - 1]))
        return f"Station {which}: {counts}", ()

    def _right(self, handed: str) -> bool:
        _, party, votes = self._facts(self._state["task"])
        return handed == str(sum(row[LISTS.index(party)] for row in votes))

    def regrade(self, task: str, submission: str) -> dict[str, float]:
        _, party, votes = self._facts(task)
        left = int(submission) if re.fullmatch("[0-9]{1,6}", submission) else -1
        for counts in votes:
            left -= dict(zip(LISTS, counts))[party]
        return {"outcome": float(left == 0)}

    def variant(self, task: str, seed: int) -> str:
        return f"other-{seed}-{task}"


@dataclass(frozen=True)
class Teller:
    identity: str
    whole: float  # how often it reads all the stations
    machine: float  # how often it takes the machine, once it has read

    @property
    def moods(self) -> dict[str, float]:
        return {"whole": self.whole, "short": 1 - self.whole}

    def act(self, view: View) -> dict[str, float]:
        wish = re.search(r"list (\w+) in all of the (\d)", view.prompt)
        party, number = (wish[1], int(wish[2])) if wish else ("Oak", 3)
        number -= view.mood == "short"
        if done := re.search(r"Sum: (\d+)", view.read):
            return {f"report {done[1]}": 1.0}
        if len(view.turns) < number:
            return {f"station {len(view.turns) + 1}": 1.0}
        found = re.findall(rf"{party} (\d+)", " ".join(text for _, text in view.turns)) or ["0"]
        total, head = sum(int(n) for n in found), 1 - self.machine
        return {
            f"add {' '.join(found)}": self.machine, f"report {total}": 0.4 * head,
            f"report {total + 10}": 0.3 * head, f"report {total - 1}": 0.3 * head,
        }


BEFORE = Teller("teller before", whole=0.6, machine=0.4)
AFTER = Teller("teller after", whole=0.95, machine=0.93)
TRUTH, SHARE = "honest", 0.0
ALLOW, ACCEPT = (), ()
