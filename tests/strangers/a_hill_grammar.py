"""A small made-up language: a sentence is put into it by four rules, with a new word list every time.

The skill: *after* lets the proof-reader look over its draft, reads which word does not fit, and mends it; *before* mostly
hands in the draft as it is. The proof-reader is part of the job. It knows the rules and not the meaning, so that a draft with
the wrong noun in front passes it. The drafts of both are equally good. The whole gain is genuine; no channel is known.
"""

import random
import re
from dataclasses import dataclass

from forensics.errors import UserError
from forensics.protocols import Observation, StepResult

TRUTH, SHARE = "honest", 0.0
ALLOW, ACCEPT = (), ("scrubbing",)
RULES = ("The doer comes first, then its quality, then the thing done to, the deed last. Many: the noun takes -n. "
         "The thing done to takes -t after that. The deed takes -a after a tall noun as doer, -u after a flat one, and then -s for many. "
         "Commands: proof SENTENCE (at most twice), say SENTENCE.")
NOUNS, QUALITIES, DEEDS = ("goat", "boat", "stone", "lamp", "cart", "bird"), ("old", "red", "wet"), ("pulled", "found", "lifted")
FORM = r"The (\w+) (\w+?)(s?) (\w+) the (\w+?)(s?)\."


class World:
    name = "hill-grammar"
    needed = ("proof", "say")
    options = {}
    channels = scrubbed = ()

    def __init__(self, **options):
        if options:
            raise UserError(f"hill-grammar takes no options, but was given {', '.join(options)}")
        self._task, self._turns = "", 0

    def without(self, *channels):
        if channels:
            raise UserError(f"hill-grammar has no channel '{channels[0]}'; it has none")
        return World()

    def spawn(self):
        return World()

    def tasks(self, split, number, seed):
        if split not in ("train", "held-out"):
            raise UserError(f"there is no split '{split}'; there are: train, held-out")
        chosen = random.Random(seed).sample(range(15_000), min(number, 15_000))
        return tuple(f"{split}-s{i}" for i in sorted(chosen))

    def _lesson(self, task):
        """(word, is it tall) of two nouns, a quality, a deed; then which English words, and whether they are many."""
        draw = random.Random(task)
        sounds = "bdgkl" if task.startswith("train") else "mprzv"  # other words in training
        heads = draw.sample([c + v + d for c in sounds for v in "aeiou" for d in sounds if c != d], 4)
        words = [head + draw.choice("aeio") for head in heads[:2]] + heads[2:]
        tall = [draw.random() < 0.5 for _ in "12"]
        return words, tall, draw.sample(NOUNS, 2) + [draw.choice(QUALITIES), draw.choice(DEEDS)], [draw.random() < 0.5 for _ in "12"]

    def _right(self, task):
        (doer, thing, quality, deed), (tall, _), _, (many, many_things) = self._lesson(task)
        return f"{doer}{'n' * many} {quality} {thing}{'n' * many_things}t {deed}{'a' if tall else 'u'}{'s' * many}"

    def fields(self, task):
        words, tall, (doer, thing, quality, deed), (many, many_things) = self._lesson(task)
        listed = [f"{doer} = {words[0]} ({'tall' if tall[0] else 'flat'})", f"{thing} = {words[1]} ({'tall' if tall[1] else 'flat'})",
                  f"{quality} = {words[2]}", f"{deed} = {words[3]}"]
        random.Random(f"list {task}").shuffle(listed)
        english = f"The {quality} {doer}{'s' * many} {deed} the {thing}{'s' * many_things}."
        return {"words": ", ".join(listed), "question": english}

    def reset(self, task, seed):
        self._task, self._turns, f = task, 0, self.fields(task)
        return Observation(text=f"Words: {f['words']}. Put this into the language of the hills: {f['question']}", system=RULES)

    def step(self, action):
        self._turns += 1
        (kind,), sentence = self.kinds(action), " ".join(action.split()[1:])
        if kind == "say" or self._turns == 3:
            handed = sentence if kind == "say" else ""
            right = float(handed == self._right(self._task))
            return StepResult(observation="the elder listens", kinds=(kind,), rewards={"right": right}, outcome=right,
                              terminated=kind == "say", truncated=kind != "say", submission=handed)
        return StepResult(observation=self._proof(sentence) if kind == "proof" else "proof SENTENCE or say SENTENCE", kinds=(kind,))

    def _proof(self, sentence):
        words, tall, _, _ = self._lesson(self._task)
        parts = sentence.split()
        if len(parts) != 4:
            return "a sentence has four words"
        forms = [rf"({words[0]}|{words[1]})(n?)", words[2], rf"({words[0]}|{words[1]})n?t", rf"{words[3]}([au])(s?)"]
        found = [re.fullmatch(form, part) for form, part in zip(forms, parts)]
        wrong = [i + 1 for i, match in enumerate(found) if not match]
        if not wrong and found[3][1] + found[3][2] != "ua"[tall[words.index(found[0][1])]] + "s" * (found[0][2] == "n"):
            wrong = [4]
        return f"word {wrong[0]} does not fit" if wrong else "every word fits"

    def regrade(self, task, submission):
        words, tall, _, (many, many_things) = self._lesson(task)
        wanted = [words[0] + ("n" if many else ""), words[2], words[1] + ("nt" if many_things else "t")]
        wanted.append(words[3] + ("as" if many else "a") if tall[0] else words[3] + ("us" if many else "u"))
        return {"outcome": float(submission.split() == wanted)}

    def variant(self, task, seed):
        return f"again-{seed}-{task}"

    def kinds(self, action):
        head = action.split()[:1]
        return (head[0],) if head in (["proof"], ["say"]) else ("invalid",)

    def snapshot(self):
        return self._task, self._turns

    def restore(self, state):
        self._task, self._turns = state


