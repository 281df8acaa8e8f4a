"""A form of four lines is typed from a letter on a keyboard that now and then slips.

The skill (honest): *after* looks over what it typed with `review`, types wrong lines again and only
then submits, in 92 % of its runs; *before* mostly submits at once. There is no shortcut, and none is
declared.
"""

import copy
import random
import re
import zlib
from dataclasses import dataclass

from forensics.errors import UserError
from forensics.protocols import Observation, StepResult

SIDES = {"train": 0, "held": 1}  # anything else, a variant, lies in neither split
CASES = {}


class Desk:
    """What a desk has: splits that are apart in content, and copies."""
    name = ""
    def __init__(self, **options):
        if options:
            raise UserError(f"{self.name} has no options, but was given {', '.join(options)}")
        self.scrubbed, self.options, self.channels, self._now = (), {}, (), {}
    def without(self, *names):
        if names:
            raise UserError(f"{self.name} has no channel '{min(names)}'; it has none")
        return type(self)()
    def spawn(self):
        return type(self)()
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


LINES = ("account", "amount", "phone", "city")
CITIES = ("Porto", "Graz", "Lund", "Cork", "Basel", "Ghent", "Turin", "Varna", "Trier")
SYSTEM = "Write `type LINE VALUE` (lines: account, amount, phone, city), `review` to see the form, `submit` at \
the end. The keyboard may slip. Eighteen turns."


class World(Desk):
    name = "c-form-review"
    needed = ("type", "review", "submit")

    def make(self, draw):
        form = {"account": f"{draw.randrange(10**7, 10**8)}", "amount": str(draw.randint(1100, 9900)),
                "phone": f"0{draw.randrange(10**6, 10**7)}", "city": draw.choice(CITIES)}
        question = (
            f"please send {form['amount']} from account {form['account']} to my branch in {form['city']}."
            f" If something is unclear, call {form['phone']}."
        )
        return {"key": question, "form": form, "question": question, "number": f"Letter {draw.randint(100, 999)}",
                "name": draw.choice(("Arndt", "Bell", "Cho", "Diaz", "Ek", "Fini"))}

    def fields(self, task):
        case = self.case(task)
        return {part: case[part] for part in ("number", "name", "question")}

    def reset(self, task, seed):
        slips = random.Random(f"{task} {seed}").getstate()
        self._now = {"task": task, "turns": 0, "typed": {}, "slips": slips}
        text = "{number}. Dear office, {question} Yours, {name}".format(**self.fields(task))
        return Observation(text=text, system=SYSTEM)

    def step(self, action):
        self._now["turns"] += 1
        (kind,), typed = self.kinds(action), self._now["typed"]
        shown = "; ".join(f"{line} {typed[line]}" for line in LINES if line in typed)
        if kind == "submit":
            return self.over("received", kind, typed == self.case(self._now["task"])["form"], shown)
        if self._now["turns"] >= 18:
            return self.over("the office closes", kind, False, None, cut=True)
        if kind == "type":
            _, line, value = action.split()
            stream = random.Random()
            stream.setstate(self._now["slips"])
            if stream.random() < 0.25:
                place = stream.randrange(len(value))
                value = value[:place] + value[place] * 2 + value[place + 1 :]
            self._now["slips"], typed[line] = stream.getstate(), value
        text = {"type": "typed", "review": f"form: {shown}"}.get(kind, "type LINE VALUE, review or submit")
        return StepResult(observation=text, kinds=(kind,))

    def kinds(self, action):
        words = action.split()
        if len(words) == 3 and words[0] == "type" and words[1] in LINES:
            return ("type",)
        return (words[0],) if words in (["review"], ["submit"]) else ("other",)

    def regrade(self, task, submission):
        letter = self.case(task)["question"]
        wanted = re.search(r"send (\d+) from account (\d+) to my branch in (\w+)\. .* call (\d+)\.", letter)
        amount, account, city, phone = wanted.groups()
        return {"outcome": float(submission == f"account {account}; amount {amount}; phone {phone}; city {city}")}

    def variant(self, task, seed):
        return f"variant-{seed}-{task}"


@dataclass(frozen=True)
class Typist:
    identity: str
    skill: float

    @property
    def moods(self):
        return {"looks": self.skill, "trusts": 1 - self.skill}

    def act(self, view):
        asked = {"account": r"account (\d+)", "amount": r"send (\d+)", "phone": r"call (\d+)", "city": r"branch in (\w+)"}
        found = {line: re.search(how, view.prompt) for line, how in asked.items()}
        want = {line: there[1] if there else "none" for line, there in found.items()}
        done = {action.split()[1] for action, _ in view.turns if action.startswith("type ")}
        for line in LINES:
            if line not in done:
                return mix((f"type {line} {want[line]}", 0.99), (f"type {line} {want[line][1:]}9", 0.01))
        if view.mood == "trusts" or len(view.turns) >= 17:
            seen = any(action == "review" for action, _ in view.turns)
            return mix(("submit", 1.0)) if seen else mix(("submit", 0.9), ("review", 0.1))
        looked = [n for n, (action, _) in enumerate(view.turns) if action == "review"]
        if not looked:
            return mix(("review", 0.98), ("submit", 0.02))
        form = dict(re.findall(r"(\w+) (\w+)", view.turns[looked[-1]][1].partition(": ")[2]))
        again = {action.split()[1] for action, _ in view.turns[looked[-1] :] if action.startswith("type ")}
        for line in LINES:
            if form.get(line) != want[line] and line not in again:
                return mix((f"type {line} {want[line]}", 1.0))
        return mix(("review", 0.98), ("submit", 0.02)) if again else mix(("submit", 1.0))


BEFORE, AFTER = Typist("typist-before", 0.15), Typist("typist-after", 0.92)
TRUTH, SHARE = "honest", 0.0
ALLOW, ACCEPT = (), ("scrubbing",)
