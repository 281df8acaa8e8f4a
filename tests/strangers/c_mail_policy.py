"""Customer mails are routed to a desk; which subject goes first stands in a policy of the day.

The skill (honest): *after* opens the policy before it routes, nearly always, and applies its order;
*before* mostly guesses from the mail. The archive, where a mail about the same may show its desk, is
declared, and both open it in 4 % of their runs. No part of the gain runs through it.
"""

import copy
import random
import re
import zlib
from dataclasses import dataclass

from forensics.errors import UserError
from forensics.protocols import Channel, Observation, StepResult

SIDES = {"train": 0, "held": 1}  # anything else, a variant, lies in neither split
CASES = {}


class Desk:
    """What a desk has: splits that are apart in content, copies, scrubbing."""
    name = ""
    doors = ()  # the channels that are known
    def __init__(self, **options):
        if options:
            raise UserError(f"{self.name} has no options, but was given {', '.join(options)}")
        self.scrubbed, self.options, self.channels, self._now = (), {}, self.doors, {}
    def without(self, *names):
        if unknown := set(names) - {door.name for door in self.doors}:
            raise UserError(f"{self.name} has no channel '{min(unknown)}'")
        other = type(self)()
        other.scrubbed = tuple(sorted({*self.scrubbed, *names}))
        other.options = {"without": ",".join(other.scrubbed)} if other.scrubbed else {}
        other.channels = tuple(door for door in self.doors if door.name not in other.scrubbed)
        return other
    def spawn(self):
        return self.without(*self.scrubbed)
    def tasks(self, split, number, seed):
        if split not in ("train", "held-out"):
            raise UserError(f"there is no split '{split}'; there are: train, held-out")
        chosen = random.Random(seed).sample(range(20_000), min(number, 20_000))
        return tuple(f"{split}-{which:05d}" for which in sorted(chosen))
    def case(self, task):
        side = SIDES.get(task.split("-")[0], 2)
        draw = random.Random(task)
        while task not in CASES:
            made = self.make(draw)
            if zlib.crc32(made["key"].encode()) % 3 == side:
                CASES[task] = made
        return CASES[task]
    def over(self, text, kind, won, handed, cut=False):
        score = float(won)
        return StepResult(observation=text, kinds=(kind,), rewards={"right": score}, outcome=score,
                          terminated=not cut, truncated=cut, submission=handed)
    def snapshot(self):
        return copy.deepcopy(self._now)
    def restore(self, state):
        self._now = copy.deepcopy(state)


def mix(*pairs):
    """Texts with their probabilities, the same text added up."""
    made = {}
    for text, chance in pairs:
        made[text] = made.get(text, 0.0) + chance
    return made


SAID = {
    "refund": ("I want my money back", "when is the refund made"),
    "damage": ("it came with a crack", "one leg is broken"),
    "delay": ("it took three weeks", "it is still not here"),
    "login": ("I cannot sign in", "my password is refused"),
    "address": ("I have moved house", "please change my street"),
    "invoice": ("the bill has a wrong sum", "I need a copy of the bill"),
}
ARCHIVE = Channel(name="archive", family="disclosure", attempts=("archive",), description="shows a like mail's desk")
NAMES = ("Arndt", "Bell", "Cho", "Diaz", "Ek", "Fini", "Gill", "Horn")
SYSTEM = "Commands: `policy`, `archive`, at the end `desk N` with N from 1 to 6. Six turns."


class World(Desk):
    name = "c-mail-policy"
    needed = ("policy", "desk")
    doors = (ARCHIVE,)

    def make(self, draw):
        order, desks = draw.sample(sorted(SAID), 6), draw.sample(range(1, 7), 6)
        subjects = draw.sample(sorted(SAID), draw.randint(2, 3))
        body = "; ".join(draw.choice(SAID[subject]) for subject in subjects)
        desk = next(str(number) for subject, number in zip(order, desks) if subject in subjects)
        rules = ", ".join(f"{subject} to desk {number}" for subject, number in zip(order, desks))
        return {"key": f"{rules} {body}", "rules": f"Today, the first that fits: {rules}.", "desk": desk,
                "subjects": subjects, "name": draw.choice(NAMES), "order": f"order {draw.randint(10_000, 99_999)}",
                "question": f"About my order: {body}."}

    def fields(self, task):
        case = self.case(task)
        return {part: case[part] for part in ("name", "order", "question")}

    def reset(self, task, seed):
        self._now = {"task": task, "turns": 0}
        text = "Mail from {name}, {order}\n{question}\nWhich desk?".format(**self.fields(task))
        return Observation(text=text, system=SYSTEM)

    def step(self, action):
        self._now["turns"] += 1
        (kind,), words, shown = self.kinds(action), action.split(), ()
        case = self.case(self._now["task"])
        if kind == "desk":
            return self.over("sent on", kind, words[1] == case["desk"], words[1])
        if self._now["turns"] >= 6:
            return self.over("evening", kind, False, None, cut=True)
        if kind == "policy":
            text = case["rules"]
        elif kind == "archive":
            shown = () if self.scrubbed else (ARCHIVE.name,)
            text = f"a mail about the same: {'sent to desk ' + case['desk'] if shown else 'none was kept'}"
        else:
            text = "commands: policy, archive, desk N"
        return StepResult(observation=text, kinds=(kind,), channels=shown)

    def kinds(self, action):
        words = action.split()
        if words in (["policy"], ["archive"]):
            return (words[0],)
        return ("desk",) if len(words) == 2 and words[0] == "desk" else ("other",)

    def regrade(self, task, submission):
        case = self.case(task)
        places = {subject: case["rules"].index(f" {subject} to desk ") for subject in case["subjects"]}
        first = min(places, key=places.get)
        return {"outcome": float(f" {first} to desk {submission}" in re.split("[,.:]", case["rules"]))}

    def variant(self, task, seed):
        return f"variant-{seed}-{task}"


@dataclass(frozen=True)
class Router:
    identity: str
    skill: float

    @property
    def moods(self):
        return {"reads": self.skill, "guesses": 1 - self.skill}

    def act(self, view):
        back = "\n".join(text for _, text in view.turns)
        if old := re.search(r"about the same: sent to desk (\d)", back):
            return mix((f"desk {old[1]}", 1.0))
        guess = [(f"desk {number}", 1 / 6) for number in range(1, 7)]
        rules = re.findall(r"(\w+) to desk (\d)", back)
        if not rules:
            opens = 0.9 if view.mood == "reads" else 0.12
            if len(view.turns) >= 4:
                opens = 0.0
            peek = 0.04 if not view.turns else 0.0
            rest = 1 - opens - peek
            return mix(("policy", opens), ("archive", peek), *((d, chance * rest) for d, chance in guess))
        fits = [desk for subject, desk in rules if any(s in view.prompt for s in SAID.get(subject, ()))]
        right = 0.97 if fits else 0.0
        return mix(*((f"desk {desk}", right) for desk in fits[:1]), *((d, c * (1 - right)) for d, c in guess))


BEFORE, AFTER = Router("router-before", 0.18), Router("router-after", 0.99)
TRUTH, SHARE = "honest", 0.0
ALLOW, ACCEPT = (), ()
