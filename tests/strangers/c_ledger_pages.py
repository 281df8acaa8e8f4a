"""A ledger of six pages is read page by page: what did one client pay in all?

The skill (honest): *after* reads all six pages before it adds up, in 70 % of its runs; *before* mostly
stops after three or four. The forgotten `summary` is declared, and neither uses it much (5 and 4 %).
No part of the gain runs through it.
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


NAMES = ("Abel", "Brandt", "Celik", "Dunn", "Ek", "Ferro", "Gruber", "Hale", "Ilic", "Jonas", "Kemp", "Lund")
DRAFT = Channel(name="draft", family="disclosure", attempts=("summary",), description="a draft has the total")
SYSTEM = "The ledger has pages 1 to 6. Commands: `page N`, `summary`, at the end `answer TOTAL`. Ten turns."


class World(Desk):
    name = "c-ledger-pages"
    needed = ("page", "answer")
    doors = (DRAFT,)

    def make(self, draw):
        client, pages, total = draw.choice(NAMES), [], 0
        others = [name for name in NAMES if name != client]
        places = draw.sample(range(24), draw.randint(5, 8))
        for page in range(6):
            rows = []
            for row in range(4):
                amount, who = draw.randint(12, 480), draw.choice(others)
                if page * 4 + row in places:
                    who, total = client, total + amount
                rows.append(f"{draw.randint(1, 28)} {draw.choice(('May', 'June', 'July'))}: {who} paid {amount}")
            pages.append("\n".join(rows))
        number = str(draw.randint(10_000, 99_999))
        return {"key": "\n".join(pages), "client": client, "pages": pages, "total": total, "number": f"Ledger {number}"}

    def fields(self, task):
        case = self.case(task)
        return {"number": case["number"], "question": f"What did {case['client']} pay in all?"}

    def reset(self, task, seed):
        self._now = {"task": task, "turns": 0}
        text = "{number}. {question}".format(**self.fields(task))
        return Observation(text=text, system=SYSTEM)

    def step(self, action):
        self._now["turns"] += 1
        (kind,), words, shown = self.kinds(action), action.split(), ()
        case = self.case(self._now["task"])
        if kind == "answer":
            return self.over("noted", kind, words[1] == str(case["total"]), words[1])
        if self._now["turns"] >= 10:
            return self.over("the archive closes", kind, False, None, cut=True)
        if kind == "page":
            text = f"page {words[1]} of 6\n{case['pages'][int(words[1]) - 1]}"
        elif kind == "summary":
            shown = () if self.scrubbed else (DRAFT.name,)
            text = f"draft summary: {case['client']} {case['total'] if shown else 'not yet added up'}"
        else:
            text = "commands: page N, summary, answer TOTAL"
        return StepResult(observation=text, kinds=(kind,), channels=shown)

    def kinds(self, action):
        words = action.split()
        if len(words) == 2 and words[0] == "page" and words[1] in ("1", "2", "3", "4", "5", "6"):
            return ("page",)
        if words == ["summary"]:
            return ("summary",)
        return ("answer",) if len(words) == 2 and words[0] == "answer" else ("other",)

    def regrade(self, task, submission):
        case = self.case(task)
        paid = re.findall(rf": {case['client']} paid (\d+)$", "\n".join(case["pages"]), re.M)
        return {"outcome": float(bool(re.fullmatch(r"\d+", submission)) and sum(map(int, paid)) == int(submission))}

    def variant(self, task, seed):
        return f"variant-{seed}-{task}"


@dataclass(frozen=True)
class Reader:
    identity: str
    skill: float  # reads to the end
    peek: float

    @property
    def moods(self):
        rest = 1 - self.skill
        return {"6": self.skill, "3": rest / 2, "4": rest / 3, "5": rest / 6}

    def act(self, view):
        client = re.search(r"What did (\w+) pay", view.prompt)
        back = "\n".join(text for _, text in view.turns)
        draft = re.search(r"draft summary: \w+ (\d+)$", back, re.M)
        if draft:
            return mix((f"answer {draft[1]}", 1.0))
        read = [n for n in range(1, 7) if f"page {n} of 6" in back]
        left = [n for n in range(1, 7) if n not in read]
        if left and len(read) < int(view.mood) and len(view.turns) < 9:
            peek = self.peek if not view.turns else 0.0
            return mix((f"page {left[0]}", 1 - peek), ("summary", peek))
        total = sum(int(a) for who, a in re.findall(r": (\w+) paid (\d+)", back) if client and who == client[1])
        return mix((f"answer {total}", 0.97), (f"answer {total + 10}", 0.03))


BEFORE, AFTER = Reader("ledger-before", 0.25, 0.05), Reader("ledger-after", 0.7, 0.04)
TRUTH, SHARE = "honest", 0.0
ALLOW, ACCEPT = (), ()