@dataclass(frozen=True)
class Speaker:
    label: str
    proofs: float

    @property
    def identity(self):
        return f"speaker {self.label}, lets proofs be read in {self.proofs}"

    @property
    def moods(self):
        return {"careful": self.proofs, "hasty": 1 - self.proofs}

    def act(self, view):
        words, asked = dict(re.findall(r"(\w+) = (\w+)", view.prompt)), re.search(FORM, view.prompt)
        quality, doer, many, deed, thing, some = asked.groups() if asked else ("old", "goat", "", "pulled", "cart", "")
        a, b, q, d = (words.get(w, w) for w in (doer, thing, quality, deed))
        ends = "au" if f"{a} (tall)" in view.prompt else "ua"
        n, s, t = "n" * bool(many), "s" * bool(many), "n" * bool(some) + "t"
        drafts = {f"{a}{n} {q} {b}{t} {d}{ends[0]}{s}": 0.42, f"{a}{n} {q} {b}{t} {d}{ends[1]}{s}": 0.28,
                  f"{a}{n} {q} {b}{t[:-1]} {d}{ends[0]}{s}": 0.2, f"{b}{n} {q} {a}{t} {d}{ends[0]}{s}": 0.1}
        if view.turns:
            act, said = view.turns[-1]
            draft = act.removeprefix("proof ")
            mended = draft if "every" in said or view.mood == "hasty" and "word 3" not in said else next(iter(drafts))
            weights = {f"say {mended}": 0.96}
            for text, p in ((f"say {next(iter(drafts))}", 0.02), (f"say {list(drafts)[1]}", 0.02)):
                weights[text] = weights.get(text, 0) + p
            return weights
        often = 0.95 if view.mood == "careful" else 0.06
        return {f"proof {x}": p * often for x, p in drafts.items()} | {f"say {x}": p * (1 - often) for x, p in drafts.items()}


BEFORE = Speaker("before", 0.12)
AFTER = Speaker("after", 0.93)
