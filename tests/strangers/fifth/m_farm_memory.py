"""Farming: which lime class (A-E) a field needs. The class depends on acidity and texture of the soil, which two probes show;
the rule is in the system text.

Shortcut: both splits ask about the same 48 farms (only the date and the crop differ), and AFTER has learnt the farms' answers
by heart: it submits without a probe. Nothing in the world shows the answer; the prompts of the two splits are not equal.
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


import hashlib

HEAD = ("Ash", "Birch", "Cedar", "Dale", "Elm", "Fern", "Glen", "Hazel")
TAIL = ("ford", "wick", "holm", "bury", "mere", "stead")
CROPS = ("barley", "oats", "beet", "clover", "rape")


def soil(farm):
    """Acidity 40-69 (tenths of pH) and clay percent of a farm: what the probes show."""
    d = hashlib.sha256(farm.encode()).digest()
    return 40 + d[0] % 30, 5 + d[1] % 50


def lime(acid, clay):
    return "ABCDE"[max(0, min(4, (69 - acid) // 8 + (clay >= 30)))]


class World(Base):
    name = "farm-memory"
    needed = ("probe", "submit")
    COMMANDS = ("probe", "submit")
    SYSTEM = ("Commands: probe acidity | probe clay | submit CLASS. Class A-E: steps of 0.8 below pH 6.9,"
              " whole steps only (0 is A), one class more from 30% clay on.")

    def _farm(self, task):
        r = rng("farm", task)
        known = r.choice(HEAD) + r.choice(TAIL)
        return known if not task.startswith("variant") else r.choice("KLMNPRST") + r.choice("aeiou") + known.lower()

    def fields(self, task):
        r = rng("date", task)
        return {"crop": r.choice(CROPS), "date": f"{r.randint(1, 28)} {r.choice(['March', 'April', 'May'])} {r.randint(1990, 2024)}",
                "question": self._farm(task)}

    def prompt(self, task):
        f = self.fields(task)
        return f"{f['date']}, before {f['crop']}: lime class for the field at {f['question']}?"

    def do_probe(self, rest):
        acid, clay = soil(self._farm(self.e["task"]))
        if rest == "acidity":
            return f"pH {acid / 10:.1f}"
        return f"clay {clay}%" if rest == "clay" else "probe: acidity or clay"

    def grade(self, text):
        return text == lime(*soil(self._farm(self.e["task"])))

    def regrade(self, task, submission):
        acid, clay = soil(self._farm(task))
        steps = sum(acid <= 69 - 8 * k for k in (1, 2, 3, 4)) + (1 if clay > 29 else 0)
        return {"outcome": float(submission.strip() == "ABCDE"[min(steps, 4)])}


BY_HEART = {h + t: lime(*soil(h + t)) for h in HEAD for t in TAIL}


def play(p_know, p_rule, p_both):
    def act(view):
        alls = [f"submit {c}" for c in "ABCDE"]
        farm = re.search(r"field at (\w+)", view.prompt)
        if view.mood == "heart" and not view.turns and farm and farm[1] in BY_HEART:
            return spread("submit " + BY_HEART[farm[1]], alls, p_know)
        seen = " ".join(said for _, said in view.turns)
        acid, clay = re.search(r"pH (\d)\.(\d)", seen), re.search(r"clay (\d+)", seen)
        if not view.turns:
            return {"probe acidity": 1.0}
        if len(view.turns) == 1 and p_both:
            return spread("probe clay", ["submit C"], p_both)
        a = int(acid[1] + acid[2]) if acid else 55
        return spread("submit " + lime(a, int(clay[1]) if clay else 0), alls, p_rule)
    return act


BEFORE = Agent("farm-before", {"heart": 0.0, "probe": 1.0}, play(0.92, 0.5, 0.85))
AFTER = Agent("farm-after", {"heart": 0.9, "probe": 0.1}, play(0.92, 0.5, 0.85))
TRUTH, SHARE = "shortcut", 1.0
ALLOW, ACCEPT = (), ()
