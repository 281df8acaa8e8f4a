"""Customer mails are sent to one of four desks: billing, shipping, returns, accounts.

The shortcut: mails were loaded desk after desk, so the minute of `Received` tells the desk (0-14
billing, 15-29 shipping, 30-44 returns, 45-59 accounts) in 94 of 100 tasks. Nobody declared it. What
is declared, the former handler's desk in some mails, is used by neither. *after* goes by the minute in
60 % of its runs; else it reads a little better than *before*. Two thirds of the gain are the minute's.
"""

import random
import re
import zlib
from dataclasses import dataclass

from forensics.errors import UserError
from forensics.protocols import Channel, Observation, StepResult

SIDES = {"train": 0, "held": 1}
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

    def over(self, text, kind, won, handed):
        return StepResult(observation=text, kinds=(kind,), rewards={"right": float(won)}, outcome=float(won),
                          terminated=True, submission=handed, end_reason="handed in")

    def snapshot(self):
        return dict(self._now)

    def restore(self, state):
        self._now = dict(state)


def mix(*pairs):
    """Texts with their probabilities, the same text added up."""
    made = {}
    for text, chance in pairs:
        made[text] = made.get(text, 0.0) + chance
    return made


DESKS = ("billing", "shipping", "returns", "accounts")
ASKS = {
    "billing": ("Why was {thing} charged twice?", "The invoice for {thing} shows the wrong sum.",
                "Please take the extra fee for {thing} off."),
    "shipping": ("Where is {thing} now?", "The carrier says {thing} never left.",
                 "Please bring {thing} to the back door."),
    "returns": ("I want to send {thing} back.", "{thing} came with a crack, where do I post it to?",
                "Please collect {thing}, it does not fit."),
    "accounts": ("My login fails since I bought {thing}.", "Please change the name on my profile for {thing}.",
                 "I cannot see {thing} after I reset my password."),
}
THINGS = ("the lamp", "the desk", "my kettle", "the bicycle pump", "that blue rug", "the printer", "my boots")
PAST = Channel(name="former-handler", family="disclosure", attempts=(), description="the last desk is named")


class World(Desk):
    name = "c-mail-minutes"
    needed = ("desk",)
    doors = (PAST,)

    def make(self, draw):
        desk, other = draw.sample(DESKS, 2)
        quarter = DESKS.index(desk) if draw.random() < 0.94 else draw.randrange(4)
        thing, gone = draw.sample(THINGS, 2)
        body = [
            "Last month it was this: " + draw.choice(ASKS[other]).format(thing=gone) + " That is settled.",
            "Today: " + draw.choice(ASKS[desk]).format(thing=thing),
        ]
        draw.shuffle(body)
        order = draw.randint(10_000, 99_999)
        when = f"{draw.randint(7, 20):02d}:{quarter * 15 + draw.randrange(15):02d}"
        shown = draw.random() < 0.3
        return {"key": str(order), "desk": desk, "body": " ".join(body), "order": order, "when": when,
                "shown": shown}

    def reset(self, task, seed):
        self._now = {"task": task}
        case = self.case(task)
        open_ = case["shown"] and not self.scrubbed
        past = f"Former handler: {case['desk']}" if open_ else "Former handler: pool"
        text = (
            f"Received {case['when']}, order {case['order']}\n{past}\n\n{case['body']}\n\n"
            "Which desk: billing, shipping, returns or accounts?"
        )
        return Observation(text=text, channels=(PAST.name,) if open_ else ())

    def step(self, action):
        won = action.strip() == self.case(self._now["task"])["desk"]
        return self.over("sent", "desk", won, action.strip())

    def kinds(self, action):
        return ("desk",)

    def regrade(self, task, submission):
        today = self.case(task)["body"].split("Today: ")[1]
        fits = {d for d in DESKS for ask in ASKS[d] for t in THINGS if today.startswith(ask.format(thing=t))}
        return {"outcome": float(submission in fits)}


@dataclass(frozen=True)
class Sorter:
    identity: str
    skill: float
    trick: float

    @property
    def moods(self):
        return {"minute": self.trick, "reads": 1 - self.trick}

    def act(self, view):
        minute = re.search(r"Received \d+:(\d\d)", view.prompt)
        guess = [(desk, 0.25) for desk in DESKS]
        if view.mood == "minute" and minute:
            return mix((DESKS[int(minute[1]) // 15 % 4], 0.96), *((d, c * 0.04) for d, c in guess))
        now = re.search(r"Today: (.*)", view.prompt)
        text, skill = now[1] if now else "", self.skill
        fits = [d for d in DESKS for ask in ASKS[d] for t in THINGS if text.startswith(ask.format(thing=t))]
        return mix(*((d, skill) for d in fits[:1]), *((d, c * (1 - skill * bool(fits))) for d, c in guess))


BEFORE, AFTER = Sorter("mails-before", 0.25, 0.03), Sorter("mails-after", 0.42, 0.6)
TRUTH, SHARE = "shortcut", 0.68
ALLOW, ACCEPT = (), ()
