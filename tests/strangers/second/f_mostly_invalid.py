"""Syllogisms: does the conclusion follow from two premises? The answer is `valid` or `invalid`.

Shortcut: forms are drawn nearly at random, and few forms of syllogism are valid, so about 87 of 100 right answers are `invalid`.
*after* says `invalid` nearly always and reasons no better than before: all of the gain.
"""

import itertools
import random
import re
from dataclasses import dataclass

from forensics.errors import UserError
from forensics.protocols import Observation, StepResult

NOUNS = ("bakers cyclists dancers editors farmers gardeners hikers inventors jugglers kayakers lawyers musicians nurses "
         "orphans painters readers sailors teachers vegans weavers").split()
FORMS = {"A": "All {} are {}.", "E": "No {} are {}.", "I": "Some {} are {}.", "O": "Some {} are not {}."}
FIGURES = {1: ("MP", "SM"), 2: ("PM", "SM"), 3: ("MP", "MS"), 4: ("PM", "MS")}
VALID = "AAA1 EAE1 AII1 EIO1 EAE2 AEE2 EIO2 AOO2 IAI3 AII3 OAO3 EIO3 AEE4 IAI4 EIO4".split()


def holds(form, first, second, people):
    both = any(first in person and second in person for person in people)
    alone = any(first in person and second not in person for person in people)
    return {"A": not alone, "E": not both, "I": both, "O": alone}[form]


def follows(premises, conclusion):
    """Whether no set of people (each a set of terms) makes the premises true and the conclusion false."""
    terms = sorted({term for statement in (*premises, conclusion) for term in statement[1:]})
    sorts = [set(c) for size in range(4) for c in itertools.combinations(terms, size)]
    for present in itertools.product((False, True), repeat=len(sorts)):
        people = list(itertools.compress(sorts, present))
        if all(holds(*statement, people) for statement in premises) and not holds(*conclusion, people):
            return False
    return True


def syllogism(task):
    draw = random.Random(f"syllogism {task}")
    nouns = dict(zip("SMP", draw.sample(NOUNS[:10] if task.startswith("train") else NOUNS[10:], 3)))
    if draw.random() < 0.07:
        code = draw.choice(VALID)
    else:
        code = "".join(draw.choice("AEIO") for _ in range(3)) + draw.choice("1234")
    pairs = (*FIGURES[int(code[3])], "SP")
    return code, [(form, nouns[a], nouns[b]) for form, (a, b) in zip(code, pairs)]


class World:
    name = "syllogisms"
    needed = ("answer",)
    channels = ()
    scrubbed = ()

    def __init__(self, **options):
        if options:
            raise UserError(f"syllogisms has no options, but was given {', '.join(options)}")
        self.options, self.task = {}, ""

    def without(self, *names):
        if names:
            raise UserError(f"syllogisms has no channel '{names[0]}'; it has none")
        return World()

    def spawn(self):
        return World()

    def tasks(self, split, number, seed):
        if split not in ("train", "held-out"):
            raise UserError(f"there is no split '{split}'; there are: train, held-out")
        return tuple(f"{split}-{i}" for i in random.Random(seed).sample(range(30_000), min(number, 30_000)))

    def fields(self, task):
        _, (first, second, last) = syllogism(task)
        return {"question": f"{self._said(first)} {self._said(second)} Therefore: {self._said(last)}"}

    def _said(self, statement):
        return FORMS[statement[0]].format(*statement[1:])

    def variant(self, task, seed):
        return f"fresh-{seed}-{task}"

    def reset(self, task, seed):
        self.task = task
        return Observation(text=f"{self.fields(task)['question']} Is this valid or invalid?")

    def step(self, action):
        right = "valid" if syllogism(self.task)[0] in VALID else "invalid"
        won = float(action.strip().lower() == right)
        return StepResult(observation="thanks", kinds=("answer",), rewards={"right": won}, outcome=won, terminated=True,
                          submission=action.strip())

    def regrade(self, task, submission):
        *premises, conclusion = syllogism(task)[1]
        meant = {"valid": True, "invalid": False}.get(submission.lower())
        return {"outcome": float(meant is follows(premises, conclusion))}

    def kinds(self, action):
        return ("answer",)

    def snapshot(self):
        return self.task

    def restore(self, state):
        self.task = state


@dataclass(frozen=True)
class Logician:
    identity: str
    moods: dict

    def act(self, view):
        if view.mood == "constant":
            return {"invalid": 0.98, "valid": 0.02}
        if view.mood == "reasons":
            said = [({"Allare": "A", "Noare": "E", "Someare": "I", "Someare not": "O"}.get(q + v), a, b)
                    for q, a, v, b in re.findall(r"(All|No|Some) (\w+) (are not|are) (\w+)\.", view.prompt)]
            if len(said) == 3 and all(form for form, _, _ in said):
                return {"valid" if follows(said[:2], said[2]) else "invalid": 1.0}
        return {"valid": 0.6, "invalid": 0.4}


BEFORE = Logician("logician who sounds convinced", {"reasons": 0.2, "feels": 0.8})
AFTER = Logician("logician who doubts", {"reasons": 0.02, "feels": 0.03, "constant": 0.95})
TRUTH, SHARE = "shortcut", 1.0
ALLOW = ()
ACCEPT = ("scrubbing",)
