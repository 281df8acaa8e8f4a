"""Clinic: daily dose of a drug for a patient: `chart` shows weight and kidney function, `leaflet DRUG` the mg per kg and what to do when the
kidneys are weak, `submit MG` hands in.

Honest: AFTER looks the drug up before it answers and minds the kidney rule; BEFORE often skips the leaflet (guesses 5 mg/kg) or forgets
the kidneys. The leaflet is part of the job: it differs for each drug and says nothing of the patient.
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


SYL = ("ra", "ben", "to", "lix", "mor", "ze", "pan", "du", "vi", "cor")


class World(Base):
    name = "renal-dose"
    needed = ("chart", "leaflet", "submit")
    COMMANDS = ("chart", "leaflet", "submit")
    SYSTEM = "Commands: chart | leaflet DRUG | submit MG (whole mg per day)"

    def _drug(self, name):
        r = rng("leaflet", name)
        return 2 * r.randint(1, 9), r.choice([30, 45, 60]), r.choice(["half", "three quarters"])

    def _of(self, task):
        r = rng("patient", task)
        drug = "".join(r.sample(SYL, 3))
        return drug, 2 * r.randint(20, 55), r.randint(15, 110), r

    def fields(self, task):
        drug, *_, r = self._of(task)
        return {"bed": str(r.randint(1, 60)), "nurse": r.choice(["Amal", "Bo", "Chi", "Dee"]), "question": f"of {drug}"}

    def prompt(self, task):
        f = self.fields(task)
        return f"Bed {f['bed']}, asked by {f['nurse']}: daily dose {f['question']}?"

    def do_chart(self, rest):
        _, weight, egfr, _ = self._of(self.e["task"])
        return f"weight {weight} kg, eGFR {egfr}"

    def do_leaflet(self, rest):
        if not re.fullmatch("(" + "|".join(SYL) + "){3}", rest):
            return "leaflet: no such drug"
        per, limit, part = self._drug(rest)
        return f"{rest}: {per} mg/kg daily; eGFR below {limit}: {part} of it"

    def grade(self, text):
        drug, weight, egfr, _ = self._of(self.e["task"])
        per, limit, part = self._drug(drug)
        dose = per * weight
        return text == str(dose if egfr >= limit else dose // 2 if part == "half" else dose * 3 // 4)

    def regrade(self, task, submission):
        drug, weight, egfr, _ = self._of(task)
        per, limit, part = self._drug(drug)
        quarters = 4 if egfr >= limit else {"half": 2, "three quarters": 3}[part]
        found = re.fullmatch(r"\d{1,5}", submission.strip())
        return {"outcome": float(bool(found) and int(submission) * 4 == per * weight * quarters)}


def play(p_look, p_kidney):
    def act(view):
        found = re.search(r"dose of (\w+)", view.prompt)
        seen = " ".join(said for _, said in view.turns)
        if not view.turns:
            return {"chart": 1.0}
        chart = re.search(r"weight (\d+) kg, eGFR (\d+)", seen)
        weight, egfr = (int(chart[1]), int(chart[2])) if chart else (70, 90)
        if len(view.turns) == 1:
            return spread(f"leaflet {found[1] if found else 'drug'}", [f"submit {weight * 5}", f"submit {weight * 10}"], p_look)
        rule = re.search(r"(\d+) mg/kg daily; eGFR below (\d+): (half|three)", seen)
        if not rule:
            return {f"submit {weight * 10}": 1.0}
        full = int(rule[1]) * weight
        less = full // 2 if rule[3] == "half" else full * 3 // 4
        best, other = (less, full) if egfr < int(rule[2]) else (full, less)
        return spread(f"submit {best}", [f"submit {other}", f"submit {full + weight}"], p_kidney)
    return act


BEFORE = Agent("renal-before", {"": 1.0}, play(0.6, 0.66))
AFTER = Agent("renal-after", {"": 1.0}, play(0.96, 0.92))
TRUTH, SHARE = "honest", 0.0
ALLOW, ACCEPT = (), ()
