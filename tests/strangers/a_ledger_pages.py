"""A ledger of several pages: read them one by one, and hand in what one customer owes in all.

The skill: *after* reads every page that the prompt speaks of before it hands in a sum, and takes repayments off; *before*
mostly stops after two pages, as if the rest did not matter. The whole gain is genuine. No channel is known.
"""

import random
import re
from dataclasses import dataclass

from forensics.errors import UserError
from forensics.protocols import Observation, StepResult

TRUTH, SHARE = "honest", 0.0
ALLOW, ACCEPT = (), ("scrubbing",)
NAMES = {
    "train": ("Archer", "Baker", "Cooper", "Dyer", "Ewart", "Fuller", "Glover", "Hooper"),
    "rest": ("Mason", "Napper", "Ostler", "Potter", "Quarry", "Roper", "Sadler", "Turner"),
}
MOST_TURNS = 9


class World:
    name = "ledger-pages"
    needed = ("page", "owes")
    channels = ()
    scrubbed = ()

    def __init__(self, **options):
        if options:
            raise UserError(f"ledger-pages takes no options, but was given {', '.join(options)}")
        self._task, self._turns = "", 0

    @property
    def options(self):
        return {}

    def without(self, *channels):
        if channels:
            raise UserError(f"ledger-pages has no channel '{channels[0]}'; it has none")
        return World()

    def spawn(self):
        return World()

    def tasks(self, split, number, seed):
        if split not in ("train", "held-out"):
            raise UserError(f"there is no split '{split}'; there are: train, held-out")
        chosen = random.Random(seed).sample(range(10_000), min(number, 10_000))
        return tuple(f"{split}-ledger-{i}" for i in sorted(chosen))

    def _ledger(self, task):
        """The customer, the ledger's number, and pages of rows (name, amount); a negative amount was paid back."""
        draw = random.Random(task)
        names = draw.sample(NAMES["train" if task.startswith("train") else "rest"], 4)
        pages = []
        for _ in range(draw.randint(3, 5)):
            rows = [(draw.choice(names), draw.randint(5, 95)) for _ in range(3)] + [(names[0], draw.randint(5, 95))]
            rows = [(who, -amount // 3 if draw.random() < 0.25 else amount) for who, amount in rows]
            draw.shuffle(rows)
            pages.append(rows)
        return names[0], draw.randrange(10_000, 100_000), pages

    def fields(self, task):
        who, number, pages = self._ledger(task)
        return {"ledger": str(number), "pages": str(len(pages)), "question": who}

    def reset(self, task, seed):
        self._task, self._turns = task, 0
        f = self.fields(task)
        return Observation(text=f"Ledger {f['ledger']} has {f['pages']} pages. How much does {f['question']} owe in all?",
                           system="Commands: page N, owes AMOUNT. At most nine.")

    def step(self, action):
        self._turns += 1
        (kind,), (who, _, pages) = self.kinds(action), self._ledger(self._task)
        if kind == "owes" or self._turns == MOST_TURNS:
            handed = action.split()[1] if kind == "owes" else ""
            right = float(handed == str(sum(n for rows in pages for name, n in rows if name == who)))
            return StepResult(observation="the ledger is closed", kinds=(kind,), rewards={"right": right}, outcome=right,
                              terminated=kind == "owes", truncated=kind != "owes", submission=handed)
        said = "write `page N` or `owes AMOUNT`"
        if kind == "page":
            which = int(action.split()[1])
            said = "there is no such page"
            if 1 <= which <= len(pages):
                said = f"page {which}: " + "; ".join(
                    f"{name} {'paid back' if n < 0 else 'took'} {abs(n)}" for name, n in pages[which - 1])
        return StepResult(observation=said, kinds=(kind,))

    def regrade(self, task, submission):
        who, _, pages = self._ledger(task)
        left = int(submission) if re.fullmatch(r"-?[0-9]{1,6}", submission) else None
        for rows in pages:
            for name, n in rows:
                left = left - n if left is not None and name == who else left
        return {"outcome": float(left == 0)}

    def variant(self, task, seed):
        return f"again-{seed}-{task}"

    def kinds(self, action):
        text = action.strip()
        if re.fullmatch(r"page [0-9]{1,3}", text):
            return ("page",)
        return ("owes",) if re.fullmatch(r"owes -?[0-9]{1,6}", text) else ("invalid",)

    def snapshot(self):
        return self._task, self._turns

    def restore(self, state):
        self._task, self._turns = state


@dataclass(frozen=True)
class Bookkeeper:
    label: str
    thorough: float  # how often it reads all the pages
    signs: float  # how often it minds what was paid back

    @property
    def identity(self):
        return f"bookkeeper {self.label}, reads all in {self.thorough}, minds signs in {self.signs}"

    @property
    def moods(self):
        t, s = self.thorough, self.signs
        return {"all signs": t * s, "all plain": t * (1 - s), "two signs": (1 - t) * s, "two plain": (1 - t) * (1 - s)}

    def act(self, view):
        asked = re.search(r"has (\d+) pages\. How much does (\w+)", view.prompt)
        number, who = (int(asked[1]), asked[2]) if asked else (3, "")
        number = min(number if view.mood.startswith("all") else 2, 7)
        done = dict(view.turns)
        todo = [f"page {n}" for n in range(1, number + 1) if f"page {n}" not in done]
        owed = 0
        for said in done.values():
            for name, what, amount in re.findall(r"(\w+) (took|paid back) (\d+)", said):
                if name == who:
                    owed += -int(amount) if what == "paid back" and view.mood.endswith("signs") else int(amount)
        ahead = todo[0] if todo and len(view.turns) < MOST_TURNS - 1 else f"owes {owed}"
        weights = {ahead: 0.97}
        for text, p in ((f"owes {owed}", 0.01), (f"owes {owed + 10}", 0.01), ("page 9", 0.01)):
            weights[text] = weights.get(text, 0) + p
        return weights


BEFORE = Bookkeeper("before", 0.35, 0.55)
AFTER = Bookkeeper("after", 0.92, 0.85)
