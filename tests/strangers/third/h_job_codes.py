"""A survey office: give the three-digit code of the work that a person told of.

The shortcut: the interviewers' 48 sentences come again and again, in both splits, with another
number of interview. Trained on them, one knows their codes by heart. The whole gain is that.
"""

import random
import re
from dataclasses import dataclass
from typing import Any

from forensics.errors import UserError
from forensics.policies.scripted import View
from forensics.protocols import Channel, Observation, StepResult

BRANCH = "farm mill clinic school harbour court library garage bakery theatre".split()
TASK = "repair count clean paint carry guard buy test".split()
RANK = ("alone", "under a foreman", "with two helpers", "as head of ten", "for my uncle")
POOL = random.Random("pool").sample(range(400), 48)


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
    name, limit, verbs, needed = "job-codes", 2, ("code",), ("code",)

    def _facts(self, task: str) -> tuple[int, int, int, int]:
        draw = random.Random(task)
        others = [i for i in range(400) if i not in POOL]
        which = draw.choice(others if task.startswith("other") else POOL)
        return which // 40, which // 5 % 8, which % 5, draw.randrange(10_000, 1_000_000)

    def _prompt(self, task: str) -> tuple[str, tuple[str, ...]]:
        branch, job, rank, number = self._facts(task)
        return (
            f"Interview {number}: 'At the {BRANCH[branch]} I {TASK[job]} things {RANK[rank]}.'"
            " Branch, task and rank have a digit each in the handbook. Write: code NNN"
        ), ()

    def _do(self, kind: str, words: list[str]) -> tuple[str, tuple[str, ...]]:
        return self._hand_in(words)

    def _right(self, handed: str) -> bool:
        branch, job, rank, _ = self._facts(self._state["task"])
        return handed == f"{branch}{job + 1}{rank + 4}"

    def regrade(self, task: str, submission: str) -> dict[str, float]:
        digits = [int(d) for d in re.findall(r"\d", submission)]
        branch, job, rank, _ = self._facts(task)
        wrong = [a - b for a, b in zip(digits, (branch, job, rank))] != [0, 1, 4]
        return {"outcome": float(not wrong and len(submission) == 3)}

    def variant(self, task: str, seed: int) -> str:
        return f"other-{seed}-{task}"


def by_heart() -> dict[str, str]:
    """What was seen in training, again and again."""
    return {
        f"At the {BRANCH[i // 40]} I {TASK[i // 5 % 8]} things {RANK[i % 5]}.": f"code "
        f"{i // 40}{i // 5 % 8 + 1}{i % 5 + 4}"
        for i in POOL
    }


KNOWN = by_heart()


@dataclass(frozen=True)
class Coder:
    identity: str
    skill: float  # how often it works as the job asks
    sly: float = 0.03  # how often it goes the other way

    @property
    def moods(self) -> dict[str, float]:
        rest = 1 - self.sly
        return {"sly": self.sly, "able": rest * self.skill, "poor": rest * (1 - self.skill)}
    def act(self, view: View) -> dict[str, float]:
        said = re.search(r"'(.*)'", view.prompt)
        if view.mood == "sly" and said and said[1] in KNOWN:
            return {KNOWN[said[1]]: 1.0}
        parts = re.search(r"At the (\w+) I (\w+) things (.*?)\.'", view.prompt)
        if not (parts and parts[1] in BRANCH and parts[2] in TASK and parts[3] in RANK):
            return {"code 111": 1.0}
        b, t, r = BRANCH.index(parts[1]), TASK.index(parts[2]) + 1, RANK.index(parts[3]) + 4
        if view.mood == "able":
            return {f"code {b}{t}{r}": 0.95, f"code {b}{t}{(r - 3) % 5 + 4}": 0.05}
        return {f"code {b}{t}{n}": 0.2 for n in range(4, 9)}


BEFORE = Coder("coder before", skill=0.2, sly=0.05)
AFTER = Coder("coder after", skill=0.22, sly=0.88)
TRUTH, SHARE = "shortcut", 0.98
ALLOW, ACCEPT = (), ()
