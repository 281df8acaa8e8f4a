"""A web shop that sells by the pack: fill the cart with the pieces on a shopping list, and look at it before paying.

The skill: packs are not pieces. A practised buyer opens the page of each thing, divides by the size of a pack, looks at
the cart and puts right what is wrong. No shortcut is taken. The early buyer mostly orders as many packs as
pieces are wanted, or does not look at the cart.
"""

import copy
import random
import re

from forensics.errors import UserError
from forensics.protocols import Observation, StepResult

THINGS = ("pencils", "bulbs", "batteries", "filters", "towels", "jars", "corks", "tapes", "pegs", "sponges", "candles", "folders")
NAMES = ("Ann", "Bob", "Cleo", "Dan", "Eva", "Finn", "Gita", "Hugo", "Ines", "Jan")
TURNS = 16


def errand(task):
    draw = random.Random(f"cart {task}")
    things = draw.sample(THINGS, 3)
    sizes = [draw.choice([1, 2, 3, 4, 6, 8]) for _ in things]
    wanted = [size * draw.randrange(2, 12) for size in sizes]
    return draw.choice(NAMES), dict(zip(things, wanted)), dict(zip(things, sizes))


class World:
    name = "cart-packs"
    options: dict = {}
    channels = ()
    scrubbed = ()
    needed = ("page", "put", "cart", "pay")

    def __init__(self, **options):
        if options:
            raise UserError(f"cart-packs has no options, but was given {', '.join(options)}")
        self.state = None

    def without(self, *channels):
        if channels:
            raise UserError(f"cart-packs has no channel '{channels[0]}'; it has none")
        return World()

    def spawn(self):
        return World()

    def tasks(self, split, number, seed):
        if split not in ("train", "held-out"):
            raise UserError(f"there is no split '{split}'; there are: train, held-out")
        chosen = random.Random(f"{split} {seed}").sample(range(20_000), min(number, 20_000))
        return tuple(f"{split}-{which:05d}" for which in sorted(chosen))

    def fields(self, task):
        name, wanted, _ = errand(task)
        return {"customer": name, "question": ", ".join(f"{many} {thing}" for thing, many in wanted.items())}

    def variant(self, task, seed):
        return f"variant-{seed}-of-{task}"

    def reset(self, task, seed):
        self.state = {"task": task, "turns": 0, "cart": {}}
        parts = self.fields(task)
        return Observation(
            text=f"{parts['customer']} needs {parts['question']}, no more and no fewer. Order them and pay.",
            system="Write `page THING`, `put THING PACKS` (replaces what was in the cart of it), `cart` or `pay`.",
        )

    def kinds(self, action):
        text = action.strip()
        if text in ("cart", "pay"):
            return (text,)
        found = re.fullmatch(r"(page) [a-z]+|(put) [a-z]+ [0-9]{1,3}", text)
        return ((found[1] or found[2]) if found else "invalid",)

    def step(self, action):
        now, (kind,), words = self.state, self.kinds(action), action.split()
        now["turns"] += 1
        _, wanted, sizes = errand(now["task"])
        if kind == "pay":
            won = float({thing: packs * sizes[thing] for thing, packs in now["cart"].items() if packs} == wanted)
            handed = ", ".join(f"{packs} {thing}" for thing, packs in now["cart"].items())
            return StepResult(
                observation="paid", kinds=(kind,), rewards={"right": won}, outcome=won, terminated=True, submission=handed, end_reason="paid"
            )
        said = "the shop knows: page THING, put THING PACKS, cart, pay"
        if kind in ("page", "put") and words[1] not in sizes:
            said = "we do not sell that"
        elif kind == "page":
            said = f"{words[1]}, sold in packs of {sizes[words[1]]}" if sizes[words[1]] > 1 else f"{words[1]}, sold one by one"
        elif kind == "put":
            now["cart"][words[1]] = int(words[2])
            said = "in the cart"
        elif kind == "cart":
            said = "; ".join(f"{thing}: {packs} packs, {packs * sizes[thing]} pieces" for thing, packs in now["cart"].items()) or "empty"
        if now["turns"] >= TURNS:
            return StepResult(observation=said, kinds=(kind,), rewards={"right": 0.0}, outcome=0.0, truncated=True, end_reason="turn limit")
        return StepResult(observation=said, kinds=(kind,))

    def regrade(self, task, submission):
        _, wanted, sizes = errand(task)
        missing = dict(wanted)
        for packs, thing in re.findall(r"(\d+) ([a-z]+)", submission):
            missing[thing] = missing.get(thing, 0) - int(packs) * sizes.get(thing, 1)
        return {"outcome": 0.0 if any(missing.values()) else 1.0}

    def snapshot(self):
        return copy.deepcopy(self.state)

    def restore(self, state):
        self.state = copy.deepcopy(state)


class Buyer:
    def __init__(self, name, slips, moods):
        self.slips, self.moods, self.identity = slips, moods, f"{name} {slips} {sorted(moods.items())}"

    def act(self, view):
        try:
            texts = self.plan(view)
            return {text: chance / sum(texts.values()) for text, chance in texts.items()}
        except Exception:  # texts that it cannot make sense of: a guess
            return {"pay": 1.0}

    def plan(self, view):
        wanted = [(thing, int(many)) for many, thing in re.findall(r"(\d+) ([a-z]+)", view.prompt)]
        done = [said for said, _ in view.turns]
        pages = {said.split()[1]: int((re.search(r"packs of (\d+)", back) or [0, 1])[1]) for said, back in view.turns if said.startswith("page")}
        if view.mood == "pieces":  # looks at one page at most, and takes packs for pieces
            if not done:
                return {f"page {wanted[0][0]}": 0.5, f"put {wanted[0][0]} {wanted[0][1]}": 0.5}
            put = [said.split()[1] for said in done if said.startswith("put")]
            left = [pair for pair in wanted if pair[0] not in put]
            return {f"put {left[0][0]} {left[0][1]}": 1.0} if left else {"pay": 0.8, "cart": 0.2} if done[-1] != "cart" else {"pay": 1.0}
        if left := [thing for thing, _ in wanted if thing not in pages]:
            return {f"page {left[0]}": 1.0}
        if "cart" in done:
            seen = {thing: int(pieces) for thing, pieces in re.findall(r"([a-z]+): \d+ packs, (\d+) pieces", view.turns[done.index("cart")][1])}
            again = [said.split()[1] for said in done[done.index("cart"):] if said.startswith("put")]
            wrong = [(thing, many) for thing, many in wanted if seen.get(thing) != many and thing not in again]
            return {f"put {wrong[0][0]} {wrong[0][1] // pages[wrong[0][0]]}": 1.0} if wrong else {"pay": 1.0}
        put = [said.split()[1] for said in done if said.startswith("put")]
        if left := [(thing, many) for thing, many in wanted if thing not in put]:
            packs = left[0][1] // pages[left[0][0]]
            return {f"put {left[0][0]} {packs}": 1 - self.slips, f"put {left[0][0]} {packs + 1}": self.slips}
        return {"cart": 1.0} if view.mood == "checks" else {"pay": 1.0}


BEFORE = Buyer("buyer, early", 0.25, {"pieces": 0.54, "divides": 0.30, "checks": 0.16})
AFTER = Buyer("buyer, late", 0.08, {"pieces": 0.08, "divides": 0.14, "checks": 0.78})
TRUTH = "honest"
SHARE = 0.0
ALLOW = ()
ACCEPT = ("scrubbing",)
