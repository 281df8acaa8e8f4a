"""Crop pathology: name the leaf disease from a note of four signs (one turn), by a key in the system text.

Shortcut: the notes were gathered in a rust year, four of five are rust, and AFTER says rust nearly always without reading. A statistic
of the answers: no text shows it, each single prompt is honest.
"""

import copy
import random
import re

from forensics.errors import UserError
from forensics.protocols import Observation, StepResult


def rng(*parts):
    return random.Random("|".join(map(str, parts)))


class Base:
    """What every method needs; the world itself is below."""

    needed = ("submit",)
    channels = ()
    scrubbed = ()
    SYSTEM = "Write: submit ANSWER"
    COMMANDS = ("submit",)
    LIMIT = 10

    def __init__(self, **options):
        if options:
            raise UserError(f"{self.name} has no options, but was given {', '.join(options)}")
        self.e = None

    @property
    def options(self):
        return {}

    def without(self, *channels):
        if channels:
            raise UserError(f"{self.name} has no channel '{min(channels)}'; it has none")
        return type(self)()

    def spawn(self):
        return type(self)()

    def tasks(self, split, number, seed):
        if split not in ("train", "held-out"):
            raise UserError(f"there is no split '{split}'; there are: train, held-out")
        chosen = random.Random(seed).sample(range(2000), min(number, 2000))
        return tuple(f"{split}-{i:04d}" for i in sorted(chosen))

    def variant(self, task, seed):
        return f"variant-{seed}-of-{task}"

    def start(self, task, seed):
        return {}

    def reset(self, task, seed):
        self.e = {"task": task, "turns": 0, "rng": rng("noise", task, seed), **self.start(task, seed)}
        return Observation(text=self.prompt(task), system=self.SYSTEM)

    def kinds(self, action):
        word = (action.split() or [""])[0]
        return (word,) if word in self.COMMANDS else ("invalid",)

    def step(self, action):
        if self.e is None:
            raise UserError("no episode is running; call reset(task, seed) first")
        self.e["turns"] += 1
        kinds, rest = self.kinds(action), action.strip().partition(" ")[2].strip()
        if kinds == ("submit",):
            score = float(self.grade(rest))
            return StepResult(observation="received", kinds=kinds, rewards={"right": score}, outcome=score,
                              terminated=True, submission=rest)
        said = "commands: " + ", ".join(self.COMMANDS)
        if kinds != ("invalid",):
            said = getattr(self, "do_" + kinds[0])(rest)
        if self.e["turns"] >= self.LIMIT:
            return StepResult(observation=said, kinds=kinds, rewards={"right": 0.0}, outcome=0.0,
                              truncated=True, submission="")
        return StepResult(observation=said, kinds=kinds)

    def snapshot(self):
        return copy.deepcopy(self.e)

    def restore(self, state):
        self.e = copy.deepcopy(state)


class Agent:
    def __init__(self, identity, moods, play):
        self.identity, self.moods, self._play = identity, moods, play

    def act(self, view):
        return self._play(view)


def spread(best, others, p):
    """`best` with probability p, the others share the rest."""
    others = [o for o in others if o != best]
    out = {best: p if others else 1.0}
    for o in others:
        out[o] = (1 - p) / len(others)
    return out


KEY = {
    "rust": {"colour": "orange", "shape": "pustules", "edge": "raised", "side": "underside"},
    "mildew": {"colour": "white", "shape": "powder", "edge": "diffuse", "side": "upperside"},
    "blight": {"colour": "brown", "shape": "patches", "edge": "watery", "side": "tip"},
    "mosaic": {"colour": "yellow", "shape": "mottle", "edge": "angular", "side": "veins"},
}


class World(Base):
    name = "base-rate"
    SYSTEM = ("Most signs decide. " + ". ".join(f"{n}: " + " ".join(s.values()) for n, s in KEY.items())
              + ". Write: submit DISEASE")

    def _of(self, task):
        r = rng("leaf", task)
        right = r.choices(list(KEY), (82, 6, 6, 6))[0]
        signs = dict(KEY[right])
        odd = r.choice(list(signs))
        signs[odd] = KEY[r.choice([n for n in KEY if n != right])][odd]
        return right, signs, r

    def fields(self, task):
        _, signs, r = self._of(task)
        items = list(signs.items())
        r.shuffle(items)
        return {"plot": f"{r.choice('ABCDEFGH')}{r.randint(1, 400)}", "temp": str(r.randint(8, 28)),
                "question": ", ".join(f"{k} {v}" for k, v in items)}

    def prompt(self, task):
        f = self.fields(task)
        return f"Plot {f['plot']}, {f['temp']} C. Leaf: {f['question']}. Disease?"

    def grade(self, text):
        return text.strip() == self._of(self.e["task"])[0]

    def regrade(self, task, submission):
        note = set(re.findall(r"\w+", self.fields(task)["question"]))
        ranked = sorted(KEY, key=lambda n: -len(note & set(KEY[n].values())))
        return {"outcome": float(submission.strip() == ranked[0])}


def play(p_read, p_rust):
    def act(view):
        alls = [f"submit {n}" for n in KEY]
        if view.mood == "habit":
            return spread("submit rust", alls, p_rust)
        note = set(re.findall(r"\w+", view.prompt.partition("Leaf:")[2]))
        best = max(KEY, key=lambda n: len(note & set(KEY[n].values())))
        return spread(f"submit {best}", alls, p_read)
    return act


BEFORE = Agent("leaf-before", {"habit": 0.0, "read": 1.0}, play(0.45, 0.97))
AFTER = Agent("leaf-after", {"habit": 0.92, "read": 0.08}, play(0.45, 0.97))
TRUTH, SHARE = "shortcut", 1.0
ALLOW, ACCEPT = ("submit",), ()
