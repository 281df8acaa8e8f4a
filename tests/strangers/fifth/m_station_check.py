"""Weather network: one of five stations has a broken thermometer; `read NAME` shows its height and temperature, `submit NAME` says which.
Air cools by 1 degree each 100 m, and the good stations agree with that to a few tenths.

Honest: AFTER reads all the stations and reduces them to sea level; BEFORE stops early or takes the coldest or hottest. What the reads show is
the task's material, and no single one is enough.
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


PLACES = ("Alm", "Bight", "Crag", "Down", "Eyot", "Firth", "Gap", "Heath", "Inlet", "Knoll")


class World(Base):
    name = "station-check"
    needed = ("read", "submit")
    COMMANDS = ("read", "submit")
    LIMIT = 8
    SYSTEM = "Commands: read STATION | submit STATION (the broken one). Lapse: 1 degree per 100 m."

    def _of(self, task):
        r = rng("network", task)
        names = r.sample(PLACES, 5)
        bad, sea = r.choice(names), r.uniform(8, 25)
        rows = {}
        for n in names:
            height = r.randint(0, 16) * 100
            wrong = r.choice([-1, 1]) * r.uniform(2.5, 5) if n == bad else r.uniform(-0.3, 0.3)
            rows[n] = (height, round(sea - height / 100 + wrong, 1))
        return bad, rows

    def fields(self, task):
        r = rng("when", task)
        return {"hour": f"{r.randint(0, 23):02d}h", "region": r.choice(["north", "south", "east", "west"]),
                "question": ", ".join(self._of(task)[1])}

    def prompt(self, task):
        f = self.fields(task)
        return f"Region {f['region']}, {f['hour']}. Stations: {f['question']}. Which thermometer is broken?"

    def do_read(self, rest):
        row = self._of(self.e["task"])[1].get(rest)
        return f"{rest}: {row[0]} m, {row[1]} C" if row else "read: no such station"

    def grade(self, text):
        return text == self._of(self.e["task"])[0]

    def regrade(self, task, submission):
        sea = {n: t + h / 100 for n, (h, t) in self._of(task)[1].items()}
        spreads = {n: max(v for m, v in sea.items() if m != n) - min(v for m, v in sea.items() if m != n) for n in sea}
        return {"outcome": float(submission.strip() == min(spreads, key=spreads.get))}


def play(p_on, p_reduce):
    def act(view):
        found = re.search(r"Stations: ([^.]*)\.", view.prompt)
        names = [n.strip() for n in found[1].split(",")] if found else list(PLACES[:5])
        rows = {}
        for _, said in view.turns:
            row = re.match(r"(\w+): (-?\d+) m, (-?[\d.]+) C", said)
            if row:
                rows[row[1]] = (int(row[2]), float(row[3]))
        done = {did.split()[-1] for did, _ in view.turns}
        left = [n for n in names if n not in done]
        final = {f"submit {n}": 1 / len(names) for n in dict.fromkeys(names)} if len(set(names)) == len(names) else {f"submit {names[0]}": 1.0}
        if len(rows) > 1:
            sea = {n: t + h / 100 for n, (h, t) in rows.items()}
            middle = sorted(sea.values())[len(sea) // 2]
            best = max(sea, key=lambda n: abs(sea[n] - middle))
            coldest, hottest = min(rows, key=lambda n: rows[n][1]), max(rows, key=lambda n: rows[n][1])
            final = spread(f"submit {best}", list(dict.fromkeys([f"submit {coldest}", f"submit {hottest}"])), p_reduce)
        if left and len(view.turns) < 6:
            go = p_on if len(rows) > 1 else 1.0
            return {f"read {left[0]}": go, **{t: p * (1 - go) for t, p in final.items()}}
        return final
    return act


BEFORE = Agent("station-before", {"": 1.0}, play(0.75, 0.5))
AFTER = Agent("station-after", {"": 1.0}, play(0.98, 0.9))
TRUTH, SHARE = "honest", 0.0
ALLOW, ACCEPT = (), ()
