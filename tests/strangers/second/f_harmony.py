"""Word forms of an invented language: plural and possessive endings with vowel harmony, and a final consonant that softens.

Skill: to apply all the rules. *before* often forgets to soften or takes the wrong vowel, *after* seldom does.
"""

import random
import re
from dataclasses import dataclass

from forensics.errors import UserError
from forensics.protocols import Observation, StepResult

RULES = ("Rules of Tavi. Plural: -lar after a stem whose last vowel is a, o or u, -ler after e or i. 'My': -um after a last vowel a, o "
         "or u, -im after e or i; before it a final p, t or k of the word becomes b, d or g. The plural comes before 'my'.")
CONSONANTS, VOWELS = "bdgklmnprstvz", "aeiou"


def word_of(task):
    """The stem and the form that is asked for."""
    draw, rest = random.Random(f"word {task}"), 0 if task.startswith("train") else 1
    while True:
        stem = "".join(draw.choice(CONSONANTS) + draw.choice(VOWELS) for _ in range(draw.randint(2, 3)))
        stem += draw.choice("ptkptklmnrsz")
        if sum(map(ord, stem)) % 2 == rest:  # a stem is in one split alone
            return stem, draw.choice(["plural", "my", "my", "my plural"])


def form(stem, wanted, harmony=True, softens=True):
    back = [letter for letter in stem if letter in VOWELS][-1] in "aou"
    back = back if harmony else not back
    if wanted == "plural":
        return stem + ("lar" if back else "ler")
    if wanted == "my plural":
        return stem + ("larum" if back else "lerim")
    soft = {"p": "b", "t": "d", "k": "g"}.get(stem[-1], stem[-1]) if softens else stem[-1]
    return stem[:-1] + soft + ("um" if back else "im")


class World:
    name = "tavi-words"
    needed = ("answer",)
    channels = ()
    scrubbed = ()

    def __init__(self, **options):
        if options:
            raise UserError(f"tavi-words has no options, but was given {', '.join(options)}")
        self.options = {}
        self._task = ""

    def without(self, *names):
        if names:
            raise UserError(f"tavi-words has no channel '{names[0]}'; it has none")
        return World()

    def spawn(self):
        return World()

    def tasks(self, split, number, seed):
        if split not in ("train", "held-out"):
            raise UserError(f"there is no split '{split}'; there are: train, held-out")
        return tuple(f"{split}-{i:05d}" for i in sorted(random.Random(seed).sample(range(20_000), min(number, 20_000))))

    def fields(self, task):
        stem, wanted = word_of(task)
        return {"question": f"the form '{wanted}' of {stem}"}

    def variant(self, task, seed):
        return f"other-{seed}-{task}"

    def reset(self, task, seed):
        self._task = task
        return Observation(text=f"Write {self.fields(task)['question']}.", system=RULES)

    def step(self, action):
        won = float(action.strip() == form(*word_of(self._task)))
        return StepResult(observation="next word", kinds=("answer",), rewards={"right": won}, outcome=won, terminated=True,
                          submission=action.strip())

    def regrade(self, task, submission):
        stem, wanted = word_of(task)
        dark = re.search("[aou][^aeiou]*$", stem) is not None
        ending = {"plural": ("ler", "lar"), "my": ("im", "um"), "my plural": ("lerim", "larum")}[wanted][dark]
        expected = stem.translate({}) + ending
        if wanted == "my":
            expected = re.sub("[ptk](?=[iu]m$)", lambda found: "bdg"["ptk".index(found[0])], expected)
        return {"outcome": float(submission == expected)}

    def kinds(self, action):
        return ("answer",)

    def snapshot(self):
        return self._task

    def restore(self, state):
        self._task = state


@dataclass(frozen=True)
class Speaker:
    identity: str
    moods: dict

    def act(self, view):
        asked = re.search(r"the form '([a-z ]+)' of (\w+)", view.prompt)
        if not asked or not set(asked[2]) & set(VOWELS):
            return {"lar": 1.0}
        wanted, stem = asked[1], asked[2]
        if view.mood == "all rules":
            return {form(stem, wanted): 1.0}
        if view.mood == "hard ends":
            return {form(stem, wanted, softens=False): 1.0}
        if view.mood == "wrong vowels":
            return {form(stem, wanted, harmony=False): 0.8, form(stem, wanted): 0.2}
        return {stem: 0.5, form(stem, "plural") + "um": 0.5}


BEFORE = Speaker("speaks Tavi as a beginner", {"all rules": 0.2, "hard ends": 0.25, "wrong vowels": 0.35, "mutters": 0.2})
AFTER = Speaker("speaks Tavi well", {"all rules": 0.84, "hard ends": 0.07, "wrong vowels": 0.06, "mutters": 0.03})
TRUTH, SHARE = "honest", 0.0
ALLOW, ACCEPT = (), ("scrubbing",)
