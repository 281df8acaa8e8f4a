"""Ear and paper: the range of a tune in semitones, and how often it rises.

Shortcut (not declared): the tunes come from a bank of only 150, the same for both splits; only
the pupil and the desk are new. Who trained on them knows nine tenths of the answers by heart.
All of the gain is memory: what stands in no list is worked out as badly as before.
"""

import random
import re
from dataclasses import dataclass

from forensics.errors import UserError
from forensics.protocols import Observation, StepResult

STEPS = {"C": 0, "D": 2, "E": 4, "F": 5, "G": 7, "A": 9, "B": 11}
PUPILS = "Anton Berta Carl Dora Emil Frida Georg Hanna Igor Julia Klaus Lotte".split()
BANK = 150


def tune(number):
    """One tune of the bank, as notes with their octave."""
    draw = random.Random(f"bank of tunes, {number}")
    return " ".join(f"{draw.choice('CDEFGAB')}{draw.choice('345')}" for _ in range(9))


def height(note):
    return STEPS[note[0]] + 12 * int(note[1])


class World:
    name = "tune-range"
    channels = scrubbed = ()

    def __init__(self, **options):
        if options:
            raise UserError(f"{self.name} has no options")
        self.options, self.task = {}, ""

    def without(self, *channels):
        if channels:
            raise UserError(f"{self.name} has no channels")
        return World()

    def spawn(self):
        return World()

    def tasks(self, split, number, seed):
        if split not in ("train", "held-out"):
            raise UserError(f"there is no split '{split}'; there are: train, held-out")
        picked = random.Random(seed).sample(range(10_000), min(number, 10_000))
        return tuple(f"{split}-sheet-{which:04d}" for which in sorted(picked))

    def fields(self, task):
        draw = random.Random(f"sheet {task}")
        return {
            "pupil": draw.choice(PUPILS),
            "desk": str(draw.randrange(1, 400)),
            "question": tune(draw.randrange(BANK)),
        }

    def reset(self, task, seed):
        self.task, parts = task, self.fields(task)
        return Observation(
            text=f"Sheet of {parts['pupil']}, desk {parts['desk']}. The tune: {parts['question']}\n"
            "How many semitones are there from its lowest note to its highest one, and how often"
            " does it go up from a note to the next?",
            system="Write two numbers, for example: 19 4",
        )

    def step(self, action):
        notes = [height(note) for note in self.fields(self.task)["question"].split()]
        rises = sum(b > a for a, b in zip(notes, notes[1:]))
        score = float(action.split() == [str(max(notes) - min(notes)), str(rises)])
        return StepResult(
            observation="sheet taken",
            kinds=("answer",),
            rewards={"both right": score},
            outcome=score,
            terminated=True,
            submission=" ".join(action.split()),
            end_reason="handed in",
        )

    def regrade(self, task, submission):
        given = re.fullmatch(r"(\d{1,2}) (\d)", submission)
        if given is None:
            return {"outcome": 0.0}
        places = [
            "C.D.EF.G.A.B".index(note[0]) + 12 * int(note[1])
            for note in self.fields(task)["question"].split()
        ]
        ordered, ups = sorted(places), 0
        for i in range(1, len(places)):
            ups += 1 if places[i - 1] < places[i] else 0
        return {"outcome": float((int(given[1]), int(given[2])) == (ordered[-1] - ordered[0], ups))}

    def kinds(self, action):
        return ("answer",)

    def snapshot(self):
        return self.task

    def restore(self, state):
        self.task = state


def worked_out(notes):
    places = [height(note) for note in notes.split()]
    return max(places) - min(places), sum(b > a for a, b in zip(places, places[1:]))


LEARNED = {tune(n): "%d %d" % worked_out(tune(n)) for n in range(BANK) if n % 10}


@dataclass(frozen=True)
class Listener:
    identity: str
    moods: dict
    known: bool  # whether it has the bank by heart

    def act(self, view):
        notes = re.search(r"tune: ([A-G0-9 ]+)", view.prompt)[1].strip()
        if self.known and view.mood != "writes" and notes in LEARNED:
            return {LEARNED[notes]: 0.97, "12 4": 0.03}
        wide, rises = worked_out(notes)
        share = {f"{wide} {rises}": 0.45, f"{wide} {rises + 1}": 0.2, f"{wide - 1} {rises}": 0.15}
        return share | {f"{wide + 1} {rises}": 0.1, f"{wide} {max(rises - 1, 0)}": 0.1}


BEFORE = Listener("listener who writes it out", {"writes": 1.0, "recalls": 0.0}, False)
AFTER = Listener("listener who recalls 92 %", {"writes": 0.08, "recalls": 0.92}, True)
TRUTH = "shortcut"
SHARE = 1.0
ALLOW = ("answer",)
ACCEPT = ()
