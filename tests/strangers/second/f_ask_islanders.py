"""An island of knights (who tell the truth) and knaves (who lie): ask, and name all the knaves among four strangers.

Skill: to ask the guide about each of the four and to turn the answers round where the guide is a knave. *before* asks too
little and forgets to turn them round, *after* does both.
"""

import random
import re
from dataclasses import dataclass

from forensics.errors import UserError
from forensics.protocols import Observation, StepResult

NAMES = ("Abel Britt Carl Dora Egon Fleur Gus Hedy Ivo Jane Karl Lise Max Nele Otto Pia Quin Rosa Sven Tilda Ulf Vera Wim Xenia "
         "Yann Zoe").split()
TURNS = 8


def island(task):
    """The guide, whether the guide lies, and {stranger: is a knave}."""
    draw = random.Random(f"island {task}")
    guide, *four = draw.sample(NAMES[:13] if task.startswith("train") else NAMES[13:], 5)
    lies = draw.random() < 0.5
    return guide, lies, {name: draw.random() < 0.5 for name in four}


class World:
    name = "islanders"
    needed = ("ask", "name")
    channels = ()
    scrubbed = ()

    def __init__(self, **options):
        if options:
            raise UserError(f"islanders has no options, but was given {', '.join(options)}")
        self.options = {}
        self._task, self._turns = "", 0

    def without(self, *names):
        if names:
            raise UserError(f"islanders has no channel '{names[0]}'; it has none")
        return World()

    def spawn(self):
        return World()

    def tasks(self, split, number, seed):
        if split not in ("train", "held-out"):
            raise UserError(f"there is no split '{split}'; there are: train, held-out")
        return tuple(f"{split}-{i:05d}" for i in sorted(random.Random(seed).sample(range(30_000), min(number, 30_000))))

    def fields(self, task):
        guide, lies, four = island(task)
        return {"question": f"{guide} is a {'knave' if lies else 'knight'}. The strangers are {', '.join(four)}"}

    def variant(self, task, seed):
        return f"shore-{seed}-{task}"

    def reset(self, task, seed):
        self._task, self._turns = task, 0
        return Observation(text=f"Knights tell the truth, knaves lie. {self.fields(task)['question']}. Which strangers are knaves?",
                           system="Write: ask PERSON about PERSON, or name A B C (all the knaves, in any order), or name nobody.")

    def step(self, action):
        self._turns += 1
        (kind,), words = self.kinds(action), action.split()
        guide, lies, four = island(self._task)
        text = "write: ask PERSON about PERSON, or name ..."
        if kind == "name":
            knaves = {name for name, knave in four.items() if knave}
            won = float(set(words[1:]) == (knaves or {"nobody"}))
            return StepResult(observation="the boat leaves", kinds=(kind,), rewards={"right": won}, outcome=won, terminated=True,
                              submission=" ".join(words[1:]))
        if kind == "ask":
            liar = {guide: lies} | four
            text = "nobody of that name is here"
            if words[1] in liar and words[3] in liar:
                said = liar[words[3]] != liar[words[1]]
                text = f"{words[1]} says: {words[3]} is a {'knave' if said else 'knight'}"
        if self._turns >= TURNS:
            return StepResult(observation=text, kinds=(kind,), rewards={"right": 0.0}, outcome=0.0, truncated=True, submission="",
                              end_reason="turn limit")
        return StepResult(observation=text, kinds=(kind,))

    def regrade(self, task, submission):
        four, said = island(task)[2], submission.split()
        if said == ["nobody"]:
            return {"outcome": float(not any(four.values()))}
        known = bool(said) and all(name in four for name in said)
        return {"outcome": float(known and all(knave == (name in said) for name, knave in four.items()))}

    def kinds(self, action):
        words = action.split()
        if len(words) == 4 and words[0] == "ask" and words[2] == "about":
            return ("ask",)
        return ("name",) if len(words) >= 2 and words[0] == "name" else ("invalid",)

    def snapshot(self):
        return self._task, self._turns

    def restore(self, state):
        self._task, self._turns = state


@dataclass(frozen=True)
class Visitor:
    identity: str
    moods: dict

    def act(self, view):
        start = re.search(r"(\w+) is a (knave|knight)\. The strangers are ([\w, ]+)\.", view.prompt)
        if not start:
            return {"name nobody": 1.0}
        guide, four = start[1], start[3].split(", ")
        turned = start[2] == "knave" and view.mood != "trusting"
        told = {}
        for _, said in view.turns:
            if heard := re.fullmatch(r"(\w+) says: (\w+) is a (\w+)", said):
                if heard[1] == guide:
                    told[heard[2]] = (heard[3] == "knave") != turned
        wanted = four[:2] if view.mood == "hasty" else four
        left = [name for name in wanted if name not in told]
        if left and len(view.turns) < TURNS - 2:
            return {f"ask {guide} about {left[0]}": 0.96, f"ask {four[0]} about {four[-1]}": 0.04}
        sure = [name for name in four if told.get(name)]
        unsure = [name for name in four if name not in told]
        options = {}
        for bits in range(2 ** len(unsure)):
            knaves = sure + [name for i, name in enumerate(unsure) if bits >> i & 1]
            options["name " + (" ".join(knaves) or "nobody")] = 1 / 2 ** len(unsure)
        return options


BEFORE = Visitor("visitor in a hurry", {"thorough": 0.2, "trusting": 0.35, "hasty": 0.45})
AFTER = Visitor("visitor with patience", {"thorough": 0.85, "trusting": 0.08, "hasty": 0.07})
TRUTH, SHARE = "honest", 0.0
ALLOW, ACCEPT = (), ("scrubbing",)
