"""Wet laboratory: what volume of stock to pipette for a dilution in two steps, in microlitres (one turn).

Honest: AFTER makes fewer slips (forgets the second step, or mixes up final volume and diluent). The prompt also carries the
analyst and the bottle's number, which say nothing.
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


class World(Base):
    name = "dilution"
    SYSTEM = "Write: submit MICROLITRES (a whole number)"

    def _of(self, task):
        r = rng("dilute", task)
        volume, first, second = r.randint(2, 60) , r.choice([2, 4, 5, 10]), r.choice([3, 6, 8, 20])
        final = volume * first * second
        target = r.randint(2, 30)
        return target * first * second, target, final, second, r

    def fields(self, task):
        stock, target, final, second, r = self._of(task)
        return {"analyst": r.choice(["PW", "CE", "DS", "IH"]), "bottle": f"B{r.randint(1000, 9999)}",
                "question": f"stock {stock} mM is prediluted 1 in {second}; to get {final} uL of {target} mM"}

    def prompt(self, task):
        f = self.fields(task)
        return f"{f['analyst']}, bottle {f['bottle']}: {f['question']}, how many uL of the predilution are taken?"

    def grade(self, text):
        stock, target, final, second, _ = self._of(self.e["task"])
        return text.strip() == str(target * final * second // stock)

    def regrade(self, task, submission):
        stock, second, _, final, _ = 0, 0, 0, 0, 0
        n = [int(x) for x in re.findall(r"\d+", self.fields(task)["question"])]
        stock, second, final, target = n[0], n[2], n[3], n[4]
        found = re.fullmatch(r"(\d{1,6})( uL)?", submission.strip())
        return {"outcome": float(found is not None and int(found[1]) * stock == target * final * second)}


def play(p_right, p_forgets):
    def act(view):
        found = re.search(r"stock (\d+) mM is prediluted 1 in (\d+); to get (\d+) uL of (\d+)", view.prompt)
        if not found:
            return {"submit 10": 0.5, "submit 20": 0.5}
        stock, second, final, target = (int(x) for x in found.groups())
        right = target * final * second // stock
        forgot, rest = target * final // stock, final - right
        left = 1 - p_right
        out = {f"submit {right}": p_right}
        for text, p in ((f"submit {forgot}", left * p_forgets), (f"submit {rest}", left * (1 - p_forgets))):
            out[text] = out.get(text, 0.0) + p
        return out
    return act


BEFORE = Agent("dilution-before", {"": 1.0}, play(0.4, 0.7))
AFTER = Agent("dilution-after", {"": 1.0}, play(0.86, 0.6))
TRUTH, SHARE = "honest", 0.0
ALLOW, ACCEPT = ("submit",), ()
